"""What one MTP message carries: a batch of application messages, or a membership change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, chain, pairwise, repeat
from operator import mul
from typing import Annotated, Final, NamedTuple

from unisono.errors import BadPacket
from unisono.fields import U16_COUNT, U64, fixed, table
from unisono.layout import decode, encode, layout_of, size_of
from unisono.model import VARIED, Buffer, Member, Service
from unisono.parts.packing import pour, sliced

BATCH_BYTES_MAX: Final = 1 << 20
"""The payload sent under one token, unless a single message is larger."""
BATCH_COUNT_MAX: Final = 4096
SMALL_BYTES_MAX: Final = 16 << 10
"""Larger payloads are never copied on their way out."""
JOIN_BYTES_MAX: Final = 2 << 20
"""Messages up to this size are joined before they are cut up: faster, but a copy."""


class Form(IntEnum):
    BATCH = 0
    CHANGE = 1
    MIXED = 2


class BatchHead(NamedTuple):
    """Before the payloads of a `MessageBatch`: the columns of `BatchRow`, row by row."""

    form: Form
    first: U64
    """The number of the first message."""
    rows: Annotated[
        tuple[int, ...],
        table(fixed("(times u16, length u32, service u8)", "HIB"), U16_COUNT, flat=True),
    ]


class MixedHead(NamedTuple):
    """Before the payloads of a `MixedBatch`."""

    form: Form
    first: U64
    rows: Annotated[
        tuple[int, ...], table(fixed("(length u32, service u8)", "IB"), U16_COUNT, flat=True)
    ]


ROW_BYTES: Final = 2 + 4 + 1
_HEAD_BYTES: Final = size_of(BatchHead)


class BatchRow(NamedTuple):
    """Consecutive messages of one length and service: one row of a batch's table."""

    times: int
    length: int
    service: int
    data: bytes
    start: int = 0
    """The offset of the first of them in `data`."""

    @staticmethod
    def of(messages: Sequence[bytes], length: int, service: int) -> list[BatchRow]:
        """Small messages are joined; large ones are not copied."""
        if length > SMALL_BYTES_MAX:
            return [BatchRow(1, length, service, message) for message in messages]
        return [BatchRow(len(messages), length, service, b"".join(messages))]


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages of one member, numbered from `first` on. An empty batch returns a token that was
    not needed."""

    first: int
    groups: tuple[BatchRow, ...] = ()

    @property
    def count(self) -> int:
        return sum([group.times for group in self.groups])

    @property
    def nbytes(self) -> int:
        return sum([group.times * group.length for group in self.groups])

    def slices(self, size: int) -> list[Buffer]:
        """The message cut into packets; large payloads are not copied."""
        flat = [value for group in self.groups for value in group[:3]]
        head = encode(BatchHead(Form.BATCH, self.first, tuple(flat)))
        chunks: list[Buffer] = []
        for times, length, _, data, start in self.groups:
            nbytes = times * length
            owned = nbytes == len(data)
            chunks.append(data if owned else memoryview(data)[start : start + nbytes])
        return _sliced(head, chunks, size)


@dataclass(frozen=True, slots=True)
class MixedBatch:
    """Messages of varying length: each has its own row."""

    first: int
    payloads: tuple[bytes, ...]
    services: bytes
    """One byte per message."""

    @property
    def count(self) -> int:
        return len(self.payloads)

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.payloads))

    def slices(self, size: int) -> list[Buffer]:
        flat = [0] * (2 * self.count)
        flat[::2], flat[1::2] = map(len, self.payloads), self.services
        head = encode(MixedHead(Form.MIXED, self.first, tuple(flat)))
        return _sliced(head, self.payloads, size)


Batch = MessageBatch | MixedBatch


def make_batch(first: int, parts: Sequence[tuple[list[bytes], int, int]]) -> Batch:
    """These messages in the shorter form; each part is of one service, and of one length unless
    that is VARIED."""
    count = sum([len(messages) for messages, _, _ in parts])
    rows = sum([len(messages) if length == VARIED else 1 for messages, length, _ in parts])
    if rows * ROW_BYTES > count * (ROW_BYTES - 2):
        payloads = tuple(chain.from_iterable(messages for messages, _, _ in parts))
        services = b"".join(bytes([service]) * len(messages) for messages, _, service in parts)
        return MixedBatch(first, payloads, services)
    groups: list[BatchRow] = []
    for messages, length, service in parts:
        if length == VARIED:
            groups += [BatchRow(1, len(each), service, each) for each in messages]
        else:
            groups += BatchRow.of(messages, length, service)
    return MessageBatch(first, tuple(groups))


def _sliced(head: bytes, chunks: Sequence[Buffer], size: int) -> list[Buffer]:
    """Small chunks are joined, large ones are not copied."""
    runs: list[Buffer] = []
    run: list[Buffer] = [head]
    for chunk in chunks:
        if len(chunk) > SMALL_BYTES_MAX:
            runs += [b"".join(run), chunk]
            run = []
        else:
            run.append(chunk)
    if run:
        runs.append(b"".join(run))
    return sliced(runs, size)


class RemovedMember(NamedTuple):
    """A member that is removed, and why."""

    key: U64
    left: bool
    """It asked to; otherwise it failed."""


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """[MTP 5.3] Members that join and leave at this message of the order."""

    joined: tuple[tuple[Member, bool], ...] = ()
    """Each with whether it waits for the state."""
    gone: tuple[RemovedMember, ...] = ()
    ends: bool = False
    """The master ends the web."""

    def slices(self, size: int) -> list[Buffer]:
        fields = ChangeFields(Form.CHANGE, self.ends, self.joined, self.gone)
        return sliced([encode(fields)], size)


class ChangeFields(NamedTuple):
    """A `MembershipChange` on the wire."""

    form: Form
    ends: bool
    joined: tuple[tuple[Member, bool], ...]
    gone: tuple[RemovedMember, ...]


Content = Batch | MembershipChange


def head_of(slices: Sequence[Buffer]) -> tuple[int, int] | None:
    """Of a complete batch, the number of its first message and their count; None is a change.
    Raises `BadPacket` when it is neither."""
    found = _front(slices)
    return (found.first, sum(found.times)) if found is not None else None


class Front(NamedTuple):
    """The table of a batch, column by column, and the offset of the payloads."""

    form: int
    first: int
    times: tuple[int, ...]
    lengths: tuple[int, ...]
    services: tuple[int, ...]
    start: int


def _front(slices: Sequence[Buffer]) -> Front | None:
    front, index = bytes(slices[0]), 1
    if front[:1] == bytes((Form.CHANGE,)):
        return None
    mixed = front[:1] == bytes((Form.MIXED,))
    count = int.from_bytes(front[_HEAD_BYTES - 2 : _HEAD_BYTES], "big")
    end = _HEAD_BYTES + (ROW_BYTES - 2 if mixed else ROW_BYTES) * count
    while len(front) < end and index < len(slices):
        front += bytes(slices[index])
        index += 1
    read_head = layout_of(MixedHead if mixed else BatchHead).read
    (form, first, rows), start = read_head(memoryview(front), 0)
    width = 2 if mixed else 3
    times = (1,) * count if mixed else rows[::3]
    lengths, services = rows[width - 2 :: width], rows[width - 1 :: width]
    # Empty messages cost their sender nothing, so their count is bounded too.
    if rows and (not min(times) or sum(times) > BATCH_COUNT_MAX or max(services) > Service.AGREED):
        raise BadPacket("malformed")
    if start + sum(map(mul, times, lengths)) != sum(map(len, slices)):
        raise BadPacket("malformed")
    return Front(form, first, times, lengths, services, start)


def read_content(slices: list[Buffer]) -> Content:
    """The content, its payloads not cut apart yet. Of a large message the slices are used up, and
    the payloads of a mixed one are the only copy, which the application keeps."""
    found = _front(slices)
    if found is None:
        return _change(slices)
    form, first, times, lengths, services, start = found
    sizes = list(map(mul, times, lengths))
    joins = sum(sizes) <= JOIN_BYTES_MAX
    if joins:
        whole = bytes(slices[0]) if len(slices) == 1 else b"".join(slices)
        ends = list(accumulate(sizes, initial=start))
    else:
        poured = pour(slices, start, sizes)
    if form == Form.MIXED:
        if joins:
            poured = [whole[at:end] for at, end in pairwise(ends)]
        return MixedBatch(first, tuple(poured), bytes(services))
    places = (
        zip(repeat(whole), ends, strict=False) if joins else zip(poured, repeat(0), strict=False)
    )
    table = zip(times, lengths, services, places, strict=False)
    return MessageBatch(first, tuple([BatchRow(n, length, s, *at) for n, length, s, at in table]))


def _change(slices: Sequence[Buffer]) -> MembershipChange:
    _, ends, joined, gone = decode(ChangeFields, b"".join(slices))
    return MembershipChange(joined, gone, ends)
