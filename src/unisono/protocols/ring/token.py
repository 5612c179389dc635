"""[RNG-2] The virtual token: there is no token packet. Turn S puts it at member (S + 1) mod n."""

from __future__ import annotations

from unisono.model import Member
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.state import RingState


class TokenPosition:
    """Where the token is, by the ring and S."""

    __slots__ = ("_ordering", "_state")

    def __init__(self, state: RingState, ordering: Ordering) -> None:
        self._state = state
        self._ordering = ordering

    def is_here(self) -> bool:
        state = self._state
        if not state.in_force:
            return False
        ring = state.ring
        return ring.index.get(state.key) == (self._ordering.window.received + 1) % len(ring.seats)

    def holder(self) -> Member:
        ring = self._state.ring
        return ring.seats[ring.holder(self._ordering.S)].member

    def holder_key(self) -> int:
        ring = self._state.ring
        return ring.keys[ring.holder(self._ordering.S)]

    def arrives_next(self) -> bool:
        """The turn after all that are known is ours, and only the rest of one is missing before
        it."""
        ordering, ring = self._ordering, self._state.ring
        mine = ring.index.get(self._state.key) == ring.holder(ordering.highest)
        return mine and ordering.highest > ordering.S and ordering.is_arriving()
