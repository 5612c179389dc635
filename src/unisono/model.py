"""The nouns: member, view, message, service level. Frozen; imports no other module of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, overload

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Any bytes. Payloads stay memoryviews until delivery."""


class Address(NamedTuple):
    """A numeric IPv4 or IPv6 host, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Member(NamedTuple):
    """One incarnation of a process. A process that restarts is another member."""

    name: str
    address: Address
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation}"


_LONG = re.compile(r"(?<=#)\d{10,19}\b")


def shortened(text: str) -> str:
    """Long incarnations by their last 20 bits, which are random: `a#29086314755762241` is
    `a#7a841`; `a#1` of a simulation stays."""
    return _LONG.sub(lambda found: f"{int(found[0]) & 0xFFFFF:05x}", text)


class Service(IntEnum):
    """Service levels, weakest first; each includes those before it."""

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
    """`safe`, `resilient(2)` or `resilient:majority` as a level; None for any other text."""
    if match := _RESILIENT.fullmatch(text.lower()):
        k = match[1] or match[2]
        return Resilient(_NAMED[k] if k in _NAMED else int(k))
    return Service.__members__.get(text.upper())


@lru_cache(maxsize=64)
def level_text(level: ServiceLevel) -> str:
    """`safe`, `resilient(2)` or `resilient(majority)`, which `level_named` reads."""
    if isinstance(level, Resilient):
        names = {k: name for name, k in _NAMED.items()}
        return f"resilient({names.get(level.k, level.k)})"
    return level.name.lower()


def is_ordered(level: ServiceLevel) -> bool:
    """Whether all members deliver such messages in one order."""
    return isinstance(level, Resilient) or level >= Service.AGREED


class Message(NamedTuple):
    """A multicast message, as it is delivered."""

    # A tuple: three times as fast to make as a frozen dataclass.

    sender: Member
    payload: bytes
    number: int
    """The sender's count: its first message is 1."""
    view: str = ""
    """The view in which it was delivered here."""
    seq: int | None = None
    """Its sequence number in the total order, if the protocol has one."""
    service: ServiceLevel = Service.CAUSAL


LOCKS: Final = 256
"""Locks of a group, numbered from 0."""


class SizeVote(IntEnum):
    """Votes on a group's minimum size that are not a number of members. A group that a failure
    leaves with fewer does not continue."""

    OPTIMISTIC = -1
    """A majority of the current members."""
    PESSIMISTIC = -2
    """A majority of the current members and of those that left since the last stable view."""
    NONE_MAY_FAIL = -3

    def __str__(self) -> str:
        return self.name.lower()


def vote_text(minimum: int) -> str:
    """`3`, or `pessimistic`."""
    return str(SizeVote(minimum)) if minimum < 0 else str(minimum)


class ChangeKind(Enum):
    """What a view reports."""

    FOUNDED = "founded"
    """The group begins here: sequence numbers start again."""
    JOINED = "joined"
    LEFT = "left"
    FAILED = "failed"
    MERGED = "merged"
    """Components merged."""
    PARTED = "parted"
    """A component separated, and continues."""
    RECOVERED = "recovered"
    LOCK_GRANTED = "lock_granted"
    LOCK_DENIED = "lock_denied"
    LOCK_RELEASED = "lock_released"
    SIZE_CHANGED = "size_changed"
    SCOPE_CHANGED = "scope_changed"
    PRIMARY = "primary"
    """From here on this is the primary component, the one that may operate."""
    SECONDARY = "secondary"
    """This is not the primary component, so far."""


class ChangeScope(Enum):
    """The members that a change concerns, relative to the one that installs the view."""

    LOCAL = "local"
    """Itself."""
    REMOTE = "remote"
    """Others."""
    GLOBAL = "global"
    """The group."""


class Change(NamedTuple):
    """One change in a view, and the members concerned."""

    what: ChangeKind
    who: tuple[Member, ...] = ()
    where: ChangeScope = ChangeScope.GLOBAL
    number: int | None = None
    """Of a lock, its number; of a vote, the minimum or a `SizeVote`; of the scope, the hops; of a
    primary component that follows others, its number among them."""

    def __str__(self) -> str:
        """`lock_granted 7 a#1`, `size_changed pessimistic b#1`, `failed c#1 d#1`."""
        words = [self.what.value]
        if self.number is not None:
            is_vote = self.what is ChangeKind.SIZE_CHANGED
            words.append(vote_text(self.number) if is_vote else str(self.number))
        return " ".join((*words, *map(str, self.who)))

    def seen_by(self, me: Member) -> tuple[Change, ...]:
        """As this member sees it: what concerns itself apart from what concerns others."""
        if not self.who:
            return (self._replace(where=ChangeScope.GLOBAL),)
        others = tuple(member for member in self.who if member != me)
        seen = []
        if me in self.who:
            seen.append(self._replace(who=(me,), where=ChangeScope.LOCAL))
        if others:
            seen.append(self._replace(who=others, where=ChangeScope.REMOTE))
        return tuple(seen)


def changes_of(
    me: Member,
    joined: Sequence[Member] = (),
    left: Sequence[Member] = (),
    failed: Sequence[Member] = (),
    founded: bool = False,
) -> tuple[Change, ...]:
    """The changes of a view at this member."""
    found = [Change(ChangeKind.FOUNDED)] if founded else []
    for what, who in (
        (ChangeKind.JOINED, joined),
        (ChangeKind.LEFT, left),
        (ChangeKind.FAILED, failed),
    ):
        if who:
            found += Change(what, tuple(who)).seen_by(me)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class View:
    """The members, from this position of the stream on."""

    members: tuple[Member, ...]
    id: str = ""
    joined: tuple[Member, ...] = ()
    left: tuple[Member, ...] = ()
    seq: int | None = None
    """Its sequence number in the total order, if the protocol has one."""
    cut: tuple[tuple[Member, int], ...] = ()
    """By sender that is new to this member: its messages up to this number preceded the view and
    are not delivered here. A new member that is not listed starts at 0."""
    detail: str = ""
    """A free text of the protocol."""
    transitional: bool = False
    """It only ends the view before it: its members hold what is delivered in it, other members of
    that view may not. A regular view follows."""
    stayed: tuple[Member, ...] = ()
    """The transitional set: members that come along from the previous view. Empty if the protocol
    does not report it."""
    changes: tuple[Change, ...] = ()
    """What happened, and to which members."""
    founding: str = ""
    """The view with which the group was founded, told with the first view of a member, where the
    protocol knows it."""

    def __contains__(self, who: object) -> bool:
        return who in self.members

    @property
    def primary(self) -> bool | None:
        """Whether this is the primary component; None where the protocol does not tell."""
        for change in self.changes:
            if change.what in (ChangeKind.PRIMARY, ChangeKind.SECONDARY):
                return change.what is ChangeKind.PRIMARY
        return None


VARIED: Final = -1
"""As a length: they differ."""


class PayloadBatch(list[bytes]):
    """Payloads that are multicast together, measured once: each pass over small ones is felt."""

    __slots__ = ("length", "longest", "nbytes")

    def __init__(self, payloads: Iterable[bytes]) -> None:
        super().__init__(payloads)
        lengths = list(map(len, self))
        self.length = self.longest = lengths[0] if lengths else 0
        """Of each, or VARIED; of the longest."""
        if lengths.count(self.length) == len(lengths):
            self.nbytes = self.length * len(lengths)
        else:
            self.length, self.longest, self.nbytes = VARIED, max(lengths), sum(lengths)

    def add(self, more: PayloadBatch) -> None:
        """More of them behind these."""
        if self.length != more.length:
            self.length = VARIED
        self.longest = max(self.longest, more.longest)
        self.nbytes += more.nbytes
        self.extend(more)

    def add_one(self, payload: bytes) -> None:
        """One more behind these."""
        length = len(payload)
        if length != self.length:
            self.length = VARIED
            self.longest = max(self.longest, length)
        self.nbytes += length
        self.append(payload)


@dataclass(frozen=True, slots=True)
class Burst(Sequence[memoryview]):
    """Adjacent packets in one buffer, split on access.

    All have `size` bytes but the last, which may be shorter: the form in which the kernel takes and
    returns them.
    """

    buffer: memoryview
    size: int

    def __len__(self) -> int:
        return -(-len(self.buffer) // self.size) if self.size else 0

    def __iter__(self) -> Iterator[memoryview]:
        buffer, size = self.buffer, self.size
        return (buffer[start : start + size] for start in range(0, len(buffer), size))

    @overload
    def __getitem__(self, at: int) -> memoryview: ...

    @overload
    def __getitem__(self, at: slice) -> list[memoryview]: ...

    def __getitem__(self, at: int | slice) -> memoryview | list[memoryview]:
        return list(self)[at]


def coalesced(packets: Sequence[Buffer]) -> Sequence[Buffer]:
    """Packets received together, as one burst if all have one length but the last, which may be
    shorter."""
    if len(packets) < 2:
        return packets
    lengths = list(map(len, packets))
    if not 0 < lengths[-1] <= lengths[0]:
        return packets
    if lengths[:-1].count(lengths[0]) < len(lengths) - 1:
        return packets
    return Burst(memoryview(b"".join(packets)), lengths[0])


class Bursts(Sequence[Buffer]):
    """Many packets, sealed a burst at a time while they are sent: the first leaves before the last
    is sealed. `making` must yield the same bursts whenever it is asked, whatever happened to the
    core since: an effect is a value."""

    __slots__ = ("_count", "_made", "_making")

    def __init__(self, count: int, making: Iterable[Burst]) -> None:
        self._count = count
        self._making = iter(making)
        self._made: list[Burst] = []

    def each(self) -> Iterator[Burst]:
        """Burst by burst; made once, however often they are asked for."""
        yield from self._made
        for burst in self._making:
            self._made.append(burst)
            yield burst

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Buffer]:
        return (packet for burst in self.each() for packet in burst)

    @overload
    def __getitem__(self, at: int) -> Buffer: ...

    @overload
    def __getitem__(self, at: slice) -> list[Buffer]: ...

    def __getitem__(self, at: int | slice) -> Buffer | list[Buffer]:
        return list(self)[at]


Packets: TypeAlias = Sequence[Buffer] | Burst | Bursts
