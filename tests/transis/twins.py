"""The causal graph and the all-ack order by their definitions, in no hurry."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from unisono.protocols.transis.graph import Vertex


class SlowGraph:
    """Keeps all that was ever added, and finds everything out anew."""

    def __init__(self, size: int, me: int) -> None:
        self.size = size
        self.me = me
        self.received: dict[tuple[int, int], Vertex] = {}

    def graph(self) -> dict[tuple[int, int], Vertex]:
        """The greatest part that holds all that its vertices follow."""
        inside: dict[tuple[int, int], Vertex] = {}
        while True:
            ready = {
                key: vertex
                for key, vertex in self.received.items()
                if key not in inside
                and all(ack == 0 or (rank, ack) in inside for rank, ack in enumerate(vertex.acks))
            }
            if not ready:
                return inside
            inside |= ready

    def acks(self) -> tuple[int, ...]:
        inside = self.graph()
        return tuple(sum(sender == rank for sender, _ in inside) for rank in range(self.size))

    def held_by(self, member: int) -> tuple[int, ...]:
        """What the member is known to hold."""
        if member == self.me:
            return self.acks()
        held = [0] * self.size
        for vertex in self.graph().values():
            if vertex.sender == member:
                held = list(map(max, held, vertex.acks))
                held[member] = max(held[member], vertex.index)
        return tuple(held)

    def received_by(self, members: Iterable[int]) -> tuple[int, ...]:
        return tuple(map(min, zip(*map(self.held_by, members), strict=True)))

    def missing(self) -> set[tuple[int, int]]:
        known = {
            (rank, number)
            for vertex in self.received.values()
            for rank, ack in enumerate((*vertex.acks, vertex.index))
            for number in range(1, ack + 1)
            if rank < self.size
        }
        known |= {(v.sender, n) for v in self.received.values() for n in range(1, v.index + 1)}
        return known - set(self.received)


def place(vertex: Vertex, before: Vertex | None) -> tuple[bool, int, int]:
    """Candidates compare by this."""
    is_quiet = before is None or not before.payload
    return is_quiet, sum(vertex.acks), vertex.sender


def by_candidates(vertices: Iterable[Vertex]) -> list[Vertex]:
    """The least candidate, and again, until none is left."""
    all_of_them = {(v.sender, v.index): v for v in vertices}
    places = {
        key: place(vertex, all_of_them.get((key[0], key[1] - 1)))
        for key, vertex in all_of_them.items()
    }
    left = dict(all_of_them)
    order = []
    while left:
        candidates = [
            key
            for key, vertex in left.items()
            if not any((rank, ack) in left for rank, ack in enumerate(vertex.acks))
        ]
        order.append(left.pop(min(candidates, key=places.__getitem__)))
    return order


def agreed(vertices: Iterable[Vertex], size: int, awaited: Collection[int]) -> list[Vertex]:
    """Those of the order that come before whatever the awaited members may still send: a vertex
    that follows as little as it can, behind the last one of its sender."""
    held = list(vertices)
    first = by_candidates(held)
    for rank in awaited:
        own = sorted((v for v in held if v.sender == rank), key=lambda v: v.index)
        acks = list(own[-1].acks) if own else [0] * size
        acks[rank] = len(own)
        coming = Vertex(rank, len(own) + 1, tuple(acks), "coming")
        order = by_candidates([*held, coming])
        first = first[: order.index(coming)]
    return first
