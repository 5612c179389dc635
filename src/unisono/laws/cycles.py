"""Whether sequences fit into one order: where they do not, a shortest cycle that shows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias, TypeVar

STARTS_MAX: Final = 64
"""The most messages from which a shortest cycle is searched."""

Step: TypeAlias = tuple[str, str, str]
"""One message, another that follows it, and the incarnation where it does."""
Lines: TypeAlias = Mapping[str, Sequence[str]]
"""By incarnation, in order of keys, what it delivered."""

Item = TypeVar("Item", bound=Hashable)


def shortest_cycle(sequences: Lines) -> list[Step] | None:
    """A shortest cycle of steps through all sequences, if there is one; of those that are found,
    the smallest."""
    edges: dict[str, set[str]] = {}
    for line in sequences.values():
        for one, two in pairwise(line):
            edges.setdefault(one, set()).add(two)
    left = {message for knot in knots(edges) for message in knot}
    lines = {key: [each for each in line if each in left] for key, line in sequences.items()}
    where: dict[str, list[tuple[str, int]]] = {}
    for key, line in lines.items():
        for at, message in enumerate(line):
            where.setdefault(message, []).append((key, at))
    best: list[Step] | None = None
    for start in sorted(left)[:STARTS_MAX]:
        found = _cycle_from(start, lines, where)
        if found and (best is None or (len(found), found) < (len(best), best)):
            best = found
    return best


def _cycle_from(
    start: str, lines: Lines, where: Mapping[str, Sequence[tuple[str, int]]]
) -> list[Step] | None:
    """The shortest that begins with this one, which is the smallest in it."""
    came: dict[str, Step] = {}
    seen = {key: len(line) for key, line in lines.items()}
    queue = deque([start])
    while queue:
        message = queue.popleft()
        for key, at in where[message]:
            for after in lines[key][at + 1 : seen[key]]:
                step = (message, after, key)
                if after == start:
                    steps = [step]
                    while steps[0][0] != start:
                        steps.insert(0, came[steps[0][0]])
                    return steps
                if after > start and after not in came:
                    came[after] = step
                    queue.append(after)
            seen[key] = min(seen[key], at + 1)
    return None


def knots(edges: Mapping[Item, set[Item]]) -> Iterator[list[Item]]:
    """The strongly connected components of more than one [Tarjan 1972], without recursion: what
    lies on a cycle, and all that lies on one with it."""
    index: dict[Item, int] = {}
    low: dict[Item, int] = {}
    path: list[Item] = []
    on_path: set[Item] = set()
    work: list[tuple[Item, Iterator[Item]]] = []

    def enter(node: Item) -> None:
        index[node] = low[node] = len(index)
        path.append(node)
        on_path.add(node)
        work.append((node, iter(edges.get(node, ()))))

    for root in edges:
        if root not in index:
            enter(root)
        while work:
            node, following = work[-1]
            for after in following:
                if after not in index:
                    enter(after)
                    break
                if after in on_path:
                    low[node] = min(low[node], index[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    knot = [path.pop()]
                    while knot[-1] != node:
                        knot.append(path.pop())
                    on_path.difference_update(knot)
                    if len(knot) > 1:
                        yield knot
