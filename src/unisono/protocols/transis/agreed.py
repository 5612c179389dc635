"""The agreed order, two ways: the all-ack order of candidates [TRA-9], and a revolving token
[TRA-10]. Both are a property of the vertices alone, never of who decides [TRA-7].

Restricted to any causally closed part of the vertices, such an order is the order of that part. So
components that part within a configuration deliver what they hold in a common order, whatever each
of them holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

from unisono.protocols.transis.graph import CausalGate, Vertex

QUIET: Final = 1 << 62
"""More than any number of vertices: quiet members come after the others."""
NEVER: Final = 1 << 127


class Flushed(NamedTuple):
    """What is left to deliver when a configuration ends, in the agreed order."""

    regular: list[Vertex]
    """Agreed in the configuration itself: delivered before the transitional view."""
    transitional: list[Vertex]
    """The rest: delivered behind it."""


class AgreedOrder(Protocol):
    """The total order of the vertices with a payload."""

    strays: list[Vertex]
    """Those that are none of it, and that nobody delivers: their senders keep no order."""

    def entered(self, vertices: Sequence[Vertex]) -> list[Vertex]:
        """These entered the graph, in this order, mine among them; those agreed now."""

    def may_emit(self) -> bool:
        """Whether my next vertex may have a payload."""

    def is_awaited(self) -> bool:
        """Whether others wait for my next vertex, which may be empty."""

    def is_idle(self) -> bool:
        """Whether the token rests at each member."""

    def flush(self, survivors: Collection[int]) -> Flushed:
        """The configuration ends, and all survivors have this graph."""


class AllAckOrder:
    """[TRA-9] The candidates are the vertices that acknowledge nothing undelivered. The least
    candidate is delivered once no vertex that can still come would be less.

    Candidates compare by whether their sender was quiet, then by how many vertices they follow,
    then by rank. A member is quiet when its last vertex was empty: it has said that it lets the
    others go first, and nobody waits for it.
    """

    # Deviates [TRA §3.2 all-ack]: the paper waits for a message from each machine. Here, only for
    # those whose next vertex could come first: a lone sender waits for nobody.

    def __init__(self, size: int, me: int) -> None:
        self.strays: list[Vertex] = []
        self._me = me
        self._size = size
        self._delivered = CausalGate(size)
        self._candidates: list[tuple[int, Vertex]] = []
        """A heap, by place."""
        self._places: dict[tuple[int, int], int] = {}
        """Of vertices that are not candidates yet."""
        self._entered = [0] * size
        self._next = [QUIET * size + rank for rank in range(size)]
        """By rank, the least place that its next vertex can have."""
        self._awaited = {rank for rank in range(size) if rank != me}
        """Those whose next vertex could come first. Mine follows all that is here."""
        self._barrier = [NEVER if rank == me else self._next[rank] for rank in range(size)]
        """By rank, the place of its next vertex, if it is awaited and none of it is undelivered."""
        self._wanted = 0
        """The greatest place of a payload that my last vertex does not acknowledge."""

    def may_emit(self) -> bool:
        return True

    def is_awaited(self) -> bool:
        return self._wanted > self._next[self._me]

    def is_idle(self) -> bool:
        return False

    def entered(self, vertices: Sequence[Vertex]) -> list[Vertex]:
        size = self._size
        for vertex in vertices:
            sender, index, payload = vertex.sender, vertex.index, vertex.payload
            past = sum(vertex.acks)
            # Whether it was quiet is known from the vertex before: all know what to wait for.
            quiet = QUIET if self._next[sender] >= QUIET * size else 0
            place = (quiet + past) * size + sender
            self._next[sender] = ((0 if payload else QUIET) + past + 1) * size + sender
            self._entered[sender] = index
            self._barrier[sender] = NEVER
            if sender == self._me:
                self._wanted = 0
            elif payload and place > self._wanted:
                self._wanted = place
            if self._delivered.wait(vertex):
                self._places[sender, index] = place
            else:
                heapq.heappush(self._candidates, (place, vertex))
        return self._take()

    def flush(self, survivors: Collection[int]) -> Flushed:
        for rank in survivors:
            self._stop_waiting_for(rank)
        regular = self._take()
        for rank in range(self._size):
            self._stop_waiting_for(rank)
        return Flushed(regular, self._take())

    def _stop_waiting_for(self, rank: int) -> None:
        self._awaited.discard(rank)
        self._barrier[rank] = NEVER

    def _first_to_come(self) -> int:
        """The least place that a vertex can have whose sender has none left here."""
        return min(self._barrier)

    def _take(self) -> list[Vertex]:
        """The candidates that come first, whatever is still to come."""
        agreed: list[Vertex] = []
        candidates = self._candidates
        first = self._first_to_come()
        while candidates and candidates[0][0] < first:
            vertex = heapq.heappop(candidates)[1]
            sender, index = vertex.sender, vertex.index
            for each in self._delivered.let_pass(vertex):
                heapq.heappush(candidates, (self._places.pop((each.sender, each.index)), each))
            if index == self._entered[sender] and sender in self._awaited:
                self._barrier[sender] = self._next[sender]
                first = self._first_to_come()
            if vertex.payload:
                agreed.append(vertex)
        return agreed


class TokenOrder:
    """[TRA-10] Only the holder of the token emits messages. Its vertex passes the token to the next
    by rank, so the vertices with messages form a chain, and are agreed when they enter.

    Token vertex 1 is the first of rank 0; its successor is the next member's first vertex that
    acknowledges it. No field says so: whoever has the vertices knows.
    """

    # Deviates [TRA §3.2 token]: one of the orders with a holder lets all multicast at will, and the
    # holder's numbers come later. Two components, one without the numbers, would then deliver the
    # same messages in two orders; the other holder, as here, numbers what it emits itself.

    def __init__(self, size: int, me: int) -> None:
        self._me = me
        self._size = size
        self._holder = 0
        self._last = (0, 0)
        """Rank and index of the last token vertex."""
        self._busy = 0
        """Vertices to come for which the token goes round without rest."""
        self.strays: list[Vertex] = []
        """Messages of members that did not hold the token."""

    def may_emit(self) -> bool:
        return self._holder == self._me

    def is_awaited(self) -> bool:
        return self._holder == self._me and self._size > 1

    def is_idle(self) -> bool:
        """Nobody has said that it has something to send. An empty vertex of one that does not hold
        the token says so."""
        return not self._busy

    def entered(self, vertices: Sequence[Vertex]) -> list[Vertex]:
        agreed: list[Vertex] = []
        for vertex in vertices:
            rank, index = self._last
            if vertex.sender == self._holder and vertex.acks[rank] >= index:
                self._last = (vertex.sender, vertex.index)
                self._holder = (self._holder + 1) % self._size
                if not vertex.payload:
                    self._busy = max(0, self._busy - 1)
                    continue
                agreed.append(vertex)
            elif vertex.payload:
                self.strays.append(vertex)
            self._busy = 2 * self._size
        return agreed

    def flush(self, survivors: Collection[int]) -> Flushed:
        return Flushed([], [])
