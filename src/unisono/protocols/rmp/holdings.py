"""What one site holds, as reformations ask for it: of the order, and of the lost."""

from __future__ import annotations

from unisono.protocols.rmp.agreement import NewList
from unisono.protocols.rmp.data_packets import Data
from unisono.protocols.rmp.ordering import OrderingQueue
from unisono.protocols.rmp.sources import Sources
from unisono.protocols.rmp.state import TokenRing


class ReformHoldings:
    """The slots and blocks that are here, and those that a new list asks its members to hold."""

    def __init__(self, state: TokenRing, sources: Sources, queue: OrderingQueue) -> None:
        self._state = state
        self._sources = sources
        self._queue = queue

    def suffice(self, new_list: NewList) -> bool:
        """Whether all that it asks for is here."""
        if self._queue.held < new_list.sync:
            return False
        if not self._state.group.entries.keys() >= set(new_list.members):
            return False  # It is forged: at its synchronization point they are known.
        return all(
            self._sources.has(source, number)
            for source, ranges in new_list.leftovers
            for first, last in ranges
            for number in range(first, last + 1)
        )

    def request(self, new_list: NewList) -> None:
        """What it asks for is requested."""
        self._queue.expect(new_list.sync)
        self._sources.want(new_list.leftovers)

    def take(self, packet: Data) -> bool:
        """Whether a block may come in. Those who answered a reform site have told what they hold:
        until the outcome they take only what an ACK or the new list names, or they would deliver
        what the others never get."""
        if not self._state.frozen:
            return True
        block = packet.sender, packet.number
        return self._queue.names(*block) or self._sources.wants(*block)
