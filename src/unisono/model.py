"""The nouns: member, view, message, service level. Frozen, and importing nothing of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import repeat
from typing import NamedTuple, TypeAlias, overload

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes, wherever they lie. Payloads stay memoryviews until delivery."""


class Address(NamedTuple):
    """Where packets go: an IPv4 or IPv6 host in numbers, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Member(NamedTuple):
    """One life of one process. A process that restarts is a new incarnation, so another member."""

    name: str
    address: Address
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation}"


class Service(IntEnum):
    """What a message asks for, weakest first; each level includes those before it."""

    UNRELIABLE = 0
    RELIABLE = 1
    FIFO = 2
    CAUSAL = 3
    AGREED = 4
    SAFE = 5


@dataclass(frozen=True, slots=True)
class Resilient:
    """Delivered in the total order, and reported stable once `k` members hold it."""

    k: int
    MAJORITY = -1
    ALL = -2


ServiceLevel: TypeAlias = Service | Resilient

_K = r"(-?\d{1,9}|majority|all)"
_RESILIENT = re.compile(rf"resilient(?::{_K}|\({_K}\))")
_NAMED = {"majority": Resilient.MAJORITY, "all": Resilient.ALL}


def level_named(text: str) -> ServiceLevel | None:
    """`safe`, `resilient(2)` or `resilient:majority` as a level; nothing for any other text."""
    if match := _RESILIENT.fullmatch(text.lower()):
        k = match[1] or match[2]
        return Resilient(_NAMED[k] if k in _NAMED else int(k))
    return Service.__members__.get(text.upper())


class Message(NamedTuple):
    """What a member said, at its place in the group's stream."""

    # A tuple is made three times as fast as a frozen dataclass, and a group makes many.

    sender: Member
    payload: bytes
    number: int
    """The sender's count: its first message is 1."""
    view: str = ""
    """The view in which it was delivered here."""
    seq: int | None = None
    """Its place in the total order, where the protocol has one."""
    service: ServiceLevel = Service.CAUSAL


_message = partial(tuple.__new__, Message)


class Span(NamedTuple):
    """Messages of one sender in a row, of one length, not cut apart yet."""

    sender: Member
    octets: bytes
    start: int
    """Where in the octets the first of them begins; the others follow side by side."""
    length: int
    times: int
    number: int
    """Of the first, as its place."""
    view: str
    seq: int
    service: ServiceLevel

    @staticmethod
    def of(message: Message) -> Span:
        """One message."""
        sender, payload, number, view, seq, service = message
        return Span(sender, payload, 0, len(payload), 1, number, view, seq or 0, service)

    def messages(self) -> Iterator[Message]:
        """Made all at once they cost a third of what one by one would."""
        sender, octets, at, length, times, number, view, seq, service = self
        if not length:
            payloads = [b""] * times
        elif times == 1 and length == len(octets):
            payloads = [octets]
        else:
            payloads = [octets[n : n + length] for n in range(at, at + times * length, length)]
        numbers, places = range(number, number + times), range(seq, seq + times)
        rows = zip(repeat(sender), payloads, numbers, repeat(view), places, repeat(service))
        return map(_message, rows)


class Spans(Sequence[Message]):
    """Messages that are made when somebody looks at them. A protocol so hands over what is to be
    delivered, and the world can send before it delivers."""

    __slots__ = ("_count", "_made", "_spans")

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._count = sum(span.times for span in spans)
        self._made: list[Message] | None = None

    def _all(self) -> list[Message]:
        if self._made is None:
            self._made = [message for span in self._spans for message in span.messages()]
            self._spans = ()
        return self._made

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all())

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> list[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | list[Message]:
        return self._all()[at]


@dataclass(frozen=True, slots=True)
class View:
    """Who is listening, from this place in the stream on."""

    members: tuple[Member, ...]
    id: str = ""
    joined: tuple[Member, ...] = ()
    left: tuple[Member, ...] = ()
    seq: int | None = None
    """Its place in the total order, where the protocol has one."""
    cut: tuple[tuple[Member, int], ...] = ()
    """Only in the first view of a member that came later: the messages up to these numbers, by
    sender, were before its time. Who is not named starts at 0."""
    detail: str = ""
    """What happened, in the protocol's own words."""

    def __contains__(self, who: object) -> bool:
        return who in self.members


@dataclass(frozen=True, slots=True)
class Burst:
    """Packets that arrived together in one buffer, cut apart only when looked at.

    All have `size` bytes but the last, which may be shorter: the shape in which the kernel's
    receive offload hands them over.
    """

    buffer: memoryview
    size: int
    total: int = field(default=-1)

    def __len__(self) -> int:
        return -(-self.octets // self.size) if self.size else 0

    @property
    def octets(self) -> int:
        return len(self.buffer) if self.total < 0 else self.total

    def __iter__(self) -> Iterator[memoryview]:
        octets, size, buffer = self.octets, self.size, self.buffer
        for start in range(0, octets, size):
            yield buffer[start : min(start + size, octets)]


Packets: TypeAlias = Sequence[Buffer] | Burst
