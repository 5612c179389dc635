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
    """A stable file; without one, `remembered`, which lasts as long as the process: enough for a
    rejoin."""

    def __init__(self, remembered: deque[bytes], stable: StableFile | None) -> None:
        self._remembered = remembered
        self._stable = stable
        self.unsaved_count = 0
        """Records that the protocol wanted on stable storage, and there was none."""

    def restarts(self) -> Iterator[Restart]:
        """What former incarnations recorded, piece by piece."""
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
        """Keep this record in place of all before it."""
        if self._stable is not None:
            self._stable.replace(record)
        else:
            self._remembered.clear()
            self.append(record)

    def close(self) -> None:
        if self._stable is not None:
            self._stable.close()
