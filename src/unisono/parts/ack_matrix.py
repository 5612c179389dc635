"""The acknowledgment matrix: what each member is known to hold, and what all of them do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class AckMatrix:
    """Which member holds what, as known: a row of acknowledgments for each, and their minimum.

    The minimum of a column is searched for again only when its last holder has risen, so that a
    message costs O(members) on the whole.
    """

    __slots__ = ("_at_floor", "_rows", "floor", "total")

    def __init__(self, size: int) -> None:
        self._rows = [[0] * size for _ in range(size)]
        self.floor = [0] * size
        """By sender, what every member is known to hold."""
        self._at_floor = [size] * size
        """By sender, how many members are known to hold no more than that."""
        self.total = 0
        """The sum of `floor`."""

    def row(self, member: int) -> Sequence[int]:
        return self._rows[member]

    def raise_row(self, member: int, acks: Sequence[int]) -> None:
        """The member's latest acknowledgments."""
        row, floor = self._rows[member], self.floor
        for sender, (old, new) in enumerate(zip(row, acks, strict=True)):
            if new > old:
                row[sender] = new
                if old == floor[sender]:
                    self._leave_floor(sender)

    def raise_one(self, member: int, sender: int, index: int) -> None:
        """The member holds the messages of this sender up to here."""
        row = self._rows[member]
        old = row[sender]
        if index > old:
            row[sender] = index
            if old == self.floor[sender]:
                self._leave_floor(sender)

    def _leave_floor(self, sender: int) -> None:
        self._at_floor[sender] -= 1
        if self._at_floor[sender]:
            return
        column = [row[sender] for row in self._rows]
        floor = min(column)
        self.total += floor - self.floor[sender]
        self.floor[sender] = floor
        self._at_floor[sender] = column.count(floor)

    def floor_of(self, members: Iterable[int]) -> tuple[int, ...]:
        """By sender, what all of these members are known to hold."""
        rows = [self._rows[member] for member in members]
        return tuple(map(min, zip(*rows, strict=True))) if rows else tuple(self._rows[0])
