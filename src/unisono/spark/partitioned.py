"""Tables partitioned by run, written and read in tasks by pyarrow.

With a hundred thousand runs each table has as many small files, and most of the time would be the
overhead of Spark's writer and reader. The files are plain Parquet in Spark's layout of a table that
is partitioned by `run`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from unisono.spark.layout import NO_RUN, TABLES, ResultLayout, folders_in, run_folder, run_of
from unisono.spark.schemas import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_GROUP: Final = 100_000
"""Rows of a run that are buffered."""
PENDING_MAX: Final = 4
"""Row groups that wait to be written."""
FOLDERS_PER_TASK: Final = 2_000
"""The driver itself reads up to as many."""


class RunWriter:
    """Writes the tables of one run as files of this name. Large ones are written by a second
    thread."""

    def __init__(self, top: str, run: str, name: str) -> None:
        self._top = Path(top)
        self._folder = run_folder(run)
        self._name = name
        self._buffers: dict[str, list[pa.Table]] = {}
        self._counts: dict[str, int] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._pool = ThreadPoolExecutor(1)
        self._pending: deque[Future[None]] = deque()

    def write(self, table: str, schema: pa.Schema, rows: pa.Table) -> None:
        """The columns of the schema; strings may be dictionaries."""
        if not rows.num_rows:
            return
        rows = rows.select(schema.names)
        kinds = [
            kind if pa.types.is_dictionary(kind) else field.type
            for kind, field in zip(rows.schema.types, schema, strict=True)
        ]
        rows = rows.cast(pa.schema(zip(schema.names, kinds, strict=True)))
        self._buffers.setdefault(table, []).append(rows)
        self._counts[table] = self._counts.get(table, 0) + rows.num_rows
        if self._counts[table] >= ROWS_PER_GROUP:
            # While the next rows are read.
            self._pending.append(self._pool.submit(self._flush, table, self._taken(table)))
            if len(self._pending) > PENDING_MAX:
                self._pending.popleft().result()

    def write_rows(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        schema = SCHEMAS[table]
        self.write(table, schema, pa.Table.from_pylist(list(rows), schema))

    def _taken(self, table: str) -> list[pa.Table]:
        self._counts[table] = 0
        return self._buffers.pop(table, [])

    def _flush(self, table: str, parts: list[pa.Table]) -> None:
        rows = pa.concat_tables(parts).unify_dictionaries()
        if table not in self._writers:
            self._draft(table).parent.mkdir(parents=True, exist_ok=True)
            self._writers[table] = _writer(self._draft(table), rows.schema)
        self._writers[table].write_table(rows)

    def _path(self, table: str) -> Path:
        return self._top / table / self._folder / f"{self._name}.parquet"

    def _draft(self, table: str) -> Path:
        """A hidden name until the file is complete: the task may be retried."""
        path = self._path(table)
        return path.with_name(f".{path.name}.{os.getpid()}")

    def close(self) -> None:
        self._pool.shutdown()
        for pending in self._pending:
            pending.result()
        for table in list(self._buffers):
            self._flush(table, self._taken(table))
        for table, writer in self._writers.items():
            writer.close()
            self._draft(table).replace(self._path(table))
        self._writers = {}


def _nullable(rows: pa.Table) -> pa.Table:
    """All columns and nested fields nullable: otherwise schemas would depend on how a table was
    computed, and could not be combined."""
    return rows.cast(nullable(rows.schema))


def nullable(schema: pa.Schema) -> pa.Schema:
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


def stage_joint(layout: ResultLayout, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a small table about many runs; in a table of runs, as rows without a run."""
    folder = layout.staged(table) / (NO_RUN if table in TABLES else "")
    folder.mkdir(parents=True, exist_ok=True)
    with _writer(folder / "part.parquet", SCHEMAS[table]) as writer:
        writer.write_table(pa.Table.from_pylist(list(rows), SCHEMAS[table]))


def stage_empty(layout: ResultLayout, tables: Iterable[str]) -> None:
    """Files without rows, for the schemas."""
    for table in tables:
        folder = layout.staged(table) / NO_RUN
        folder.mkdir(parents=True, exist_ok=True)
        _writer(folder / "empty.parquet", SCHEMAS[table]).close()


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
    return nullable(pq.read_schema(path)).insert(0, pa.field("run", pa.string()))


def read_table(
    session: SparkSession,
    out: Path,
    table: str,
    runs: Sequence[str] | None = None,
    reduced: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> pa.Table:
    """A small table of some runs, or of all, in the driver's memory. Many runs are read by tasks:
    `reduced` is done to what each reads, and then to what they all gave."""
    folders = _folders(out, table, runs)
    schema = schema_in(out, table)
    if schema is None:
        return pa.table({"run": pa.array([], pa.string())})

    def read(some: Iterable[Path]) -> pa.Table:
        return reduced(pa.concat_tables([schema.empty_table(), *rows_in(some)]))

    if len(folders) <= FOLDERS_PER_TASK:
        return read(folders)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from read(map(Path, batch.column("folder").to_pylist())).to_batches()

    kind = from_arrow_schema(read(()).schema)
    named = session.createDataFrame([(str(folder),) for folder in folders], "folder string")
    tasks = max(1, len(folders) // FOLDERS_PER_TASK)
    return reduced(named.repartition(tasks).mapInArrow(work, kind).toArrow())


def _folders(out: Path, table: str, runs: Sequence[str] | None) -> list[Path]:
    if runs is None:
        return folders_in(out, table)
    named = [out / table / run_folder(run) for run in runs]
    return [folder for folder in named if folder.is_dir()]
