"""What one MTP message carries: a batch of the application's messages, or a change of members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, repeat
from operator import mul
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.model import Buffer, Member, Service
from unisono.parts.packing import pour, sliced
from unisono.wire import Reader, Writer

BATCH_OCTETS_MAX: Final = 1 << 20
"""So much that was said travels under one token, or one message that is larger."""
BATCH_COUNT_MAX: Final = 4096
SMALL_OCTETS_MAX: Final = 16 << 10
"""Larger payloads are never copied on their way out."""
TABLE_AT: Final = 1 + 8
ROW_OCTETS: Final = 2 + 4 + 1
JOIN_OCTETS_MAX: Final = 2 << 20
"""Up to here a message is put together before it is cut up: faster, but a copy."""


class Form(IntEnum):
    BATCH = 0
    CHANGE = 1


class Group(NamedTuple):
    """Messages of one length and service side by side: one row of a batch's table."""

    times: int
    length: int
    service: int
    octets: bytes
    start: int = 0
    """Where in the octets the first of them begins."""

    @staticmethod
    def of(messages: Sequence[bytes], length: int, service: int) -> list[Group]:
        """Small ones are laid side by side; large ones stay where they are."""
        if length > SMALL_OCTETS_MAX:
            return [Group(1, length, service, message) for message in messages]
        return [Group(len(messages), length, service, b"".join(messages))]


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one member, numbered from `first` on. Without any, a token that was not needed
    is given back."""

    first: int
    groups: tuple[Group, ...] = ()

    @property
    def count(self) -> int:
        return sum([group.times for group in self.groups])

    @property
    def octets(self) -> int:
        return sum([group.times * group.length for group in self.groups])

    def slices(self, size: int) -> list[Buffer]:
        """The message in packets' worths, large payloads where they lie."""
        head = Writer().u8(Form.BATCH).u64(self.first)
        flat = [value for group in self.groups for value in group[:3]]
        chunks: list[Buffer] = []
        run: list[Buffer] = [head.rows("HIB", 3, flat).done()]
        for times, length, _, octets, start in self.groups:
            whole = times * length
            chunk = octets if whole == len(octets) else memoryview(octets)[start : start + whole]
            if whole > SMALL_OCTETS_MAX:
                chunks += [b"".join(run), chunk]
                run = []
            else:
                run.append(chunk)
        if run:
            chunks.append(b"".join(run))
        return sliced(chunks, size)


class Gone(NamedTuple):
    """A member that is listed no more, and why."""

    key: int
    left: bool
    """It asked to."""


@dataclass(frozen=True, slots=True)
class Change:
    """[MTP 5.3] Who comes and who goes, at this place of the order."""

    joined: tuple[tuple[Member, bool], ...] = ()
    """With each, whether it waits for the state."""
    gone: tuple[Gone, ...] = ()
    ends: bool = False
    """The master ends the web."""

    def slices(self, size: int) -> list[Buffer]:
        out = Writer().u8(Form.CHANGE).u8(self.ends).u16(len(self.joined))
        for member, waits in self.joined:
            out.member(member).u8(waits)
        out.rows("QB", 2, [value for gone in self.gone for value in (gone.key, gone.left)])
        return sliced([out.done()], size)


Content = Batch | Change


def head_of(slices: Sequence[Buffer]) -> tuple[int, int] | None:
    """Of a batch that is all here: the number of its first message and how many there are; None is
    a change. Raises `BadPacket` when it is neither."""
    content = _front(slices)
    if content is None:
        return None
    first, rows, _ = content
    return first, sum(rows[::3])


def _front(slices: Sequence[Buffer]) -> tuple[int, tuple[int, ...], int] | None:
    """Of a batch: its first number, the rows of its table in line, and where payloads begin."""
    reader = Reader(slices[0])
    form = reader.u8()
    if form == Form.CHANGE:
        return None
    if form != Form.BATCH:
        raise BadPacket("malformed")
    first, count = reader.u64(), reader.u16()
    start = TABLE_AT + 2 + ROW_OCTETS * count
    front, index = bytes(slices[0]), 1
    while len(front) < start and index < len(slices):
        front += bytes(slices[index])
        index += 1
    rows = Reader(memoryview(front)[TABLE_AT:]).rows("HIB")
    times, lengths, services = rows[::3], rows[1::3], rows[2::3]
    # Messages of no octets would cost their sender nothing: how many there are is bounded too.
    if rows and (not min(times) or sum(times) > BATCH_COUNT_MAX or max(services) > Service.AGREED):
        raise BadPacket("malformed")
    if start + sum(map(mul, times, lengths)) != sum(map(len, slices)):
        raise BadPacket("malformed")
    return first, rows, start


def read_content(slices: list[Buffer]) -> Content:
    """What the message says, its payloads not cut apart yet. Of a large message the slices are
    used up."""
    found = _front(slices)
    if found is None:
        return _change(slices)
    first, rows, start = found
    sizes = list(map(mul, rows[::3], rows[1::3]))
    if sum(sizes) <= JOIN_OCTETS_MAX:
        whole = bytes(slices[0]) if len(slices) == 1 else b"".join(slices)
        starts = accumulate(sizes, initial=start)
        table = zip(rows[::3], rows[1::3], rows[2::3], repeat(whole), starts, strict=False)
    else:
        poured = pour(slices, start, sizes)
        table = zip(rows[::3], rows[1::3], rows[2::3], poured, repeat(0), strict=False)
    return Batch(first, tuple(map(Group._make, table)))


def _change(slices: Sequence[Buffer]) -> Change:
    reader = Reader(b"".join(slices))
    reader.u8()
    ends = bool(reader.u8())
    joined = tuple((reader.member(), bool(reader.u8())) for _ in range(reader.u16()))
    flat = reader.rows("QB")
    reader.done()
    gone = tuple(Gone(flat[i], bool(flat[i + 1])) for i in range(0, len(flat), 2))
    return Change(joined, gone, ends)
