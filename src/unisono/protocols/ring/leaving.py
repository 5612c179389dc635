"""The clean leave: once all that this member sent is with everyone, the ring closes without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Effect
from unisono.layout import encode
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.delivery import DeliveryQueue
from unisono.protocols.ring.election import Election
from unisono.protocols.ring.lifecycle import Lifecycle
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.parameters import Parameters
from unisono.protocols.ring.requests import MembershipRequests
from unisono.protocols.ring.send_queue import SendQueue
from unisono.protocols.ring.state import RingState

LEAVE_ROUNDS: Final = 60
BLOCKED_ROUNDS: Final = 10
"""A leaving member without a ring waits for one for this many T_REFORM."""


@dataclass(eq=False)
class Leaving:
    """The leave of one member, from the request to the release."""

    _parameters: Parameters
    _state: RingState
    _agenda: Agenda
    _lifecycle: Lifecycle
    _ordering: Ordering
    _send_queue: SendQueue
    _delivery: DeliveryQueue
    _builder: PacketBuilder
    _election: Election
    _requests: MembershipRequests

    def __post_init__(self) -> None:
        self._t_reform_us = self._parameters.t_reform_us
        self._quit_us = 0
        self._rounds = 0
        self._blocked_rounds = 0

    def leave(self, out: list[Effect]) -> None:
        """The application wants to leave."""
        self._lifecycle.leave()
        self._send_queue.close()
        if not self._delivery.has_view and not self._is_counted_on():
            self._send_quit(out)
            self._lifecycle.release()
            return
        self._agenda.arm(Timer.LEAVE, self._t_reform_us, out)
        self.quit(out)

    def _is_counted_on(self) -> bool:
        """A ring holds this member, or may: the others need its answer to close without it. A
        member that gives up while it joins comes in first and then leaves."""
        state, election = self._state, self._election
        promised = election.promised > state.ring.version and election.leader != state.me
        return promised or state.seat is not None

    def quit(self, out: list[Effect]) -> None:
        """[QUIT] Once everything this member sent is with everyone."""
        # Deviates [RNG Member leave]: the paper's member announces its leave and is gone. Here it
        # stays until a ring without it is in force, or it is released.
        state, now_us = self._state, self._agenda.now_us
        if not self._send_queue.is_settled() or not state.is_normal:
            return
        if self._lifecycle.has_quit and now_us - self._quit_us < self._t_reform_us // 2:
            return
        self._quit_us = now_us
        self._lifecycle.quit()
        if len(state.ring.seats) == 1:
            if not len(self._delivery):
                self._lifecycle.release()
            return
        self._requests.note_leaver(state.me)
        self._send_quit(out)

    def _send_quit(self, out: list[Effect]) -> None:
        body = encode(self._builder.member_record(Code.QUIT, 0, 0))
        self._builder.everyone(Code.QUIT, body, out)

    def insist(self, out: list[Effect]) -> None:
        """[LEAVE] The leave was not answered."""
        self._rounds += 1
        self._blocked_rounds = 0 if self._state.is_normal else self._blocked_rounds + 1
        if self._rounds > LEAVE_ROUNDS or self._blocked_rounds > BLOCKED_ROUNDS:
            self._lifecycle.fail("left before the others had taken over")
            return
        self._agenda.arm(Timer.LEAVE, self._t_reform_us, out)
        self.quit(out)

    def depart(self) -> None:
        """Those that stay have all that this member has, but too few for a ring: what they still
        find when they form one, this member will not deliver."""
        if {member.name for member in self._state.ring.members} <= self._requests.leaving():
            self._ordering.note_safe(self._ordering.S)
            self._lifecycle.release()  # Nobody stays.
        else:
            self._lifecycle.fail("left when too few remained for the ring to go on")
