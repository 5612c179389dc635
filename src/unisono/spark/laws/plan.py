"""From surveys to shards: which part of a history is judged together, and by what it is bound.

A shard is a range of numbers for every sender, with all rows about these messages, wherever they
lie. The ranges end where one life's deliveries stood at some place: where all deliver in one order
that is a place in everyone's order, and the rows of a shard lie together in every file.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from unisono.spark.laws.columns import NUMBER_MAX, NUMBER_MIN, Array, Codes
from unisono.spark.laws.survey import AtView, Fallen, File, Piece, Strand, Surveyed
from unisono.trace.history import History
from unisono.trace.record import Row


class ShardLimits(NamedTuple):
    """How the work is cut; every default is meant for a gigabyte of memory a task."""

    shard_rows: int = 3_000_000
    """A history of more sends and deliveries is judged in parts of about this size."""
    piece_rows: int = 20_000
    """A row group is looked at in pieces of this many rows."""
    giant_bytes: int = 24 << 20
    """A run whose files have less is one task's work, and several runs may be."""
    task_bytes: int = 16 << 20
    """A task takes small runs until their files have this much."""
    tasks_max: int = 4_000
    """More shards than this share tasks."""


@dataclass
class LifePlan:
    """One life of a history."""

    key: str
    name: tuple[str, int]
    code: int
    fallen: list[Fallen]
    first_ordered: tuple[int, int] | None
    pieces: list[Piece]
    sent: int
    delivered: int
    octets: int
    span_us: int
    """From its first message to its last."""
    at_views: list[AtView]
    """What it had delivered before each regular view."""
    at_ends: list[AtView]
    """The same before each `leave` and `crash` row."""
    sent_pos: int
    heard_pos: int
    """The positions of its last send and delivery, -1 for none."""
    ended_us: int
    """The time of its end, or of its last row where it has none."""
    views: int
    members: int | None
    """Of its largest view."""


@dataclass
class HistoryPlan:
    """What every shard of a history needs to know of the whole."""

    history: History
    """All that is told in few rows: views, receipts, ends; and of what was said only the deliveries
    with the largest numbers before views with a cut, which say from where on a cut counts."""
    codes: Codes
    files: list[File]
    recovered: set[int]
    lives: list[LifePlan]
    """In order of keys."""
    last_sends: list[Row]
    probes: list[Row]
    floors: dict[tuple[int, str, int], int]
    """By level, and sender and number of an entry of a cut: the largest number known of the sender
    that is not above it, of a message of that level or above; 0 for none."""

    @property
    def named(self) -> tuple[str, str]:
        return self.history.protocol, self.history.group


class LifeSegment(NamedTuple):
    """Pieces of one life that follow each other, and what it had heard before them."""

    pieces: list[Piece]
    fifo: Array
    """By source, the largest number delivered before as fifo or above, 0 for none."""
    causal: Array
    own: int
    """The largest number that it had sent as causal or above."""
    place: int
    """The largest place that it had delivered at; the least of all numbers for none."""


@dataclass
class Shard:
    plan: HistoryPlan
    """Without pieces."""
    index: int
    low: Array
    """By source: numbers above this one."""
    high: Array
    """And up to this one."""
    stretches: list[list[LifeSegment]]
    """By life."""

    @property
    def whole(self) -> bool:
        return not self.low.any() and bool((self.high == NUMBER_MAX).all())


def overlapping(surveys: Sequence[Surveyed]) -> bool:
    """Whether two chains tell of one life, so that the files must be read one after the other."""
    met: set[tuple[str, int]] = set()
    for survey in surveys:
        mine = {survey.codes.names[code] for code in survey.met}
        if met & mine:
            return True
        met |= mine
    return False


def planned(run: str, surveys: Sequence[Surveyed]) -> list[HistoryPlan]:
    """The histories of a run, in order of protocol and group."""
    codes = surveys[0].codes if len(surveys) == 1 else Codes()
    files: list[File] = []
    recovered: set[int] = set()
    torn: set[str] = set()
    parts: dict[tuple[str, str], list[tuple[Strand, Array, int]]] = {}
    for survey in surveys:
        lut = np.array([codes.life(*name) for name in survey.codes.names], np.int32)
        for strand in survey.strands.values():
            parts.setdefault(strand.history, []).append((strand, lut, len(files)))
        torn |= {survey.codes.key(code) for code in survey.torn}
        recovered |= {len(files) + index for index in survey.recovered}
        files += survey.files
    plans = []
    for (protocol, group), strands in sorted(parts.items(), key=lambda item: item[0]):
        lives = [_life(strand, lut, start, codes) for strand, lut, start in strands]
        told = [strand for strand, _, _ in strands]
        rows = [
            row for life, strand in zip(lives, told, strict=True) for row in _rows(life, strand)
        ]
        history = History(run, protocol, group, tuple(rows), frozenset(torn))
        plans.append(
            HistoryPlan(
                history=history,
                codes=codes,
                files=files,
                recovered=recovered,
                lives=sorted(lives, key=lambda life: life.key),
                last_sends=[strand.last_send for strand in told if strand.last_send],
                probes=[strand.probe for strand in told if strand.probe],
                floors={},
            )
        )
    return plans


def _life(strand: Strand, lut: Array, start: int, codes: Codes) -> LifePlan:
    code = int(lut[strand.life])
    pieces = [
        replace(piece, file=piece.file + start, sources=lut[piece.sources])
        for piece in strand.pieces
    ]
    fallen = [row._replace(source=int(lut[row.source])) for row in strand.fallen]
    first = strand.first_ordered
    if first is not None:
        first = int(lut[first[0]]), first[1]
    sizes = [len(row.members or ()) for row in strand.few if row.kind == "view"]
    return LifePlan(
        key=codes.key(code),
        name=codes.names[code],
        code=code,
        fallen=fallen,
        first_ordered=first,
        pieces=pieces,
        sent=strand.sent,
        delivered=strand.delivered,
        octets=strand.octets,
        span_us=(strand.t_high or 0) - (strand.t_low or 0),
        at_views=[_recoded(each, lut) for each in strand.at_views],
        at_ends=[_recoded(each, lut) for each in strand.at_ends],
        sent_pos=strand.sent_pos,
        heard_pos=strand.heard_pos,
        ended_us=next(
            (row.t_us for row in strand.few if row.kind in ("leave", "crash")), strand.told_us
        ),
        views=len(sizes),
        members=max(sizes, default=None),
    )


def _recoded(at: AtView, lut: Array) -> AtView:
    return at._replace(heard={int(lut[code]): number for code, number in at.heard.items()})


def _rows(life: LifePlan, strand: Strand) -> list[Row]:
    """That it lived, and what it tells in few rows."""
    lived = Row(*strand.history, *life.name, -1, 0, "timer")
    return [lived, *strand.few, *dict.fromkeys(strand.marks)]


# -- shards --------------------------------------------------------------------------------------


def shards_of(plan: HistoryPlan, limits: ShardLimits) -> list[Shard]:
    """The parts in which a history is judged: one unless it is large."""
    rows = sum(piece.count for life in plan.lives for piece in life.pieces)
    count = max(1, -(-rows // limits.shard_rows))
    size = len(plan.codes.names)
    bounds = [np.zeros(size, np.int64), *_cuts(plan, count, size), np.full(size, NUMBER_MAX)]
    # Every life's running maxima, before each of its pieces.
    heard = [_heard_before(life.pieces, size) for life in plan.lives]
    bare = replace(plan, lives=[replace(life, pieces=[]) for life in plan.lives])
    shards = []
    for index, (low, high) in enumerate(itertools.pairwise(bounds)):
        stretches = [
            _stretches(life.pieces, before, low, high)
            for life, before in zip(plan.lives, heard, strict=True)
        ]
        shards.append(Shard(bare, index, low, high, stretches))
    return shards


def _cuts(plan: HistoryPlan, count: int, size: int) -> list[Array]:
    """By which numbers the shards end, all but the last."""
    if count == 1:
        return []
    met = np.zeros((len(plan.lives), size), np.int64)
    for at, life in enumerate(plan.lives):
        for piece in life.pieces:
            met[at, piece.sources] += piece.first > 0
    leader = int(met.sum(axis=1).argmax())
    # Of a sender that the leader hardly hears, somebody else tells where to cut.
    guides = np.where(met[leader] * 10 >= met.max(axis=0) * 9, leader, met.argmax(axis=0))
    cuts = [np.zeros(size, np.int64) for _ in range(count - 1)]
    for guide in np.unique(guides).tolist():
        mine = guides == guide
        for cut, stood in zip(cuts, _stood(plan.lives[guide].pieces, count, size), strict=True):
            cut[mine] = stood[mine]
    for before, cut in itertools.pairwise(cuts):
        np.maximum(cut, before, out=cut)
    return cuts


def _stood(pieces: list[Piece], count: int, size: int) -> list[Array]:
    """Where a life's deliveries stood at equal parts of its way. A single odd number does not
    count: of the number before the place, the one after it, and one more before, the middle."""
    firsts, lasts = np.zeros((2, len(pieces) + 1, size), np.int64)
    for at, piece in enumerate(pieces):
        firsts[at, piece.sources] = piece.first
        lasts[at, piece.sources] = piece.last
    stood = []
    for part in range(1, count):
        at = round(part * len(pieces) / count)
        cut = np.zeros(size, np.int64)
        for source in range(size):
            before = lasts[:at, source]
            before = before[before > 0][-2:]
            after = firsts[at:, source]
            after = after[after > 0][:1] - 1
            around = np.sort(np.concatenate([before, after]))
            cut[source] = around[len(around) // 2] if len(around) else 0
        stood.append(cut)
    return stood


class _Heard(NamedTuple):
    fifo: Array
    causal: Array
    own: Array
    place: Array


def _heard_before(pieces: list[Piece], size: int) -> _Heard:
    fifo, causal = np.zeros((2, len(pieces) + 1, size), np.int64)
    own = np.zeros(len(pieces) + 1, np.int64)
    place = np.full(len(pieces) + 1, NUMBER_MIN)
    for at, piece in enumerate(pieces, 1):
        fifo[at, piece.sources] = piece.fifo
        causal[at, piece.sources] = piece.causal
        own[at] = piece.own
        place[at] = piece.place
    return _Heard(*(np.maximum.accumulate(each, axis=0) for each in (fifo, causal, own, place)))


def _stretches(pieces: list[Piece], before: _Heard, low: Array, high: Array) -> list[LifeSegment]:
    """The pieces with messages of a shard."""
    stretches: list[LifeSegment] = []
    last = -2
    for at, piece in enumerate(pieces):
        if not ((piece.high > low[piece.sources]) & (piece.low <= high[piece.sources])).any():
            continue
        if at != last + 1:
            heard = before.fifo[at], before.causal[at], int(before.own[at]), int(before.place[at])
            stretches.append(LifeSegment([], *heard))
        stretches[-1].pieces.append(piece)
        last = at
    return stretches


def merged(shards: Sequence[Shard]) -> Shard:
    """Shards that follow each other as one."""
    first, last = shards[0], shards[-1]
    stretches = []
    for parts in zip(*(shard.stretches for shard in shards), strict=True):
        by_place: dict[tuple[int, int, int], tuple[Piece, LifeSegment, bool]] = {}
        for stretch in (stretch for part in parts for stretch in part):
            for at, piece in enumerate(stretch.pieces):
                place = (piece.file, piece.group, piece.start)
                old = by_place.get(place)
                if old is None or (at == 0 and not old[2]):
                    by_place[place] = (piece, stretch, at == 0)
        joined: list[LifeSegment] = []
        for _, (piece, stretch, begins) in sorted(by_place.items(), key=lambda item: item[0]):
            if begins:
                joined.append(stretch._replace(pieces=[]))
            joined[-1].pieces.append(piece)
        stretches.append(joined)
    return Shard(first.plan, first.index, first.low, last.high, stretches)
