"""Armed timers, in order of expiry. Arming anew, the common case, costs no heap operation."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from unisono.core import Timer


class Timers:
    """A timer that is postponed keeps its position in the heap until it surfaces."""

    def __init__(self) -> None:
        self._due_us: dict[Timer, int] = {}
        self._posted_us: dict[Timer, int] = {}
        self._heap: list[tuple[int, int, Timer]] = []
        self._serial = count()

    def arm(self, timer: Timer, at_us: int) -> None:
        self._due_us[timer] = at_us
        posted_us = self._posted_us.get(timer)
        if posted_us is None or at_us < posted_us:
            self._post(timer, at_us)

    def disarm(self, timer: Timer) -> None:
        self._due_us.pop(timer, None)

    def pop(self, now_us: int) -> Timer | None:
        """The next timer that has run out, if any has."""
        while self._heap and self._heap[0][0] <= now_us:
            at_us, _, timer = heappop(self._heap)
            if self._posted_us.get(timer) != at_us:
                continue
            del self._posted_us[timer]
            due_us = self._due_us.get(timer)
            if due_us is None:
                continue
            if due_us > now_us:
                self._post(timer, due_us)
                continue
            del self._due_us[timer]
            return timer
        return None

    def next_us(self) -> int | None:
        """When to call `pop`: never too late, sometimes too early."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._due_us)

    def clear(self) -> None:
        self._due_us.clear()
        self._posted_us.clear()
        self._heap.clear()

    def _post(self, timer: Timer, at_us: int) -> None:
        heappush(self._heap, (at_us, next(self._serial), timer))
        self._posted_us[timer] = at_us
