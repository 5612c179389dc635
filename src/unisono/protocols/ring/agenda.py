"""What is due at a member: internal events first, then timers, then packets."""

from __future__ import annotations

from typing import Any, Final

from unisono.core import Arm, Disarm, Effect
from unisono.protocols.ring.codes import WAITS, Code, Timer

NEVER_US: Final = 1 << 63


class Agenda:
    """The time of the step at hand, the events by which one machine signals another, and the
    timers. The world expires these; the member checks for overdue ones."""

    __slots__ = ("deadlines", "due_us", "now_us", "pending")

    def __init__(self) -> None:
        self.now_us = 0
        self.pending: list[tuple[Code, Any]] = []
        """[RNG-20] Events 18 to 24, processed before any timer or packet."""
        self.deadlines: dict[Timer, int] = {}
        self.due_us = NEVER_US
        """No timer is overdue before this."""

    def push(self, code: Code, packet: Any = None) -> None:
        # Deviates [RNG Event stack]: first in, first out. A stack would start one machine before
        # the others are stopped.
        self.pending.append((code, packet))

    def pop(self) -> tuple[Code, Any]:
        return self.pending.pop(0)

    def tick(self, now_us: int) -> None:
        """A step begins."""
        self.now_us = now_us

    def note_expired(self, timer: Timer) -> None:
        self.deadlines.pop(timer, None)

    def arm(self, timer: Timer, after_us: int, out: list[Effect]) -> None:
        self.deadlines[timer] = at_us = self.now_us + after_us
        if at_us < self.due_us:
            self.due_us = at_us
        out.append(Arm(timer, after_us))

    def disarm(self, timer: Timer, out: list[Effect]) -> bool:
        """Whether it was armed."""
        if self.deadlines.pop(timer, None) is None:
            return False
        out.append(Disarm(timer))
        return True

    def overdue(self) -> list[Timer]:
        """Timers that go before the packets at hand, in the order in which they were armed."""
        # Deviates [RNG Event order]: packets that have arrived are processed before this member
        # gives up waiting for them. It may not have run since, however late the timer is.
        now_us = self.now_us
        waiting = [timer for timer in self.deadlines if timer not in WAITS]
        due = [timer for timer in waiting if self.deadlines[timer] <= now_us]
        later = (self.deadlines[timer] for timer in waiting if timer not in due)
        self.due_us = min(later, default=NEVER_US)
        return due
