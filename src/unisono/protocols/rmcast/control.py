"""Control messages: what members tell each other in their streams, in causal order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from unisono.errors import BadPacket
from unisono.model import Buffer, Member
from unisono.parts.packing import joined
from unisono.protocols.rmcast.packets import CONTROL, FIRST, LAST, MessagePart, rank_of
from unisono.wire import Reader, Writer


@dataclass(frozen=True, slots=True)
class Add:
    """A control message in the stream of the sponsor: from here on this one is a member."""

    member: Member
    rank: int

    def payload(self) -> bytes:
        return Writer().u8(1).member(self.member).u32(self.rank).done()


@dataclass(frozen=True, slots=True)
class Bye:
    """A control message, the last of its sender's stream: it leaves."""

    def payload(self) -> bytes:
        return Writer().u8(2).done()


@dataclass(frozen=True, slots=True)
class After:
    """A control message that only comes after others: it carries what the message behind it must
    also come after, and has no room for."""

    def payload(self) -> bytes:
        return Writer().u8(3).done()


def additions(chunks: Iterable[MessagePart]) -> Iterator[Member]:
    """Who is added by control messages among these chunks of a stream."""
    pieces: list[Buffer] = []
    for chunk in chunks:
        if not chunk.flags & CONTROL:
            continue
        pieces = [chunk.payload] if chunk.flags & FIRST else [*pieces, chunk.payload]
        if chunk.flags & LAST:
            try:
                order = read_control(joined(pieces))
            except BadPacket:
                continue
            if isinstance(order, Add):
                yield order.member


def read_control(payload: memoryview | bytes) -> Add | Bye | After:
    reader = Reader(payload)
    what = reader.u8()
    order: Add | Bye | After
    if what == 1:
        order = Add(reader.member(), rank_of(reader.u32()))
    elif what == 2:
        order = Bye()
    elif what == 3:
        order = After()
    else:
        raise BadPacket("malformed")
    reader.done()
    return order
