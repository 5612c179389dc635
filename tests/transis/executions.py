"""Small executions of one configuration, all of them: which vertices exist, and what each follows.

A history has the vertices of each member in order; a member's vertex acknowledges any causally
closed part of those before it. The histories of one more vertex are the extensions of those before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import TypeAlias

from unisono.protocols.transis.graph import Vertex

History: TypeAlias = tuple[tuple[Vertex, ...], ...]
"""By rank, its vertices."""


def none_yet(size: int) -> History:
    return ((),) * size


def vertices_of(history: History) -> list[Vertex]:
    """In a causal order."""
    return sorted((v for row in history for v in row), key=lambda v: sum(v.acks))


def everything(history: History) -> tuple[int, ...]:
    return tuple(map(len, history))


def closed(history: History, least: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """The parts, as a number by rank, with at least this and all that their vertices follow."""
    ranges = [range(low, len(row) + 1) for low, row in zip(least, history, strict=True)]
    for part in product(*ranges):
        rows = [row[at - 1].acks for row, at in zip(history, part, strict=True) if at]
        if all(ack <= at for acks in rows for ack, at in zip(acks, part, strict=True)):
            yield part


def extensions(history: History, payloads: Iterable[object]) -> Iterator[tuple[Vertex, History]]:
    """One more vertex, of any member, that follows any part its sender may have held."""
    for sender, row in enumerate(history):
        least = list(row[-1].acks) if row else [0] * len(history)
        least[sender] = len(row)
        for acks in closed(history, least):
            for payload in payloads:
                vertex = Vertex(sender, len(row) + 1, acks, payload)
                more = (*history[:sender], (*row, vertex), *history[sender + 1 :])
                yield vertex, more


def histories(size: int, count: int) -> Iterator[set[History]]:
    """All histories of no vertex, of one, and so on, with every choice of empty ones."""
    level = {none_yet(size)}
    yield level
    for _ in range(count):
        level = {more for history in level for _, more in extensions(history, (None, "m"))}
        yield level
