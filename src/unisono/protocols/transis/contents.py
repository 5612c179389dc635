"""The messages in the payload of a vertex, and large ones that came in fragments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.model import Buffer, Member, Message, Service
from unisono.parts.message_runs import MessageRun
from unisono.parts.packing import joined
from unisono.parts.turn import (
    DIFFER,
    GOES_ON,
    IN_PIECES,
    LENGTH_BYTES,
    MORE,
    SERVICE,
    MessageGroup,
    read_runs,
)
from unisono.protocols.transis.send_queue import class_of
from unisono.wire import read_numbers

SERVICES: Final = tuple(Service)


class MessageFragment(NamedTuple):
    """A piece of a large message."""

    number: int
    mark: int
    payload: Buffer


Parts: TypeAlias = list[MessageRun | MessageFragment]


@dataclass(slots=True)
class VertexMessages:
    """A payload, read."""

    level: Service = Service.CAUSAL
    """What its messages wait for: causal, agreed or safe."""
    parts: Parts = field(default_factory=list)
    last: int = 0
    """The number of its last message that ends in it; 0: none does."""


def read_contents(payload: Buffer, sender: Member, key: int, view: str) -> VertexMessages:
    """The messages of a vertex of this sender, or `BadPacket`. They are not copied: a payload is
    all bytes of an object, or the last ones."""
    found = VertexMessages()
    if not payload:
        return found
    runs = read_runs(payload)
    if len(runs) != 1 or runs[0].origin != key:
        raise BadPacket("malformed")
    (run,) = runs
    content = memoryview(payload).obj
    assert isinstance(content, bytes)
    number, at = run.first, len(content) - len(run.chunks[0])
    for group in run.groups:
        found.level = max(found.level, class_of(group.mark & SERVICE))
        found.parts.append(_part(content, at, number, group, sender, view))
        if not group.mark & MORE:
            number += group.times
            found.last = number - 1
        at += group.nbytes
    return found


def _part(
    content: bytes, at: int, number: int, group: MessageGroup, sender: Member, view: str
) -> MessageRun | MessageFragment:
    """The messages of a group, whose bytes begin at this offset."""
    times, length, mark = group
    if mark & IN_PIECES:
        return MessageFragment(number, mark, memoryview(content)[at : at + length])
    lengths: tuple[int, ...] = ()
    if mark & DIFFER:
        lengths = read_numbers(content, at, times)
        at += times * LENGTH_BYTES
        if sum(lengths) != length:
            raise BadPacket("malformed")
    service = SERVICES[mark & SERVICE]
    return MessageRun(sender, content, at, length, times, number, view, None, service, lengths)


class GrowingMessage(NamedTuple):
    """A large message of which the last fragment has not come."""

    number: int
    pieces: tuple[Buffer, ...]


class Reassembly:
    """Fragments of one sender, in its order."""

    __slots__ = ("_drop", "_growing", "_sender", "_view")

    def __init__(self, sender: Member, view: str, drop: Callable[[str], None]) -> None:
        self._sender = sender
        self._view = view
        self._drop = drop
        self._growing: GrowingMessage | None = None

    def runs(self, parts: Parts) -> list[MessageRun]:
        """What these complete."""
        found: list[MessageRun] = []
        for part in parts:
            run = part if isinstance(part, MessageRun) else self._grow(part)
            if run is not None:
                found.append(run)
        return found

    def _grow(self, part: MessageFragment) -> MessageRun | None:
        growing = self._growing
        if not part.mark & GOES_ON:
            growing = GrowingMessage(part.number, ())
        if growing is None or growing.number != part.number:
            self._drop("fragment")
            return None
        pieces = (*growing.pieces, part.payload)
        if part.mark & MORE:
            self._growing = GrowingMessage(part.number, pieces)
            return None
        self._growing = None
        service = SERVICES[part.mark & SERVICE]
        whole = joined(pieces)
        return MessageRun.of(Message(self._sender, whole, part.number, self._view, service=service))
