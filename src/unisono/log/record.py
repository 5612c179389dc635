"""A log's batches, bounds and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from unisono.errors import UnisonoError


class BadLog(UnisonoError, ValueError):
    """A file that is not a log, or a damaged one."""


class BadBatch(BadLog):
    """A batch that does not match its checksum."""

    def __init__(self, text: str, first: int) -> None:
        super().__init__(text)
        self.first = first


class Trimmed(UnisonoError):
    """The requested offsets were dropped by retention; the log begins at `begins` now."""

    def __init__(self, first: int, begins: int) -> None:
        super().__init__(
            f"offsets {first} to {begins - 1} were dropped by retention: the log begins at {begins}"
        )
        self.first = first
        self.begins = begins


class LogBatch(NamedTuple):
    """The data of the offsets `first` to `last`."""

    first: int
    last: int
    blob: bytes
    rows: int = 0
    """Rows of the blob; informative only."""
    t_us: int = 0
    """When it was appended, in Unix time; the log sets it if it is 0."""


class LogBounds(NamedTuple):
    """The offsets that a log holds. It is empty while `end` is before `first`."""

    first: int
    """The first offset that was not dropped."""
    end: int
    """Every offset from `first` to here is held."""
    last: int
    """The last offset; between `end` and it there are holes."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What retention dropped, and why."""

    first: int
    last: int
    nbytes: int
    reason: str

    def __str__(self) -> str:
        return f"offsets {self.first} to {self.last}, {self.nbytes} bytes: {self.reason}"


def checksum(batch: LogBatch) -> int:
    """Of the blob, its offsets and its row count."""
    return crc32(batch.blob, crc32(f"{batch.first} {batch.last} {batch.rows}".encode()))
