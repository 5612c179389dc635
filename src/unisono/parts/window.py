"""A numbered stream as it arrives: what is here in a row, what is missing, what may be forgotten.

The same window receives and retains: items stay until `forget`, so that they can be sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Window(Generic[T]):
    """Items by number, from 1. `received` ends the unbroken row, `highest` is the last of all."""

    __slots__ = ("_items", "floor", "highest", "received")

    def __init__(self, start: int = 0) -> None:
        self.floor = start
        """Everything up to here is forgotten, or was never ours to receive."""
        self.received = start
        self.highest = start
        self._items: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._items)

    def put(self, number: int, item: T) -> bool:
        """Take the item; False when it was here already."""
        received, items = self.received, self._items
        if number <= received or number in items:
            return False
        items[number] = item
        if number > self.highest:
            self.highest = number
        if number == received + 1:
            while number + 1 in items:
                number += 1
            self.received = number
        return True

    def put_row(self, number: int, items: Sequence[T]) -> None:
        """Take items that follow each other, the first of this number, beyond all that are here."""
        assert number > self.highest
        self._items.update(zip(range(number, number + len(items)), items, strict=True))
        if number == self.received + 1:
            self.received += len(items)
        self.highest = number + len(items) - 1

    def replace(self, number: int, items: Sequence[T]) -> None:
        """Replace items that are here, from this number on."""
        self._items.update(zip(range(number, number + len(items)), items, strict=True))

    def row(self, first: int, last: int) -> list[T]:
        """What is here from one number to another."""
        items = self._items
        if first > self.floor and last <= self.received:
            return list(map(items.__getitem__, range(first, last + 1)))
        return [items[number] for number in range(first, last + 1) if number in items]

    def get(self, number: int) -> T | None:
        return self._items.get(number)

    def missing(self, upto: int, count_max: int) -> list[tuple[int, int]]:
        """The ranges not here, from the first gap to `upto`, at most `count_max` of them."""
        ranges: list[tuple[int, int]] = []
        number = self.received + 1
        for n in self._beyond(min(upto, self.highest)):
            if len(ranges) == count_max:
                break
            if n > number:
                ranges.append((number, n - 1))
            number = n + 1
        if number <= upto and len(ranges) < count_max:
            ranges.append((number, upto))
        return ranges

    def _beyond(self, upto: int) -> Iterator[int]:
        """What is here beyond the unbroken row, in order: found by looking, number by number, or by
        sorting all where that would be long."""
        items, start = self._items, self.received + 1
        if upto - start > 4 * len(items):
            return iter(sorted(n for n in items if start <= n <= upto))
        return (n for n in range(start, upto + 1) if n in items)

    def forget(self, upto: int) -> list[T]:
        """Drop what everyone has; only ever what was received in a row."""
        floor, items = self.floor, self._items
        upto = min(upto, self.received)
        if upto <= floor:
            return []
        self.floor = upto
        return [items.pop(number) for number in range(floor + 1, upto + 1) if number in items]

    def discard(self, number: int) -> None:
        """It is here no more, and missing."""
        if self._items.pop(number, None) is not None:
            self.received = min(self.received, number - 1)

    def cut(self, after: int) -> list[T]:
        """Discard what lies beyond `after`: it will never count."""
        gone = [self._items.pop(number) for number in [n for n in self._items if n > after]]
        self.received = min(self.received, after)
        self.highest = min(self.highest, after)
        while self.received + 1 in self._items:
            self.received += 1
        return gone
