"""How much a turn may carry: as much as gets through.

A member that is kept from its work while the others speak has a round of turns waiting in its
socket, so a turn is a round's share of what a socket holds. Where that is still too much, turns
shrink by a quarter with every one that was lost in part, and grow again: fast up to what last got
through, then packet by packet.
"""

from __future__ import annotations

from typing import Final

BURST_FIRST: Final = 32
BURST_MIN: Final = 4
"""Packets that a turn may always have."""
ROUND_PACKETS: Final = 2048
"""Of all turns of a round: less than a socket's buffer of 4 MiB holds of the longest packets."""


class Pace:
    """Packets of one member's turns."""

    __slots__ = ("_lost", "_most", "_most_ever", "_usual", "burst")

    def __init__(self, burst_max: int) -> None:
        self._most_ever = self._most = burst_max
        self.burst = min(burst_max, BURST_FIRST)
        self._usual = burst_max
        """Up to here turns grow fast."""
        self._lost = False
        """Some of the last was asked for again."""

    def new_ring(self, members: int) -> None:
        share = ROUND_PACKETS // max(1, members - 1)
        self._most = max(min(share, self._most_ever), min(BURST_MIN, self._most_ever))
        self.burst = min(self.burst, self._most)

    def next(self) -> int:
        """Packets of the next turn."""
        if not self._lost:
            step = max(1, self.burst // 8) if self.burst < self._usual else 1
            self.burst = min(self._most, self.burst + step)
        self._lost = False
        return self.burst

    def lost(self) -> None:
        """Our turn did not get through."""
        if not self._lost:
            self._lost = True
            self.burst = max(min(BURST_MIN, self._most_ever), self.burst * 3 // 4)
            self._usual = self.burst
