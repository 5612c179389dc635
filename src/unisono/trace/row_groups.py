"""A trace file as numpy columns, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unisono.trace.checks import level_of
from unisono.trace.columns import (
    CONTROL_KINDS,
    KIND,
    SEND,
    Array,
    Codes,
    CodeTable,
    EventColumns,
)
from unisono.trace.parquet import LISTS, SCHEMA, ParquetPart, _canonical
from unisono.trace.record import PROBE, Row
from unisono.trace.row_checks import failures

STRINGS: Final = tuple(field.name for field in SCHEMA if field.type == pa.string())
"""Columns that are read as dictionaries."""
CHECKED: Final = tuple(
    name
    for name in SCHEMA.names
    if name not in ("seq", "peer", "detail", "joined", "left", "stayed", "changes")
)
"""The columns that the row checks read."""
WHOLE_FILE_ROWS_MAX: Final = 20_000
"""The row groups of a smaller file are processed as one."""

_SCHEMA: Final = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string())) if field.name in STRINGS else field
        for field in SCHEMA
    ]
)
IS_CONTROL: Final = np.array([*(name in CONTROL_KINDS for name in KIND), False])
"""By kind; the last entry is for no kind."""


class DictionaryPart(ParquetPart):
    """A trace file whose string columns are read as dictionaries."""

    dictionaries = STRINGS

    def __init__(self, path: Path, whole: bool = False) -> None:
        """`whole`: the row groups of a small file make one table, if all can be read."""
        super().__init__(path)
        self._whole = whole

    def _misfit(self, schema: pa.Schema) -> str | None:
        return None if schema.equals(_SCHEMA) else super()._misfit(schema)

    def _groups(self, file: pq.ParquetFile) -> Iterator[pa.Table]:
        table, count = None, file.num_row_groups
        if self._whole and count > 1 and file.metadata.num_rows <= WHOLE_FILE_ROWS_MAX:
            # If one row group cannot be read, those before it still can.
            with suppress(Exception):
                groups = list(range(count))
                read = file.read_row_groups(groups, columns=SCHEMA.names, use_threads=False)
                table = _encoded(read.combine_chunks())
        if table is None:
            yield from super()._groups(file)
        else:
            yield table

    def _group(self, file: pq.ParquetFile, index: int) -> pa.Table | None:
        return _encoded(file.read_row_group(index, columns=SCHEMA.names, use_threads=False))


def _encoded(table: pa.Table) -> pa.Table:
    if not table.schema.equals(_SCHEMA):
        table = _canonical(table).cast(_SCHEMA)
    table.validate(full=True)
    return table


class NumpyColumns:
    """The columns of a row group as numpy arrays, each converted once, on first use."""

    def __init__(self, table: pa.Table) -> None:
        self.count = table.num_rows
        self._arrays = {
            name: column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        self._raw: dict[str, tuple[Array, Array | None, Any]] = {}

    def _get(self, name: str) -> tuple[Array, Array | None, Any]:
        """Integers, a validity mask (None: all valid), and for a string column its dictionary."""
        found = self._raw.get(name)
        if found is None:
            column = self._arrays[name]
            strings = column.dictionary if name in STRINGS else None
            found = *_integers(column if strings is None else column.indices), strings
            self._raw[name] = found
        return found

    def ints(self, name: str, missing: int) -> Array:
        numbers, valid, _ = self._get(name)
        return numbers if valid is None else np.where(valid, numbers, missing)

    def strings(self, name: str) -> tuple[Array, list[str | None]]:
        """By row the index of its string, -1 for null; and the strings."""
        return self.ints(name, -1), self._get(name)[2].to_pylist()

    def coded(self, name: str, table: CodeTable[str]) -> Array:
        """By row the code of its string, -1 for null."""
        index, strings = self.strings(name)
        codes = [-1 if string is None else table[string] for string in strings]
        return np.array([*codes, -1], np.int32)[index]

    def index_of(self, name: str, string: str) -> int:
        """The index of a string in its column's dictionary, -1 for none."""
        strings = self._get(name)[2]
        return int(pc.index(strings, string).as_py()) if len(strings) else -1

    def valid(self, name: str) -> Array | None:
        """By row whether it has a value; None when all have one."""
        return self._get(name)[1]

    def row(self, at: int) -> Row:
        return Row(*(self.value(name, at) for name in SCHEMA.names))

    def value(self, name: str, at: int) -> Any:
        value = self._arrays[name][at].as_py()
        return tuple(value) if name in LISTS and value is not None else value


def _integers(column: Any) -> tuple[Array, Array | None]:
    """The integers as they lie in memory, and a mask of the valid ones unless all are."""
    start, count = column.offset, len(column)
    bits, data = column.buffers()
    kind = column.type.to_pandas_dtype()
    if not count or data is None:
        numbers = np.zeros(count, kind)
    else:
        numbers = np.frombuffer(data, kind, start + count)[start:]
    if not column.null_count:
        return numbers, None
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=start + count, bitorder="little")
    return numbers, flags[start:].view(np.bool_)


@dataclass(slots=True)
class RowGroup:
    columns: NumpyColumns
    kind: Array
    incarnation: Array
    """By row its code; meaningless for a bad row."""
    history: Array
    """By row the index of its history in `histories`."""
    histories: list[tuple[str, str]]
    step: Array
    events: EventColumns
    """By row of the table; `pos` is its index."""
    failed: list[tuple[str, Array]] = field(default_factory=list)
    """Reasons, each with a mask of the rows that it is given for; the first reason counts."""
    bad: Array | None = None
    """A mask of the rows that fail a check; None when all pass."""

    def reason(self, at: int) -> str:
        return next(reason for reason, mask in self.failed if mask[at])

    def by_history(self, rows: Array | None) -> Iterator[tuple[tuple[str, str], Array | None]]:
        """The rows of a mask (None: all), by history."""
        if len(self.histories) == 1:
            yield self.histories[0], rows
            return
        for code, history in enumerate(self.histories):
            mine = self.history == code
            if rows is not None:
                mine &= rows
            if mine.any():
                yield history, mine


@cache
def _kind_codes(names: tuple[str | None, ...]) -> Array:
    return np.array([*(KIND.get(name or "", -1) for name in names), -1], np.int16)


def _kinds(columns: NumpyColumns) -> Array:
    index, names = columns.strings("kind")
    return _kind_codes(tuple(names))[index]


def _events(columns: NumpyColumns, kind: Array, codes: Codes) -> EventColumns:
    """The columns about messages, for rows of any kind."""
    service = columns.coded("service", codes.services)
    levels = np.array([*map(level_of, codes.services.names), -1], np.int8)
    has_seq = columns.valid("seq")
    send = kind == SEND
    probe = np.zeros(columns.count, np.bool_)
    if send.any() and (code := columns.index_of("detail", PROBE)) >= 0:
        probe = (columns.ints("detail", -1) == code) & send
    sender, names = columns.strings("sender")
    return EventColumns(
        pos=np.arange(columns.count, dtype=np.int64),
        send=send,
        source=incarnation_codes(sender, names, columns.ints("sender_incarnation", -1), codes),
        number=columns.ints("number", 0),
        service=service.astype(np.int16),
        level=levels[service],
        size=columns.ints("size", -1),
        digest=columns.ints("digest", 0),
        seq=columns.ints("seq", 0),
        has_seq=np.ones(columns.count, np.bool_) if has_seq is None else has_seq,
        t_us=columns.ints("t_us", -1),
        probe=probe,
        view=columns.coded("view", codes.views),
    )


def incarnation_codes(
    index: Array, names: Sequence[str | None], incarnations: Array, codes: Codes
) -> Array:
    """The code of each (name, incarnation); -1 where one is missing, empty or negative."""
    table = codes.incarnations
    if len(names) == 1 and names[0] and len(index) and not index.any() and _uniform(incarnations):
        incarnation = int(incarnations[0])
        code = table[names[0], incarnation] if incarnation >= 0 else -1
        return np.full(len(index), code, np.int32)
    coded = np.full(len(index), -1, np.int32)
    # Sorted once, so that each name is a slice; numpy sorts 16-bit integers by radix.
    small = index.astype(np.int16) if len(names) < 2**15 else index
    order = np.argsort(small, kind="stable")
    bounds = np.searchsorted(index[order], np.arange(len(names) + 1)).tolist()
    for name, start, end in zip(names, bounds[:-1], bounds[1:], strict=True):
        if not name or start == end:
            continue
        rows = order[start:end]
        mine = incarnations[rows]
        # Most names have one incarnation in a row group.
        for incarnation in mine[:1].tolist() if _uniform(mine) else np.unique(mine).tolist():
            if incarnation >= 0:
                coded[rows[mine == incarnation]] = table[name, incarnation]
    return coded


def _uniform(numbers: Array) -> bool:
    return bool((numbers == numbers[0]).all())


def _histories(columns: NumpyColumns) -> tuple[Array, list[tuple[str, str]]]:
    """By row the index of its (protocol, group), and these."""
    (protocol, protocols), (group, groups) = columns.strings("protocol"), columns.strings("group")
    if len(protocols) == len(groups) == 1 and not protocol.any() and not group.any():
        return np.zeros(len(protocol), np.int64), [(protocols[0] or "", groups[0] or "")]
    pairs = protocol.astype(np.int64) * (len(groups) + 1) + group
    _, first, index = np.unique(pairs, return_index=True, return_inverse=True)
    # Index -1 is null: the extra entry at the end.
    protocols, groups = [*protocols, None], [*groups, None]
    return index, [
        (protocols[p] or "", groups[g] or "")
        for p, g in zip(protocol[first].tolist(), group[first].tolist(), strict=True)
    ]


def read_group(table: pa.Table, codes: Codes) -> RowGroup:
    """The columns of a row group, and which of its rows fail a check."""
    columns = NumpyColumns(table)
    kind = _kinds(columns)
    events = _events(columns, kind, codes)
    node, nodes = columns.strings("node")
    incarnation = incarnation_codes(node, nodes, columns.ints("incarnation", -1), codes)
    step = columns.ints("step", -1)
    group = RowGroup(columns, kind, incarnation, *_histories(columns), step, events)
    group.failed = failures(group)
    if group.failed:
        group.bad = np.logical_or.reduce([mask for _, mask in group.failed])
    return group


def reasons_against(table: pa.Table) -> dict[int, str]:
    """By row number, the reason of `trace.checks`. The table has the columns `CHECKED`."""
    columns = {
        field.name: table.column(field.name)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in SCHEMA
    }
    group = read_group(pa.table(columns, SCHEMA).combine_chunks().cast(_SCHEMA), Codes())
    bad = [] if group.bad is None else np.flatnonzero(group.bad).tolist()
    return {at: group.reason(at) for at in bad}
