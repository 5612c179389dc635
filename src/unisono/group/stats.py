"""What a group did and what waits in it, as numbers for a program to report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """Totals are over all incarnations; the rest is as of now."""

    sent: int
    """Own messages that were accepted."""
    delivered: int
    """Messages delivered to the stream, one's own included."""
    views: int
    """Views installed."""
    rejoined: int
    """Incarnations after the first."""
    shed: int
    """Messages dropped because the reader was slow (`slow="shed"`)."""
    reading: int
    """Items that wait for the reader."""
    reading_bytes: int
    sending: int
    """Calls of `multicast` that wait for the window."""
    slow_reader: bool
    """The reader is so slow that the others are held back (`slow="block"`)."""
    blocked: str
    """Why the group makes no progress; empty while it does."""
    delay_p50_s: float | None
    """From acceptance to delivery here, of samples among the last own messages; None before the
    first."""
    delay_p99_s: float | None


def quantile(values: Sequence[float], share: float) -> float | None:
    if not values:
        return None
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
