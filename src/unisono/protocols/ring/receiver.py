"""[RNG Figure 8] Receive: takes turns, requests what is missing, and answers the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from unisono.core import Effect
from unisono.layout import encode
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import FAST_ACK, T_RT, Code
from unisono.protocols.ring.election import Election
from unisono.protocols.ring.fault_detection import FaultDetection
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.packets import (
    NO_HEADER,
    NO_VERSION,
    Bits,
    Control,
    CoordRequest,
    Flag,
    MemberRecord,
    Packet,
    ResendRequest,
    RingPart,
    TurnPacket,
    count_of,
)
from unisono.protocols.ring.parameters import Parameters
from unisono.protocols.ring.repair import Repair
from unisono.protocols.ring.requests import MembershipRequests
from unisono.protocols.ring.send_queue import SendQueue
from unisono.protocols.ring.state import RingState
from unisono.protocols.ring.token import TokenPosition
from unisono.protocols.ring.token_passing import TokenPassing
from unisono.protocols.ring.turn_reader import TurnReader

ASK_ALL: Final = 4
"""Of this many requests to a silent holder, one goes to everyone."""


@dataclass(eq=False)
class Receiver:
    """What a member does with the packets of a ring in force."""

    _parameters: Parameters
    _state: RingState
    _agenda: Agenda
    _ordering: Ordering
    _token: TokenPosition
    _send_queue: SendQueue
    _builder: PacketBuilder
    _detection: FaultDetection
    _election: Election
    _requests: MembershipRequests
    _repair: Repair
    _reader: TurnReader
    _passing: TokenPassing

    def note_sender(self, packet: Packet, out: list[Effect]) -> None:
        """Any packet of the ring in force: what its sender has, and that it is alive."""
        header, ordering = packet.header, self._ordering
        if type(packet) is not TurnPacket:
            ordering.note(header.sender, header.s, header.k)
        elif not packet.again:
            ring = self._state.ring
            if ring.index.get(header.sender) == header.s % len(ring.seats):
                early = packet.flags & Flag.EARLY
                has = min(header.local, header.s) if early else header.s
                ordering.note(header.sender, has, header.k)
        if self._detection.is_waiting and not isinstance(packet, MemberRecord):
            if self._token.holder_key() == header.sender:
                self._detection.note_holder(header.sender)
        if type(packet) is Control and packet.code is FAST_ACK:
            self._passing.note_ack(out)

    # -- when ------------------------------------------------------------------------------------

    def holder_silent(self, event: object) -> bool:
        detector = self._detection.detector
        return detector.is_silent(self._token.holder_key()) or self._holds_up()

    def _holds_up(self) -> bool:
        return self._detection.holds_up(self._ordering.hole())

    def agrees(self, packet: MemberRecord) -> bool:
        """The invitation is worthy, and there is a reason to stop the ring."""
        state, header = self._state, packet.header
        if not self._election.is_worthy(packet):
            return False
        at = state.ring.index.get(header.sender)
        if header.version != state.ring.version or at is None:
            # Of another ring: ours may have been left behind, or was let go on while a majority
            # did.
            outranked = packet.rank[0] > state.rank[0] and state.ring.trunk > NO_VERSION
            return outranked or (packet.rank > state.rank and self._detection.tries > 0)
        by_holder = packet.has(Bits.AT_TOKEN) and state.ring.holder(header.s) == at
        return by_holder or self._detection.tries > 0

    def should_lead(self, packet: MemberRecord) -> bool:
        """The inviter suspects the holder rightly, and knows less than this member."""
        return self._detection.tries > 0 and self._election.knows_less(packet)

    def confirms(self, packet: CoordRequest) -> bool:
        """The suspected holder is silent here too."""
        state, header = self._state, packet.header
        return (
            header.version == state.ring.version
            and header.sender in state.ring.index
            and self._detection.tries > 0
            and packet.suspect == self._token.holder_key()
        )

    # -- do: turns -------------------------------------------------------------------------------

    def take_turn(self, packet: TurnPacket, out: list[Effect]) -> None:
        """Packets of a turn, from its holder, or retransmitted by another member."""
        ring, ordering, header = self._state.ring, self._ordering, packet.header
        at, sender = header.s % len(ring.seats), header.sender
        holder = ring.keys[at] if packet.again else sender
        seat = ring.index.get(sender)
        if seat != at and (not packet.again or self._is_stranger(sender)):
            self._builder.drop("turn", count_of(packet))
            return
        if header.s > ordering.highest and not packet.flags & Flag.EARLY:
            self._repair.note_revealed(sender)
        ordering.take(packet, holder)
        if ordering.read_upto != ordering.window.received:
            self._reader.advance(out)
        else:
            self._repair.check_gap(out)
            if self._token.arrives_next():
                self._agenda.push(Code.E_AWAITED)

    def _is_stranger(self, key: int) -> bool:
        """Neither on the ring, nor the coordinator of the next."""
        return key not in self._state.ring.index and key != self._election.promised.leader

    def drop_foreign(self, packet: TurnPacket, out: list[Effect]) -> None:
        self._builder.drop("version", count_of(packet))

    def resend(self, packet: ResendRequest, out: list[Effect]) -> None:
        member = self._state.ring.member(packet.header.sender)
        if packet.header.version != self._state.ring.version or member is None:
            self._builder.drop("version")
            return
        self._repair.send_ranges(member, packet.ranges, out)

    # -- do: suspicion ---------------------------------------------------------------------------

    def ping(self, event: object, out: list[Effect]) -> None:
        """[RNG T_RT] The turn is late: ask its holder, then everyone, since some may have it."""
        # Deviates [RNG Figure 7]: the text lets Send ping the holder on T_SEND, and Figure 8 lets
        # Receive find the fault on T_RT. Here it is Receive and T_RT alone.
        detection, holder = self._detection, self._token.holder()
        detection.wait_for(self._token.holder_key())
        detection.note_hole(self._ordering.hole())
        self._agenda.arm(T_RT, self._parameters.t_rt_us, out)
        if detection.tries > 1:
            detection.probe([holder], out)
        asked = [holder]
        if detection.tries % ASK_ALL == 2:
            asked = [member for member in self._state.ring.members if member != self._state.me]
        self._builder.to_all(asked, Code.TS_ALIVE_RQU, b"", out)
        if self._send_queue.has_own():
            self._builder.to(holder, Code.DATA_BC_RQU, self._send_queue.delegate(), out)

    def answer_alive(self, packet: Control, out: list[Effect]) -> None:
        """[TS_ALIVE_RQU] The sender lags, or this member does, or is slow."""
        key = packet.header.sender
        member = self._state.ring.member(key)
        if packet.header.version != self._state.ring.version or member is None:
            self._builder.drop("version")
            return
        if packet.header.s < self._ordering.S:
            self._repair.help(member, key, packet.header.s, out)
        self._builder.to(member, Code.TS_ALIVE_RSP, b"", out)

    def suspect(self, event: object, out: list[Effect]) -> None:
        """[RNG-11] The member before the silent holder coordinates; this one requests it."""
        ring, holder_key = self._state.ring, self._token.holder_key()
        self._election.suspect_only(holder_key)
        if self._holds_up():
            self._election.distrust(holder_key)
        before = ring.seats[(ring.index[holder_key] - 1) % len(ring.seats)].member
        self._agenda.push(Code.E_REFSTART)
        if before == self._state.me:
            self._agenda.push(Code.E_COORDINATOR)
            return
        self._builder.to(before, Code.COORD_RQU, encode(CoordRequest(NO_HEADER, holder_key)), out)
        self._agenda.push(Code.E_INIT)

    def coordinate(self, packet: CoordRequest, out: list[Effect]) -> None:
        self._election.suspect_only(self._token.holder_key())
        self._agenda.push(Code.E_REFSTART)
        self._agenda.push(Code.E_COORDINATOR)

    # -- do: reformation -------------------------------------------------------------------------

    def yield_to_inviter(self, packet: MemberRecord, out: list[Effect]) -> None:
        self._agenda.push(Code.E_REFSTART)
        self._agenda.push(Code.REF_INV_BC, packet)

    def lead_instead(self, packet: MemberRecord, out: list[Effect]) -> None:
        """Not as one whose ring is in force: the inviter would return to it and deny in turn."""
        self._election.deny(packet, out)
        self._agenda.push(Code.E_REFSTART)
        self._agenda.push(Code.E_COORDINATOR)

    def deny(self, packet: MemberRecord, out: list[Effect]) -> None:
        """[RSP_NEG] The ring is in force, and there is no reason to stop it."""
        bits = Bits.IN_FORCE | Bits.MEMORY * self._state.memory
        leader = self._state.ring.leader
        answer = self._builder.member_record(Code.RSP_NEG, packet.attempt, bits, leader)
        self._builder.to(packet.member, Code.RSP_NEG, encode(answer), out)

    def follow_later(self, packet: Any, out: list[Effect]) -> None:
        self._agenda.push(Code.E_REFSTART)
        self._agenda.push(Code.E_INIT)

    def answer_resume(self, packet: Control, out: list[Effect]) -> None:
        """[RESUME_RQU] The sender missed that the ring is in force."""
        ring = self._state.ring
        if packet.header.version == ring.version:
            member = ring.member(packet.header.sender) or self._requests.left(packet)
            if member is not None:
                self._builder.to(member, Code.RESUME, b"", out)

    def acknowledge_ring(self, packet: RingPart, out: list[Effect]) -> None:
        """[NEWTR_ACK] Again: the first was lost."""
        leader = self._state.ring.leader
        if leader is not None:
            self._builder.to(leader, Code.NEWTR_ACK, b"", out)

    # -- do: membership --------------------------------------------------------------------------

    def note_join(self, packet: MemberRecord, out: list[Effect]) -> None:
        if self._requests.note_join(packet, out):
            self._passing.wake(out)

    def note_quit(self, packet: MemberRecord, out: list[Effect]) -> None:
        if self._requests.note_quit(packet):
            self._passing.wake(out)
