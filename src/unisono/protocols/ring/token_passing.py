"""[RNG Figure 7] Send: takes the turns of this member, and passes the token on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import EVERYONE, Effect, Send
from unisono.errors import BadPacket
from unisono.parts.turn import Turn
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import (
    E_ACK,
    E_SENDABLE,
    T_RT,
    T_SEND,
    TOKEN_BC,
    Code,
    Timer,
)
from unisono.protocols.ring.delivery import DeliveryQueue
from unisono.protocols.ring.fault_detection import FaultDetection
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.packets import NO_VERSION, Bits, Delegate, Flag, Header
from unisono.protocols.ring.parameters import Parameters
from unisono.protocols.ring.repair import Repair
from unisono.protocols.ring.requests import MembershipRequests
from unisono.protocols.ring.send_queue import SendQueue
from unisono.protocols.ring.state import RingState
from unisono.protocols.ring.token import TokenPosition
from unisono.protocols.ring.token_policy import TokenPolicy
from unisono.protocols.ring.turn_reader import TurnReader

ACK_MEMBERS: Final = 3
"""In a smaller ring the next turn is the acknowledgment."""


@dataclass(eq=False)
class TokenPassing:
    """What a member does with the token, and while it waits for it."""

    _parameters: Parameters
    _state: RingState
    _agenda: Agenda
    _ordering: Ordering
    _token: TokenPosition
    _policy: TokenPolicy
    _send_queue: SendQueue
    _delivery: DeliveryQueue
    _builder: PacketBuilder
    _detection: FaultDetection
    _requests: MembershipRequests
    _repair: Repair
    _reader: TurnReader

    def __post_init__(self) -> None:
        self._wanted = False
        """Another member asked this holder for the token."""

    # -- when ------------------------------------------------------------------------------------

    def has_token(self, event: object) -> bool:
        return self._token.is_here()

    def can_send(self, event: object) -> bool:
        return (
            self._token.is_here()
            and self._send_queue.has_any()
            and not self._delivery.is_far_behind()
        )

    def is_wanted(self, event: object) -> bool:
        """The token is here, and another member had more to send than its turn could carry."""
        return (
            self._policy.is_wanted(len(self._state.ring.seats))
            and self._token.is_here()
            and not self._delivery.is_far_behind()
        )

    def can_pass_early(self, event: object) -> bool:
        """Another member waits for the token that arrives here next, and this one has nothing to
        send: it need not have the rest of the turn before, so the next one may begin."""
        # Deviates [RNG Ordered]: in the paper a site sends when it has all up to S. A NULL depends
        # on nothing, so here it may be early, and is marked as such.
        return (
            self._state.in_force
            and not self._send_queue.has_any()
            and not self._requests.are_due()
            and not self._delivery.is_far_behind()
            and self._token.arrives_next()
        )

    def has_changes(self, event: object) -> bool:
        """A member wants to join or leave, and this one is to form the ring. A turn that was passed
        early is taken first."""
        return self._requests.are_due() and not self._policy.was_passed(self._ordering.S)

    # -- do --------------------------------------------------------------------------------------

    def start(self, event: object, out: list[Effect]) -> None:
        """A new ring is in force, or the old one continues."""
        self._requests.start(self._agenda.now_us)
        self._policy.start(len(self._state.ring.seats))
        self._detection.start(self._token.holder_key())
        self._await_token(event, out)

    def stop(self, event: object, out: list[Effect]) -> None:
        self._requests.stop(self._agenda.now_us)
        for timer in (T_SEND, T_RT, Timer.REPAIR):
            self._agenda.disarm(timer, out)
        self._repair.stop()

    def look_for_token(self, event: object, out: list[Effect]) -> None:
        """A turn was read: the token is at the next member."""
        if self._detection.is_waiting:
            self._detection.reset()
        self._await_token(event, out)

    def _await_token(self, event: object, out: list[Effect]) -> None:
        agenda = self._agenda
        if self._token.is_here():
            agenda.disarm(T_RT, out)
            if len(self._state.ring.seats) == 1 and self._send_queue.has_any():
                agenda.arm(T_SEND, 0, out)  # Alone: one turn a step, so that the world can act.
            else:
                self._agenda.push(E_SENDABLE)
        else:
            agenda.disarm(T_SEND, out)
            self._wanted = False
            wait_us = self._expect_turn(out)
            if wait_us:
                self.forward(event, out)

    def take_turn(self, event: object, out: list[Effect]) -> None:
        """[RNG-2, RNG-3] One ordered multicast, NULL if there is nothing to send."""
        ordering, queue, agenda = self._ordering, self._send_queue, self._agenda
        agenda.disarm(T_SEND, out)
        if self._delivery.is_far_behind():
            agenda.arm(T_SEND, self._parameters.t_rt_us, out)
            self._agenda.push(E_ACK)
            return
        ordering.settle()
        s = ordering.S + 1
        if self._policy.was_passed(s - 1):
            self._multicast(Flag.EARLY, b"", s, s - 1, out)
        else:
            content, safe, more = queue.gather()
            flags = Flag.WANTED * (more or self._wanted) | Flag.SAFE * safe
            if safe and not more and len(self._state.ring.seats) >= ACK_MEMBERS:
                flags |= Flag.ACK
            if content and not flags and self._is_lone():
                flags |= Flag.LONE
            self._wanted = False
            self._multicast(flags, content, s, queue.ordered, out)
            queue.note_turn(s)
        self._reader.advance(out)
        if len(self._state.ring.seats) > 1:
            if self._detection.is_waiting:
                self._detection.reset()
            self._expect_turn(out)

    def pass_early(self, event: object, out: list[Effect]) -> None:
        """[RNG-3] NULL, before all turns that precede it are here."""
        s = self._ordering.highest + 1
        self._policy.note_passed(s)
        self._multicast(Flag.EARLY, b"", s, self._ordering.S, out)

    def rest(self, event: object, out: list[Effect]) -> None:
        """The token is here, and there is nothing to send."""
        s = self._ordering.S
        wait_us = self._policy.wait_us(self._state.ring, s)
        if self._delivery.is_far_behind():
            wait_us = self._parameters.t_rt_us
        elif self._wanted:
            wait_us = 0
        elif self._policy.awaits_acks(s, self._ordering.safe):
            wait_us = max(wait_us, self._parameters.t_send_us)
        self._agenda.arm(T_SEND, wait_us, out)

    def reform(self, event: object, out: list[Effect]) -> None:
        """Form the ring anew, as the holder of the token."""
        self._agenda.push(Code.E_REFSTART)
        self._agenda.push(Code.E_COORDINATOR, Bits.AT_TOKEN)

    def forward(self, event: object, out: list[Effect]) -> None:
        """[RNG-4] On an idle ring the holder is asked at once to multicast for this member."""
        # Deviates [RNG Fast]: the paper forwards what its application calls urgent. Here everything
        # is urgent on an idle ring, and on a busy one the token arrives soon enough.
        queue = self._send_queue
        if not self._state.in_force or self._token.is_here():
            return
        due = self._requests.are_due()
        if (queue.has_own() or due) and self.wait_us() > 0:
            self._builder.to(self._token.holder(), Code.DATA_BC_RQU, queue.delegate(), out)

    def take_delegate(self, packet: Delegate, out: list[Effect]) -> None:
        """Another member asks this holder to multicast for it, or only to pass the token."""
        if packet.header.version != self._state.ring.version:
            self._builder.drop("version")
            return
        try:
            self._send_queue.take_delegate(packet)
        except BadPacket as bad:
            self._builder.drop(bad.reason)
            return
        self._wanted = True
        self._agenda.push(E_SENDABLE)

    def drop_delegate(self, packet: Delegate, out: list[Effect]) -> None:
        self._builder.drop("no_token")

    # -- for other parts -------------------------------------------------------------------------

    def wait_us(self) -> int:
        """How long the holder may keep the token."""
        return self._policy.wait_us(self._state.ring, self._ordering.S)

    def wake(self, out: list[Effect]) -> None:
        """A request to join or leave waits for the token."""
        if self._token.is_here():
            self._agenda.push(E_SENDABLE)
        else:
            self.forward(None, out)

    def note_ack(self, out: list[Effect]) -> None:
        """[RNG-8] After the last ack the holder reports k to all."""
        ordering = self._ordering
        if self._policy.is_acked_turn(ordering.S) and self._token.is_here():
            ordering.settle()
            if not self._policy.awaits_acks(ordering.S, ordering.safe):
                self._agenda.arm(T_SEND, 0, out)

    def _multicast(self, flags: int, content: bytes, s: int, local: int, out: list[Effect]) -> None:
        state, ordering = self._state, self._ordering
        flags |= Flag.PARTED * (state.ring.trunk > NO_VERSION)
        turn = Turn(s, state.key, flags, content, self._send_queue.piece_bytes)
        header = Header(state.ring.version, state.key, state.key, local, s, ordering.safe)
        packets = self._builder.turn(TOKEN_BC, header, turn, range(turn.count))
        out.append(Send(EVERYONE, packets))
        ordering.put_own(turn)

    def _expect_turn(self, out: list[Effect]) -> int:
        """[T_RT] The next turn should have arrived by then; how long its holder may wait."""
        wait_us = self.wait_us()
        self._agenda.arm(T_RT, self._parameters.t_rt_us + wait_us, out)
        return wait_us

    def _is_lone(self) -> bool:
        """Messages sent now follow a silence, and nothing waits for all to have them."""
        return not self._send_queue.is_pressed() and self._policy.is_lone(self._agenda.now_us)
