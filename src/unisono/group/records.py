"""Where a member keeps its protocol's records between two incarnations."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from unisono.core import Restart
from unisono.net.stable import StableFile

RECORDS_COUNT_MAX: Final = 64
"""Records kept in memory when there is no file for them."""


class RecordStore:
    """A stable file; without one, `remembered`, which lasts until the process ends: enough for a
    rejoin."""

    def __init__(self, remembered: deque[bytes], stable: StableFile | None) -> None:
        self._remembered = remembered
        self._stable = stable
        self.unsaved_count = 0
        """Records that were not persisted, because there is no stable file."""

    def restarts(self) -> Iterator[Restart]:
        """The records of former incarnations, in pieces."""
        if self._stable is None:
            records = tuple(self._remembered)
            if records:
                yield Restart(records)
            return
        before: tuple[bytes, ...] | None = None
        for piece in self._stable.pieces():
            if before is not None:
                yield Restart(before, more=True)
            before = piece
        if before is not None:
            yield Restart(before)

    def append(self, record: bytes) -> None:
        if self._stable is not None:
            self._stable.append(record)
        else:
            self._remembered.append(record)
            self.unsaved_count += 1

    def replace(self, record: bytes) -> None:
        """Replace all records by this one."""
        if self._stable is not None:
            self._stable.replace(record)
        else:
            self._remembered.clear()
            self.append(record)

    def close(self) -> None:
        if self._stable is not None:
            self._stable.close()
