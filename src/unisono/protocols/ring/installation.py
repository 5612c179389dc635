"""A ring is accepted, then put in force: what each part of a member does then."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.core import Effect, Warn
from unisono.parts.admission import Admission
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.delivery import DeliveryQueue
from unisono.protocols.ring.election import Election
from unisono.protocols.ring.lifecycle import Lifecycle
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.repair import Repair
from unisono.protocols.ring.requests import MembershipRequests
from unisono.protocols.ring.ring import Ring
from unisono.protocols.ring.ring_search import RingSearch
from unisono.protocols.ring.send_queue import SendQueue
from unisono.protocols.ring.state import RingState
from unisono.protocols.ring.state_transfer import StateTransfer
from unisono.protocols.ring.token_policy import TokenPolicy


@dataclass(eq=False)
class Installation:
    """The change from one ring to the next, at one member."""

    _state: RingState
    _agenda: Agenda
    _lifecycle: Lifecycle
    _admission: Admission
    _ordering: Ordering
    _policy: TokenPolicy
    _send_queue: SendQueue
    _delivery: DeliveryQueue
    _election: Election
    _search: RingSearch
    _requests: MembershipRequests
    _repair: Repair
    _transfer: StateTransfer

    def __post_init__(self) -> None:
        self.warned = False
        """The operator was warned that no ring can be formed."""

    def accept(self, ring: Ring, out: list[Effect]) -> None:
        """[RNG Phase-2] The ring is ours, though it is not in force yet."""
        state = self._state
        state.accept(ring, out)
        if not state.memory:
            self._ordering.start_anew()
        if not state.memory or not self._delivery.has_view:
            self._delivery.start_anew()
        self._ordering.enter(ring)
        self._send_queue.new_ring(len(ring.seats))
        self._policy.new_ring()
        self._repair.new_ring()
        self._transfer.forget()
        if ring.is_founding:
            state.remember()

    def install(self, event: object, out: list[Effect]) -> None:
        """[RESUME] The ring is in force: the application gets its view."""
        state = self._state
        if not state.was_in_force:
            self.show_ring()
            names = tuple(member.name for member in state.ring.members)
            state.checkpoint(out, names=names, votes=state.record.votes or state.memory)
        self.withdraw_warning(out)
        self._election.trust_all()
        self._agenda.disarm(Timer.T_REF_RT, out)
        if not state.resume():
            self._lifecycle.release(str(state.ring.version))
            return
        self._requests.new_ring()
        self._search.end(out)
        self._admission.entered(self._agenda.now_us)
        self._transfer.new_ring(out)
        self._agenda.push(Code.E_REFEND)

    def show_ring(self) -> None:
        """[RNG-16] Earlier messages are committed, and the application gets the view."""
        # Deviates [RNG Phase-2]: the old messages are committed here, where the ring is known to be
        # in force, and not when it is received: until then another may be formed instead.
        state = self._state
        earlier = state.commit()
        self._ordering.note_safe(state.ring.base)
        if state.seat is not None:
            self._delivery.change(state.ring, self._transfer.is_sender(), earlier)

    def forget_ring(self) -> None:
        """As if no ring had been accepted."""
        self._state.forget_ring()
        self._ordering.start_anew()
        self._delivery.start_anew()

    def warn(self, text: str, out: list[Effect]) -> None:
        self.warned = True
        out.append(Warn(text))

    def withdraw_warning(self, out: list[Effect]) -> None:
        if self.warned:
            self.warned = False
            out.append(Warn(""))
