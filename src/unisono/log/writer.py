"""Writes a log. Appends that wait at the same time share a transaction."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from unisono.errors import Misuse
from unisono.log import files, salvage
from unisono.log.ranges import RangeSet, spans_of
from unisono.log.record import BadBatch, BadLog, Dropped, LogBatch, LogBounds

OFFSET_MAX = (1 << 62) - 1
TAIL_COUNT = 64
"""Batches at the end that are checked when a log is opened: those that a torn write may damage."""
TRIM_COUNT_MAX = 100_000
MERGED_ROWS_MAX, MERGED_BYTES_MAX = 8192, 4 << 20
"""Of a batch that small ones are merged into; the bytes are those before."""
OWN_META = frozenset(("first", "end", "last"))

log = logging.getLogger("unisono.log")


class _Waiting:
    """A pending append, or one that is done."""

    def __init__(self, batches: Sequence[LogBatch], meta: Mapping[str, str | None]) -> None:
        self.batches = batches
        self.meta = meta
        self.done = False
        self.error: Exception | None = None


class Log:
    """The only writer of a log. Thread-safe."""

    def __init__(self, directory: Path | str, *, durable: bool = True) -> None:
        """With `durable=False` a crash of the machine, not of the process, may lose commits."""
        self.directory = Path(directory)
        self._lock_handle = files.lock_of(self.directory)
        self._waiting: list[_Waiting] = []
        self._queue = threading.Lock()
        self._writing = threading.Lock()
        self.commits = 0
        """Transactions so far."""
        self._merged = 0
        """Batches up to this offset are merged already, or too large."""
        try:
            self._open(durable)
        except BaseException:
            os.close(self._lock_handle)
            raise

    def _open(self, durable: bool) -> None:
        """A file that is damaged is salvaged, once."""
        marked = salvage.is_marked(self.path)
        if marked:
            salvage.salvage(self.path)
        for salvaged in (marked, True):
            try:
                self._connection = files.opened_to_write(self.directory, durable)
                try:
                    self._recall()
                    return
                except BaseException:
                    self._connection.close()
                    raise
            except sqlite3.DatabaseError as error:
                if salvaged or not files.is_damage(error):
                    raise files.bad(self.path, error) from None
                salvage.salvage(self.path)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._writing:
            if self._lock_handle >= 0:
                self._connection.close()
                os.close(self._lock_handle)
                self._lock_handle = -1

    # -- inspection -----------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        return self.directory / files.FILE

    @property
    def first(self) -> int:
        return self._spans.first

    @property
    def end(self) -> int:
        """Every offset from `first` to here is held."""
        return self._spans.end

    @property
    def last(self) -> int:
        return self._spans.last

    @property
    def bounds(self) -> LogBounds:
        spans = self._spans
        return LogBounds(spans.first, spans.end, spans.last)

    @property
    def nbytes(self) -> int:
        """The size of all blobs."""
        return self._bytes

    def holes(self) -> list[tuple[int, int]]:
        """First and last offset of each hole before `last`."""
        return self._spans.holes()

    def meta(self, key: str) -> str | None:
        return self._meta.get(key)

    def metas(self, prefix: str) -> list[tuple[str, str]]:
        """The keys that begin so, and their values."""
        return [(key, value) for key, value in self._meta.items() if key.startswith(prefix)]

    def _recall(self) -> None:
        """Read what the file holds. Damaged batches at the end are set aside."""
        self._meta = dict(self._connection.execute("SELECT key, value FROM meta").fetchall())
        for key in OWN_META & self._meta.keys():
            if not str(self._meta[key]).isdigit():
                raise BadLog(f"{self.path}: {key} is {self._meta[key]!r}, not an offset")
        bad = []
        for row in self._connection.execute(
            f"{salvage.ROW} ORDER BY first DESC LIMIT {TAIL_COUNT}"
        ):
            try:
                files.batch_of(row, self.path)
            except BadBatch:
                bad.append(row)
        for row in bad:
            self._remove(row)
        self._recount()
        known = LogBounds(
            self._spans.first, int(self._meta.get("end", 0)), int(self._meta.get("last", 0))
        )
        if "end" in self._meta and known != self.bounds:
            self._transact([], {}, self._spans)

    def _recount(self) -> None:
        """What the table holds. The offsets of batches that were set aside are holes."""
        held = self._connection.execute(
            "SELECT first, last, octets FROM batch NOT INDEXED ORDER BY first"
        ).fetchall()
        sound = all(isinstance(number, int) for row in held for number in row)
        reached = int(self._meta.get("last", 0))
        begins = int(self._meta.get("first", 1))
        spans = spans_of(begins, (row[:2] for row in held), reached) if sound else None
        if spans is None:
            raise sqlite3.DatabaseError("malformed: two batches hold the same offset")
        self._spans = spans
        self._bytes: int = sum(row[2] for row in held)

    # -- damage ---------------------------------------------------------------------------------

    def set_aside(self, first: int) -> bool:
        """If the batch that begins there is damaged, move it to a file of its own: its offsets are
        a hole then. Returns whether it was."""
        with self._writing:
            return self._lock_handle >= 0 and self._set_aside(first)

    def _set_aside(self, first: int) -> bool:
        try:
            row = self._connection.execute(f"{salvage.ROW} = ?", (first,)).fetchone()
            try:
                if row is not None:
                    files.batch_of(row, self.path)
                return False
            except BadBatch:
                self._remove(row)
            self._recount()
        except sqlite3.DatabaseError as error:
            if files.is_damage(error):
                salvage.mark(self.path)
            raise files.bad(self.path, error) from None
        self._transact([], {}, self._spans)
        return True

    def _remove(self, row: salvage.Row) -> None:
        where = salvage.copied(self.path, row)
        self._connection.execute("DELETE FROM batch WHERE first = ?", row[:1])
        log.warning(
            "%s: the batch of offsets %s to %s does not match its checksum: it is set aside, %s",
            *(self.path, row[0], row[1], where),
        )

    # -- appending ------------------------------------------------------------------------------

    def append(
        self, batches: Iterable[LogBatch] = (), meta: Mapping[str, str | None] | None = None
    ) -> None:
        """Make these batches and metadata durable, all or nothing; a value of None deletes its key.
        Appends that wait while another is written share one transaction."""
        mine = _Waiting([*batches], dict(meta or {}))
        self._check(mine)
        with self._queue:
            self._waiting.append(mine)
        with self._writing:
            if not mine.done:
                self._commit()
        if mine.error is not None:
            raise mine.error

    def _check(self, mine: _Waiting) -> None:
        for batch in mine.batches:
            if not 1 <= batch.first <= batch.last <= OFFSET_MAX:
                raise Misuse(f"a batch of offsets {batch.first} to {batch.last}: begin at 1")
            if not isinstance(batch.blob, bytes):
                raise Misuse(f"a blob is bytes, not {type(batch.blob).__name__}")
        if taken := OWN_META & mine.meta.keys():
            raise Misuse(f"reserved keys: {', '.join(sorted(taken))}; choose others")

    def _commit(self) -> None:
        with self._queue:
            taken, self._waiting = self._waiting, []
        spans = self._spans.copy()
        now_us = time.time_ns() // 1000
        batches: list[LogBatch] = []
        meta: dict[str, str | None] = {}
        joined = []
        for each in taken:
            each.done = True
            trial = spans.copy()
            try:
                for batch in each.batches:
                    if (offset := trial.overlap(batch.first, batch.last)) is not None:
                        raise Misuse(f"offset {offset} was appended before: append only new ones")
                    trial.add(batch.first, batch.last)
            except Misuse as error:
                each.error = error
                continue
            spans = trial
            batches += (b if b.t_us else b._replace(t_us=now_us) for b in each.batches)
            meta |= each.meta
            joined.append(each)
        try:
            if joined:
                self._transact(batches, meta, spans)
        except Exception as error:  # Raised by every append of the transaction.
            for each in joined:
                each.error = error

    def _transact(
        self, batches: Sequence[LogBatch], meta: Mapping[str, str | None], spans: RangeSet
    ) -> None:
        own = {"first": str(spans.first), "end": str(spans.end), "last": str(spans.last)}
        connection = self._connection
        if self._lock_handle < 0:
            raise Misuse(f"{self.directory}: the log is closed")
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(files.INSERT, map(files.row_of, batches))
            for key, value in {**meta, **own}.items():
                if value is None:
                    connection.execute("DELETE FROM meta WHERE key = ?", (key,))
                else:
                    connection.execute(files.SET, (key, value))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise files.bad(self.path, error) from None
        self.commits += 1
        for key, value in {**meta, **own}.items():
            if value is None:
                self._meta.pop(key, None)
            else:
                self._meta[key] = value
        self._spans = spans
        self._bytes += sum(len(batch.blob) for batch in batches)

    # -- compaction -----------------------------------------------------------------------------

    def merge(self, join: Callable[[Sequence[bytes]], bytes]) -> int:
        """Replace the next small batches by one; `join` makes its blob of theirs. Returns how many
        were replaced, 0 when there are none. What a batch may still be appended to is left alone,
        so each row is rewritten once. One call at a time; appends go on meanwhile."""
        with self._writing:
            found = self._next_small() if self._lock_handle >= 0 else []
        if not found:
            return 0
        first, last = found[0][0], found[-1][1]
        try:
            batches = [files.batch_of(row, self.path) for row in found]
            blob = join([batch.blob for batch in batches])
        except BadBatch as error:
            return int(self.set_aside(error.first))
        except ValueError as error:
            log.warning("%s: offsets %d to %d are not merged: %s", self.path, first, last, error)
            self._merged = last
            return len(found)
        rows, t_us = sum(batch.rows for batch in batches), max(batch.t_us for batch in batches)
        with self._writing:
            if self._lock_handle < 0:
                return 0
            self._merged = last
            if first >= self.first:
                self._replace(LogBatch(first, last, blob, rows, t_us))
                self._bytes += len(blob) - sum(len(batch.blob) for batch in batches)
        return len(found)

    def _next_small(self) -> list[tuple[int, int, int, int, int, bytes]]:
        """The next batches without a hole that fit in one, once another follows them."""
        first = count = rows = nbytes = before = 0
        try:
            # Without the blobs: most of a log is merged already, or was large from the beginning.
            following = self._connection.execute(
                "SELECT first, last, rows, octets FROM batch WHERE first > ?"
                " ORDER BY first LIMIT ?",
                (self._merged, MERGED_ROWS_MAX + 1),
            )
            for at, last, its_rows, its_bytes in following:
                rows, nbytes = rows + its_rows, nbytes + its_bytes
                full = rows > MERGED_ROWS_MAX or nbytes > MERGED_BYTES_MAX
                if count and (full or at != before + 1):
                    if count > 1:
                        return self._between(first, before)
                    self._merged, count = before, 0
                if not count:
                    first, rows, nbytes = at, its_rows, its_bytes
                count, before = count + 1, last
        except sqlite3.Error as error:
            raise files.bad(self.path, error) from None
        return []

    def _between(self, first: int, last: int) -> list[tuple[int, int, int, int, int, bytes]]:
        return self._connection.execute(
            "SELECT first, last, rows, t_us, crc, blob FROM batch"
            " WHERE first BETWEEN ? AND ? ORDER BY first",
            (first, last),
        ).fetchall()

    def _replace(self, merged: LogBatch) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(
                "DELETE FROM batch WHERE first BETWEEN ? AND ?", (merged.first, merged.last)
            )
            self._connection.execute(files.INSERT, files.row_of(merged))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise files.bad(self.path, error) from None

    # -- retention ------------------------------------------------------------------------------

    def trim(
        self,
        bytes_max: int | None = None,
        age_s: float | None = None,
        now_us: int | None = None,
    ) -> Dropped | None:
        """Drop the oldest batches beyond this size or age. Returns what was dropped, and logs it;
        `first` is then the first offset kept."""
        with self._writing:
            return self._trim(bytes_max, age_s, now_us or time.time_ns() // 1000)

    def _oldest(self) -> Iterator[tuple[int, int, int]]:
        """Last offset, size and time of the oldest batches, read lazily."""
        try:
            yield from self._connection.execute(
                "SELECT last, octets, t_us FROM batch INDEXED BY span ORDER BY first LIMIT ?",
                (TRIM_COUNT_MAX,),
            )
        except sqlite3.Error as error:
            raise files.bad(self.path, error) from None

    def _trim(self, bytes_max: int | None, age_s: float | None, now_us: int) -> Dropped | None:
        oldest_us = None if age_s is None else now_us - int(age_s * 1e6)
        nbytes, reason, last = 0, "", 0
        for row_last, row_bytes, t_us in self._oldest():
            if bytes_max is not None and self._bytes - nbytes > bytes_max:
                reason = f"the log had more than {bytes_max} bytes"
            elif oldest_us is not None and t_us < oldest_us:
                reason = f"they were older than {age_s:g} s"
            else:
                break
            nbytes, last = nbytes + row_bytes, row_last
        if not last:
            return None
        dropped = Dropped(self.first, last, nbytes, reason)
        spans = self._spans.copy()
        spans.drop_before(last + 1)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM batch WHERE first <= ?", (last,))
            for key, value in zip(("first", "end", "last"), _bounds_of(spans), strict=True):
                self._connection.execute(files.SET, (key, str(value)))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise files.bad(self.path, error) from None
        self._spans = spans
        self._bytes -= nbytes
        log.info("%s: dropped %s", self.directory, dropped)
        return dropped


def _bounds_of(spans: RangeSet) -> LogBounds:
    return LogBounds(spans.first, spans.end, spans.last)
