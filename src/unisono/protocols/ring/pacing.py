"""How many packets a turn may have: as many as get through.

A member that does not run for a while has a round of turns waiting in its socket, and the rest of
the one before if it passed the token early. So a turn is what the others left of the last round,
and at least its share of what a socket holds. Where that is too much, turns shrink by a quarter
with each that is lost in part, and grow again: fast up to what last got through, then slowly.
"""

from __future__ import annotations

from typing import Final

BURST_FIRST: Final = 32
BURST_MIN: Final = 4
"""Packets that any turn may have."""
TURN_PACKETS: Final = 512
"""Of a turn in a small ring: more are not faster."""
MEMBER_PACKETS: Final = 128
"""For each member of a larger ring, since each adds to the cost of a round."""
ROUND_PACKETS: Final = 2048
"""Of all turns of a round: fewer than a socket buffer of 4 MiB holds at full length."""


class TurnPacing:
    """Packets of one member's turns."""

    __slots__ = ("_lost", "_most", "_most_ever", "_others", "_share", "_usual", "burst")

    def __init__(self, burst_max: int) -> None:
        self._most_ever = burst_max
        self._most = self._share = min(burst_max, TURN_PACKETS)
        self._others = 0
        """Packets of other members since our last turn."""
        self.burst = min(burst_max, BURST_FIRST)
        self._usual = burst_max
        """Up to here turns grow fast."""
        self._lost = False
        """Packets of the last turn were requested again."""

    def new_ring(self, members: int) -> None:
        self._most = min(self._most_ever, max(TURN_PACKETS, members * MEMBER_PACKETS))
        self._share = max(ROUND_PACKETS // max(1, members - 1), BURST_MIN)
        self._others = ROUND_PACKETS

    def note(self, packets: int) -> None:
        """A turn of another member."""
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

    def note_lost(self) -> None:
        """A packet of our last turn was lost."""
        if not self._lost:
            self._lost = True
            self.burst = max(min(BURST_MIN, self._most), self.burst * 3 // 4)
            self._usual = self.burst
