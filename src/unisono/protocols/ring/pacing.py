"""How much a turn may carry: as much as gets through.

A member that is kept from its work while the others speak has a round of turns waiting in its
socket, and the rest of the one before if it passed the token early. So a turn is what the others
left of the round before, and at least a round's share of what a socket holds. Where that is still
too much, turns shrink by a quarter with every one that was lost in part, and grow again: fast up to
what last got through, then with care.
"""

from __future__ import annotations

from typing import Final

BURST_FIRST: Final = 32
BURST_MIN: Final = 4
"""Packets that a turn may always have."""
TURN_PACKETS: Final = 512
"""Of a turn in a small ring: more do not make it faster."""
MEMBER_PACKETS: Final = 128
"""And so many for each member, since a round costs something for each."""
ROUND_PACKETS: Final = 2048
"""Of all turns of a round: less than a socket's buffer of 4 MiB holds of the longest packets."""


class TurnPacing:
    """Packets of one member's turns."""

    __slots__ = ("_lost", "_most", "_most_ever", "_others", "_share", "_usual", "burst")

    def __init__(self, burst_max: int) -> None:
        self._most_ever = burst_max
        self._most = self._share = min(burst_max, TURN_PACKETS)
        self._others = 0
        """Packets of the others since our last turn."""
        self.burst = min(burst_max, BURST_FIRST)
        self._usual = burst_max
        """Up to here turns grow fast."""
        self._lost = False
        """Some of the last was asked for again."""

    def new_ring(self, members: int) -> None:
        self._most = min(self._most_ever, max(TURN_PACKETS, members * MEMBER_PACKETS))
        self._share = max(ROUND_PACKETS // max(1, members - 1), BURST_MIN)
        self._others = ROUND_PACKETS

    def heard(self, packets: int) -> None:
        """A turn of somebody else."""
        self._others += packets

    def next(self) -> int:
        """Packets of the next turn."""
        most = min(self._most, max(self._share, ROUND_PACKETS - self._others))
        self._others = 0
        if not self._lost:
            slow = max(1, self._most // 128)
            self.burst += max(slow, self.burst // 8) if self.burst < self._usual else slow
        self._lost = False
        self.burst = min(self.burst, most)
        return self.burst

    def lost(self) -> None:
        """Our turn did not get through."""
        if not self._lost:
            self._lost = True
            self.burst = max(min(BURST_MIN, self._most), self.burst * 3 // 4)
            self._usual = self.burst
