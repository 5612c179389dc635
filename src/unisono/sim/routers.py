"""Routers of a simulated network: shared links, which a burst for many crosses once.

What is lost there is missed by all behind it, what is damaged there is damaged for all of them,
and all of them share its bandwidth: on the way in, and on the way out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from unisono.sim.pipe import Pipe
from unisono.sim.plan import CALM, Router, dice

Carry: TypeAlias = Callable[[int, int, int, list[bytes]], None]
"""Called with (now, source, target, packets): over the target's own link, as ever."""

Post: TypeAlias = Callable[[int, Callable[[Any, Any], None], Any, Any], None]
"""Called with (when, act, a, b): do `act(a, b)` then."""

Journey: TypeAlias = tuple[int, int, Sequence[int]]
"""Where a burst has got to: the time, the source, and the targets that it has yet to reach."""

OUTSIDE: Final = -1
"""Behind no router."""


class Routers:
    """Takes bursts over the routers between a source and its targets, then to their own links."""

    def __init__(
        self, nodes: int, seed: int, routers: Sequence[Router], carry: Carry, post: Post
    ) -> None:
        self.counts: Counter[str] = Counter()
        """What happened to packets at routers, by name; each counts once, whomever it was for."""
        self._carry = carry
        self._post = post
        self._home = [OUTSIDE] * nodes
        for at, router in enumerate(routers):
            for node in router.behind:
                self._home[node] = at
        self._inward, self._outward = (
            [Pipe(router.link, dice(seed, "router", at, way)) for at, router in enumerate(routers)]
            for way in ("in", "out")
        )

    def heal(self) -> None:
        """Routers stay where they are, and do no more harm."""
        for pipe in (*self._inward, *self._outward):
            pipe.become(CALM)

    def cast(self, now_us: int, source: int, targets: Sequence[int], packets: list[bytes]) -> None:
        """To neighbours directly; to others out of the source's router, if it has one, and on."""
        here = self._home[source]
        far = []
        for target in targets:
            if self._home[target] == here:
                self._carry(now_us, source, target, packets)
            else:
                far.append(target)
        if here == OUTSIDE:
            self._spread((now_us, source, far), packets)
        elif far:
            self._cross(self._outward[here], (now_us, source, far), packets, self._spread)

    def _spread(self, journey: Journey, packets: list[bytes]) -> None:
        """Outside all routers: into each that has targets behind it, once."""
        now_us, source, targets = journey
        behind: dict[int, list[int]] = {}
        for target in targets:
            if self._home[target] == OUTSIDE:
                self._carry(now_us, source, target, packets)
            else:
                behind.setdefault(self._home[target], []).append(target)
        for there, some in behind.items():
            self._cross(self._inward[there], (now_us, source, some), packets, self._fan_out)

    def _fan_out(self, journey: Journey, packets: list[bytes]) -> None:
        now_us, source, targets = journey
        for target in targets:
            self._carry(now_us, source, target, packets)

    def _cross(
        self,
        pipe: Pipe,
        journey: Journey,
        packets: list[bytes],
        onward: Callable[[Journey, list[bytes]], None],
    ) -> None:
        self.counts["carried"] += len(packets)
        pipe.through(journey[0], packets, self.counts, self._beyond, onward, journey)

    def _beyond(self, at_us: int, onward: Any, journey: Journey, packets: list[bytes]) -> None:
        """Not before that time, since others may cross, and overtake, in between."""
        _, source, targets = journey
        self._post(at_us, onward, (at_us, source, targets), packets)
