"""Answers recalls of other members from a feed's log."""

from __future__ import annotations

import logging
from pathlib import Path

from unisono.feed import rows
from unisono.feed.keeper import Keeper
from unisono.log import BadBatch, LogReader, Trimmed
from unisono.model import Message

log = logging.getLogger("unisono.feed")


class LogArchive:
    """The log as an archive of the group, by the group's sequence numbers. Read in threads."""

    def __init__(self, keeper: Keeper, directory: Path) -> None:
        self._keeper = keeper
        self._reader = LogReader(directory)

    def close(self) -> None:
        self._reader.close()

    @property
    def first(self) -> int:
        return self._keeper.solid()[0]

    @property
    def last(self) -> int:
        return self._keeper.solid()[1]

    def messages(self, first: int, last: int) -> list[Message]:
        """The messages with these sequence numbers, from `first` up to the first hole."""
        return self.logged(self._keeper.base, first, last)

    def logged(self, base: int, first: int, last: int) -> list[Message]:
        """The same for a stretch with this base."""
        found: list[Message] = []
        try:
            batches = self._reader.read(base + first, base + last)
            for batch in rows.in_range(batches, base + first - 1, base + last):
                found += rows.messages_of(batch, base)
        except Trimmed:
            return []
        except BadBatch as error:
            log.warning("%s", error)
        count = next((n for n, m in enumerate(found) if m.seq != first + n), len(found))
        return found[:count]
