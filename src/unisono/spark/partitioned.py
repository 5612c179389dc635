"""Tables partitioned by run, written and read in tasks by pyarrow.

With a hundred thousand runs each table has as many small files, and most of the time would be the
overhead of Spark's writer and reader. The files are plain Parquet in Spark's layout of a table that
is partitioned by `run`.
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
"""Rows of a run that are buffered."""
FOLDERS_PER_TASK: Final = 2_000
"""The driver itself reads up to as many."""


class PartitionedWriter:
    """Writes rows that are sorted by run, one file per run."""

    def __init__(self, top: Path, name: str) -> None:
        self._top = top
        self._name = name
        self._run: str | None = None
        self._buffer: list[pa.Table] = []
        self._count = 0
        self._writer: pq.ParquetWriter | None = None
        self._path = Path()
        self.runs = 0

    def put(self, rows: pa.Table) -> None:
        """Rows with a column `run`, sorted by it."""
        ends = pc.run_end_encode(rows.column("run").combine_chunks())
        start, rest = 0, _nullable(rows.drop_columns(["run"]))
        for end, run in zip(ends.run_ends.to_pylist(), ends.values.to_pylist(), strict=True):
            self._start_run(run_folder(run) if run is not None else NO_RUN)
            self._add(rest.slice(start, end - start))
            start = end

    def _start_run(self, folder: str) -> None:
        if folder != self._run:
            self.close()
            self._run = folder
            self.runs += 1

    def _add(self, rows: pa.Table) -> None:
        self._buffer.append(rows)
        self._count += rows.num_rows
        if self._count >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._buffer:
            return
        table = pa.concat_tables(self._buffer)
        if self._writer is None:
            assert self._run is not None
            self._path = self._top / self._run / f"{self._name}.parquet"
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _writer(self._draft, table.schema)
        self._writer.write_table(table)
        self._buffer, self._count = [], 0

    @property
    def _draft(self) -> Path:
        """A hidden name until the file is complete: the task may be retried."""
        return self._path.with_name(f".{self._path.name}.{os.getpid()}")

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._draft.replace(self._path)
            self._writer = None


def _nullable(rows: pa.Table) -> pa.Table:
    """All columns and nested fields nullable: otherwise schemas would depend on how a table was
    computed, and could not be combined."""
    return rows.cast(_nullable_schema(rows.schema))


def _nullable_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_nullable_field(field) for field in schema])


def _nullable_field(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_nullable_field(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_nullable_field(part) for part in kind])
    return pa.field(field.name, kind, nullable=True)


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, compression="zstd", store_schema=False)


def stage(layout: ResultLayout, table: str, rows: DataFrame, order: Sequence[str]) -> None:
    """Write a table of the batch in tasks, sorted by run and these columns."""
    top = layout.staged(table)
    stage_empty(layout, table, to_arrow_schema(rows.schema))
    sorting = ["run", *order]
    # By ranges: a small run is one file, a giant one many.
    ranged = rows.repartitionByRange(*sorting).sortWithinPartitions(*sorting)
    ranged.mapInArrow(_writing(str(top)), "runs bigint").groupBy().sum("runs").collect()


def stage_table(layout: ResultLayout, table: str, rows: pa.Table, order: Sequence[str]) -> None:
    """The same for rows in the driver's memory."""
    stage_empty(layout, table, rows.schema)
    writer = PartitionedWriter(layout.staged(table), "part")
    writer.put(rows.sort_by([(name, "ascending") for name in ("run", *order)]))
    writer.close()


def stage_joint(
    layout: ResultLayout, table: str, rows: DataFrame, order: Sequence[str]
) -> pa.Table:
    """Write and return a small table about many runs; in a table of runs, as rows without a run."""
    folder = layout.staged(table) / (NO_RUN if table in TABLES else "")
    folder.mkdir(parents=True, exist_ok=True)
    joint = _nullable(rows.orderBy(*order).toArrow())
    with _writer(folder / "part.parquet", joint.schema) as writer:
        writer.write_table(joint)
    return joint


def stage_empty(layout: ResultLayout, table: str, schema: pa.Schema) -> None:
    """A file without rows, for the schema."""
    bare = pa.schema([field for field in schema if field.name != "run"]).empty_table()
    folder = layout.staged(table) / NO_RUN
    folder.mkdir(parents=True, exist_ok=True)
    _writer(folder / "empty.parquet", _nullable(bare).schema).close()


def _writing(top: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        writer = PartitionedWriter(Path(top), f"part-{context.partitionId() if context else 0:05}")
        for batch in batches:
            if batch.num_rows:
                writer.put(pa.Table.from_batches([batch]))
        writer.close()
        yield pa.record_batch({"runs": pa.array([writer.runs], pa.int64())})

    return write


# -- reading ---------------------------------------------------------------------------------------


def rows_in(folders: Iterable[Path]) -> Iterator[pa.Table]:
    """The rows of these folders of runs, with the run as the first column."""
    for folder in folders:
        for path in sorted(folder.glob("[!.]*.parquet")):
            rows = _nullable(pq.ParquetFile(path).read(use_threads=False))
            run = pa.repeat(pa.scalar(run_of(folder.name)), rows.num_rows)
            yield rows.add_column(0, "run", run)


def schema_in(out: Path, table: str) -> pa.Schema | None:
    """The columns of a table, the run first; None without a table."""
    path = next((out / table / NO_RUN).glob("[!.]*.parquet"), None)
    if path is None:
        return None
    return _nullable_schema(pq.read_schema(path)).insert(0, pa.field("run", pa.string()))


def read_table(
    session: SparkSession, out: Path, table: str, runs: Sequence[str] | None = None
) -> pa.Table:
    """A small table of some runs, or of all, in the driver's memory."""
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
    """A table of some runs, or of all, as a DataFrame that tasks read."""
    folders = _folders(out, table, runs)
    schema = schema_in(out, table)
    assert schema is not None, "tables are created with the first run"
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
