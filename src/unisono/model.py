"""The nouns: member, view, message, service level. Frozen, and importing nothing of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

    def payloads(self) -> list[bytes]:
        octets, at, length, times = self.octets, self.start, self.length, self.times
        if not length:
            return [b""] * times
        if times == 1 and length == len(octets):
            return [octets]
        return [octets[n : n + length] for n in range(at, at + times * length, length)]

    def messages(self) -> Iterator[Message]:
        """Made all at once they cost a third of what one by one would."""
        sender, _, _, _, times, number, view, seq, service = self
        numbers, places = range(number, number + times), range(seq, seq + times)
        rows = zip(repeat(sender), self.payloads(), numbers, repeat(view), places, repeat(service))
        return map(_message, rows)

    def parted(self, count: int) -> tuple[Span, Span]:
        """The first so many, and the others."""
        first = self._replace(times=count)
        start, number, seq = self.start + count * self.length, self.number + count, self.seq + count
        return first, self._replace(start=start, times=self.times - count, number=number, seq=seq)


class Spans(Sequence[Message]):
    """Messages that are made when somebody looks at them. A protocol so hands over what is to be
    delivered, and the world can send before it delivers."""

    __slots__ = ("_count", "_made", "_spans", "octets")

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._made: list[Message] | None = None
        self._count = sum([span.times for span in spans])
        self.octets = sum([span.times * span.length for span in spans])
        """Of their payloads."""

    def payloads(self) -> list[bytes]:
        """What they say, without the messages around it."""
        if self._made is not None:
            return [message.payload for message in self._made]
        if len(self._spans) == 1:
            return self._spans[0].payloads()
        return [payload for span in self._spans for payload in span.payloads()]

    def parted(self, count: int) -> tuple[Spans, Spans]:
        """The first so many, and the others; of those that nobody looked at."""
        first, rest = list[Span](), list(self._spans)
        while count and count >= rest[0].times:
            first.append(rest.pop(0))
            count -= first[-1].times
        if count:
            part, rest[0] = rest[0].parted(count)
            first.append(part)
        return Spans(first), Spans(rest)

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
class Burst(Sequence[memoryview]):
    """Packets side by side in one buffer, cut apart only when looked at.

    All have `size` bytes but the last, which may be shorter: the shape in which the kernel takes
    them, and hands them over.
    """

    buffer: memoryview
    size: int

    def __len__(self) -> int:
        return -(-len(self.buffer) // self.size) if self.size else 0

    def __iter__(self) -> Iterator[memoryview]:
        buffer, size = self.buffer, self.size
        return (buffer[start : start + size] for start in range(0, len(buffer), size))

    def tails(self, at: int) -> list[memoryview]:
        """Of each packet, what follows its first octets."""
        buffer, size = self.buffer, self.size
        return [buffer[start + at : start + size] for start in range(0, len(buffer), size)]

    @overload
    def __getitem__(self, at: int) -> memoryview: ...

    @overload
    def __getitem__(self, at: slice) -> list[memoryview]: ...

    def __getitem__(self, at: int | slice) -> memoryview | list[memoryview]:
        return list(self)[at]


Packets: TypeAlias = Sequence[Buffer] | Burst
