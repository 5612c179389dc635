"""Traces as a batch source: `spark.read.format("unisono").load("traces")`.

A partition is a file. Only row groups with rows that pass the pushed filters are read, and only the
columns that the result and the row checks need. The reader is that of `unisono.trace`: a torn file
is read up to its last whole row group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from unisono.errors import BadTrace, Misuse
from unisono.spark.source.filters import column_of, is_supported, mask_of_all, matches
from unisono.spark.source.options import PARTITIONS_MAX, check_names, columns_of, directory_of
from unisono.trace.files import trace_files
from unisono.trace.parquet import SCHEMA, ParquetPart
from unisono.trace.row_groups import CHECKED, reasons_against

BATCH_ROWS: Final = 20_000

SOUND, ALL, FAIL, UNCHECKED = "dropmalformed", "permissive", "failfast", "unchecked"
MODES: Final = (SOUND, ALL, FAIL, UNCHECKED)
OPTIONS: Final = ("path", "mode", "columns")

_RUN: Final = pa.field("run", pa.string())
_FILTERED: Final = pa.schema([_RUN, *SCHEMA])
_ALL: Final = pa.schema(
    [*_FILTERED, ("path", pa.string()), ("row", pa.int64()), ("reason", pa.string())]
)


@dataclass(frozen=True, slots=True)
class TraceOptions:
    directory: str
    mode: str
    columns: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([_ALL.field(name) for name in self.columns])


def trace_options(options: Mapping[str, str]) -> TraceOptions:
    """`Misuse` names the wrong option and its values."""
    check_names(options, OPTIONS, "a trace is read with")
    if not options.get("path"):
        raise Misuse('no trace: give .load("DIRECTORY"), the one that --trace wrote')
    directory = directory_of(options["path"], "trace")
    mode = options.get("mode", SOUND).lower()
    if mode not in MODES:
        raise Misuse(f"mode={mode!r}: there are {', '.join(MODES)}")
    names, text = _columns(mode), options.get("columns")
    return TraceOptions(directory, mode, names if text is None else columns_of(text, names))


def _columns(mode: str) -> tuple[str, ...]:
    return tuple((_ALL if mode == ALL else _FILTERED).names)


def trace_schema(options: Mapping[str, str]) -> StructType:
    return from_arrow_schema(trace_options(options).schema)


@dataclass
class FilesPartition(InputPartition):
    files: list[tuple[str, Path, str]]
    """Run, path, and the path as it is shown."""


class TraceReader(DataSourceReader):
    """Of one trace directory, or of one `run=…` folder of it."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        given = trace_options(options)
        names = columns_of(",".join(schema.fieldNames()), _columns(given.mode))
        self.options = replace(given, columns=names)
        for field, expected in zip(schema, from_arrow_schema(self.options.schema), strict=True):
            kind, wanted = field.dataType.simpleString(), expected.dataType.simpleString()
            if kind != wanted:
                raise Misuse(f"column {field.name} is {wanted}, not {kind}")
        self.filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            if is_supported(each, _FILTERED):
                self.filters.append(each)
            else:
                yield each

    def partitions(self) -> list[FilesPartition]:
        wanted: dict[str, bool] = {}
        files = []
        for file in trace_files(self.options.directory):
            if file.run not in wanted:
                wanted[file.run] = matches(self.filters, "run", file.run)
            if wanted[file.run]:
                files.append((file.run, file.path, file.name))
        # With too many files, neighbours share a partition.
        count = max(1, min(len(files), PARTITIONS_MAX))
        cuts = [len(files) * at // count for at in range(count + 1)]
        return [FilesPartition(files[first:last]) for first, last in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilesPartition)
        filters = [each for each in self.filters if column_of(each) != "run"]
        for run, path, name in partition.files:
            yield from FileReader(self.options, filters, run, path, name).batches()


class FileReader:
    """One file, for one query."""

    def __init__(
        self, options: TraceOptions, filters: list[Filter], run: str, path: Path, name: str
    ) -> None:
        self._options, self._filters = options, filters
        self._run, self._name = run, name
        needed = set(options.columns)
        if options.mode != UNCHECKED:
            needed |= set(CHECKED)
        self.part = FilteredPart(path, filters, needed)

    def batches(self) -> Iterator[pa.RecordBatch]:
        mode = self._options.mode
        for table in self.part.tables():
            checked = table if mode == UNCHECKED else self._checked(table)
            for start in range(0, checked.num_rows, BATCH_ROWS):
                yield self._batch(checked.slice(start, BATCH_ROWS))
        lost = self.part.lost
        if lost and mode == FAIL:
            raise BadTrace(f"{self._name}: {lost}")
        # A row about the file has nulls only; it is subject to the filters like any other.
        if lost and mode == ALL:
            nulls = pa.table({field.name: pa.nulls(1, field.type) for field in _ALL})
            mask = mask_of_all(self._filters, nulls)
            if mask is None or mask[0].as_py():
                reason = pa.array([lost])
                at = nulls.column_names.index("reason")
                yield self._batch(nulls.set_column(at, "reason", reason))

    def _checked(self, table: pa.Table) -> pa.Table:
        reasons, mode = reasons_against(table), self._options.mode
        if mode == ALL:
            column = [reasons.get(at) for at in range(table.num_rows)]
            return table.append_column("reason", pa.array(column, pa.string()))
        if reasons and mode == FAIL:
            at = min(reasons)
            raise BadTrace(f"{self._name}, row {table.column('row')[at].as_py()}: {reasons[at]}")
        if reasons:
            return table.filter(pa.array([at not in reasons for at in range(table.num_rows)]))
        return table

    def _batch(self, table: pa.Table) -> pa.RecordBatch:
        constant = {"run": self._run, "path": self._name}
        columns = [
            pa.repeat(pa.scalar(constant[field.name], field.type), table.num_rows)
            if field.name in constant
            else pa.concat_arrays(table.column(field.name).chunks)
            for field in self._options.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._options.schema)


class FilteredPart(ParquetPart):
    """A file of which the columns of the filters are read first, and the others only of row groups
    in which a row passes."""

    def __init__(self, path: Path, filters: list[Filter], needed: set[str]) -> None:
        super().__init__(path)
        self._filters = filters
        self._first = [n for n in SCHEMA.names if n in set(map(column_of, filters))]
        self._rest = [n for n in SCHEMA.names if n in needed and n not in self._first]
        self.groups_count = 0
        self.groups_read = 0
        """Row groups of which more was read than the columns of the filters."""
        self._start = 0

    def _group(self, file: Any, index: int) -> pa.Table | None:
        """The rows that pass the filters, and as `row` their number in the file."""
        count = file.metadata.row_group(index).num_rows
        columns = {"row": pa.array(range(self._start, self._start + count), pa.int64())}
        self._start += count
        self.groups_count += 1
        mask = None
        if self._filters:
            columns |= _read(file, index, self._first)
            mask = mask_of_all(self._filters, pa.table(columns))
            if not pc.any(mask).as_py():
                return None
        if self._rest:
            columns |= _read(file, index, self._rest)
        self.groups_read += 1
        table = pa.table(columns)
        return table if mask is None else table.filter(mask)


def _read(file: Any, index: int, names: list[str]) -> dict[str, Any]:
    """These columns of a row group, in canonical types."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    table = file.read_row_group(index, columns=names, use_threads=False).select(names)
    table = table if table.schema.equals(schema) else table.cast(schema)
    table.validate(full=True)
    return dict(zip(names, table.columns, strict=True))
