"""The time of the current step, which all parts of a core share."""

from __future__ import annotations

from random import Random


class CoreClock:
    """Parts read the time, and draw from `random`."""

    __slots__ = ("now_us", "random")

    def __init__(self, seed: int) -> None:
        self.now_us = 0
        self.random = Random(seed)

    def tick(self, now_us: int) -> None:
        """A step begins."""
        self.now_us = now_us

    def jittered(self, period_us: int) -> int:
        """Up to a quarter longer, so that members do not act all at once."""
        return period_us + self.random.randrange(period_us // 4 + 1)
