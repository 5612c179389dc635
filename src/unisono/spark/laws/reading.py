"""A trace file as numpy columns, row group by row group, with the row checks on whole columns.

The checks are those of `unisono.trace.checks`. Here they only say *which* rows fail one: those rows
are then looked at one by one with `reason_against`, so that there is one set of reasons.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unisono.spark.laws.columns import DELIVER, KIND, SEND, VIEW, Array, Codes, Said
from unisono.trace.checks import SPOKEN, reason_against
from unisono.trace.parquet import SCHEMA, ParquetPart, _canonical, filled
from unisono.trace.record import PROBE, Row

WORDS: Final = tuple(field.name for field in SCHEMA if field.type == pa.string())
"""Columns that are read as dictionaries: of many rows each word comes once."""
NEEDED: Final = (
    *("kind", "sender", "sender_incarnation", "number", "service"),
    *("size", "digest", "seq", "t_us", "detail"),
)
"""The columns of a row group in which every row is sound and of one life."""

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

    def _recovered(self, handle: int, size: int) -> tuple[pq.ParquetFile, int] | None:
        self.recovered = True
        return super()._recovered(handle, size)

    def _open(self, handle: int, metadata: Any) -> pq.ParquetFile:
        def opened(words: Sequence[str]) -> pq.ParquetFile:
            return pq.ParquetFile(
                io.FileIO(handle, closefd=False),
                metadata=metadata,
                read_dictionary=list(words),
                page_checksum_verification=True,
                pre_buffer=False,
            )

        try:
            return opened(WORDS)
        except KeyError:
            # One of the columns that a file may lack.
            return opened(())

    def _group(self, file: pq.ParquetFile, index: int) -> pa.Table | None:
        return _worded(file.read_row_group(index, columns=SCHEMA.names, use_threads=False))


def _worded(table: pa.Table) -> pa.Table:
    """In the types that the columns are made of."""
    table = filled(table)
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
        opened = part._recovered(handle, os.fstat(handle).st_size) if recovered else None
        file = opened[0] if opened else part._open(handle, None)
        with file:
            for index in groups:
                table = file.read_row_group(index, columns=list(NEEDED), use_threads=False)
                table = filled(table, NEEDED)
                yield table if table.schema.equals(_AGAIN) else table.cast(_PLAIN).cast(_AGAIN)
    finally:
        os.close(handle)


@dataclass(slots=True)
class Group:
    """A row group: sound rows by kind, and whose they are."""

    table: pa.Table
    kind: Array
    life: Array
    """Codes, by row; of a row that is not sound they mean nothing."""
    history: Array
    """Places in `histories`, by row."""
    histories: list[tuple[str, str]]
    step: Array
    said: Said
    """By row of the table; `pos` is left to whoever counts."""
    bad: Array | None
    """Rows that fail a check, or None when there are none."""

    def reason(self, at: int) -> str:
        reason = reason_against(row_at(self.table, at))
        assert reason is not None, "the columns and the rows are checked alike"
        return reason


def row_at(table: pa.Table, at: int) -> Row:
    row = Row(**table.slice(at, 1).to_pylist()[0])
    return row if row.members is None else row._replace(members=tuple(row.members))


def _one(table: pa.Table, name: str) -> Any:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _ints(table: pa.Table, name: str, missing: int) -> Array:
    column = _one(table, name)
    if column.null_count:
        column = column.fill_null(missing)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _words(table: pa.Table, name: str) -> tuple[Array, Any]:
    """By row the place of its word among the words, -1 for none; and the words."""
    column = _one(table, name)
    places = column.indices
    if places.null_count:
        places = places.fill_null(-1)
    return np.asarray(places.to_numpy(zero_copy_only=False)), column.dictionary


@cache
def _known_kinds(words: tuple[str | None, ...]) -> Array:
    """Codes of kinds; -1 for unknown ones, and at the end for none at all."""
    return np.array([*(KIND.get(word or "", -1) for word in words), -1], np.int16)


_SPOKEN: Final = np.array([KIND[name] for name in SPOKEN])


def _said_of(table: pa.Table, kind: Array, codes: Codes) -> Said:
    """The columns about messages, whatever the rows are."""
    count = table.num_rows
    sender, names = _words(table, "sender")
    incarnation = _ints(table, "sender_incarnation", -1)
    service, services = _words(table, "service")
    words = services.to_pylist()
    lut = np.array([*(-1 if word is None else codes.service(word) for word in words), -1], np.int16)
    coded = lut[service]
    seq = _one(table, "seq")
    placed = (
        np.ones(count, np.bool_)
        if not seq.null_count
        else np.asarray(seq.is_valid().to_numpy(zero_copy_only=False))
    )
    detail, details = _words(table, "detail")
    at = pc.index(details, PROBE).as_py() if len(details) else -1
    probe = (detail == at) & (kind == SEND) if at >= 0 else np.zeros(count, np.bool_)
    levels = np.array([*codes.levels, -1], np.int8)
    return Said(
        pos=np.empty(0, np.int64),
        send=kind == SEND,
        source=_life_codes(sender, names, incarnation, codes),
        number=_ints(table, "number", 0),
        service=coded,
        level=levels[coded],
        size=_ints(table, "size", -1),
        digest=_ints(table, "digest", 0),
        seq=_ints(table, "seq", 0),
        placed=placed,
        t_us=_ints(table, "t_us", -1),
        probe=probe,
    )


def _life_codes(places: Array, names: Any, incarnations: Array, codes: Codes) -> Array:
    """The code of each (name, incarnation); -1 where one is missing, negative or empty."""
    if not len(places):
        return np.empty(0, np.int32)
    low, high = int(incarnations.min()), int(incarnations.max())
    words = [*names.to_pylist(), None]
    width = high - low + 1
    if width * len(words) <= 4096:
        both = places.astype(np.int64) * width + (incarnations - low)
        # A place of -1 falls before all; it is brought to the end, where no word is.
        both[places < 0] = (len(words) - 1) * width
        present = np.flatnonzero(np.bincount(both, minlength=len(words) * width))
        lut = np.full(len(words) * width, -1, np.int32)
        pairs = [(int(each), each // width, low + each % width) for each in present.tolist()]
        back = both
    else:
        both = (places.astype(np.int64) << 32) | (incarnations.astype(np.int64) & 0xFFFFFFFF)
        unique, back = np.unique(both, return_inverse=True)
        lut = np.full(len(unique), -1, np.int32)
        low_half = (unique & 0xFFFFFFFF).astype(np.uint32).astype(np.int32)
        pairs = [
            (at, int(place), int(incarnation))
            for at, (place, incarnation) in enumerate(zip(unique >> 32, low_half, strict=True))
        ]
    for at, place, incarnation in pairs:
        name = words[place] if place >= 0 else None
        if name and incarnation >= 0:
            lut[at] = codes.life(name, incarnation)
    coded: Array = lut[back]
    return coded


def _histories(table: pa.Table) -> tuple[Array, list[tuple[str, str]], bool]:
    protocol, protocols = _words(table, "protocol")
    group, groups = _words(table, "group")
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


def read_group(table: pa.Table, codes: Codes) -> Group:
    """The columns of a row group, and which of its rows fail a check."""
    kind_at, kinds = _words(table, "kind")
    kind = _known_kinds(tuple(kinds.to_pylist()))[kind_at]
    said = _said_of(table, kind, codes)
    node, nodes = _words(table, "node")
    life = _life_codes(node, nodes, _ints(table, "incarnation", -1), codes)
    history, histories, nameless = _histories(table)
    step = _ints(table, "step", -1)
    spoken = np.isin(kind, _SPOKEN)
    bad = (life < 0) | (step < 0) | (said.t_us < 0) | (kind < 0)
    if nameless:
        unnamed = _words(table, "protocol")[0] < 0
        bad |= unnamed | (_words(table, "group")[0] < 0)
    view = _one(table, "view")
    if view.null_count:
        bad |= np.asarray(view.is_null().to_numpy(zero_copy_only=False))
    mute = (said.source < 0) | (said.number < 1) | (said.level < 0) | (said.size < 0)
    digest = _one(table, "digest")
    if digest.null_count:
        mute |= np.asarray(digest.is_null().to_numpy(zero_copy_only=False))
    mute |= said.send & (said.source != life)
    bad |= mute & spoken
    for at in np.flatnonzero((kind == VIEW) & ~bad).tolist():
        bad[at] = reason_against(row_at(table, at)) is not None
    return Group(table, kind, life, history, histories, step, said, bad if bad.any() else None)


def said_again(table: pa.Table, codes: Codes) -> tuple[Said, Array]:
    """Sends and deliveries of a row group that was read before, and their places in it."""
    kind_at, kinds = _words(table, "kind")
    kind = _known_kinds(tuple(kinds.to_pylist()))[kind_at]
    said = _said_of(table, kind, codes)
    said.pos = np.arange(table.num_rows, dtype=np.int64)
    spoke = (kind == SEND) | (kind == DELIVER)
    if not spoke.all():
        said = said.take(spoke)
    return said, said.pos
