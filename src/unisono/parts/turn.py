"""A turn and its content: runs of messages, each of one originator, numbered consecutively.

Consecutive messages of one service are a *group*: one row of the table describes them all, and they
are cut apart at once. If their lengths differ, a table of lengths precedes them. A large message is
sent in pieces, one or more a turn; each piece is a group by itself.

Fast path: a turn of one run with one group, as most are, is a `SoleRun`. `write_all` and `read_all`
are the slow twins, and a property test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Final, NamedTuple, cast

from unisono import layout
from unisono.errors import BadPacket
from unisono.fields import U8, U16, U32, U64, bounded, table
from unisono.layout import field_of
from unisono.model import Buffer, Service
from unisono.wire import cut

RUNS_MAX: Final = 256
COUNT_MAX: Final = 16_384
"""Messages in a run."""
TURN_COUNT_MAX: Final = 2 * COUNT_MAX
"""Messages in a turn: empty ones cost their sender nothing."""
SERVICE: Final = 7
MORE: Final = 8
"""Another piece of the message follows."""
GOES_ON: Final = 16
"""The piece continues an earlier one."""
IN_PIECES: Final = MORE | GOES_ON
DIFFER: Final = 32
"""The lengths of the messages differ, and precede them."""
MARK_MAX: Final = 63
LENGTH_BYTES: Final = 4


class MessageGroup(NamedTuple):
    """Consecutive messages of one service, or one piece of a message."""

    times: Annotated[int, bounded("H", 1, 65_535)]
    length: U32
    """If lengths differ, of all together."""
    mark: Annotated[int, bounded("B", 0, MARK_MAX)]
    """Their service, and MORE, GOES_ON and DIFFER."""

    @property
    def nbytes(self) -> int:
        return size_of(*self)


def size_of(times: int, length: int, mark: int) -> int:
    """The bytes of a group, without its row."""
    return length + times * LENGTH_BYTES if mark & DIFFER else times * length


class RunHead(NamedTuple):
    """A run on the wire; its messages follow the heads of all runs."""

    origin: U64
    first: U64
    groups: tuple[MessageGroup, ...]


class TurnHead(NamedTuple):
    """What a turn begins with."""

    runs: Annotated[tuple[RunHead, ...], table(field_of(RunHead), bounded("H", 0, RUNS_MAX))]


class SoleRun(NamedTuple):
    """What a turn of one run with one group begins with."""

    runs: U16
    origin: U64
    first: U64
    groups: U16
    times: U16
    length: U32
    mark: U8


SOLE: Final = layout.layout_of(SoleRun)
SOLE_BYTES: Final = layout.size_of(SoleRun)
RUN_BYTES: Final = layout.size_of(RunHead)
ROW_BYTES: Final = layout.size_of(MessageGroup)


class OriginRun(NamedTuple):
    """Messages of one originator. The first of them is its message number `first`."""

    origin: int
    first: int
    groups: Sequence[MessageGroup]
    chunks: Sequence[Buffer]
    """Their bytes in order, in any chunks."""

    @staticmethod
    def of(origin: int, first: int, marks: Iterable[int], pieces: Sequence[Buffer]) -> OriginRun:
        """A run of messages, each with its mark."""
        same = groupby(zip(map(len, pieces), marks, strict=True))
        groups: list[MessageGroup] = []
        for (length, mark), many in same:
            count = sum(1 for _ in many)
            groups += (
                [MessageGroup(1, length, mark)] * count
                if mark & IN_PIECES
                else [MessageGroup(count, length, mark)]
            )
        return OriginRun(origin, first, tuple(groups), pieces)

    @property
    def times(self) -> int:
        """Of messages."""
        return sum([group.times for group in self.groups])

    @property
    def nbytes(self) -> int:
        payload = sum([group.nbytes for group in self.groups])
        return RUN_BYTES + ROW_BYTES * len(self.groups) + payload


def write_runs(runs: Sequence[OriginRun], front: bytes = b"") -> bytes:
    """The front, the tables of all runs, then the bytes of all. Without runs, nothing: NULL."""
    if len(runs) == 1 and len(runs[0].groups) == 1:
        origin, first, (group,), chunks = runs[0]
        return b"".join((front, SOLE.pack(1, origin, first, 1, *group), *chunks))
    return write_all(runs, front) if runs else front


def write_all(runs: Sequence[OriginRun], front: bytes = b"") -> bytes:
    heads = [RunHead(origin, first, tuple(groups)) for origin, first, groups, _ in runs]
    parts = layout.encode_parts(TurnHead(tuple(heads)))
    for run in runs:
        parts += run.chunks
    return b"".join((front, *parts))


def read_runs(content: Buffer) -> list[OriginRun]:
    """The runs again, each in one chunk, or `BadPacket`."""
    if len(content) >= SOLE_BYTES:
        view = memoryview(content)
        (runs, origin, first, groups, times, length, mark), at = SOLE.read(view, 0)
        if runs == groups == 1 and times and mark <= MARK_MAX:
            group = MessageGroup(times, length, mark)
            if len(view) - at != _checked_size((group,)):
                raise BadPacket("malformed")
            return [OriginRun(origin, first, (group,), (view[at:],))]
    return read_all(content) if content else []


def read_all(content: Buffer) -> list[OriginRun]:
    (heads,), messages = layout.decode_front(TurnHead, content)
    if sum([times for head in heads for times, _, _ in head.groups]) > TURN_COUNT_MAX:
        raise BadPacket("malformed")
    runs, at = [], 0
    for origin, first, groups in heads:
        end = at + _checked_size(groups)
        runs.append(OriginRun(origin, first, groups, (messages[at:end],)))
        at = end
    if at != len(messages):
        raise BadPacket("malformed")
    return runs


def _checked_size(groups: Iterable[MessageGroup]) -> int:
    """The bytes of their messages."""
    messages = nbytes = 0
    for times, length, mark in groups:
        if mark & SERVICE > Service.SAFE or (mark & IN_PIECES and (times > 1 or mark & DIFFER)):
            raise BadPacket("malformed")
        messages += times
        nbytes += size_of(times, length, mark)
    if messages > COUNT_MAX:
        raise BadPacket("malformed")
    return nbytes


@dataclass(slots=True)
class Turn:
    """A complete turn, which can be retransmitted."""

    s: int
    holder: int
    flags: int
    content: bytes
    piece_bytes: int
    """Of each packet but the last, which may be shorter."""

    @property
    def count(self) -> int:
        """Of its packets. An empty turn has one."""
        return -(-len(self.content) // self.piece_bytes) or 1

    def pieces(self, indices: range) -> list[bytes]:
        """The content of the packets with these indices."""
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
    """Of each piece but the last; -1 while only the last is here."""
    last: int = 0
    """Of the last."""
    is_odd: bool = False
    """Its pieces differ in length, as no member sends them."""
    is_repair: bool = True
    """None of it came from its holder."""

    def take(self, at: int, pieces: Sequence[Buffer]) -> None:
        """Packets from index `at` on, of one length. Those already here stay."""
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

    def gives_way(self, count: int, again: bool) -> bool:
        """Whether a packet that claims another count replaces it. The holder knows best: of its
        claims, the fewest packets, which come soonest. Of packets that others sent again the last
        counts, since those before it did not help."""
        return self.is_repair or not (again or count > len(self.pieces))

    def gaps(self, rest: int) -> Iterator[tuple[int, int]]:
        """The ranges of packets that are missing; `rest` stands for the end of the last one."""
        start = -1
        for index, piece in enumerate(self.pieces):
            if piece is None and start < 0:
                start = index
            elif piece is not None and start >= 0:
                yield start, index - 1
                start = -1
        if start >= 0:
            yield start, rest

    def turn(self, s: int) -> Turn | None:
        """The complete turn; None if its pieces differ in length."""
        if self.is_odd or self.last > self.size:
            return None
        pieces = cast(list[Buffer], self.pieces)
        return Turn(s, self.holder, self.flags, b"".join(pieces), self.size or 1)
