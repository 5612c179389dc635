"""The one who follows: promises, takes what it lacks, accepts the new ring, and resumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unisono.core import Cause, Effect
from unisono.errors import BadPacket
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.election import Election
from unisono.protocols.ring.packets import (
    LOST_REASON,
    NO_VERSION,
    Abort,
    Bits,
    Control,
    Flag,
    MemberRecord,
    Rejection,
    RingPart,
    TurnPacket,
    Version,
)
from unisono.protocols.ring.ring import Ring, read_ring

if TYPE_CHECKING:
    from unisono.protocols.ring.core import Site

PARTS_MAX: Final = 64
"""Packets that describe a ring."""


class Following(Election):
    """[RNG Figure 10] What the Reformation machine of one member does."""

    def __init__(self, core: Site) -> None:
        super().__init__(core)
        self.rounds = 0
        """How often the same was asked."""
        self.override = False
        """[RNG-13] The operator wants this part to go on."""
        self._parts: dict[int, RingPart] = {}
        self._parts_of = NO_VERSION
        self._offered: Ring | None = None

    # -- phase 1: a promise ------------------------------------------------------------------------

    def promise(self, packet: MemberRecord, out: list[Effect]) -> None:
        """[RSP_POS] From now on nothing of the old ring is taken, but what the coordinator sends
        again, so that what we say of our S stays true."""
        core = self._core
        attempt = Version(packet.attempt, packet.header.sender)
        if attempt != self.promised:
            self.pledge(attempt, packet.member, out)
        self.repeated += 1
        if core.memory:
            core.ordering.expect(packet.header.s)
        self.rounds = 0
        core.membership.settled(out)
        core.arm(Timer.T_REF_RT, core.parameters.t_ref_rt_us, out)
        self.answer(out)
        if core.memory and core.ordering.has_gap():
            core.arm(Timer.REPAIR, core.parameters.t_ts_us // 2, out)

    def answer(self, out: list[Effect]) -> None:
        core = self._core
        if self.leader is not None:
            core.to(self.leader, Code.RSP_POS, self.standing().body(), out)

    def standing(self) -> MemberRecord:
        """[RSP_POS] What we say of ourselves to one who leads."""
        core = self._core
        bits = Bits.MEMORY * core.memory | Bits.STATE * core.membership.wants_state
        bits |= Bits.LEAVING * core.membership.has_quit | Bits.OVERRIDE * self.override
        bits |= Bits.VOTES * core.record.votes | Bits.IN_FORCE * core.was_in_force
        bits |= Bits.INSIDE * (core.delivery.has_view and core.memory)
        return core.person(Code.RSP_POS, self.promised.number, bits)

    def take_repair(self, packet: TurnPacket, out: list[Effect]) -> None:
        """[RNG Phase-1] The coordinator sends what we lack."""
        core = self._core
        if packet.header.sender != self.promised.leader or not core.memory:
            core.codec.drop("repair")
            return
        before = core.ordering.S
        core.take(packet, out)
        if core.ordering.has_gap():
            core.arm(Timer.REPAIR, core.parameters.t_ts_us // 2, out)
        elif before < core.ordering.S:
            self.answer(out)

    def ask_leader(self, out: list[Effect]) -> None:
        """Some of it did not come."""
        core = self._core
        if self.leader is not None and core.ordering.has_gap():
            core.repair.ask_of(self.leader, out)
            core.arm(Timer.REPAIR, core.parameters.t_ts_us // 2, out)

    def is_given_up(self, packet: Abort) -> bool:
        attempt = Version(packet.attempt, packet.header.sender)
        return attempt == self.promised and self._core.was_in_force

    def may_return(self, packet: TurnPacket) -> bool:
        """Our ring goes on, and we have promised nothing beyond it."""
        core = self._core
        return (
            packet.header.version == core.ring.version
            and core.was_in_force
            and self.promised <= core.ring.version
        )

    def return_to_ring(self, out: list[Effect]) -> None:
        """What was promised will never be: the ring as it was."""
        core = self._core
        self.free()
        self.override = False
        self.suspects.clear()
        core.membership.settled(out)
        core.disarm(Timer.T_REF_RT, out)
        core.in_force = True

    # -- phase 2: the new ring ---------------------------------------------------------------------

    def gather(self, packet: RingPart) -> None:
        """A part of the ring that was promised; with the last, the ring."""
        version = packet.header.version
        if version != self.promised or packet.of > PARTS_MAX:
            return
        if version != self._parts_of:
            self._parts_of, self._parts, self._offered = version, {}, None
        self._parts[packet.at] = packet
        if len(self._parts) < packet.of or self._offered is not None:
            return
        try:
            pieces = [self._parts[index].piece for index in range(packet.of)]
            self._offered = read_ring(version, b"".join(pieces))
        except (BadPacket, KeyError):
            self._core.codec.drop("malformed")
            self._parts = {}

    def offered(self, packet: RingPart) -> Ring | None:
        """The ring that was promised, once all of it is here."""
        promised = packet.header.version == self.promised == self._parts_of
        return self._offered if promised else None

    def offers(self, packet: RingPart) -> bool:
        """It is the one promised, whole, and we have all that it stands on."""
        core = self._core
        ring = self.offered(packet)
        if ring is None:
            return False
        if core.key in ring.index:
            seat = ring.seats[ring.index[core.key]]
            return seat.old == core.memory and (not core.memory or ring.base == core.ordering.S)
        return core.membership.has_quit and ring.base == core.ordering.S

    def leaves_out(self, packet: RingPart) -> bool:
        ring = self.offered(packet)
        return ring is not None and not self.offers(packet)

    def accept_offer(self, packet: RingPart, out: list[Effect]) -> None:
        ring = self.offered(packet)
        assert ring is not None
        self._core.accept(ring, out)
        self.rounds = 0
        self._core.arm(Timer.T_REF_RT, self._core.parameters.t_ref_rt_us // 2, out)
        self.acknowledge(packet, out)

    def acknowledge(self, packet: RingPart, out: list[Effect]) -> None:
        core = self._core
        if packet.header.version == core.ring.version and core.ring.leader is not None:
            core.to(core.ring.leader, Code.NEWTR_ACK, b"", out)

    def ask_resume(self, out: list[Effect]) -> None:
        """[RESUME_RQU] The word may be lost: the coordinator, or anyone on the ring, has it."""
        core = self._core
        self.rounds += 1
        core.arm(Timer.T_REF_RT, core.parameters.t_ref_rt_us // 2, out)
        asked = {core.ring.leader, *core.ring.members} - {core.me, None}
        core.to_all(sorted(m for m in asked if m is not None), Code.RESUME_RQU, b"", out)

    def say_resume(self, packet: Control, out: list[Effect]) -> None:
        core = self._core
        if packet.header.version == core.ring.version:
            member = core.ring.member(packet.header.sender) or core.membership.leaver(packet)
            if member is not None:
                core.to(member, Code.RESUME, b"", out)

    def is_in_force_elsewhere(self, packet: MemberRecord | TurnPacket | Control) -> bool:
        """We accepted this ring, and were never told that it is in force: it is."""
        core = self._core
        told = not isinstance(packet, MemberRecord) or packet.has(Bits.IN_FORCE)
        return (
            told
            and packet.header.version == core.ring.version
            and core.ring.version.number > 0
            and not core.was_in_force
            and self.promised <= core.ring.version
        )

    def is_later(self, packet: TurnPacket | MemberRecord) -> bool:
        """Another ring is in force, and goes before ours. What was let go on without a majority
        does not say from where: a ring that works does not look, and who is blocked asks it."""
        core = self._core
        version = packet.header.version
        if isinstance(packet, MemberRecord):
            return packet.rank > core.rank
        if packet.flags & Flag.PARTED:
            return version > core.version and (core.ring.trunk > NO_VERSION or not core.in_force)
        return (version, version) > core.rank

    def is_beyond_promise(self, packet: TurnPacket) -> bool:
        """What was promised will not come: that ring, or a later one, goes on. A turn of an earlier
        one is only late: whoever has yet to join would run from the ring that lets it in."""
        return self.is_later(packet) and packet.header.version >= self.promised

    def told(self, packet: Rejection) -> None:
        core = self._core
        if packet.member != core.me:
            return
        if packet.known and not core.delivery.has_view:
            core.doom(packet.reason, Cause.SUPERSEDED, packet.known)
            return
        refused = packet.code is Code.REFUSE and not core.delivery.has_view
        if refused or (packet.code is Code.STALE and not core.is_normal()):
            lost = Cause.MEMORY_LOST if packet.reason == LOST_REASON else Cause.EXCLUDED
            cause = Cause.REFUSED if refused else lost
            core.doom(packet.reason, cause, by=str(packet.header.version))
