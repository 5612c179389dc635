"""Reads a log while another thread or process may be writing it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unisono.log import files, salvage
from unisono.log.record import LogBatch, LogBounds, Trimmed

PAGE_BYTES = 4 << 20
PAGE_COUNT_MAX = 1024

_META = "SELECT key, value FROM meta WHERE key IN ('first', 'end', 'last')"
_PAGE = """
SELECT first, last, rows, t_us, crc, blob FROM batch
WHERE first >= coalesce((SELECT max(first) FROM batch WHERE first <= ?1), ?1) AND first <= ?2
ORDER BY first LIMIT ?3
"""
_AT_TIME = "SELECT first FROM batch INDEXED BY span WHERE t_us >= ? ORDER BY first LIMIT 1"


class LogReader:
    """Neither blocks the writer nor is blocked by it."""

    def __init__(self, directory: Path | str) -> None:
        self._path = Path(directory) / files.FILE
        self._connection = files.opened_to_read(Path(directory))
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def bounds(self) -> LogBounds:
        with self._at_one_time():
            return self._bounds()

    def meta(self, *keys: str) -> dict[str, str]:
        """These of the writer's metadata, and the log's own bounds as text."""
        named = ", ".join("?" * (len(keys) + 3))
        query = f"SELECT key, value FROM meta WHERE key IN ({named})"
        with self._at_one_time():
            return dict(self._connection.execute(query, ("first", "end", "last", *keys)))

    def page(
        self, first: int, last: int, bytes_max: int = PAGE_BYTES, count_max: int = PAGE_COUNT_MAX
    ) -> list[LogBatch]:
        """The first batches that hold any of these offsets, within the bounds but at least one. The
        outer ones may hold other offsets too."""
        with self._at_one_time():
            begins = self._bounds().first
            if first < begins and last >= first:
                raise Trimmed(first, begins)
            found: list[LogBatch] = []
            nbytes = 0
            for row in self._connection.execute(_PAGE, (first, last, count_max + 1)):
                if row[1] < first:
                    continue
                found.append(files.batch_of(row, self._path))
                nbytes += len(found[-1].blob)
                if nbytes >= bytes_max or len(found) >= count_max:
                    break
            return found

    def read(self, first: int, last: int) -> Iterator[LogBatch]:
        """All batches that hold any of these offsets, in order, read page by page: an offset that
        is trimmed meanwhile raises `Trimmed`, and a batch that was merged meanwhile may begin with
        offsets of the one before."""
        while first <= last:
            page = self.page(first, last)
            if not page:
                return
            yield from page
            first = page[-1].last + 1

    def first_at(self, t_us: int) -> int | None:
        """The first offset of the first batch that was appended at this time or later."""
        with self._at_one_time():
            found = self._connection.execute(_AT_TIME, (t_us,)).fetchone()
        return int(found[0]) if found else None

    def _bounds(self) -> LogBounds:
        known = dict(self._connection.execute(_META).fetchall())
        first = int(known.get("first", 1))
        end = int(known.get("end", first - 1))
        return LogBounds(first, end, int(known.get("last", end)))

    @contextmanager
    def _at_one_time(self) -> Iterator[None]:
        """All reads within see the log as it was at one moment."""
        with self._lock:
            try:
                self._connection.execute("BEGIN")
                try:
                    yield
                finally:
                    if self._connection.in_transaction:
                        self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                if files.is_damage(error):
                    with suppress(OSError):  # We may read a log of others.
                        salvage.mark(self._path)
                raise files.bad(self._path, error) from None
