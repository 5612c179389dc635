"""Stability: what is as resilient as was asked for is reported; what all hold is forgotten."""

from __future__ import annotations

from unisono.core import Cause
from unisono.parts.message_runs import MessageRuns
from unisono.protocols.rmp.delivery import OrderedDelivery
from unisono.protocols.rmp.ordering import OrderingQueue
from unisono.protocols.rmp.resilience import Resilience
from unisono.protocols.rmp.send_queue import SendQueue
from unisono.protocols.rmp.sources import Sources
from unisono.protocols.rmp.state import TokenRing


class StableSlots:
    """What follows at one site from passes of the token."""

    def __init__(
        self,
        state: TokenRing,
        sources: Sources,
        queue: OrderingQueue,
        resilience: Resilience[MessageRuns],
        delivery: OrderedDelivery,
        send_queue: SendQueue,
    ) -> None:
        self._state = state
        self._sources = sources
        self._queue = queue
        self._resilience = resilience
        self._delivery = delivery
        self._send_queue = send_queue

    def settle(self) -> None:
        """At the end of a step."""
        state, resilience = self._state, self._resilience
        for messages, holders in resilience.reached(state.quorums, state.primary):
            entries = state.group.entries.items()
            members = tuple(entry.member for key, entry in entries if key in holders)
            self._delivery.stabilize(messages, members)
        for messages in resilience.out_of_reach(state.quorums, state.primary):
            self._delivery.fail_stability(messages, Cause.TOO_FEW)
        if stable := resilience.stable():
            self._sources.forget_lost()
        state.settle(stable)
        if state.changed > state.decided:
            self._decide()
        if state.renewals:
            state.renew(resilience.known())
        for source, _, last in self._queue.forget(resilience.needed()):
            self._sources.forget(source, last)
            if source == state.key:
                self._send_queue.stable(last)

    def _decide(self) -> None:
        """Which of the changes that are not shown yet cannot be lost any more."""
        state, resilience = self._state, self._resilience
        # Of a frozen site only what it has told counts: it may hold more by now.
        itself = () if state.frozen else (state.key,)
        for slot in (*self._delivery.slots(), state.changed):
            if not resilience.is_decided(slot, state.quorums, *itself):
                return
            state.decide(slot)
