"""Which records of a session were opened: each is opened once, and none from long ago."""

from __future__ import annotations

from typing import Final

WINDOW: Final = 1024
"""Records behind the newest that may still come."""
_MASK: Final = (1 << WINDOW) - 1


class ReplayWindow:
    """A sliding window over the counters of one session [RFC 4303, 3.4.3]."""

    __slots__ = ("_next", "_seen")

    def __init__(self, counter: int = 0) -> None:
        """`counter` is the number of records that were sealed before now."""
        self._next = counter
        self._seen = 0
        """By bit, the records before `_next` that were opened, the newest lowest."""

    @property
    def next(self) -> int:
        """One more than the newest opened."""
        return self._next

    def is_new(self, counter: int) -> bool:
        behind = self._next - 1 - counter
        return behind < 0 or (behind < WINDOW and not self._seen >> behind & 1)

    def add(self, counter: int) -> None:
        """It was opened."""
        behind = self._next - 1 - counter
        if behind >= 0:
            self._seen |= 1 << behind
            return
        self._seen = (self._seen << -behind | 1) & _MASK if -behind < WINDOW else 1
        self._next = counter + 1
