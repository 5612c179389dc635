"""What a turn carries: runs of messages, each of one originator, numbered in a row.

Messages of one length and one service side by side are a *group*: one row of the table tells of
them all, and they are cut apart at once. A large message travels in pieces, one or more a turn,
until its last one closes it; each piece is a group of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
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
IN_PIECES: Final = MORE | GOES_ON
RUN_OCTETS: Final = 8 + 8 + 2
ROW_OCTETS: Final = 2 + 4 + 1


class Group(NamedTuple):
    """A message of this length, or so many side by side; or one piece of a message."""

    times: int
    length: int
    mark: int
    """Their service, and MORE and GOES_ON."""


class Run(NamedTuple):
    """Messages of one originator. The first of them is its message number `first`."""

    origin: int
    first: int
    groups: Sequence[Group]
    chunks: Sequence[Buffer]
    """Their octets, one after the other, however they are cut."""

    @staticmethod
    def of(origin: int, first: int, marks: Iterable[int], pieces: Sequence[Buffer]) -> Run:
        """The same from messages, each with its mark."""
        alike = groupby(zip(map(len, pieces), marks, strict=True))
        groups: list[Group] = []
        for (length, mark), many in alike:
            count = sum(1 for _ in many)
            groups += (
                [Group(1, length, mark)] * count
                if mark & IN_PIECES
                else [Group(count, length, mark)]
            )
        return Run(origin, first, groups, pieces)

    @property
    def octets(self) -> int:
        payload = sum(group.times * group.length for group in self.groups)
        return RUN_OCTETS + ROW_OCTETS * len(self.groups) + payload


def write_runs(runs: Sequence[Run]) -> bytes:
    """The tables of all runs, then the octets of all. Nothing to say is no octets at all: NULL."""
    if not runs:
        return b""
    out = Writer().u16(len(runs))
    for run in runs:
        flat = [value for group in run.groups for value in group]
        out.u64(run.origin).u64(run.first).rows("HIB", 3, flat)
    return b"".join((out.done(), *(chunk for run in runs for chunk in run.chunks)))


def read_runs(content: Buffer) -> list[Run]:
    """The runs again, each in one chunk, or `BadPacket`."""
    if not content:
        return []
    view = memoryview(content)
    reader = Reader(view)
    count = reader.u16()
    if count > RUNS_MAX:
        raise BadPacket("malformed")
    heads = [(reader.u64(), reader.u64(), _groups(reader.rows("HIB"))) for _ in range(count)]
    at = len(view) - reader.left()
    runs = []
    for origin, first, groups in heads:
        end = at + sum(group.times * group.length for group in groups)
        runs.append(Run(origin, first, groups, (view[at:end],)))
        at = end
    if at != len(view):
        raise BadPacket("malformed")
    return runs


def _groups(flat: tuple[int, ...]) -> list[Group]:
    groups = [Group(*flat[at : at + 3]) for at in range(0, len(flat), 3)]
    if sum(group.times for group in groups) > COUNT_MAX:
        raise BadPacket("malformed")
    for count, _, mark in groups:
        if not count or mark & SERVICE > Service.SAFE or (count > 1 and mark & IN_PIECES):
            raise BadPacket("malformed")
    return groups
