"""A turn, and what it carries: runs of messages, each of one originator, numbered in a row.

Messages of one service side by side are a *group*: one row of the table tells of them all, and they
are cut apart at once. Where their lengths differ, these stand before them. A large message travels
in pieces, one or more a turn, until its last one closes it; each piece is a group of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple, cast

from unisono.errors import BadPacket
from unisono.model import Buffer, Service
from unisono.wire import FieldLayout, cut

RUNS_MAX: Final = 256
COUNT_MAX: Final = 16_384
"""Messages in a run."""
SERVICE: Final = 7
MORE: Final = 8
"""The message goes on in a later piece."""
GOES_ON: Final = 16
"""The piece goes on with what came before."""
IN_PIECES: Final = MORE | GOES_ON
DIFFER: Final = 32
"""The messages of the group have lengths of their own, which stand before them."""
MARK_MAX: Final = 63
LENGTH_BYTES: Final = 4
#                     origin first groups
RUN: Final = FieldLayout("QQH")
RUN_BYTES: Final = RUN.octets
#                     times length mark
ROW: Final = FieldLayout("HIB")
ROW_BYTES: Final = ROW.octets
COUNT: Final = FieldLayout("H")


class MessageGroup(NamedTuple):
    """A message of this length, or so many side by side; or one piece of a message."""

    times: int
    length: int
    """Where they differ, of all together."""
    mark: int
    """Their service, and MORE, GOES_ON and DIFFER."""

    @property
    def octets(self) -> int:
        return size_of(*self)


def size_of(times: int, length: int, mark: int) -> int:
    """What a group takes, beside its row."""
    return length + times * LENGTH_BYTES if mark & DIFFER else times * length


class OriginRun(NamedTuple):
    """Messages of one originator. The first of them is its message number `first`."""

    origin: int
    first: int
    groups: Sequence[MessageGroup]
    chunks: Sequence[Buffer]
    """Their octets, one after the other, however they are cut."""

    @staticmethod
    def of(origin: int, first: int, marks: Iterable[int], pieces: Sequence[Buffer]) -> OriginRun:
        """The same from messages, each with its mark."""
        alike = groupby(zip(map(len, pieces), marks, strict=True))
        groups: list[MessageGroup] = []
        for (length, mark), many in alike:
            count = sum(1 for _ in many)
            groups += (
                [MessageGroup(1, length, mark)] * count
                if mark & IN_PIECES
                else [MessageGroup(count, length, mark)]
            )
        return OriginRun(origin, first, groups, pieces)

    @property
    def octets(self) -> int:
        payload = sum([group.octets for group in self.groups])
        return RUN_BYTES + ROW_BYTES * len(self.groups) + payload


def write_runs(runs: Sequence[OriginRun]) -> bytes:
    """The tables of all runs, then the octets of all. Nothing to say is no octets at all: NULL."""
    if not runs:
        return b""
    parts: list[Buffer] = [COUNT.pack(len(runs))]
    for origin, first, groups, _ in runs:
        parts.append(RUN.pack(origin, first, len(groups)))
        parts += [ROW.pack(*group) for group in groups]
    for run in runs:
        parts += run.chunks
    return b"".join(parts)


def read_runs(content: Buffer) -> list[OriginRun]:
    """The runs again, each in one chunk, or `BadPacket`."""
    if not content:
        return []
    view = memoryview(content)
    (count,) = COUNT.read(view)
    if count > RUNS_MAX:
        raise BadPacket("malformed")
    at = COUNT.octets
    heads: list[tuple[int, int, list[MessageGroup], int]] = []
    for _ in range(count):
        origin, first, rows = RUN.read(view, at)
        at += RUN_BYTES
        groups, octets = _groups(ROW.read_all(view, at, rows))
        heads.append((origin, first, groups, octets))
        at += rows * ROW_BYTES
    runs = []
    for origin, first, groups, octets in heads:
        runs.append(OriginRun(origin, first, groups, (view[at : at + octets],)))
        at += octets
    if at != len(view):
        raise BadPacket("malformed")
    return runs


def _groups(rows: Iterable[tuple[int, ...]]) -> tuple[list[MessageGroup], int]:
    """And how many octets they speak of."""
    groups: list[MessageGroup] = []
    messages = octets = 0
    for times, length, mark in rows:
        if not times or mark & SERVICE > Service.SAFE or mark > MARK_MAX:
            raise BadPacket("malformed")
        if mark & IN_PIECES and (times > 1 or mark & DIFFER):
            raise BadPacket("malformed")
        messages += times
        octets += size_of(times, length, mark)
        groups.append(MessageGroup(times, length, mark))
    if messages > COUNT_MAX:
        raise BadPacket("malformed")
    return groups, octets


@dataclass(slots=True)
class Turn:
    """A turn with all its packets, as it can be sent again."""

    s: int
    holder: int
    flags: int
    content: bytes
    piece_bytes: int
    """Of each packet but the last, which may have less."""

    @property
    def count(self) -> int:
        """Of its packets. A turn that says nothing has one too."""
        return -(-len(self.content) // self.piece_bytes) or 1

    def pieces(self, indices: range) -> list[bytes]:
        """What these of its packets carry."""
        start, size = indices.start * self.piece_bytes, self.piece_bytes
        whole = min(len(indices), len(self.content) // size - indices.start)
        pieces = cut(self.content, start, size, max(whole, 0))
        if len(pieces) < len(indices):
            pieces.append(self.content[start + len(pieces) * size :])
        return pieces


@dataclass(slots=True)
class IncomingTurn:
    """A turn of which packets are missing."""

    holder: int
    flags: int
    pieces: list[Buffer | None]
    missing: int

    size: int = -1
    """Of each piece but the last; -1 while none of these is here."""
    last: int = 0
    """Of the last."""
    is_odd: bool = False
    """Its pieces are not of one length, as nobody sends them."""

    def take(self, at: int, pieces: Sequence[Buffer]) -> None:
        """Packets from number `at` on, of one length. What is here already stays."""
        end, size = at + len(pieces), len(pieces[0])
        had = self.pieces[at:end]
        new = had.count(None)
        if not new:
            return
        if end == len(self.pieces):
            self.last = size
        if end < len(self.pieces) or len(pieces) > 1:
            self.is_odd |= self.size not in (-1, size)
            self.size = size
        if new < len(had):
            pieces = [piece if old is None else old for old, piece in zip(had, pieces, strict=True)]
        self.pieces[at:end] = pieces
        self.missing -= new

    def turn(self, s: int) -> Turn | None:
        """Whole; nothing where the packets are not of one length, as nobody sends them."""
        if self.is_odd or self.last > self.size:
            return None
        pieces = cast(list[Buffer], self.pieces)
        return Turn(s, self.holder, self.flags, b"".join(pieces), self.size or 1)
