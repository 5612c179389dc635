"""Tables with a folder a run, written and read in tasks by pyarrow.

A hundred thousand runs are a hundred thousand small files in each table: what Spark's own writer
and reader spend on each would be most of the time. The files are plain Parquet all the same, in the
layout that Spark calls partitioned by `run`; anything reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from unisono.spark.layout import NO_RUN, TABLES, ResultLayout, folders_in, run_folder, run_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_GROUP: Final = 100_000
"""Rows of a run that are held before they are written."""
FOLDERS_PER_TASK: Final = 2_000
"""So many are read by one task; no more than that are read by the driver itself."""


class PartitionedWriter:
    """Writes rows that come in the order of their runs, a file a run."""

    def __init__(self, top: Path, name: str) -> None:
        self._top = top
        self._name = name
        self._run: str | None = None
        self._held: list[pa.Table] = []
        self._count = 0
        self._writer: pq.ParquetWriter | None = None
        self._place = Path()
        self.runs = 0

    def put(self, rows: pa.Table) -> None:
        """Rows with a column `run`; those of a run stand together."""
        ends = pc.run_end_encode(rows.column("run").combine_chunks())
        start, bare = 0, _loose(rows.drop_columns(["run"]))
        for end, run in zip(ends.run_ends.to_pylist(), ends.values.to_pylist(), strict=True):
            self._turn_to(run_folder(run) if run is not None else NO_RUN)
            self._hold(bare.slice(start, end - start))
            start = end

    def _turn_to(self, folder: str) -> None:
        if folder != self._run:
            self.close()
            self._run = folder
            self.runs += 1

    def _hold(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._count += rows.num_rows
        if self._count >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        table = pa.concat_tables(self._held)
        if self._writer is None:
            assert self._run is not None
            self._place = self._top / self._run / f"{self._name}.parquet"
            self._place.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _writer(self._beside, table.schema)
        self._writer.write_table(table)
        self._held, self._count = [], 0

    @property
    def _beside(self) -> Path:
        """A file that is not whole has a name that nobody reads: a task may be tried again."""
        return self._place.with_name(f".{self._place.name}.{os.getpid()}")

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._beside.replace(self._place)
            self._writer = None


def _loose(rows: pa.Table) -> pa.Table:
    """Any column may be null, and what is within one: whether it ever is depends on how it was
    computed, and so would the schemas of tables that are to be put together."""
    return rows.cast(_loose_schema(rows.schema))


def _loose_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_loose_field(field) for field in schema])


def _loose_field(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_loose_field(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_loose_field(part) for part in kind])
    return pa.field(field.name, kind, nullable=True)


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, compression="zstd", store_schema=False)


def stage(places: ResultLayout, table: str, rows: DataFrame, order: Sequence[str]) -> None:
    """Write a table of the batch, each run's rows in this order, in tasks."""
    top = places.staged(table)
    stage_empty(places, table, to_arrow_schema(rows.schema))
    sorting = ["run", *order]
    # By ranges: a small run is in one file, a giant one in many.
    ranged = rows.repartitionByRange(*sorting).sortWithinPartitions(*sorting)
    ranged.mapInArrow(_shelving(str(top)), "runs bigint").groupBy().sum("runs").collect()


def stage_little(places: ResultLayout, table: str, rows: pa.Table, order: Sequence[str]) -> None:
    """The same of rows that are in the driver's memory."""
    stage_empty(places, table, rows.schema)
    shelf = PartitionedWriter(places.staged(table), "part")
    shelf.put(rows.sort_by([(name, "ascending") for name in ("run", *order)]))
    shelf.close()


def stage_whole(
    places: ResultLayout, table: str, rows: DataFrame, order: Sequence[str]
) -> pa.Table:
    """Write what is about many runs together, which is little; in a table of runs, as the rows
    without one. Gives back what was written."""
    folder = places.staged(table) / (NO_RUN if table in TABLES else "")
    folder.mkdir(parents=True, exist_ok=True)
    told = _loose(rows.orderBy(*order).toArrow())
    with _writer(folder / "part.parquet", told.schema) as writer:
        writer.write_table(told)
    return told


def stage_empty(places: ResultLayout, table: str, schema: pa.Schema) -> None:
    """A file without rows, which tells the columns where no run does."""
    bare = pa.schema([field for field in schema if field.name != "run"]).empty_table()
    folder = places.staged(table) / NO_RUN
    folder.mkdir(parents=True, exist_ok=True)
    _writer(folder / "empty.parquet", _loose(bare).schema).close()


def _shelving(top: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        shelf = PartitionedWriter(Path(top), f"part-{context.partitionId() if context else 0:05}")
        for batch in batches:
            if batch.num_rows:
                shelf.put(pa.Table.from_batches([batch]))
        shelf.close()
        yield pa.record_batch({"runs": pa.array([shelf.runs], pa.int64())})

    return write


# -- reading ---------------------------------------------------------------------------------------


def rows_in(folders: Iterable[Path]) -> Iterator[pa.Table]:
    """The rows of these folders of runs, with the run as the first column."""
    for folder in folders:
        for path in sorted(folder.glob("[!.]*.parquet")):
            rows = _loose(pq.ParquetFile(path).read(use_threads=False))
            run = pa.repeat(pa.scalar(run_of(folder.name)), rows.num_rows)
            yield rows.add_column(0, "run", run)


def schema_in(out: Path, table: str) -> pa.Schema | None:
    """The columns of a table, the run first; None where there is no table."""
    path = next((out / table / NO_RUN).glob("[!.]*.parquet"), None)
    if path is None:
        return None
    return _loose_schema(pq.read_schema(path)).insert(0, pa.field("run", pa.string()))


def read_table(
    session: SparkSession, out: Path, table: str, runs: Sequence[str] | None = None
) -> pa.Table:
    """A table of small rows, in the driver's memory: of some runs, or of all."""
    folders = _folders(out, table, runs)
    schema = schema_in(out, table)
    if schema is None:
        return pa.table({"run": pa.array([], pa.string())})
    if len(folders) <= FOLDERS_PER_TASK:
        return pa.concat_tables([schema.empty_table(), *rows_in(folders)])
    return frame_in(session, out, table, runs).toArrow()


def frame_in(
    session: SparkSession, out: Path, table: str, runs: Sequence[str] | None = None
) -> DataFrame:
    """A table as a DataFrame that tasks read: of some runs, or of all."""
    folders = _folders(out, table, runs)
    schema = schema_in(out, table)
    assert schema is not None, "each table is made with the first run"
    ddl = from_arrow_schema(schema)
    if len(folders) <= FOLDERS_PER_TASK:
        rows = pa.concat_tables([schema.empty_table(), *rows_in(folders)])
        return session.createDataFrame(rows, ddl).coalesce(1)
    tasks = max(1, len(folders) // FOLDERS_PER_TASK)
    named = session.createDataFrame([(str(folder),) for folder in folders], "folder string")
    return named.repartition(tasks).mapInArrow(_reading(schema), ddl)


def _folders(out: Path, table: str, runs: Sequence[str] | None) -> list[Path]:
    if runs is None:
        return folders_in(out, table)
    named = [out / table / run_folder(run) for run in runs]
    return [folder for folder in named if folder.is_dir()]


def _reading(schema: pa.Schema) -> Any:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            folders = map(Path, batch.column("folder").to_pylist())
            for rows in rows_in(folders):
                yield from rows.cast(schema).to_batches()

    return read
