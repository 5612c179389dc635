"""[RNG Figure 10] Reformation: promises, gets what it lacks, accepts the new ring, and resumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Cause, Effect
from unisono.errors import BadPacket
from unisono.layout import encode
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.delivery import DeliveryQueue
from unisono.protocols.ring.election import Election
from unisono.protocols.ring.installation import Installation
from unisono.protocols.ring.leaving import Leaving
from unisono.protocols.ring.lifecycle import Lifecycle
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.packets import (
    LOST_REASON,
    NO_VERSION,
    Abort,
    Bits,
    Control,
    MemberRecord,
    Rejection,
    RingPart,
    TurnPacket,
    Version,
)
from unisono.protocols.ring.parameters import ROUNDS_MAX, Parameters
from unisono.protocols.ring.receiver import Receiver
from unisono.protocols.ring.repair import Repair
from unisono.protocols.ring.ring import Ring, read_ring
from unisono.protocols.ring.ring_search import RingSearch
from unisono.protocols.ring.state import RingState
from unisono.protocols.ring.state_transfer import StateTransfer

PARTS_MAX: Final = 64
"""Packets that describe a ring."""


@dataclass(eq=False)
class Reformation:
    """What a member does while another forms a ring, or none does."""

    _parameters: Parameters
    _state: RingState
    _agenda: Agenda
    _lifecycle: Lifecycle
    _ordering: Ordering
    _delivery: DeliveryQueue
    _builder: PacketBuilder
    _election: Election
    _search: RingSearch
    _repair: Repair
    _installation: Installation
    _leaving: Leaving
    _receiver: Receiver
    _transfer: StateTransfer

    def __post_init__(self) -> None:
        self._rounds = 0
        """Requests to resume."""
        self._parts: dict[int, RingPart] = {}
        self._parts_of = NO_VERSION
        self._offered: Ring | None = None

    # -- when ------------------------------------------------------------------------------------

    def should_lead(self, packet: MemberRecord) -> bool:
        """The inviter knows less than this member, which has nothing better to wait for."""
        attempt = Version(packet.attempt, packet.header.sender)
        return (
            self._election.knows_less(packet)
            and attempt > self._state.record.pledged
            and not self._search.target
        )

    def is_past_promise(self, packet: TurnPacket) -> bool:
        """The promised ring, or a later one, is in force without this member. A turn of an earlier
        one is only late: to follow it would be to leave the ring that is about to admit us."""
        later = self._election.is_later(packet)
        return later and packet.header.version >= self._election.promised

    def may_return(self, packet: TurnPacket) -> bool:
        """Our ring is in force, and nothing beyond it is promised."""
        state = self._state
        return (
            packet.header.version == state.ring.version
            and state.was_in_force
            and self._election.promised <= state.ring.version
        )

    def is_in_force(self, packet: MemberRecord | TurnPacket | Control) -> bool:
        """The ring that we accepted turns out to be in force."""
        state = self._state
        reported = not isinstance(packet, MemberRecord) or packet.has(Bits.IN_FORCE)
        return (
            reported
            and packet.header.version == state.ring.version
            and state.ring.version.number > 0
            and not state.was_in_force
            and self._election.promised <= state.ring.version
        )

    def is_given_up(self, packet: Abort) -> bool:
        attempt = Version(packet.attempt, packet.header.sender)
        return attempt == self._election.promised and self._state.was_in_force

    def is_offered(self, packet: RingPart) -> bool:
        """The promised ring is complete, and this member has all that it is based on."""
        ring, state, s = self._offer(packet), self._state, self._ordering.S
        if ring is None:
            return False
        if state.key in ring.index:
            seat = ring.seats[ring.index[state.key]]
            return seat.old == state.memory and (not state.memory or ring.base == s)
        # One that leaves has answered, or is late: its last turns may have been given up meanwhile.
        ends = ring.ends(state.ring.version)
        return self._lifecycle.has_quit and ring.base == s and ends is not None and s <= ends

    def is_left_out(self, packet: RingPart) -> bool:
        return self._offer(packet) is not None and not self.is_offered(packet)

    def asked_enough(self, event: object) -> bool:
        return self._rounds >= ROUNDS_MAX // 2

    # -- do: before an invitation ----------------------------------------------------------------

    def wait_for_invitation(self, event: object, out: list[Effect]) -> None:
        self._agenda.disarm(Timer.T_REF_RT, out)
        if self._search.target is not None or not self._state.memory:
            self._send_join(out)
        self._search.listen(out)

    def ask_to_join(self, event: object, out: list[Effect]) -> None:
        self._search.note_asked()
        self._send_join(out)
        self._search.listen(out)

    def note_ring(self, packet: MemberRecord | TurnPacket, out: list[Effect]) -> None:
        """Another ring is in force: ask to join it."""
        if self._search.note_ring(packet):
            self._send_join(out)
            self._search.listen(out)

    def follow_later(self, packet: TurnPacket, out: list[Effect]) -> None:
        self._election.release_promise()
        self._search.note_ring(packet)
        self.wait_for_invitation(packet, out)

    def _send_join(self, out: list[Effect]) -> None:
        """[MEMBER_JOIN] To everyone: the coordinator is among them."""
        # Deviates [RNG Join]: the paper asks the coordinator that a packet named. It may be dead or
        # leaving, so the first on the ring that stays admits.
        state = self._state
        bits = Bits.MEMORY * state.memory | Bits.STATE * state.wants_state
        packet = self._builder.member_record(Code.MEMBER_JOIN, 0, bits)
        self._builder.everyone(Code.MEMBER_JOIN, encode(packet), out)

    def stand(self, event: object, out: list[Effect]) -> None:
        self._agenda.push(Code.E_COORDINATOR)

    def deny_and_stand(self, packet: MemberRecord, out: list[Effect]) -> None:
        self._election.deny(packet, out)
        self._agenda.push(Code.E_COORDINATOR)

    # -- do: phase 1, a promise ------------------------------------------------------------------

    def promise(self, packet: MemberRecord, out: list[Effect]) -> None:
        """[RSP_POS] From now on only the coordinator's retransmissions are taken, so that the S
        that is reported stays true."""
        election, ordering, agenda = self._election, self._ordering, self._agenda
        election.promise(Version(packet.attempt, packet.header.sender), packet.member, out)
        if self._state.memory:
            ordering.expect(packet.header.s)
        self._search.end(out)
        agenda.arm(Timer.T_REF_RT, self._parameters.t_ref_rt_us, out)
        self._answer(out)
        if self._state.memory and ordering.has_gap():
            agenda.arm(Timer.REPAIR, self._parameters.t_ts_us // 2, out)

    def _answer(self, out: list[Effect]) -> None:
        leader = self._election.leader
        if leader is not None:
            self._builder.to(leader, Code.RSP_POS, encode(self._election.standing()), out)

    def take_repair(self, packet: TurnPacket, out: list[Effect]) -> None:
        """[RNG Phase-1] The coordinator retransmits what this member lacks."""
        if packet.header.sender != self._election.promised.leader or not self._state.memory:
            self._builder.drop("repair")
            return
        before = self._ordering.S
        self._receiver.take_turn(packet, out)
        if self._ordering.has_gap():
            self._agenda.arm(Timer.REPAIR, self._parameters.t_ts_us // 2, out)
        elif before < self._ordering.S:
            self._answer(out)

    def request_missing(self, event: object, out: list[Effect]) -> None:
        """Some retransmissions did not arrive."""
        leader = self._election.leader
        if leader is not None and self._ordering.has_gap():
            self._repair.request_from(leader, out)
            self._agenda.arm(Timer.REPAIR, self._parameters.t_ts_us // 2, out)

    def return_to_ring(self, event: object, out: list[Effect]) -> None:
        """The promised ring will never come: the old one and a state transfer continue."""
        self._election.release_promise()
        self._election.trust_all()
        self._state.resume()
        self._search.end(out)
        self._agenda.disarm(Timer.T_REF_RT, out)
        self._transfer.request(out)
        self._agenda.push(Code.E_REFEND)

    # -- do: phase 2, the new ring ---------------------------------------------------------------

    def gather(self, packet: RingPart) -> None:
        """[NEWTR_BC] A part of the promised ring; with the last, the ring."""
        version = packet.header.version
        if version != self._election.promised or packet.of > PARTS_MAX:
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
            self._builder.drop("malformed")
            self._parts = {}

    def _offer(self, packet: RingPart) -> Ring | None:
        """The promised ring, if it is complete."""
        promised = packet.header.version == self._election.promised == self._parts_of
        return self._offered if promised else None

    def accept(self, packet: RingPart, out: list[Effect]) -> None:
        ring = self._offer(packet)
        assert ring is not None
        self._installation.accept(ring, out)
        self._rounds = 0
        self._agenda.arm(Timer.T_REF_RT, self._parameters.t_ref_rt_us // 2, out)
        self._receiver.acknowledge_ring(packet, out)

    def ask_resume(self, event: object, out: list[Effect]) -> None:
        """[RESUME_RQU] The RESUME may be lost: the coordinator, or anyone on the ring, knows."""
        ring = self._state.ring
        self._rounds += 1
        self._agenda.arm(Timer.T_REF_RT, self._parameters.t_ref_rt_us // 2, out)
        asked = {ring.leader, *ring.members} - {self._state.me}
        self._builder.to_all(sorted(m for m in asked if m is not None), Code.RESUME_RQU, b"", out)

    # -- do: the end -----------------------------------------------------------------------------

    def be_released(self, packet: Control, out: list[Effect]) -> None:
        """[RELEASE] Too few remain for a ring, but they have everything."""
        if self._lifecycle.has_quit and packet.header.s == self._ordering.S:
            self._leaving.depart()

    def note_rejection(self, packet: Rejection) -> None:
        """[STALE, REFUSE] This member cannot join, or cannot go on from where it is."""
        if packet.member != self._state.me:
            return
        outside = not self._delivery.has_view
        if packet.known and outside:
            self._lifecycle.fail(packet.reason, Cause.SUPERSEDED, packet.known)
        elif packet.code is Code.REFUSE and outside:
            self._lifecycle.fail(packet.reason, Cause.REFUSED)
        elif packet.code is Code.STALE and not self._state.is_normal:
            lost = Cause.MEMORY_LOST if packet.reason == LOST_REASON else Cause.EXCLUDED
            versions = packet.header.version, packet.founding
            view, founding = (str(each) if each > NO_VERSION else "" for each in versions)
            self._lifecycle.fail(packet.reason, lost, view=view, founding=founding)
