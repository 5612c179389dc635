"""R and G: the logical ring, the group behind it, and the record of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.fields import U16, U64, Bit
from unisono.layout import decode, encode
from unisono.model import Buffer, Member
from unisono.protocols.ring.packets import (
    NO_VERSION,
    NUMBER_MAX,
    Number,
    Rank,
    Version,
    key_of,
    rank_of,
)

CHAIN_MAX: Final = 32
"""Versions in the history of a ring: the first, and the newest."""


class Seat(NamedTuple):
    """[RNG Figure 3b] A position on the ring."""

    member: Member
    local: Number = 0
    """ls: the number of its last message ordered before this ring."""
    old: Bit = True
    """[RNG Figure 3a] vi > 0: it was in the group before."""
    waits: Bit = False
    """It is to get the state of the application."""


class RingLink(NamedTuple):
    """A version in the history of a ring, and the S with which it began."""

    version: Version
    base: Number


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring as its coordinator described it. The same at all that accepted it."""

    version: Version = NO_VERSION
    seats: tuple[Seat, ...] = ()
    absent: tuple[Seat, ...] = ()
    """In the group, but not on the ring: they failed, or are cut off."""
    size: int = 0
    """N: a majority is more than half of this."""
    base: int = 0
    """S when it was formed: all on it have the turns up to here."""
    seq: int = 0
    """The sequence number of the last message ordered by then."""
    chain: tuple[RingLink, ...] = ()
    """The founding, and the versions up to this one as far as known, the newest last."""
    leader: Member | None = None
    trunk: Version = NO_VERSION
    """If this ring, or one before it, was formed by the operator's request: the last one that was
    not. A ring of the majority that continued from there precedes it."""
    parted: bool = False
    """This one was formed by the operator's request."""
    known: int = 0
    """The last turn that all on the ring before it were known to have."""
    members: tuple[Member, ...] = field(init=False, compare=False)
    keys: tuple[int, ...] = field(init=False, compare=False)
    """By position."""
    index: dict[int, int] = field(init=False, compare=False)
    """Positions by key."""

    def __post_init__(self) -> None:
        members = tuple(seat.member for seat in self.seats)
        keys = tuple(map(key_of, members))
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "index", {key: at for at, key in enumerate(keys)})

    @property
    def rank(self) -> Rank:
        return rank_of(self.version, self.trunk)

    def holder(self, s: int) -> int:
        """[RNG-2] The position of the holder after turn s: s ⊕ 1."""
        return (s + 1) % len(self.seats)

    def first_turn(self, key: int) -> int:
        """The first turn of this member."""
        at = self.index.get(key)
        start = self.base + 1
        return NUMBER_MAX if at is None else start + (at - start) % len(self.seats)

    def member(self, key: int) -> Member | None:
        at = self.index.get(key)
        return None if at is None else self.seats[at].member

    def marks(self, ordered: Mapping[int, int]) -> dict[Member, int]:
        """By member, the number of its last message in the turns read, given by key."""
        keys = (*self.keys, *(key_of(seat.member) for seat in self.absent))
        members = (*self.members, *(seat.member for seat in self.absent))
        return {member: ordered.get(key, 0) for member, key in zip(members, keys, strict=True)}

    @property
    def awaits_state(self) -> bool:
        """A newcomer is to get the state of the application."""
        return any(seat.waits for seat in self.seats)

    @property
    def oldest(self) -> Member | None:
        """The first member that was in the group before."""
        return next((seat.member for seat in self.seats if seat.old), None)

    @property
    def voters(self) -> int:
        """This many voters are in any majority."""
        return self.size - self.size // 2

    def votes(self, names: Iterable[str]) -> int:
        """Members new to the group count where it is larger than the members known."""
        voting = set(names)
        known = {seat.member.name for seat in (*self.seats, *self.absent)}
        votes = len(voting & known)
        return votes + min(len(voting - known), max(0, self.size - len(known)))

    def remembered(self, names: Iterable[str]) -> int:
        """How many of these the group knows. A free seat counts for nobody: on either side of a
        split another may take it. Before the first ring all seats are free."""
        known = {seat.member.name for seat in (*self.seats, *self.absent)}
        return len(set(names) & known) if known else self.votes(names)

    def ends(self, version: Version) -> int | None:
        """The last S of a version in this history; None if it is not known. The present version has
        not ended; when the first ended is forgotten in a long history."""
        for at, link in enumerate(self.chain):
            if link.version == version and (at or len(self.chain) < CHAIN_MAX):
                return self.chain[at + 1].base if at + 1 < len(self.chain) else NUMBER_MAX
        return None

    @property
    def is_founding(self) -> bool:
        """It has no predecessor."""
        return len(self.chain) == 1

    @property
    def founding(self) -> Version:
        """The first ring of the group."""
        return self.chain[0].version if self.chain else NO_VERSION

    def history(self, version: Version, base: int) -> tuple[RingLink, ...]:
        """The chain of the ring that follows."""
        first, recent = self.chain[:1], self.chain[1:]
        return (*first, *recent[2 - CHAIN_MAX :], RingLink(version, base))

    def began_after(self, version: Version) -> bool:
        """The group was founded anew after this version."""
        return version < self.founding

    def is_apart_from(self, version: Version) -> bool:
        """It is not in this history, of which only the first and the newest versions are known."""
        known = len(self.chain) < CHAIN_MAX or not self.founding < version < self.chain[1].version
        return bool(self.chain) and known and all(link.version != version for link in self.chain)

    # -- as bytes --------------------------------------------------------------------------------

    def packed(self) -> bytes:
        assert self.leader is not None
        return encode(
            RingFields(
                self.size,
                self.base,
                self.seq,
                self.trunk,
                self.parted,
                self.known,
                self.leader,
                self.seats,
                self.absent,
                self.chain,
            )
        )


class RingFields(NamedTuple):
    """A ring on the wire; its version stands in the header."""

    size: U16
    base: Number
    seq: Number
    trunk: Version
    parted: bool
    known: U64
    leader: Member
    seats: tuple[Seat, ...]
    absent: tuple[Seat, ...]
    chain: tuple[RingLink, ...]

    def is_valid(self) -> bool:
        names = {seat.member.name for seat in self.seats}
        return (
            0 < len(names) == len(self.seats)
            and 0 < len(self.chain) <= CHAIN_MAX
            and self.known <= self.base
        )


def read_ring(version: Version, data: Buffer) -> Ring:
    """The ring, or `BadPacket`."""
    size, base, seq, trunk, parted, known, leader, seats, absent, chain = decode(RingFields, data)
    if trunk >= version or key_of(leader) != version.leader or chain[-1] != (version, base):
        raise BadPacket("malformed")
    return Ring(version, seats, absent, size, base, seq, chain, leader, trunk, parted, known)


class Record(NamedTuple):
    """What a process keeps on stable storage."""

    version: Version
    """The last one accepted."""
    names: tuple[str, ...]
    """The members of that ring, and of those before it down to the last one known to have been in
    force: any of these may remember."""
    pledged: Version = NO_VERSION
    """The highest one promised."""
    votes: bool = False
    """It was on a ring in force, or never had a past: it cannot have forgotten a promise."""
    trunk: Version = NO_VERSION
    """Of the ring accepted last."""

    def packed(self) -> bytes:
        version, names, pledged, votes, trunk = self
        return encode(RecordFields(version, pledged, votes, trunk, names))


class RecordFields(NamedTuple):
    """A record on stable storage."""

    version: Version
    pledged: Version
    votes: bool
    trunk: Version
    names: tuple[str, ...]


def read_record(data: Buffer) -> Record:
    version, pledged, votes, trunk, names = decode(RecordFields, data)
    return Record(version, names, pledged, votes, trunk)


NO_RECORD: Final = Record(NO_VERSION, ())
