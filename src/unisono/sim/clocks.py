"""The clock of a simulated node: as planned, until a fault changes its rate, stops or moves it."""

from __future__ import annotations

from collections.abc import Mapping

from unisono.core import Core, Effect, Event
from unisono.model import Member
from unisono.sim.plan import Clock


class NodeClock:
    """What a node's clock shows. It never goes back."""

    def __init__(self, clock: Clock) -> None:
        self._usual_ppm = clock.ppm
        self._ppm = clock.ppm
        self._since_us = 0
        """The world's time from which the clock runs at this rate; before it, it stands."""
        self._shown_us = clock.offset_us
        """What it shows then."""

    def local(self, world_us: int) -> int:
        run_us = world_us - self._since_us
        if run_us <= 0:
            return self._shown_us
        return self._shown_us + run_us + run_us * self._ppm // 1_000_000

    def world(self, local_us: int) -> int:
        """The first time at which the clock shows at least this."""
        ahead_us = local_us - self._shown_us
        return self._since_us - (-ahead_us * 1_000_000 // (1_000_000 + self._ppm))

    def drift(self, now_us: int, ppm: int) -> None:
        """Run at this rate from now on."""
        self._turn(now_us, self.local(now_us))
        self._ppm = ppm

    def jump(self, now_us: int, by_us: int) -> None:
        """Show this much more at once."""
        self._turn(now_us, self.local(now_us) + by_us)

    def stand(self, now_us: int, for_us: int) -> None:
        self._turn(now_us, self.local(now_us))
        self._since_us += for_us

    def heal(self, now_us: int) -> None:
        """Run at the usual rate again."""
        self._since_us = min(self._since_us, now_us)
        self.drift(now_us, self._usual_ppm)

    def _turn(self, now_us: int, shown_us: int) -> None:
        # A clock that stands goes on standing, until the time that was set for it.
        self._since_us, self._shown_us = max(self._since_us, now_us), shown_us


class Skewed:
    """A core that sees its node's clock; the tap outside it writes the world's time."""

    def __init__(self, core: Core, clock: NodeClock) -> None:
        self.inner = core
        self.me: Member = core.me
        self.counts: dict[str, int] = core.counts
        self._clock = clock

    def step(self, now_us: int, event: Event) -> list[Effect]:
        return self.inner.step(self._clock.local(now_us), event)

    def send_credit(self) -> int:
        return self.inner.send_credit()

    def held(self) -> Mapping[Member, int]:
        return self.inner.held()

    def transition_counts(self) -> Mapping[str, int]:
        return self.inner.transition_counts()
