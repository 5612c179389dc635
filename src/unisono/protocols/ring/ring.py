"""R and G: the logical ring, the group behind it, and the record of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.model import Buffer, Member
from unisono.protocols.ring.packets import (
    NO_VERSION,
    NUMBER_MAX,
    ROUND_MAX,
    Rank,
    Version,
    key_of,
    rank_of,
)
from unisono.wire import Reader, Writer

CHAIN_MAX: Final = 32
"""Former versions whose last turn is known."""


class Seat(NamedTuple):
    """[RNG Figure 3b] A position on the ring."""

    member: Member
    local: int = 0
    """ls: the number of its last message ordered before this ring."""
    old: bool = True
    """[RNG Figure 3a] vi > 0: it was in the group before."""
    waits: bool = False
    """It is to get the state of the application."""


class RingLink(NamedTuple):
    """A version in the history of a ring, and the S with which it began."""

    version: Version
    base: int


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
    """This version and those before it, the newest last."""
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
        """The last S of a version in this history; None if it is not in it. The present version has
        not ended."""
        for at, link in enumerate(self.chain):
            if link.version == version:
                return self.chain[at + 1].base if at + 1 < len(self.chain) else NUMBER_MAX
        return None

    def began_after(self, version: Version) -> bool:
        """The group was founded anew after this version."""
        return len(self.chain) < CHAIN_MAX and version < self.chain[0].version

    # -- as bytes --------------------------------------------------------------------------------

    def packed(self) -> bytes:
        out = Writer().u16(self.size).u64(self.base).u64(self.seq)
        out.u32(self.trunk.number).u64(self.trunk.leader).u8(self.parted).u64(self.known)
        assert self.leader is not None
        out.member(self.leader)
        for seats in (self.seats, self.absent):
            out.u16(len(seats))
            for seat in seats:
                out.member(seat.member).u64(seat.local).u8(seat.old | seat.waits << 1)
        flat = [value for link in self.chain for value in (*link.version, link.base)]
        return out.rows("IQQ", 3, flat).done()


def read_ring(version: Version, data: Buffer) -> Ring:
    """The description again, or `BadPacket`."""
    reader = Reader(data)
    size, base, seq = reader.u16(), reader.u64(), reader.u64()
    trunk = Version(reader.u32(), reader.u64())
    parted, known = bool(reader.u8()), reader.u64()
    leader = reader.member()
    seats, absent = _read_seats(reader), _read_seats(reader)
    flat = reader.rows("IQQ")
    reader.done()
    chain = tuple(
        RingLink(Version(flat[i], flat[i + 1]), flat[i + 2]) for i in range(0, len(flat), 3)
    )
    names = [seat.member.name for seat in seats]
    wrong = not seats or len(set(names)) != len(names) or max(base, seq) > NUMBER_MAX
    wrong |= (
        any(seat.local > NUMBER_MAX for seat in (*seats, *absent))
        or key_of(leader) != version.leader
    )
    wrong |= not chain or chain[-1] != RingLink(version, base) or len(chain) > CHAIN_MAX
    wrong |= trunk >= version or known > base
    wrong |= any(link.version.number > ROUND_MAX or link.base > NUMBER_MAX for link in chain)
    if wrong:
        raise BadPacket("malformed")
    return Ring(version, seats, absent, size, base, seq, chain, leader, trunk, parted, known)


def _read_seats(reader: Reader) -> tuple[Seat, ...]:
    seats = []
    for _ in range(reader.u16()):
        member, local, bits = reader.member(), reader.u64(), reader.u8()
        seats.append(Seat(member, local, bool(bits & 1), bool(bits & 2)))
    return tuple(seats)


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
        out = Writer().u32(self.version.number).u64(self.version.leader)
        out.u32(self.pledged.number).u64(self.pledged.leader).u8(self.votes)
        out.u32(self.trunk.number).u64(self.trunk.leader).u16(len(self.names))
        for name in self.names:
            out.text(name)
        return out.done()


def read_record(data: Buffer) -> Record:
    reader = Reader(data)
    version = Version(reader.u32(), reader.u64())
    pledged = Version(reader.u32(), reader.u64())
    votes = bool(reader.u8())
    trunk = Version(reader.u32(), reader.u64())
    names = tuple(reader.text() for _ in range(reader.u16()))
    reader.done()
    return Record(version, names, pledged, votes, trunk)


NO_RECORD: Final = Record(NO_VERSION, ())
