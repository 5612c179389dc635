"""The nouns of a log: a batch and its checksum, the bounds, what was dropped, what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from unisono.errors import UnisonoError


class BadLog(UnisonoError, ValueError):
    """A file that is not a log, or not all of one."""


class Trimmed(UnisonoError):
    """The places asked for were dropped by retention; the log begins at `begins` now."""

    def __init__(self, first: int, begins: int) -> None:
        super().__init__(
            f"places {first} to {begins - 1} were dropped by retention: the log begins at {begins}"
        )
        self.first = first
        self.begins = begins


class LogBatch(NamedTuple):
    """Something for the places `first` to `last`, each of them."""

    first: int
    last: int
    blob: bytes
    rows: int = 0
    """How many rows the blob holds, for those who count; the log does not."""
    t_us: int = 0
    """When it was appended, in unix time; the log sets it where it is 0."""


class LogBounds(NamedTuple):
    """What a log holds. It is empty while `end` is before `first`."""

    first: int
    """The first place that was not dropped."""
    end: int
    """Everything from `first` to here is there."""
    last: int
    """The last place of all; beyond `end` there are holes."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What retention took away, and why."""

    first: int
    last: int
    octets: int
    reason: str

    def __str__(self) -> str:
        return f"places {self.first} to {self.last}, {self.octets} bytes: {self.reason}"


def checksum(batch: LogBatch) -> int:
    """Of the blob and of the places it is for."""
    return crc32(batch.blob, crc32(f"{batch.first} {batch.last} {batch.rows}".encode()))
