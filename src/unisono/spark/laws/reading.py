"""A trace file as numpy columns, row group by row group, with the row checks on whole columns.

The checks are those of `unisono.trace.checks`. Here they only say *which* rows fail one: those rows
are then looked at one by one with `reason_against`, so that there is one set of reasons.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unisono.spark.laws.columns import DELIVER, FEW, KIND, SEND, Array, Codes, EventColumns
from unisono.trace.checks import SPOKEN, reason_against
from unisono.trace.parquet import LISTS, SCHEMA, ParquetPart, _canonical, filled
from unisono.trace.record import PROBE, Row
from unisono.trace.torn import FileBytes

WORDS: Final = tuple(field.name for field in SCHEMA if field.type == pa.string())
"""Columns that are read as dictionaries: of many rows each word comes once."""
NEEDED: Final = (
    *("kind", "sender", "sender_incarnation", "number", "service"),
    *("size", "digest", "seq", "t_us", "detail", "view"),
)
"""The columns of a row group in which every row is sound and of one life."""
TOGETHER_ROWS_MAX: Final = 20_000
"""Row groups of fewer rows are looked at as one."""

_SCHEMA: Final = pa.schema(
    [
        pa.field(field.name, pa.dictionary(pa.int32(), pa.string()))
        if field.name in WORDS
        else field
        for field in SCHEMA
    ]
)

_PLAIN: Final = pa.schema([SCHEMA.field(name) for name in NEEDED])
_AGAIN: Final = pa.schema([_SCHEMA.field(name) for name in NEEDED])


class WordedPart(ParquetPart):
    """A file whose tables have dictionaries for words; otherwise read as every trace is."""

    recovered = False
    """Whether it is read by a footer that was made anew."""

    def __init__(self, path: Path, together: bool = False) -> None:
        """`together`: the row groups of a small file make one table, if all can be read."""
        super().__init__(path)
        self._together = together

    def _recovered(self, octets: FileBytes) -> tuple[pq.ParquetFile, int] | None:
        self.recovered = True
        return super()._recovered(octets)

    def _open(
        self, octets: FileBytes, metadata: Any, words: Sequence[str] | None = WORDS
    ) -> pq.ParquetFile:
        try:
            return super()._open(octets, metadata, words)
        except KeyError:
            # One of the columns that a file may lack.
            return super()._open(octets, metadata)

    def _misfit(self, schema: pa.Schema) -> str | None:
        return None if schema.equals(_SCHEMA) else super()._misfit(schema)

    def _groups(self, file: pq.ParquetFile, count: int) -> Iterator[pa.Table]:
        whole = None
        if self._together and count > 1 and file.metadata.num_rows <= TOGETHER_ROWS_MAX:
            # When one cannot be read, those before it can.
            with suppress(Exception):
                every = list(range(count))
                read = file.read_row_groups(every, columns=SCHEMA.names, use_threads=False)
                whole = _worded(read.combine_chunks())
        if whole is None:
            yield from super()._groups(file, count)
        else:
            yield whole

    def _group(self, file: pq.ParquetFile, index: int) -> pa.Table | None:
        return _worded(file.read_row_group(index, columns=SCHEMA.names, use_threads=False))


def _worded(table: pa.Table) -> pa.Table:
    """In the types that the columns are made of."""
    if not table.schema.equals(_SCHEMA):
        table = _canonical(table).cast(_SCHEMA)
    table.validate(full=True)
    return table


def groups_again(path: bytes, groups: Sequence[int], recovered: bool) -> Iterator[pa.Table]:
    """Row groups that have been read before, so that what they hold is in order, with the columns
    needed; `recovered` says that the file has no footer of its own."""
    part = WordedPart(Path(os.fsdecode(path)))
    handle = os.open(path, os.O_RDONLY)
    try:
        octets = FileBytes(handle, os.fstat(handle).st_size)
        opened = part._recovered(octets) if recovered else None
        file = opened[0] if opened else part._open(octets, None)
        with file:
            for index in groups:
                table = file.read_row_group(index, columns=list(NEEDED), use_threads=False)
                table = filled(table, NEEDED)
                yield table if table.schema.equals(_AGAIN) else table.cast(_PLAIN).cast(_AGAIN)
    finally:
        os.close(handle)


class Columns:
    """The columns of a row group as numpy has them, each made once, when it is asked for."""

    def __init__(self, table: pa.Table) -> None:
        self.count = table.num_rows
        arrays = (
            column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            for column in table.columns
        )
        self._arrays = dict(zip(table.column_names, arrays, strict=True))
        self._raw: dict[str, tuple[Array, Array | None, Any]] = {}

    def _get(self, name: str) -> tuple[Array, Array | None, Any]:
        """Numbers, where they are valid (None: everywhere), and the words that they stand for."""
        found = self._raw.get(name)
        if found is None:
            column = self._arrays[name]
            words = column.dictionary if name in WORDS else None
            found = *_numbers(column if words is None else column.indices), words
            self._raw[name] = found
        return found

    def ints(self, name: str, missing: int) -> Array:
        numbers, valid, _ = self._get(name)
        return numbers if valid is None else np.where(valid, numbers, missing)

    def words(self, name: str) -> tuple[Array, Any]:
        """By row the place of its word among the words, -1 for none; and the words."""
        places, valid, words = self._get(name)
        return (places if valid is None else np.where(valid, places, -1)), words

    def valid(self, name: str) -> Array | None:
        """By row whether it has a value; None when all have."""
        return self._get(name)[1]

    def row(self, at: int) -> Row:
        return Row(*(self._value(name, at) for name in SCHEMA.names))

    def _value(self, name: str, at: int) -> Any:
        if name in LISTS:
            listed = self._arrays[name][at].as_py()
            return None if listed is None else tuple(listed)
        numbers, valid, words = self._get(name)
        if valid is not None and not valid[at]:
            return None
        return int(numbers[at]) if words is None else words[int(numbers[at])].as_py()


def _numbers(column: Any) -> tuple[Array, Array | None]:
    """The numbers as they lie in memory, and which of them are valid, unless all are."""
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
class LoadedRowGroup:
    """A row group: sound rows by kind, and whose they are."""

    columns: Columns
    kind: Array
    life: Array
    """Codes, by row; of a row that is not sound they mean nothing."""
    history: Array
    """Places in `histories`, by row."""
    histories: list[tuple[str, str]]
    step: Array
    said: EventColumns
    """By row of the table; `pos` is left to whoever counts."""
    bad: Array | None
    """Rows that fail a check, or None when there are none."""
    few: dict[int, Row]
    """By row those that were looked at as a whole."""

    def row(self, at: int) -> Row:
        return self.few.get(at) or self.columns.row(at)

    def reason(self, at: int) -> str:
        reason = reason_against(self.row(at))
        assert reason is not None, "the columns and the rows are checked alike"
        return reason


@cache
def _known_kinds(words: tuple[str | None, ...]) -> Array:
    """Codes of kinds; -1 for unknown ones, and at the end for none at all."""
    return np.array([*(KIND.get(word or "", -1) for word in words), -1], np.int16)


def _kinds(columns: Columns) -> Array:
    places, kinds = columns.words("kind")
    return _known_kinds(tuple(kinds.to_pylist()))[places]


_SPOKEN: Final = np.array([*(name in SPOKEN for name in KIND), False])
"""By kind; the last is for none."""
IS_FEW: Final = np.array([*(name in FEW for name in KIND), False])


def _said_of(columns: Columns, kind: Array, codes: Codes) -> EventColumns:
    """The columns about messages, whatever the rows are."""
    sender, names = columns.words("sender")
    incarnation = columns.ints("sender_incarnation", -1)
    service, services = columns.words("service")
    words = services.to_pylist()
    lut = np.array([*(-1 if word is None else codes.service(word) for word in words), -1], np.int16)
    coded = lut[service]
    placed = columns.valid("seq")
    send = kind == SEND
    detail, details = columns.words("detail")
    at = pc.index(details, PROBE).as_py() if len(details) and send.any() else -1
    probe = (detail == at) & send if at >= 0 else np.zeros(columns.count, np.bool_)
    levels = np.array([*codes.levels, -1], np.int8)
    view, views = columns.words("view")
    known = [-1 if word is None else codes.view(word) for word in views.to_pylist()]
    return EventColumns(
        pos=np.empty(0, np.int64),
        send=send,
        source=_life_codes(sender, names, incarnation, codes),
        number=columns.ints("number", 0),
        service=coded,
        level=levels[coded],
        size=columns.ints("size", -1),
        digest=columns.ints("digest", 0),
        seq=columns.ints("seq", 0),
        placed=np.ones(columns.count, np.bool_) if placed is None else placed,
        t_us=columns.ints("t_us", -1),
        probe=probe,
        view=np.array([*known, -1], np.int32)[view],
    )


def _life_codes(places: Array, names: Any, incarnations: Array, codes: Codes) -> Array:
    """The code of each (name, incarnation); -1 where one is missing, negative or empty."""
    if not len(places):
        return np.empty(0, np.int32)
    words = names.to_pylist()
    if len(words) == 1 and words[0] and not places.any() and _same(incarnations):
        incarnation = int(incarnations[0])
        code = codes.life(words[0], incarnation) if incarnation >= 0 else -1
        return np.full(len(places), code, np.int32)
    coded = np.full(len(places), -1, np.int32)
    # Sorted once, so that each name is one slice; most names stand for one life in a row group.
    # Small integers are sorted by radix.
    small = places.astype(np.int16) if len(words) < 2**15 else places
    order = np.argsort(small, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(len(words) + 1))
    for word, start, end in zip(words, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if not word or start == end:
            continue
        rows = order[start:end]
        for incarnation, mine in _by_incarnation(incarnations[rows]):
            if incarnation >= 0:
                coded[rows[mine]] = codes.life(word, incarnation)
    return coded


def _same(numbers: Array) -> bool:
    return bool((numbers == numbers[0]).all())


def _by_incarnation(incarnations: Array) -> Iterator[tuple[int, Any]]:
    """Each incarnation, and where it stands."""
    if _same(incarnations):
        yield int(incarnations[0]), slice(None)
        return
    for incarnation in np.unique(incarnations).tolist():
        yield incarnation, incarnations == incarnation


def _histories(columns: Columns) -> tuple[Array, list[tuple[str, str]], bool]:
    protocol, protocols = columns.words("protocol")
    group, groups = columns.words("group")
    if len(protocols) == 1 and len(groups) == 1 and not protocol.any() and not group.any():
        named = [(protocols[0].as_py(), groups[0].as_py())]
        return np.zeros(len(protocol), np.int32), named, None in named[0]
    both = protocol.astype(np.int64) * (len(groups) + 1) + group
    unique, back = np.unique(both, return_inverse=True)
    first = {int(code): place for place, code in reversed(list(enumerate(both.tolist())))}
    places = [first[int(code)] for code in unique]
    words = [
        (
            protocols[int(protocol[at])].as_py() if protocol[at] >= 0 else None,
            groups[int(group[at])].as_py() if group[at] >= 0 else None,
        )
        for at in places
    ]
    missing = any(None in pair for pair in words)
    return back.astype(np.int32), [(p or "", g or "") for p, g in words], missing


def read_group(table: pa.Table, codes: Codes) -> LoadedRowGroup:
    """The columns of a row group, and which of its rows fail a check."""
    columns = Columns(table)
    kind = _kinds(columns)
    said = _said_of(columns, kind, codes)
    node, nodes = columns.words("node")
    life = _life_codes(node, nodes, columns.ints("incarnation", -1), codes)
    history, histories, nameless = _histories(columns)
    step = columns.ints("step", -1)
    bad = (life < 0) | (step < 0) | (said.t_us < 0) | (kind < 0)
    if nameless:
        bad |= (columns.words("protocol")[0] < 0) | (columns.words("group")[0] < 0)
    viewed = columns.valid("view")
    if viewed is not None:
        bad |= ~viewed
    mute = (said.source < 0) | (said.number < 1) | (said.level < 0) | (said.size < 0)
    digested = columns.valid("digest")
    if digested is not None:
        mute |= ~digested
    mute |= said.send & (said.source != life)
    bad |= mute & _SPOKEN[kind]
    few = {at: columns.row(at) for at in np.flatnonzero(IS_FEW[kind] & ~bad).tolist()}
    for at, row in few.items():
        bad[at] = reason_against(row) is not None
    some = bad if bad.any() else None
    return LoadedRowGroup(columns, kind, life, history, histories, step, said, some, few)


def said_again(table: pa.Table, codes: Codes) -> tuple[EventColumns, Array]:
    """Sends and deliveries of a row group that was read before, and their places in it."""
    columns = Columns(table)
    kind = _kinds(columns)
    said = _said_of(columns, kind, codes)
    said.pos = np.arange(table.num_rows, dtype=np.int64)
    spoke = (kind == SEND) | (kind == DELIVER)
    if not spoke.all():
        said = said.take(spoke)
    return said, said.pos
