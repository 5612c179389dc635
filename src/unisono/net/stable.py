"""Stable storage: a file of records, each durable before the effects that follow it.

A file is MAGIC, then entries: length, checksum, kind, data. A crash tears at most the last entry,
on which nothing relied: it is truncated when the file is opened. Damage before valid entries is not
due to a crash, and is refused.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import accumulate
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import BinaryIO, Final, NamedTuple, Protocol
from zlib import crc32

from unisono.errors import Misuse, StorageFailed

MAGIC: Final = b"UNISTAB2"
BYTES_MAX: Final = 64 << 20
"""The bound of the file: a protocol must make checkpoints."""
PIECE_BYTES: Final = 1 << 20
"""Records are replayed in pieces of about this much."""

_HEAD: Final = Struct("<IIB")
_NUMBER: Final = Struct("<Q")
_RECORD, _INCARNATION = 0, 1
_SEED: Final = 0x554E4953
"""The checksum's start value: a torn tail filled with zeros is not a valid entry."""


class Disk:
    """File operations; tests replace them by failing ones."""

    def write(self, handle: int, data: bytes) -> None:
        """Append all of it."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def replace(self, path: Path, by: Path) -> None:
        os.replace(by, path)


class RecordFile(Protocol):
    """What a service needs of a `StableFile`."""

    @property
    def nbytes(self) -> int: ...

    def located(self) -> Iterator[tuple[int, bytes]]: ...

    def append(self, *records: bytes) -> list[int]: ...

    def read(self, at: int) -> bytes: ...

    def replace(self, *records: bytes) -> None: ...

    def close(self) -> None: ...


RECORD_FILES: ContextVar[Callable[[Path], RecordFile] | None] = ContextVar(
    "RECORD_FILES", default=None
)
"""Opens the files of services in another world than that of disks, in a program that is simulated.
They are written at once."""


class FileWords(NamedTuple):
    """How errors call the file, and what to do where it is damaged."""

    name: str = "stable file"
    damaged: str = "restore it from a copy, or join without stable= and without its records"
    again: str = "join again"


STABLE_FILE: Final = FileWords()


class _Entry(NamedTuple):
    end: int
    kind: int
    data: bytes


class StableFile:
    """The records of a member's incarnations, oldest first, and the last incarnation. Locked by one
    process at a time."""

    def __init__(
        self,
        path: str | Path,
        bytes_max: int = BYTES_MAX,
        disk: Disk | None = None,
        words: FileWords = STABLE_FILE,
    ) -> None:
        self._words = words
        self._path = Path(os.path.realpath(path))
        """Symbolic links are resolved: a checkpoint replaces the file, not the link."""
        self._beside = self._path.with_name(self._path.name + ".new")
        self._bytes_max = bytes_max
        self._disk = disk or Disk()
        self._handle = self._lock = -1
        self._bytes = 0
        """The size of the file, in whole entries."""
        self._removed = False
        """There was a file before, as its lock shows."""
        self._failure: StorageFailed | None = None
        """After a failure the file is not written again."""
        self.incarnation = 0
        """The last one recorded; 0 if none."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._take()
            self._open()
        except OSError as error:
            self.close()
            raise Misuse(
                f"{words.name} {str(path)!r}: {error.strerror}; give a writable path"
            ) from None
        except BaseException:
            self.close()
            raise

    @property
    def _named(self) -> str:
        return f"{self._words.name} {str(self._path)!r}"

    def _take(self) -> None:
        """Lock a separate file, since a checkpoint replaces this one."""
        beside = self._path.with_name(self._path.name + ".lock")
        begun = self._path.exists() and self._path.stat().st_size > 0
        self._removed = beside.exists() and not begun
        self._lock = os.open(beside, _FLAGS, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Misuse(
                f"{self._named} is in use by another member: give each member another file"
            ) from None

    def _open(self) -> None:
        self._beside.unlink(missing_ok=True)
        self._handle = os.open(self._path, _FLAGS | os.O_APPEND, 0o600)
        with self._reading() as file:
            end = _sound_end(file, str(self._path), self._words)
        if not end:
            # A file that was never begun lost nothing. One that was removed did: the empty record,
            # which no protocol can read, marks it.
            self._rewrite([(_RECORD, b"")] if self._removed else [])
            return
        if end < os.fstat(self._handle).st_size:
            os.ftruncate(self._handle, end)
            self._disk.sync(self._handle)
        self._bytes = end
        for entry in self._entries():
            if entry.kind == _INCARNATION:
                (self.incarnation,) = _NUMBER.unpack(entry.data)

    def _reading(self) -> BinaryIO:
        return open(self._path, "rb")

    def _entries(self) -> Iterator[_Entry]:
        with self._reading() as file:
            file.seek(len(MAGIC))
            yield from _sound_entries(file, self._bytes)

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return self._bytes

    def located(self) -> Iterator[tuple[int, bytes]]:
        """Where `read` finds each record, and the record."""
        for entry in self._entries():
            if entry.kind == _RECORD:
                yield entry.end - _HEAD.size - len(entry.data), entry.data

    def pieces(self, nbytes: int = PIECE_BYTES) -> Iterator[tuple[bytes, ...]]:
        """The records, in pieces."""
        piece: list[bytes] = []
        held = 0
        for entry in self._entries():
            if entry.kind != _RECORD:
                continue
            if piece and held + len(entry.data) > nbytes:
                yield tuple(piece)
                piece, held = [], 0
            piece.append(entry.data)
            held += len(entry.data)
        if piece:
            yield tuple(piece)

    # -- writing --------------------------------------------------------------------------------

    def begin(self, incarnation: int) -> None:
        """Record that this incarnation begins."""
        self._append([_written(_INCARNATION, _NUMBER.pack(incarnation))])
        self.incarnation = incarnation

    def append(self, *records: bytes) -> list[int]:
        """Returns when the records are durable; else raises `StorageFailed`. Where `read` finds
        each: a crash keeps the first of them, or all."""
        return self._append([_written(_RECORD, record) for record in records])

    def _append(self, entries: list[bytes]) -> list[int]:
        starts = list(accumulate(map(len, entries), initial=self._bytes))
        self._check(starts[-1])
        try:
            self._disk.write(self._handle, b"".join(entries))
            self._disk.sync(self._handle)
        except OSError as error:
            raise self._failed(error) from None
        self._bytes = starts.pop()
        return starts

    def read(self, at: int) -> bytes:
        """The record there; `StorageFailed` if the disk has damaged it."""
        try:
            length, check, kind = _HEAD.unpack(os.pread(self._handle, _HEAD.size, at))
            data = os.pread(self._handle, length, at + _HEAD.size)
        except (OSError, StructError) as error:
            raise self._unreadable(at) from error
        if crc32(data, _SEED + kind) != check:
            raise self._unreadable(at)
        return data

    def _unreadable(self, at: int) -> StorageFailed:
        self._failure = StorageFailed(
            f"{self._named} cannot be read at byte {at}: check the disk; the"
            " record there is lost here"
        )
        return self._failure

    def _check(self, nbytes: int) -> None:
        if self._failure is not None:
            raise self._failure
        if nbytes > self._bytes_max:
            raise StorageFailed(
                f"{self._named} would have {nbytes} bytes, over its bound of"
                f" {self._bytes_max}: the protocol must make checkpoints, and small ones"
            )

    def replace(self, *records: bytes) -> None:
        """Replace all records by these, atomically."""
        self._rewrite([(_RECORD, record) for record in records])

    def _rewrite(self, entries: list[tuple[int, bytes]]) -> None:
        if self.incarnation:
            entries = [(_INCARNATION, _NUMBER.pack(self.incarnation)), *entries]
        data = MAGIC + b"".join(_written(kind, each) for kind, each in entries)
        self._check(len(data))
        fresh = -1
        try:
            fresh = os.open(self._beside, _FLAGS | os.O_APPEND | os.O_TRUNC, 0o600)
            self._disk.write(fresh, data)
            self._disk.sync(fresh)
            self._disk.replace(self._path, self._beside)
            self._sync_directory()
        except OSError as error:
            if fresh >= 0:
                os.close(fresh)
            raise self._failed(error) from None
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self._bytes = fresh, len(data)

    def _sync_directory(self) -> None:
        """A new file name is durable once its directory is."""
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._disk.sync(directory)
        finally:
            os.close(directory)

    def _failed(self, error: OSError) -> StorageFailed:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        todo = "free some space" if full else "check the disk, or give another path"
        self._failure = StorageFailed(
            f"{self._named} cannot keep a record: {error.strerror or error};"
            f" nothing that relies on it was sent: {todo}, then {self._words.again}"
        )
        return self._failure

    def close(self) -> None:
        """Also releases the lock. Idempotent."""
        for handle in (self._handle, self._lock):
            if handle >= 0:
                os.close(handle)
        self._handle = self._lock = -1


def records_in(path: Path) -> Iterator[bytes]:
    """The records of a file that another process may be writing, up to the last whole one."""
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            for entry in _sound_entries(file, os.fstat(file.fileno()).st_size):
                if entry.kind == _RECORD:
                    yield entry.data


SEARCHED_BYTES_MAX: Final = 64 << 20
"""Bytes searched for valid records after an invalid one: about a second."""
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


def _written(kind: int, data: bytes) -> bytes:
    return _HEAD.pack(len(data), crc32(data, _SEED + kind), kind) + data


def _sound_entries(file: BinaryIO, size: int) -> Iterator[_Entry]:
    """Entries up to the first invalid one."""
    at = file.tell()
    while at + _HEAD.size <= size:
        length, check, kind = _HEAD.unpack(file.read(_HEAD.size))
        at += _HEAD.size + length
        if at > size or kind not in (_RECORD, _INCARNATION):
            return
        data = file.read(length)
        if crc32(data, _SEED + kind) != check:
            return
        yield _Entry(at, kind, data)


def _sound_end(file: BinaryIO, path: str, words: FileWords) -> int:
    """The end of the valid entries, 0 of a file that was never begun; `Misuse` if others follow, as
    the file is then damaged."""
    size = os.fstat(file.fileno()).st_size
    begun = file.read(len(MAGIC)) == MAGIC
    end = len(MAGIC) if begun else 0
    for entry in _sound_entries(file, size) if begun else ():
        end = entry.end
    file.seek(end)
    if (size and not begun) or _has_sound_entry(file.read()):
        raise Misuse(
            f"{words.name} {path!r} is damaged at byte {end}, before records that may be valid:"
            f" {words.damaged}"
        )
    return end


def _has_sound_entry(data: bytes) -> bool:
    """Whether a valid entry follows an invalid one. True if the search takes too long: better
    refused than truncated."""
    rest, left = memoryview(data), SEARCHED_BYTES_MAX
    for at in range(1, len(rest) - _HEAD.size + 1):
        length, check, kind = _HEAD.unpack_from(rest, at)
        start = at + _HEAD.size
        left -= 1
        if length > len(rest) - start or kind not in (_RECORD, _INCARNATION):
            continue
        left -= length
        if left < 0 or crc32(rest[start : start + length], _SEED + kind) == check:
            return True
    return left < 0
