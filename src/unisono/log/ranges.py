"""The offsets that are held: a contiguous beginning, and islands after holes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable


class RangeSet:
    """Offsets from `first` on. Adjacent islands are merged, so the set stays small."""

    def __init__(self, first: int = 1) -> None:
        self.first = first
        self.end = first - 1
        """Every offset up to here is held, or was and is dropped."""
        self.reached = 0
        """Offsets up to here were held once: those that are not are a hole, also at the end."""
        self._islands: list[tuple[int, int]] = []

    @property
    def last(self) -> int:
        return max(self.reached, self._islands[-1][1] if self._islands else self.end)

    def copy(self) -> RangeSet:
        made = RangeSet(self.first)
        made.end, made.reached = self.end, self.reached
        made._islands = self._islands.copy()
        return made

    def overlap(self, first: int, last: int) -> int | None:
        """The first of these offsets that is held already."""
        if first <= self.end:
            return first
        at = bisect_left(self._islands, (first, 0))
        if at and self._islands[at - 1][1] >= first:
            return first
        if at < len(self._islands) and self._islands[at][0] <= last:
            return self._islands[at][0]
        return None

    def add(self, first: int, last: int) -> None:
        """Add offsets that are not held."""
        if first == self.end + 1:
            self.end = last
        elif self._islands and self._islands[-1][1] + 1 == first:
            self._islands[-1] = (self._islands[-1][0], last)
        else:
            insort(self._islands, (first, last))
            self._join_islands()
        while self._islands and self._islands[0][0] == self.end + 1:
            self.end = self._islands.pop(0)[1]

    def _join_islands(self) -> None:
        joined: list[tuple[int, int]] = []
        for first, last in self._islands:
            if joined and joined[-1][1] + 1 == first:
                joined[-1] = (joined[-1][0], last)
            else:
                joined.append((first, last))
        self._islands = joined

    def drop_before(self, first: int) -> None:
        """The log begins later now."""
        self.first = first
        self.end = max(self.end, first - 1)
        self._islands = [span for span in self._islands if span[1] >= first]
        while self._islands and self._islands[0][0] <= self.end + 1:
            self.end = max(self.end, self._islands.pop(0)[1])

    def holes(self) -> list[tuple[int, int]]:
        """First and last offset of each hole."""
        found, before = [], self.end
        for first, last in self._islands:
            found.append((before + 1, first - 1))
            before = last
        if before < self.reached:
            found.append((before + 1, self.reached))
        return found


def spans_of(first: int, held: Iterable[tuple[int, int]], reached: int = 0) -> RangeSet | None:
    """From ranges in ascending order; None if two of them overlap."""
    spans = RangeSet(first)
    spans.reached = reached
    for start, last in held:
        if last < start or spans.overlap(start, last) is not None:
            return None
        spans.add(start, last)
    return spans
