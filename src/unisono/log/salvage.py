"""What is done about damage: a batch is copied to a file beside the log before it is removed, and a
file that SQLite cannot read is replaced by one with every batch that is sound.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from unisono.log import files
from unisono.log.ranges import spans_of
from unisono.log.record import BadLog, LogBatch

DAMAGED_COUNT_MAX: Final = 100
"""Copies of damaged batches, and of damaged files, that are kept."""
SEEKS_COUNT: Final = 1000
"""Steps beyond damaged pages, where neither index nor table can be read on."""
NAMED_COUNT: Final = 5
"""Ranges that the log line names."""
MARK: Final = "salvage"
"""A file of this name beside the log: the next writer salvages it first."""

log = logging.getLogger("unisono.log")

Row = tuple[int, int, int, int, int, bytes]
"""First, last, rows, t_us, crc, blob."""
ROW: Final = "SELECT first, last, rows, t_us, crc, blob FROM batch NOT INDEXED WHERE first"


def copied(path: Path, row: Row) -> str:
    """Make a copy of a damaged batch durable, and return its name: a line of JSON, then the blob.
    Beyond the bound there is no copy."""
    first, last, rows, t_us, crc, blob = row
    name = f"{path.name}.batch-{first}"
    aside = path.with_name(name)
    if not aside.exists() and len([*path.parent.glob(f"{path.name}.batch-*")]) >= DAMAGED_COUNT_MAX:
        return f"not copied, as there are {DAMAGED_COUNT_MAX} copies"
    facts = {"first": first, "last": last, "rows": rows, "t_us": t_us, "crc": crc}
    data = blob if isinstance(blob, bytes) else repr(blob).encode()
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(json.dumps(facts, default=repr).encode() + b"\n" + data)
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(path.parent)
    except OSError as error:
        raise BadLog(f"{aside}: cannot copy a damaged batch: {error.strerror}") from None
    return f"copied to {name}"


def mark(path: Path) -> None:
    """SQLite cannot read a part of the file: the next writer salvages it."""
    path.with_name(MARK).touch()


def is_marked(path: Path) -> bool:
    return path.with_name(MARK).exists()


def salvage(path: Path) -> int:
    """Replace a damaged file by one with its sound batches. The old file is kept under another
    name. Returns the number of batches kept."""
    aside = next(
        (
            name
            for at in range(DAMAGED_COUNT_MAX)
            if not (name := path.with_name(f"{path.name}.damaged-{at}")).exists()
        ),
        None,
    )
    if aside is None:
        raise BadLog(f"{path} is damaged, and so are {DAMAGED_COUNT_MAX} before it: move them away")
    fresh = path.with_name(f"{path.name}.salvage")
    _remove(fresh)
    try:
        kept, last, lost = _copy(path, fresh)
        # The new file is whole on the disk before it has the name.
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        path.rename(aside)
        for ending in ("-wal", "-shm"):
            beside = path.with_name(path.name + ending)
            if beside.exists():
                beside.rename(aside.with_name(aside.name + ending))
        fresh.rename(path)
        path.with_name(MARK).unlink(missing_ok=True)
        _sync_directory(path.parent)
    except (sqlite3.Error, OSError) as error:
        raise BadLog(f"{path} is damaged, and cannot be salvaged: {error}") from None
    log.warning(
        "%s was damaged: %d batches up to offset %d are kept, %s; the damaged file is %s",
        *(path, kept, last, _named(lost), aside.name),
    )
    return kept


def _copy(path: Path, fresh: Path) -> tuple[int, int, list[tuple[int, int]]]:
    """Returns how many batches were copied, the last offset, and the holes before it."""
    with closing(files.connect(fresh)) as target, closing(files.connect(path)) as source:
        files.make(target)
        try:
            # Otherwise SQLite does not read a truncated file.
            source.execute("PRAGMA writable_schema = ON")
            meta = source.execute("SELECT key, value FROM meta").fetchall()
        except sqlite3.DatabaseError as error:
            raise BadLog(f"{path} is damaged beyond salvage ({error}): move it away") from None
        target.execute("BEGIN")
        target.executemany(files.SET, meta)
        held: list[tuple[int, int]] = []
        for batch in sound_batches(source, path):
            target.execute(files.INSERT, files.row_of(batch))
            held.append(batch[:2])
        target.execute("COMMIT")
        target.execute("PRAGMA journal_mode = DELETE")
    known = {key: int(value) for key, value in meta if str(value).isdigit()}
    spans = spans_of(known.get("first", 1), held, known.get("last", 0))
    return len(held), spans.last if spans else 0, spans.holes() if spans else []


def _named(lost: list[tuple[int, int]]) -> str:
    if not lost:
        return "none is lost"
    ranges = ", ".join(f"{first} to {last}" for first, last in lost[:NAMED_COUNT])
    more = f" and {len(lost) - NAMED_COUNT} more ranges" if len(lost) > NAMED_COUNT else ""
    return f"those of offsets {ranges}{more} are missing"


def sound_batches(source: sqlite3.Connection, path: Path) -> Iterator[LogBatch]:
    """Every batch that can be read and matches its checksum, in order, without overlaps."""
    before = 0
    for first in _keys(source):
        try:
            row = source.execute(f"{ROW} = ?", (first,)).fetchone()
            batch = files.batch_of(row, path) if row is not None else None
        except (sqlite3.Error, BadLog):
            continue
        if batch is not None and before < batch.first <= batch.last:
            before = batch.last
            yield batch


def _keys(source: sqlite3.Connection) -> list[int]:
    """The first offsets of all batches: from the index, and from the table as far as each can be
    read, from both ends and between damaged pages."""
    found: set[int] = set()
    for order in ("", "DESC"):
        for table in ("INDEXED BY span", "NOT INDEXED"):
            rows = f"SELECT first FROM batch {table} ORDER BY first {order}"
            try:
                for (first,) in source.execute(rows):
                    found.add(first)
            except sqlite3.Error:
                continue
            if table == "NOT INDEXED":
                return sorted(first for first in found if isinstance(first, int))
    whole = {first for first in found if isinstance(first, int)}
    return sorted(whole | _between(source, max(whole, default=0)))


def _between(source: sqlite3.Connection, last: int) -> set[int]:
    """The keys of readable pages, where others are not: seek beyond the damage in growing steps."""
    found: set[int] = set()
    at, step = 1, 1
    while at <= last:
        reached = at
        for first in _readable(source, f">= {at} ORDER BY first"):
            found.add(first)
            reached = first + 1
        if reached > at:  # Between the damage and the step.
            found.update(_readable(source, f"< {at} AND first >= {at - step} ORDER BY first DESC"))
            at, step = reached, 1
        else:
            at, step = at + step, min(2 * step, 1 + last // SEEKS_COUNT)
    return found


def _readable(source: sqlite3.Connection, where: str) -> Iterator[int]:
    with contextlib.suppress(sqlite3.Error):
        for (first,) in source.execute(f"SELECT first FROM batch NOT INDEXED WHERE first {where}"):
            yield first


def _remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
