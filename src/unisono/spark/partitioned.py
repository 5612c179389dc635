"""Tables partitioned by day and protocol, written in tasks and read by pyarrow.

A task writes a file per table and partition, which holds all its runs: a hundred thousand small
runs are some hundred files, not millions. The files are plain Parquet in Spark's layout of a
partitioned table; the protocol is a folder where a table has one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unisono.spark.layout import (
    ALL,
    JOINT,
    NO_DAY,
    RUNS,
    files_in,
    partition_of,
    protocol_of,
)
from unisono.spark.schemas import SCHEMAS, with_run

ROWS_PER_GROUP: Final = 100_000
"""Rows of a file that are buffered."""
PENDING_MAX: Final = 4
"""Row groups that wait to be written."""


class RunWriter:
    """Writes the tables of runs, one after the other, into files of one name. Large ones are
    written by a second thread."""

    def __init__(self, top: str, name: str) -> None:
        self._top = Path(top)
        self._name = name
        self._run, self._day = "", NO_DAY
        self._buffers: dict[Path, list[pa.Table]] = {}
        self._counts: dict[Path, int] = {}
        self._writers: dict[Path, pq.ParquetWriter] = {}
        self._pool = ThreadPoolExecutor(1)
        self._pending: deque[Future[None]] = deque()

    def begin(self, run: str, day: date) -> None:
        """What is written from now on is of this run, which was recorded on this day."""
        self._run, self._day = run, day

    def write(self, table: str, schema: pa.Schema, rows: pa.Table) -> None:
        """The columns of the schema; strings may be dictionaries."""
        if not rows.num_rows:
            return
        if "protocol" not in schema.names:
            self._add(table, None, schema, rows)
            return
        protocols = rows.column("protocol")
        named = pc.unique(protocols).to_pylist()
        for protocol in named:
            mine = rows if len(named) == 1 else rows.filter(pc.equal(protocols, protocol))
            self._add(table, protocol or "", without_protocol(schema), mine)

    def _add(self, table: str, protocol: str | None, schema: pa.Schema, rows: pa.Table) -> None:
        rows = rows.select(schema.names)
        kinds = [
            kind if pa.types.is_dictionary(kind) else field.type
            for kind, field in zip(rows.schema.types, schema, strict=True)
        ]
        rows = rows.cast(pa.schema(zip(schema.names, kinds, strict=True)))
        run = pa.DictionaryArray.from_arrays(
            pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows), pa.array([self._run], pa.string())
        )
        path = self._top / table / partition_of(self._day, protocol) / f"{self._name}.parquet"
        self._buffers.setdefault(path, []).append(rows.add_column(0, "run", run))
        self._counts[path] = self._counts.get(path, 0) + rows.num_rows
        if self._counts[path] >= ROWS_PER_GROUP:
            # While the next rows are read.
            self._pending.append(self._pool.submit(self._flush, path, self._taken(path)))
            if len(self._pending) > PENDING_MAX:
                self._pending.popleft().result()

    def write_rows(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        schema = SCHEMAS[table]
        self.write(table, schema, pa.Table.from_pylist(list(rows), schema))

    def _taken(self, path: Path) -> list[pa.Table]:
        self._counts[path] = 0
        return self._buffers.pop(path, [])

    def _flush(self, path: Path, parts: list[pa.Table]) -> None:
        rows = pa.concat_tables(parts).unify_dictionaries()
        if path not in self._writers:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writers[path] = writer_to(_draft(path), rows.schema)
        self._writers[path].write_table(rows)

    def close(self) -> None:
        self._pool.shutdown()
        for pending in self._pending:
            pending.result()
        for path in list(self._buffers):
            self._flush(path, self._taken(path))
        for path, writer in self._writers.items():
            writer.close()
            _draft(path).replace(path)
        self._writers = {}


def _draft(path: Path) -> Path:
    """A hidden name until the file is complete: the task may be retried."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def writer_to(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, compression="zstd", store_schema=False)


def without_protocol(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != "protocol"])


# -- reading ---------------------------------------------------------------------------------------


def is_keyed(table: str) -> bool:
    """Whether it is partitioned by protocol."""
    return "protocol" in SCHEMAS[table].names and table not in JOINT


def rows_in(path: Path, table: str) -> pa.Table:
    """The rows of one file, with the run as the first column."""
    return with_protocol(pq.ParquetFile(path).read(use_threads=False), path, table)


def with_protocol(rows: pa.Table, path: Path, table: str) -> pa.Table:
    """Rows of a file, with the column that is its folder, in the table's own types."""
    if is_keyed(table):
        protocol = pa.repeat(pa.scalar(protocol_of(path)), rows.num_rows)
        at = 1 + SCHEMAS[table].get_field_index("protocol")
        rows = rows.add_column(at, "protocol", protocol)
    return rows.cast(with_run(table))


def tables_in(out: Path, table: str, runs: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows of some runs, or of all, file by file."""
    wanted = None if runs is None else pa.array(sorted(runs), pa.string())
    parts = None if runs is None else set(runs_table(out, runs).column("part").to_pylist())
    for path in files_in(out, table):
        if path.stem != ALL and (parts is None or path.stem in parts):
            rows = rows_in(path, table)
            yield rows if wanted is None else rows.filter(pc.is_in(rows.column("run"), wanted))


def read_table(
    out: Path,
    table: str,
    runs: Sequence[str] | None = None,
    reduced: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> pa.Table:
    """A small table of some runs, or of all, in memory: `reduced` is done to each file, and then to
    what they all gave."""
    empty = with_run(table).empty_table()
    return reduced(pa.concat_tables([reduced(empty), *map(reduced, tables_in(out, table, runs))]))


def runs_table(out: Path, runs: Sequence[str] | None = None) -> pa.Table:
    """`gold/runs`, which is one file."""
    path = out / RUNS / f"{ALL}.parquet"
    rows = pq.ParquetFile(path).read() if path.exists() else SCHEMAS[RUNS].empty_table()
    rows = rows.cast(SCHEMAS[RUNS])
    if runs is None:
        return rows
    return rows.filter(pc.is_in(rows.column("run"), pa.array(sorted(runs), pa.string())))
