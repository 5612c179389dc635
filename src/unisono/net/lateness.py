"""Why a timer fired late, as far as the kernel tells: the process was stopped, the machine slept,
there was no processor for it, or its own program kept the loop busy."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Final, NamedTuple

LATE_US: Final = 200_000
"""Less is usual on a machine that has other work."""
SAMPLE_US: Final = 250_000
"""How old may be what a late timer is compared with."""

log = logging.getLogger("unisono.net")


class Sample(NamedTuple):
    """What the kernel counted for this process, each in microseconds."""

    at_us: int
    slept_us: int
    """The machine was suspended for so long since it was started."""
    waited_us: int
    """We were ready to run, and had no processor."""
    worked_us: int


class Lateness:
    """Told when timers fire; counts why they were late, and says it once for each reason."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self._told: set[str] = set()
        self._waits = -1
        with contextlib.suppress(OSError):
            self._waits = os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._before = self.sample(time.monotonic_ns() // 1000)

    def sample(self, now_us: int) -> Sample:
        slept_us = 0
        if hasattr(time, "CLOCK_BOOTTIME"):
            slept_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 - now_us
        waited_us = 0
        if self._waits >= 0:
            with contextlib.suppress(OSError, ValueError, IndexError):
                waited_us = int(os.pread(self._waits, 64, 0).split()[1]) // 1000
        return Sample(now_us, slept_us, waited_us, time.process_time_ns() // 1000)

    def fired(self, now_us: int, late_us: int) -> str:
        """A timer fired so late; the name of the reason, if it was late at all."""
        if late_us < LATE_US and now_us - self._before.at_us < SAMPLE_US:
            return ""
        before, self._before = self._before, self.sample(now_us)
        if late_us < LATE_US:
            return ""
        why = reason(before, self._before, late_us)
        name = f"late.{why}"
        self._counts[name] = self._counts.get(name, 0) + 1
        if why not in self._told:
            self._told.add(why)
            log.warning("a timer fired %.1f s late: this process %s", late_us / 1e6, WORDS[why])
        return why

    def close(self) -> None:
        if self._waits >= 0:
            os.close(self._waits)
            self._waits = -1


WORDS: Final = {
    "suspended": "was suspended with its machine",
    "stalled": "was ready to run and got no processor",
    "busy": "was at work elsewhere: its program kept the event loop",
    "paused": "was stopped (a signal, a debugger, a frozen container)",
}


def reason(before: Sample, after: Sample, late_us: int) -> str:
    """What took the most of that time."""
    half_us = late_us // 2
    if after.slept_us - before.slept_us > half_us:
        return "suspended"
    if after.waited_us - before.waited_us > half_us:
        return "stalled"
    if after.worked_us - before.worked_us > half_us:
        return "busy"
    return "paused"
