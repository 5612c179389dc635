"""Pacing: how much of a stream may be on its way, sent and not yet acknowledged."""

from __future__ import annotations

from collections import deque


class Flight:
    """The bytes of a numbered stream that are on their way; at most `bytes_max` and one item."""

    __slots__ = ("_bytes_max", "_items", "nbytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._items: deque[tuple[int, int]] = deque()
        self.nbytes = 0

    def is_full(self) -> bool:
        return self.nbytes >= self._bytes_max

    def add(self, number: int, nbytes: int) -> None:
        self._items.append((number, nbytes))
        self.nbytes += nbytes

    def acknowledge(self, upto: int) -> None:
        """Every receiver has the items up to this number."""
        items = self._items
        while items and items[0][0] <= upto:
            self.nbytes -= items.popleft()[1]

    def clear(self) -> None:
        self._items.clear()
        self.nbytes = 0
