"""The vertices of one configuration, on their way from the causal graph to the application.

What is weaker than agreed is delivered once all that it follows is delivered [TRA-6]. Agreed
messages are delivered in the agreed order [TRA-7], safe ones when all members are known to have
them [TRA-8].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.model import Buffer, Member, Service
from unisono.parts.message_runs import MessageRun
from unisono.protocols.transis.agreed import AgreedOrder, AllAckOrder, TokenOrder
from unisono.protocols.transis.configuration import Configuration
from unisono.protocols.transis.contents import Reassembly, VertexMessages, read_contents
from unisono.protocols.transis.graph import CausalGate, CausalGraph, Vertex


class LastRuns(NamedTuple):
    """What is delivered when a configuration ends."""

    regular: list[MessageRun]
    """In the configuration itself."""
    transitional: list[MessageRun]
    """By those that come along, which all have it."""


AGREED: Final = Service.AGREED
"""As a constant: looking it up in its class takes ten times as long."""


class Ordering:
    """The stream of one configuration at one member."""

    def __init__(
        self,
        configuration: Configuration,
        rank: int,
        numbers: Sequence[int],
        with_token: bool,
        drop: Callable[[str], None],
    ) -> None:
        size = len(configuration.members)
        self._members = configuration.members
        self._keys = configuration.keys
        self._view = configuration.id
        self._rank = rank
        self._drop = drop
        self.graph = CausalGraph(size, rank)
        self.order: AgreedOrder = (TokenOrder if with_token else AllAckOrder)(size, rank)
        self._gate = CausalGate(size)
        self._contents: dict[tuple[int, int], VertexMessages] = {}
        """Of vertices that entered and are not delivered."""
        self._agreed: deque[Vertex] = deque()
        self._reassembly = [Reassembly(each, self._view, drop) for each in self._members]
        self._numbers = list(numbers)
        """By rank, its last message that entered whole."""
        self._ready: list[MessageRun] = []
        self.is_closed = self.is_limited = False
        """It is about to end; its end is known."""
        self._unanswered = 0
        """Vertices with messages that my last one does not acknowledge."""
        self.nbytes = 0
        """Payload that entered and that some member is not known to hold [TRA-11]."""

    # -- in ---------------------------------------------------------------------------------------

    def append(self, payload: bytes) -> Vertex:
        """My next vertex; an empty one says that I am alive [TRA-4]."""
        self._contents[self._rank, self.graph.acks()[self._rank] + 1] = self._read(
            self._rank, payload
        )
        vertex = self.graph.append(payload)
        self._unanswered = 0
        self._enter([vertex])
        return vertex

    def add(self, vertex: Vertex) -> bool:
        """Another's; whether it was missing. Raises `BadPacket`."""
        key = sender, index = vertex.sender, vertex.index
        entered = index <= self.graph.acks()[sender]
        known = entered or self.graph.get(sender, index) == vertex
        before = self._contents.get(key)
        if not known:
            self._contents[key] = self._read(sender, vertex.payload)
        try:
            self._enter(self.graph.add(vertex))
        except BadPacket:
            if not known and self.graph.get(sender, index) is None:
                del self._contents[key]
            elif not known and before is not None:
                self._contents[key] = before
            raise
        return not known

    def _read(self, rank: int, payload: Buffer) -> VertexMessages:
        return read_contents(payload, self._members[rank], self._keys[rank], self._view)

    def _enter(self, vertices: Sequence[Vertex]) -> None:
        if not vertices:
            return
        for vertex in vertices:
            payload = vertex.payload
            self.nbytes += len(payload)
            self._unanswered += bool(payload) and vertex.sender != self._rank
            contents = self._contents[vertex.sender, vertex.index]
            if contents.last:
                self._numbers[vertex.sender] = contents.last
            if not self._gate.wait(vertex):
                self._pass(vertex)
        self._agreed += self.order.entered(vertices)
        if self.order.strays:
            self._discard(self.order.strays)

    def _discard(self, strays: list[Vertex]) -> None:
        """Nobody delivers them, and nobody waits for them."""
        for vertex in strays:
            self._drop("stray")
            contents = self._contents.get((vertex.sender, vertex.index))
            if contents is not None and contents.level >= AGREED:
                contents.level = Service.CAUSAL
                contents.parts.clear()
                if self._gate.is_open(vertex):
                    self._pass(vertex)
        strays.clear()

    # -- out --------------------------------------------------------------------------------------

    def _pass(self, vertex: Vertex) -> None:
        """All that it follows is delivered: so is it, unless it waits for the agreed order."""
        passing = [vertex]
        for each in passing:
            if self._contents[each.sender, each.index].level < AGREED:
                passing += self._deliver(each)

    def _deliver(self, vertex: Vertex) -> list[Vertex]:
        """It is next; those that waited for it last."""
        contents = self._contents.pop((vertex.sender, vertex.index))
        self._ready += self._reassembly[vertex.sender].runs(contents.parts)
        return self._gate.let_pass(vertex)

    def _deliver_agreed(self, vertex: Vertex) -> None:
        if vertex.index > self._gate.passed[vertex.sender]:
            for each in self._deliver(vertex):
                self._pass(each)

    def _is_held_by(self, vertex: Vertex, floor: Sequence[int]) -> bool:
        """Whether nothing but its turn is to be waited for."""
        contents = self._contents.get((vertex.sender, vertex.index))
        if contents is None or contents.level < Service.SAFE:
            return True
        return vertex.index <= floor[vertex.sender]

    def take(self) -> list[MessageRun]:
        """What may be delivered now."""
        if self._agreed:
            floor = self.graph.received_by_all()
            while self._agreed and self._is_held_by(self._agreed[0], floor):
                self._deliver_agreed(self._agreed.popleft())
        found, self._ready = self._ready, []
        return found

    def forget(self) -> int:
        """What all have need not be kept; how much payload that is."""
        nbytes = sum([len(vertex.payload) for vertex in self.graph.forget()])
        self.nbytes -= nbytes
        return nbytes

    # -- what is to be said -----------------------------------------------------------------------

    def has_unanswered(self) -> bool:
        """Others wait for my acknowledgments."""
        return bool(self._unanswered)

    def repeatable(self, vertices_max: int) -> Vertex | None:
        """My last vertex, if nobody needs another: it is empty, the others wait for none, and it
        leaves no message unacknowledged, nor a member's share of half so many vertices. So not all
        members repeat themselves while their window is full of what all hold."""
        acks = self.graph.acks()
        last = self.graph.get(self._rank, acks[self._rank])
        if last is None or last.payload or self._unanswered:
            return None
        if self.order.is_awaited() and not self.order.is_idle():
            return None
        missed = sum(acks) - sum(last.acks) - 1
        return last if missed < vertices_max // (2 * len(acks)) else None

    def is_settled(self) -> bool:
        """Everything with messages is delivered."""
        return not self._agreed and not self.nbytes

    def held(self) -> dict[Member, int]:
        return dict(zip(self._members, self._numbers, strict=True))

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> tuple[int, ...]:
        """Nothing more is sent in this configuration, and what comes does not count; by rank, the
        last vertex up to which all are here."""
        self.is_closed, self.is_limited = True, False
        return self.graph.close()

    def limit(self, upto: Sequence[int]) -> None:
        """What some survivor holds is wanted, and nothing beyond it."""
        self.is_limited = True
        self.graph.limit(upto)

    def end(self, survivors: Collection[int]) -> LastRuns:
        """[TRA-13] All survivors have this graph, and so deliver the same. A message that the lost
        are not known to have, though it was to be safe, is safe among the survivors only: it and
        all behind it are delivered in the transitional configuration."""
        assert self.graph.is_complete()
        flushed = self.order.flush(survivors)
        rest = deque((*self._agreed, *flushed.regular))
        lost = [rank for rank in range(len(self._members)) if rank not in survivors]
        behind = flushed.transitional
        if lost:
            floor = self.graph.received_by(lost)
            while rest and self._is_held_by(rest[0], floor):
                self._deliver_agreed(rest.popleft())
        else:
            for vertex in (*rest, *behind):
                self._deliver_agreed(vertex)
            rest, behind = deque(), []
        regular, self._ready = self._ready, []
        for vertex in (*rest, *behind):
            self._deliver_agreed(vertex)
        transitional, self._ready = self._ready, []
        self._agreed.clear()
        return LastRuns(regular, transitional)
