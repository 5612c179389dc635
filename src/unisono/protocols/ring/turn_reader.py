"""Reading the turns that are in order: what each means for this member and its application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unisono.core import Effect
from unisono.parts.turn import Turn
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import E_ACK, FAST_ACK
from unisono.protocols.ring.delivery import DeliveryQueue
from unisono.protocols.ring.lifecycle import Lifecycle
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.packets import Flag
from unisono.protocols.ring.send_queue import SendQueue
from unisono.protocols.ring.state import RingState
from unisono.protocols.ring.token import TokenPosition
from unisono.protocols.ring.token_policy import TokenPolicy


@dataclass(eq=False)
class TurnReader:
    """Hands the turns in order to delivery, send queue and policy, each once."""

    _state: RingState
    _agenda: Agenda
    _lifecycle: Lifecycle
    _ordering: Ordering
    _token: TokenPosition
    _policy: TokenPolicy
    _send_queue: SendQueue
    _delivery: DeliveryQueue
    _builder: PacketBuilder
    _show_ring: Callable[[], None]

    def advance(self, out: list[Effect]) -> None:
        """Read the turns that are in order now."""
        ordering, window, state = self._ordering, self._ordering.window, self._state
        if ordering.read_upto == window.received:
            return
        if not state.was_in_force:
            self._show_ring()  # A turn on the ring proves that it was in force.
        others = len(state.ring.seats) == 1
        while ordering.read_upto < window.received:
            turn = ordering.next_turn()
            self._policy.note(turn, self._agenda.now_us)
            if turn.content:
                self._deliver(turn)
            if turn.holder != state.key:
                others = True
                self._read_other(turn, out)
        if others and state.in_force:
            self._agenda.push(E_ACK)

    def _deliver(self, turn: Turn) -> None:
        messages = self._ordering.read(turn)
        if self._ordering.is_broken:
            self._lifecycle.fail("a message is larger than message_bytes_max allows here")
        if messages.runs:
            self._policy.note_sender(messages.runs[-1].sender)
            self._delivery.append(messages)

    def _read_other(self, turn: Turn, out: list[Effect]) -> None:
        """A turn of another member may carry messages of ours, and may ask for an ack."""
        queue, ordering = self._send_queue, self._ordering
        queue.pace.note(turn.count)
        mine = queue.note_ordered(ordering.locals.get(self._state.key, 0), turn.s)
        if self._state.in_force and (mine or turn.flags & Flag.ACK):
            self._acknowledge(turn, mine, out)

    def _acknowledge(self, turn: Turn, mine: bool, out: list[Effect]) -> None:
        """[RNG-8] To the next holder; and to everyone where the holder sent a message of ours,
        which nobody delivers before we are known to have it."""
        if self._token.is_here():
            return  # Our own turn follows, and acknowledges it.
        if mine:
            self._builder.everyone(FAST_ACK, b"", out)
        elif turn.s == self._ordering.S:
            self._builder.to(self._token.holder(), FAST_ACK, b"", out)
