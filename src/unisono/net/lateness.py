"""Why a timer fired late, by the kernel's counters: the process was stopped, the machine was
suspended, no processor was free, or the program kept the event loop busy."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Final, NamedTuple

LATE_US: Final = 200_000
"""Less is normal on a loaded machine."""
SAMPLE_US: Final = 250_000
"""The maximum age of the sample that a late timer is compared with."""

log = logging.getLogger("unisono.net")


class Sample(NamedTuple):
    """The kernel's counters of this process."""

    at_us: int
    slept_us: int
    """Since boot, while the machine was suspended."""
    waited_us: int
    """Runnable without a processor."""
    worked_us: int


class Lateness:
    """Counts why timers were late, and logs each reason once."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self._warned: set[str] = set()
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
        """A timer fired; returns the reason if it was late, else an empty string."""
        if late_us < LATE_US and now_us - self._before.at_us < SAMPLE_US:
            return ""
        before, self._before = self._before, self.sample(now_us)
        if late_us < LATE_US:
            return ""
        why = reason(before, self._before, late_us)
        name = f"late.{why}"
        self._counts[name] = self._counts.get(name, 0) + 1
        if why not in self._warned:
            self._warned.add(why)
            log.warning(
                "a timer fired %.1f s late: this process %s", late_us / 1e6, EXPLANATIONS[why]
            )
        return why

    def close(self) -> None:
        if self._waits >= 0:
            os.close(self._waits)
            self._waits = -1


EXPLANATIONS: Final = {
    "suspended": "was suspended with its machine",
    "stalled": "was runnable and got no processor",
    "busy": "kept its event loop busy",
    "paused": "was stopped (a signal, a debugger, a frozen container)",
}


def reason(before: Sample, after: Sample, late_us: int) -> str:
    """What took at least half of the delay."""
    half_us = late_us // 2
    if after.slept_us - before.slept_us > half_us:
        return "suspended"
    if after.waited_us - before.waited_us > half_us:
        return "stalled"
    if after.worked_us - before.worked_us > half_us:
        return "busy"
    return "paused"
