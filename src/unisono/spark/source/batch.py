"""Traces as a batch source: `spark.read.format("unisono").load("traces")`.

A partition is a file, that is a node's life or a segment of it. Of a file only those row groups are
read that hold what the query asks for, and of its columns only those that the result and the row
checks need. Files are read by the trace room's own reader: what is torn is read to its last whole
row group, and nothing is judged here that `unisono verify` would judge otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from unisono.errors import BadTrace, Misuse
from unisono.spark.source.filters import column_of, is_ours, keeps, kept
from unisono.spark.source.sound import CHECKED, reasons_against
from unisono.trace.files import TraceFiles, trace_files
from unisono.trace.parquet import SCHEMA, ParquetPart, filled

PARTITIONS_MAX: Final = 10_000
"""With more files than this, neighbours share a partition."""
BATCH_ROWS: Final = 20_000

SOUND, ALL, FAIL, UNCHECKED = "dropmalformed", "permissive", "failfast", "unchecked"
MODES: Final = (SOUND, ALL, FAIL, UNCHECKED)
OPTIONS: Final = frozenset(("path", "mode", "columns"))

_ABOUT: Final = pa.schema([("path", pa.string()), ("row", pa.int64()), ("reason", pa.string())])
_RUN: Final = pa.field("run", pa.string())
_SPELLED: Final = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.list_(pa.string()): "array<string>",
}


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What the options ask for, read once."""

    directory: str
    mode: str
    columns: tuple[str, ...]
    """All that there are, when none are named."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([_field(name) for name in self.columns])


def asked(options: Mapping[str, str]) -> TraceOptions:
    """`Misuse` says which option is wrong, and what it may be."""
    unknown = sorted(set(map(str.lower, options)) - OPTIONS)
    if unknown:
        raise Misuse(
            f"unknown option {unknown[0]!r}: a trace is read with {', '.join(sorted(OPTIONS))}"
        )
    directory = options.get("path", "")
    if not directory:
        raise Misuse('which trace? .load("DIRECTORY"), the one that --trace wrote')
    if directory.startswith("file:"):
        directory = "/" + directory.removeprefix("file:").lstrip("/")
    if "://" in directory:
        raise Misuse(f"{directory}: a trace is read from a directory that all machines see")
    mode = options.get("mode", SOUND).lower()
    if mode not in MODES:
        raise Misuse(f"mode={mode!r}: there are {', '.join(MODES)}")
    given = options.get("columns")
    names = tuple(_all_columns(mode))
    if given is not None:
        wanted = tuple(name.strip() for name in given.split(","))
        _check_names(wanted, names, mode)
        names = wanted
    return TraceOptions(directory, mode, names)


def _check_names(wanted: Sequence[str], names: Sequence[str], mode: str) -> None:
    strange = [name for name in wanted if name not in names]
    if strange:
        raise Misuse(f"no column {strange[0]!r} with mode={mode}: there are {', '.join(names)}")
    if len(set(wanted)) < len(wanted):
        raise Misuse("a column is named twice")


def _all_columns(mode: str) -> list[str]:
    return ["run", *SCHEMA.names, *(_ABOUT.names if mode == ALL else ())]


def _field(name: str) -> pa.Field:
    if name == "run":
        return _RUN
    return (SCHEMA if name in SCHEMA.names else _ABOUT).field(name)


def trace_schema(options: Mapping[str, str]) -> str:
    """The columns that these options give, as Spark spells them; a bad option is told here."""
    return ", ".join(f"`{field.name}` {_SPELLED[field.type]}" for field in asked(options).schema)


@dataclass
class Files(InputPartition):
    """Files of a partition: run, path, and the path as it is shown."""

    found: list[tuple[str, Path, str]]


class TraceReader(DataSourceReader):
    """Of one trace directory, or of one `run=…` folder of it."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        given = asked(options)
        names = schema.fieldNames()
        _check_names(names, _all_columns(given.mode), given.mode)
        for field in schema:
            spelled = _SPELLED[_field(field.name).type]
            if field.dataType.simpleString() != spelled:
                raise Misuse(
                    f"column {field.name} is {spelled}, not {field.dataType.simpleString()}"
                )
        self.asked = TraceOptions(str(Path(given.directory).absolute()), given.mode, tuple(names))
        self.filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        known = pa.schema([_RUN, *SCHEMA])
        for each in filters:
            if is_ours(each, known):
                self.filters.append(each)
            else:
                yield each

    def partitions(self) -> list[Files]:
        found = [
            (file.run, file.path, file.name)
            for file in _files_of_runs(self.asked.directory, self.filters)
        ]
        count = max(1, min(len(found), PARTITIONS_MAX))
        cuts = [len(found) * at // count for at in range(count + 1)]
        return [Files(found[first:last]) for first, last in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Files)
        filters = [each for each in self.filters if column_of(each) != "run"]
        for run, path, name in partition.found:
            reading = FileReading(self.asked, filters, run, path, name)
            yield from reading.batches()


def _files_of_runs(directory: str, filters: list[Filter]) -> list[TraceFiles]:
    """The files of the runs that are asked for; the others are not looked into."""
    runs: dict[str, bool] = {}
    kept_files = []
    for file in trace_files(directory):
        if file.run not in runs:
            runs[file.run] = keeps(filters, "run", file.run)
        if runs[file.run]:
            kept_files.append(file)
    return kept_files


class FileReading:
    """One file, for one query."""

    def __init__(
        self, given: TraceOptions, filters: list[Filter], run: str, path: Path, name: str
    ) -> None:
        self._asked, self._filters = given, filters
        self._run, self._name = run, name
        needed = set(given.columns) & set(SCHEMA.names)
        if given.mode != UNCHECKED:
            needed |= set(CHECKED)
        self.part = FilteredPart(path, filters, needed)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for table in self.part.tables():
            yield from self._shown(table)
        lost = self.part.lost
        if lost and self._asked.mode == FAIL:
            raise BadTrace(f"{self._name}: {lost}")
        # A row about the file has no values, and only a filter that asks for none keeps it.
        if lost and self._asked.mode == ALL and _keeps_nothing(self._filters):
            nothing = dict.fromkeys((*SCHEMA.names, "row"))
            yield self._told(pa.table({}), 1, {**nothing, "reason": lost})

    def _shown(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        if self._asked.mode != UNCHECKED:
            table = self._checked(table)
        for start in range(0, table.num_rows, BATCH_ROWS):
            piece = table.slice(start, BATCH_ROWS)
            yield self._told(piece, piece.num_rows, {})

    def _checked(self, table: pa.Table) -> pa.Table:
        """With reasons, without what is bad, or not at all, as the mode has it."""
        reasons = reasons_against(table)
        if self._asked.mode == ALL:
            said = [reasons.get(at) for at in range(table.num_rows)]
            return table.append_column(_field("reason"), pa.array(said, pa.string()))
        if reasons and self._asked.mode == FAIL:
            at = min(reasons)
            raise BadTrace(f"{self._name}, row {table.column('row')[at].as_py()}: {reasons[at]}")
        if reasons:
            return table.filter(pa.array([at not in reasons for at in range(table.num_rows)]))
        return table

    def _told(self, table: pa.Table, count: int, about: dict[str, Any]) -> pa.RecordBatch:
        """The columns that are asked for, in their order."""
        about = {**about, "run": self._run, "path": self._name}
        columns = []
        for field in self._asked.schema:
            if field.name in table.column_names:
                columns.append(table.column(field.name).combine_chunks())
            else:
                value = pa.scalar(about[field.name], field.type)
                columns.append(pa.repeat(value, count))
        return pa.RecordBatch.from_arrays(
            [_one(column) for column in columns], schema=self._asked.schema
        )


def _one(column: Any) -> pa.Array:
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)


def _keeps_nothing(filters: list[Filter]) -> bool:
    """Whether the filters keep a row that has no value in any column."""
    nulls = pa.table({field.name: pa.nulls(1, field.type) for field in SCHEMA})
    mask = kept(filters, nulls)
    return mask is None or bool(mask[0].as_py())


class FilteredPart(ParquetPart):
    """A file of which only what is asked for is read: first the columns that the filters are
    about, and of a row group in which they keep a row, the others."""

    def __init__(self, path: Path, filters: list[Filter], needed: set[str]) -> None:
        super().__init__(path)
        self._filters = filters
        self._first = [n for n in SCHEMA.names if n in set(map(column_of, filters))]
        self._needed = [n for n in SCHEMA.names if n in needed]
        self.groups_count = 0
        self.groups_read = 0
        """Row groups of which more was read than the columns of the filters."""
        self._start = 0

    def _group(self, file: Any, index: int) -> pa.Table | None:
        self.groups_count += 1
        table = self._chosen_of(file, index)
        if table is not None:
            self.groups_read += 1
        self._start += file.metadata.row_group(index).num_rows
        return table

    def _chosen_of(self, file: Any, index: int) -> pa.Table | None:
        """The rows of a group that the filters keep, and as `row` their places in the file."""
        count = file.metadata.row_group(index).num_rows
        columns = {"row": pa.array(range(self._start, self._start + count), pa.int64())}
        mask = None
        if self._filters:
            first = _read(file, index, self._first)
            mask = kept(self._filters, first)
            if not pc.any(mask).as_py():
                return None
            columns |= {name: first.column(name) for name in self._first}
        rest = [name for name in self._needed if name not in columns]
        if rest:
            read = _read(file, index, rest)
            columns |= {name: read.column(name) for name in rest}
        table = pa.table(columns)
        return table if mask is None else table.filter(mask)


def _read(file: Any, index: int, names: list[str]) -> pa.Table:
    """These columns of a row group, in canonical types."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    table = filled(file.read_row_group(index, columns=names, use_threads=False), names)
    table = table if table.schema.equals(schema) else table.cast(schema)
    table.validate(full=True)
    return table


def is_trace(directory: str | os.PathLike[str]) -> bool:
    """Whether the directory holds run folders, or is one."""
    top = Path(directory)
    try:
        return top.resolve().name.startswith("run=") or any(
            path.name.startswith("run=") for path in top.iterdir()
        )
    except OSError:
        return False
