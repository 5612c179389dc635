"""What a turn carries: runs of messages, each of one originator, numbered in a row.

A large message travels in pieces, one or more a turn, until its last one closes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.model import Buffer, Service
from unisono.wire import Reader, Writer

RUNS_MAX: Final = 256
COUNT_MAX: Final = 16_384
"""Messages in a run."""
SERVICE: Final = 7
MORE: Final = 8
"""The message goes on in a later piece."""
GOES_ON: Final = 16
"""The piece goes on with what came before."""
RUN_OCTETS: Final = 8 + 8 + 2
ROW_OCTETS: Final = 5


class Run(NamedTuple):
    """Pieces of one originator. The first belongs to its message number `first`."""

    origin: int
    first: int
    marks: Sequence[int]
    """A piece's service, and MORE and GOES_ON."""
    pieces: Sequence[Buffer]

    @property
    def octets(self) -> int:
        return RUN_OCTETS + ROW_OCTETS * len(self.pieces) + sum(map(len, self.pieces))


def write_runs(runs: Sequence[Run]) -> list[Buffer]:
    """The runs as chunks of octets: the tables of all, then the pieces of all. Nothing to say is
    no octets at all: NULL."""
    if not runs:
        return []
    out = Writer().u16(len(runs))
    for run in runs:
        rows = zip(map(len, run.pieces), run.marks, strict=True)
        flat = [value for row in rows for value in row]
        out.u64(run.origin).u64(run.first).rows("IB", 2, flat)
    return [out.done(), *(piece for run in runs for piece in run.pieces)]


def read_runs(content: Buffer) -> list[Run]:
    """The runs again, or `BadPacket`."""
    if not content:
        return []
    view = memoryview(content)
    reader = Reader(view)
    count = reader.u16()
    if count > RUNS_MAX:
        raise BadPacket("malformed")
    heads = [(reader.u64(), reader.u64(), reader.rows("IB")) for _ in range(count)]
    at = len(view) - reader.left()
    runs = []
    for origin, first, flat in heads:
        lengths, marks = flat[::2], flat[1::2]
        if any(mark & SERVICE > Service.SAFE for mark in marks):
            raise BadPacket("malformed")
        pieces = []
        for length in lengths:
            pieces.append(view[at : at + length])
            at += length
        runs.append(Run(origin, first, marks, pieces))
    if at != len(view):
        raise BadPacket("malformed")
    return runs
