"""What one MTP message carries: a batch of the application's messages, or a change of members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
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
JOIN_OCTETS_MAX: Final = 2 << 20
"""Up to here a message is put together before it is cut up: faster, but a copy."""


class Form(IntEnum):
    BATCH = 0
    CHANGE = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one member, numbered from `first` on. Without any, a token that was not needed
    is given back."""

    first: int
    payloads: tuple[bytes, ...]
    services: bytes
    """One octet a message."""

    @property
    def octets(self) -> int:
        return sum(map(len, self.payloads))

    def slices(self, size: int) -> list[Buffer]:
        """The message in packets' worths, large payloads where they lie."""
        head = Writer().u8(Form.BATCH).u64(self.first)
        flat = [
            value
            for pair in zip(map(len, self.payloads), self.services, strict=True)
            for value in pair
        ]
        chunks: list[Buffer] = []
        run: list[Buffer] = [head.rows("IB", 2, flat).done()]
        for payload in self.payloads:
            if len(payload) > SMALL_OCTETS_MAX:
                chunks += [b"".join(run), payload]
                run = []
            else:
                run.append(payload)
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
    first, sizes, _ = content
    return first, len(sizes) // 2


def _front(slices: Sequence[Buffer]) -> tuple[int, tuple[int, ...], int] | None:
    """Of a batch: its first number, its lengths and services in line, and where payloads begin."""
    reader = Reader(slices[0])
    form = reader.u8()
    if form == Form.CHANGE:
        return None
    if form != Form.BATCH:
        raise BadPacket("malformed")
    first, count = reader.u64(), reader.u16()
    start = 1 + 8 + 2 + 5 * count
    front, index = bytes(slices[0]), 1
    while len(front) < start and index < len(slices):
        front += bytes(slices[index])
        index += 1
    sizes = Reader(memoryview(front)[9:]).rows("IB")
    total = sum(map(len, slices))
    if start + sum(sizes[::2]) != total or (sizes and max(sizes[1::2]) > Service.AGREED):
        raise BadPacket("malformed")
    return first, sizes, start


def read_content(slices: list[Buffer]) -> Content:
    """What the message says, each payload as the one copy that the application keeps. Of a large
    message the slices are used up."""
    found = _front(slices)
    if found is None:
        return _change(slices)
    first, sizes, start = found
    lengths = sizes[::2]
    if sum(lengths) <= JOIN_OCTETS_MAX:
        whole = bytes(slices[0]) if len(slices) == 1 else b"".join(slices)
        payloads = []
        for length in lengths:
            payloads.append(whole[start : start + length])
            start += length
    else:
        payloads = pour(slices, start, lengths)
    return Batch(first, tuple(payloads), bytes(sizes[1::2]))


def _change(slices: Sequence[Buffer]) -> Change:
    reader = Reader(b"".join(slices))
    reader.u8()
    ends = bool(reader.u8())
    joined = tuple((reader.member(), bool(reader.u8())) for _ in range(reader.u16()))
    flat = reader.rows("QB")
    reader.done()
    gone = tuple(Gone(flat[i], bool(flat[i + 1])) for i in range(0, len(flat), 2))
    return Change(joined, gone, ends)
