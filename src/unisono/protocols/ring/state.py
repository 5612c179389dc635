"""The ring accepted last, whether it is in force, and the record kept over a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from unisono.core import Checkpoint, CoreConfig, Effect
from unisono.errors import BadPacket
from unisono.model import Member
from unisono.protocols.ring.packets import (
    NO_VERSION,
    ROUND_MAX,
    ROUNDS_AHEAD_MAX,
    Packet,
    Rank,
    Version,
    key_of,
    rank_of,
)
from unisono.protocols.ring.ring import NO_RECORD, Ring, Seat, read_record

EARLIER_MAX: Final = 8


class RingState:
    """R and its version at one member."""

    __slots__ = (
        "_drop",
        "_sites",
        "_with_state",
        "earlier",
        "in_force",
        "key",
        "me",
        "memory",
        "override",
        "receiving",
        "record",
        "ring",
        "seen",
        "was_in_force",
    )

    def __init__(self, config: CoreConfig, sites: int, drop: Callable[[str], None]) -> None:
        self.me = config.me
        self.key = key_of(config.me)
        self._sites = sites
        self._with_state = config.with_state
        self._drop = drop
        self.ring = Ring()
        """The ring accepted last."""
        self.earlier: tuple[Ring, ...] = ()
        """Rings accepted before it, from the last one known to have been in force."""
        self.in_force = False
        """The ring is in force, and not being reformed."""
        self.was_in_force = False
        """The ring is known to have been in force."""
        self.receiving = False
        """The Receive machine has left INIT."""
        self.memory = False
        """This member has the messages of the ring."""
        self.override = False
        """[RNG-13] The operator lets the part that this member is in go on."""
        self.record = NO_RECORD._replace(votes=config.durable)
        """Stable storage without a record proves that there was no past."""
        self.seen = 0
        """The highest version number seen."""

    @property
    def version(self) -> Version:
        """The highest version accepted, in this incarnation or an earlier one."""
        return max(self.ring.version, self.record.version)

    @property
    def rank(self) -> Rank:
        """[RNG-10] What R1 compares."""
        return rank_of(self.version, self.record.trunk)

    @property
    def is_normal(self) -> bool:
        """Normal operation, in which Send and Receive process all events."""
        return self.in_force and self.receiving

    @property
    def seat(self) -> Seat | None:
        """The position of this member on the ring."""
        at = self.ring.index.get(self.key)
        return None if at is None else self.ring.seats[at]

    @property
    def wants_state(self) -> bool:
        """The application is to get the state of the group."""
        return self._with_state and not self.memory

    def is_my_ring(self, packet: Packet) -> bool:
        return packet.header.version == self.ring.version

    def founding(self) -> Ring:
        """The group before its first ring: only its size is known."""
        return Ring(size=self._sites or len(self.record.names))

    def is_former(self, member: Member) -> bool:
        """An earlier incarnation of this member."""
        same = member.name == self.me.name and member.address.host == self.me.address.host
        return same and member.incarnation < self.me.incarnation

    # -- what happens ----------------------------------------------------------------------------

    def note_seen(self, number: int) -> bool:
        """Of a version that exists, or may; False if it is too far ahead to be believed. A process
        without a past knows nothing to compare it with."""
        if number > self.seen:
            known = max(self.version, self.record.pledged).number
            if number > (known + ROUNDS_AHEAD_MAX if known else ROUND_MAX // 2):
                return False
            self.seen = number
        return True

    def next_number(self) -> int:
        """A version number above all that were seen."""
        self.seen += 1
        return self.seen

    def remember(self) -> None:
        """This member has the messages of the ring, or its state."""
        self.memory = True

    def let_go_on(self) -> bool:
        """[RNG-13] The majority condition is changed for the part that this member is in; whether
        there is need."""
        self.override = not self.is_normal
        return self.override

    def receive(self, on: bool) -> None:
        self.receiving = on

    def suspend(self) -> None:
        """The ring is to be reformed."""
        self.in_force = False

    def resume(self) -> bool:
        """The ring is in force; whether this member is on it."""
        self.override = False
        self.in_force = self.seat is not None
        return self.in_force

    def commit(self) -> tuple[Ring, ...]:
        """The ring is known to have been in force; those accepted before it."""
        self.was_in_force = True
        earlier, self.earlier = self.earlier, ()
        seat = self.seat
        self.memory = self.memory or seat is None or not seat.waits
        return earlier

    # -- the record ------------------------------------------------------------------------------

    def checkpoint(self, out: list[Effect], **changes: Any) -> None:
        """Write the record, before anything that depends on it is sent."""
        self.record = self.record._replace(**changes)
        out.append(Checkpoint(self.record.packed()))

    def restore(self, stable: Iterable[bytes]) -> None:
        """The last record that can be read. An unreadable one alone proves a forgotten past."""
        for data in stable:
            try:
                self.record = read_record(data)
            except BadPacket:
                self._drop("record")
                self.record = self.record._replace(votes=self.record.pledged > NO_VERSION)
        self.seen = max(self.seen, self.record.version.number, self.record.pledged.number)

    def forget_version(self) -> None:
        """The ring that the record names no longer exists."""
        self.record = self.record._replace(version=NO_VERSION, names=(), trunk=NO_VERSION)

    # -- rings -----------------------------------------------------------------------------------

    def accept(self, ring: Ring, out: list[Effect]) -> None:
        """[RNG Phase-2] The ring is accepted, and not in force yet."""
        if self.ring.seats:
            first, *later = *self.earlier, self.ring
            excess = len(later) + 1 - EARLIER_MAX
            kept = (ring for at, ring in enumerate(later) if at >= excess or ring.is_founding)
            self.earlier = (first, *kept)
        self.ring = ring
        self.in_force = self.was_in_force = False
        names = {member.name for each in (*self.earlier, ring) for member in each.members}
        self.checkpoint(out, version=ring.version, names=tuple(sorted(names)), trunk=ring.trunk)

    def forget_ring(self) -> None:
        """As if no ring had been accepted."""
        self.ring, self.earlier = Ring(), ()
        self.memory = self.was_in_force = False
        self.forget_version()
