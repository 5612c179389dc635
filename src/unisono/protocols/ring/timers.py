"""The time of the step at hand, and the timers that are armed."""

from __future__ import annotations

from unisono.core import SLEPT_US, Arm, Disarm, Effect
from unisono.protocols.ring.codes import WAITS, Timer


class ArmedTimers:
    """The deadlines of one member. The world expires them; the member checks for overdue ones."""

    __slots__ = ("deadlines", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.deadlines: dict[Timer, int] = {}

    def arm(self, timer: Timer, after_us: int, out: list[Effect]) -> None:
        self.deadlines[timer] = self.now_us + after_us
        out.append(Arm(timer, after_us))

    def disarm(self, timer: Timer, out: list[Effect]) -> bool:
        """Whether it was armed."""
        if self.deadlines.pop(timer, None) is None:
            return False
        out.append(Disarm(timer))
        return True

    def overdue(self) -> list[Timer]:
        """Timers that should have expired, in the order in which they were armed."""
        now_us = self.now_us
        due = [timer for timer, at_us in self.deadlines.items() if at_us <= now_us]
        if not due or min(self.deadlines.values()) >= now_us - SLEPT_US:
            return due
        # Deviates [RNG Event order]: after a pause of this process, packets that arrived meanwhile
        # are processed before it gives up waiting.
        return [timer for timer in due if timer not in WAITS]
