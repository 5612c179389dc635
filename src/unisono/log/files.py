"""The SQLite file of a log: its path, schema and opening."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote

from unisono.errors import Misuse
from unisono.log.record import BadBatch, BadLog, LogBatch, checksum

FILE: Final = "log.sqlite"
LOCK: Final = "lock"
APPLICATION: Final = 0x554E4C47
"""`UNLG`, in the file's header: tells a log from any other SQLite file."""
VERSION: Final = 1
HEADER: Final = b"SQLite format 3\0"
BUSY_S: Final = 20.0

TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE batch (
    first INTEGER PRIMARY KEY, last INTEGER NOT NULL, rows INTEGER NOT NULL,
    octets INTEGER NOT NULL, t_us INTEGER NOT NULL, crc INTEGER NOT NULL, blob BLOB NOT NULL);
CREATE INDEX span ON batch (first, last, octets, t_us);
"""
INSERT: Final = "INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?, ?)"
SET: Final = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


def row_of(batch: LogBatch) -> tuple[int, int, int, int, int, int, bytes]:
    nbytes = len(batch.blob)
    return (*batch[:2], batch.rows, nbytes, batch.t_us, checksum(batch), batch.blob)


def batch_of(row: tuple[int, int, int, int, int, bytes], path: Path) -> LogBatch:
    """From first, last, rows, t_us, crc, blob; `BadBatch` if the checksum does not match."""
    first, last, rows, t_us, crc, blob = row
    batch = LogBatch(first, last, blob, rows, t_us)
    if not isinstance(blob, bytes) or checksum(batch) != crc:
        text = f"{path}: the batch of offsets {first} to {last} does not match its checksum"
        raise BadBatch(text, first)
    return batch


def lock_of(directory: Path) -> int:
    """The writer's lock, held by the descriptor as long as the process runs."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise Misuse(f"{directory} is not a directory: name another") from None
    handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise Misuse(
            f"{directory}: another process writes this log: stop it, or name another directory"
        ) from None
    return handle


def opened_to_write(directory: Path, durable: bool) -> sqlite3.Connection:
    """The file, created if missing."""
    path = directory / FILE
    _check_header(path)
    connection = connect(path)
    try:
        if _is_new(connection):
            make(connection)
        _check_kind(connection, path)
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise BadLog(f"{path}: SQLite cannot keep a write-ahead log on this file system")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.execute("SELECT count(last) FROM batch INDEXED BY span").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def opened_to_read(directory: Path) -> sqlite3.Connection:
    """The file, which another process may be writing."""
    path = directory / FILE
    if not path.is_file():
        raise BadLog(f"{directory}: no log here: there is no file {FILE}")
    _check_header(path)
    quoted = quote(str(path.resolve()))
    try:
        connection = connect(f"file:{quoted}?mode=ro")
        try:
            _check_kind(connection, path)
        except sqlite3.OperationalError:
            connection.close()
            if path.with_name(f"{FILE}-wal").exists():
                raise
            # There is no writer, and we may not write here either, not even readers' shared memory.
            connection = connect(f"file:{quoted}?immutable=1")
            _check_kind(connection, path)
    except sqlite3.DatabaseError as error:
        raise bad(path, error) from None
    return connection


def connect(path: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        uri=isinstance(path, str),
    )


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file's structure is broken, and not its disk or its lock."""
    return "malformed" in str(error)


def bad(path: Path, error: sqlite3.Error) -> BadLog:
    todo = "; it is salvaged when its writer starts again" if is_damage(error) else ""
    return BadLog(f"{path}: SQLite: {error}{todo}")


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(HEADER))
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadLog(f"{path}: {error.strerror}") from None
    if start and start != HEADER:
        raise BadLog(f"{path} is not a Unisono log: move it away, or name another directory")


def _is_new(connection: sqlite3.Connection) -> bool:
    """A file with pages and no tables is damaged, not new."""
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return False
    return bool(connection.execute("PRAGMA page_count").fetchone()[0] <= 1)


def make(connection: sqlite3.Connection) -> None:
    # The header must be written before the first transaction of the write-ahead log.
    connection.executescript(
        f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
        f"PRAGMA journal_mode = WAL; BEGIN; {TABLES} COMMIT;"
    )


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise BadLog(f"{path} is not a Unisono log: move it away, or name another directory")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise BadLog(f"{path} is a log of version {version}; this version reads {VERSION} only")
    connection.execute("SELECT 1 FROM batch LIMIT 1").fetchone()
