"""The network of a simulated world: what becomes of a burst between two nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from unisono.sim.pipe import Pipe
from unisono.sim.plan import CALM, LinkPlan, Weather, dice
from unisono.sim.routers import Post, Routers

Arrival: TypeAlias = Callable[[int, int, int, list[bytes]], None]
"""Called with (when, source, target, packets): put the burst into the world's queue."""

LOOPBACK_US: Final = 10
"""A node's own packets come back to it after this, unharmed."""


class PipesFrom(dict[int, Pipe]):
    """The pipes of one source by target, made when they are first used: in a large group that is
    made up of clusters most never are."""

    def __init__(
        self, source: int, seed: int, link: LinkPlan, unlike: Mapping[tuple[int, int], LinkPlan]
    ) -> None:
        self._source, self._seed, self._link, self._unlike = source, seed, link, unlike

    def __missing__(self, target: int) -> Pipe:
        key = self._source, target
        link = self._unlike.get(key, self._link)
        pipe = self[target] = Pipe(link, dice(self._seed, "pipe", *key))
        return pipe

    def become_calm(self) -> None:
        self._link, self._unlike = CALM, {}
        for pipe in self.values():
            pipe.become(CALM)


class Network:
    """Carries bursts between nodes by index, over one pipe for each directed pair."""

    def __init__(
        self, nodes: int, seed: int, weather: Weather, arrive: Arrival, post: Post
    ) -> None:
        self.counts: Counter[str] = Counter()
        """What happened to packets, by name."""
        unlike = {(source, target): link for source, target, link in weather.links}
        self._pipes = [PipesFrom(source, seed, weather.link, unlike) for source in range(nodes)]
        self._blocked = [[0] * nodes for _ in range(nodes)]
        self._arrive = arrive
        self._routers = (
            Routers(nodes, seed, weather.routers, self.carry, post) if weather.routers else None
        )
        self.cast = self._routers.cast if self._routers is not None else self._cross
        """Send a burst to several; each link on the way that they share is crossed once."""

    def totals(self) -> Counter[str]:
        """All counts; those of routers have names of their own."""
        routers = self._routers.counts if self._routers is not None else {}
        return self.counts + Counter({f"router_{name}": n for name, n in routers.items()})

    def block(self, pairs: Iterable[tuple[int, int]], by: int = 1) -> None:
        """Block directed links; blocks that overlap are counted, `by=-1` takes one away."""
        for source, target in pairs:
            held = self._blocked[source][target] + by
            self._blocked[source][target] = max(held, 0)

    def blocked(self, source: int, target: int) -> bool:
        return self._blocked[source][target] > 0

    def heal(self) -> None:
        """End every fault: all pipes calm, nothing blocked."""
        for row in self._pipes:
            row.become_calm()
        for held in self._blocked:
            held[:] = [0] * len(held)
        if self._routers is not None:
            self._routers.heal()

    def carry(self, now_us: int, source: int, target: int, packets: list[bytes]) -> None:
        """Send a burst over the target's own link."""
        self._cross(now_us, source, (target,), packets)

    def _cross(
        self, now_us: int, source: int, targets: Sequence[int], packets: list[bytes]
    ) -> None:
        counts, arrive = self.counts, self._arrive
        blocked, pipes = self._blocked[source], self._pipes[source]
        counts["carried"] += len(packets) * len(targets)
        for target in targets:
            if source == target:
                arrive(now_us + LOOPBACK_US, source, target, packets)
            elif blocked[target]:
                counts["blocked"] += len(packets)
            else:
                pipes[target].through(now_us, packets, counts, arrive, source, target)
