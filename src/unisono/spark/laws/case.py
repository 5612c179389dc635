"""A shard in memory: every row about its messages, and the messages as one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unisono.spark.laws.columns import NUMBER_MAX, Array, Codes, EventColumns, joined
from unisono.spark.laws.plan import HistoryPlan, LifePlan, LifeSegment, Shard
from unisono.spark.laws.reading import groups_again, said_again
from unisono.spark.laws.survey import Piece
from unisono.trace.checks import LEVELS
from unisono.trace.history import IncarnationTrace, ViewCut

RELIABLE, AGREED = LEVELS["reliable"], LEVELS["agreed"]


@dataclass
class ShardEvents:
    """What one life said, as far as it is in the pieces of a shard."""

    plan: LifePlan
    life: IncarnationTrace
    said: EventColumns
    starts: list[tuple[int, LifeSegment]]
    """Where in `said` a stretch begins."""
    message: Array
    """By row: its message's place in the table, -1 for one of another shard."""
    based: Array
    """By source: whether a view of the life knows it."""
    base: Array
    """By source where it is known: its obligations begin above, until a cut says otherwise."""
    cuts: dict[int, tuple[ViewCut, ...]]
    """By source."""

    @cached_property
    def deliveries(self) -> Array:
        """The rows that deliver a message of the shard."""
        return np.flatnonzero(~self.said.send & (self.message >= 0))

    @cached_property
    def sends(self) -> Array:
        return np.flatnonzero(self.said.send & (self.message >= 0))

    def owes(self, source: Array, number: Array) -> Array:
        """By message, whether it should have it, if others have it."""
        owed: Array = self.based[source]
        for code, cuts in self.cuts.items():
            for cut in cuts:
                owed &= (source != code) | (number <= cut.after) | (number > cut.upto)
        return owed

    def base_at(self, source: int, pos: Array) -> Array:
        """Its base for a source at each of these positions."""
        base = np.full(len(pos), self.base[source])
        for cut in self.cuts.get(source, ()):
            np.maximum(base, np.where(pos >= cut.step, cut.upto, 0), out=base)
        return base

    def bases(self, rows: Array) -> Array:
        """By row its base for the row's source; 0 where it has none."""
        source = self.said.source[rows]
        base: Array = self.base[source]
        for code in self.cuts:
            mine = np.flatnonzero(source == code)
            base[mine] = self.base_at(code, self.said.pos[rows[mine]])
        return base

    def stretches(self) -> Iterator[tuple[int, int, LifeSegment]]:
        """Each stretch with the rows where it begins and ends."""
        ends = [*(start for start, _ in self.starts[1:]), len(self.said)]
        for (start, stretch), end in zip(self.starts, ends, strict=False):
            yield start, end, stretch


class Case:
    """A shard, read. With `ordered` only ordered deliveries are, and of them what tells the order:
    some fifty bytes a row, so that many shards fit into one."""

    def __init__(self, shard: Shard, ordered: bool = False) -> None:
        self.shard = shard
        self.plan = shard.plan
        self.codes = shard.plan.codes
        lives = shard.plan.history.lives
        read = list(_read(shard, ordered))
        self._table(read)
        self.told = [
            self._told(plan, lives[plan.key], stretches, said)
            for plan, stretches, said in zip(shard.plan.lives, shard.stretches, read, strict=True)
        ]

    # -- messages --------------------------------------------------------------------------------

    def _table(self, read: list[EventColumns]) -> None:
        """The messages of the shard, by source and number. Where numbers lie close together every
        number between the smallest and the largest has a place, said or not."""
        size = len(self.codes.names)
        low, high = self.shard.low, self.shard.high
        lows, highs = np.full(size, NUMBER_MAX), np.zeros(size, np.int64)
        counts = np.zeros(size, np.int64)
        for said in read:
            for source in np.flatnonzero(np.bincount(said.source, minlength=size)).tolist():
                numbers = said.number[said.source == source]
                if not self.shard.whole:
                    numbers = numbers[(numbers > low[source]) & (numbers <= high[source])]
                if len(numbers):
                    lows[source] = min(int(lows[source]), int(numbers.min()))
                    highs[source] = max(int(highs[source]), int(numbers.max()))
                    counts[source] += len(numbers)
        self._lows = lows
        self._sparse: dict[int, Array] = {}
        spans = []
        for source in range(size):
            span = int(highs[source]) - int(lows[source]) + 1 if counts[source] else 0
            if span > 8 * int(counts[source]) + 1024:
                of = [said.number[said.source == source] for said in read]
                numbers = np.unique(np.concatenate(of))
                inside = (numbers > low[source]) & (numbers <= high[source])
                self._sparse[source] = numbers[inside]
                span = int(inside.sum())
            spans.append(span)
        self.starts = np.concatenate([[0], np.cumsum(spans)]).astype(np.int64)
        self.count = int(self.starts[-1])
        self.source = np.repeat(np.arange(size, dtype=np.int32), spans)
        self.number = np.empty(self.count, np.int64)
        for source in range(size):
            start, end = self.starts[source], self.starts[source + 1]
            if source in self._sparse:
                self.number[start:end] = self._sparse[source]
            elif end > start:
                self.number[start:end] = np.arange(lows[source], lows[source] + (end - start))

    def of_source(self, source: int) -> slice:
        """Its messages in the table."""
        return slice(int(self.starts[source]), int(self.starts[source + 1]))

    def places(self, said: EventColumns) -> Array:
        """By row the place of its message in the table, -1 for one of another shard."""
        low, high = self.shard.low, self.shard.high
        shift = self.starts[:-1] - np.where(self._lows == NUMBER_MAX, 0, self._lows)
        places = said.number + shift[said.source]
        if not self.shard.whole:
            out = (said.number <= low[said.source]) | (said.number > high[said.source])
            places[out] = -1
        for source, numbers in self._sparse.items():
            mine = np.flatnonzero((said.source == source) & (places != -1))
            mine = mine[(said.number[mine] > low[source]) & (said.number[mine] <= high[source])]
            at = np.searchsorted(numbers, said.number[mine])
            places[mine] = self.starts[source] + at
        return places

    def place(self, source: int, number: int) -> int | None:
        """A message's place in the table; None for one of another shard."""
        if not self.shard.low[source] < number <= self.shard.high[source]:
            return None
        numbers = self.number[self.of_source(source)]
        at = int(np.searchsorted(numbers, number))
        here = at < len(numbers) and numbers[at] == number
        return int(self.starts[source]) + at if here else None

    def name(self, place: int) -> str:
        """`name#incarnation:number` of a message."""
        return f"{self.codes.key(int(self.source[place]))}:{int(self.number[place])}"

    def _told(
        self,
        plan: LifePlan,
        life: IncarnationTrace,
        stretches: list[LifeSegment],
        said: EventColumns,
    ) -> ShardEvents:
        keys = [self.codes.key(code) for code in range(len(self.codes.names))]
        bases = [life.base(key) for key in keys]
        based = np.array([each is not None for each in bases], np.bool_)
        base = np.array([each or 0 for each in bases], np.int64)
        cuts = {code: life.cuts[key] for code, key in enumerate(keys) if key in life.cuts}
        starts = []
        at = 0
        for stretch in stretches:
            starts.append((at, stretch))
            at += sum(piece.count for piece in stretch.pieces)
        return ShardEvents(plan, life, said, starts, self.places(said), based, base, cuts)

    @cached_property
    def view_codes(self) -> dict[str, int]:
        """A number for each regular view."""
        views = (row.view for told in self.told for row in told.life.views)
        return {view: code for code, view in enumerate(dict.fromkeys(views))}

    # -- what everyone had -----------------------------------------------------------------------

    def first(self, told: ShardEvents, rows: Array) -> Array:
        """By message the position of the first of these rows about it, -1 for none."""
        first = np.full(self.count, -1, np.int64)
        backwards = rows[::-1]
        first[told.message[backwards]] = told.said.pos[backwards]
        return first

    @cached_property
    def had(self) -> list[Array]:
        """By life: the position of its first delivery of each message, -1 for none."""
        return [self.first(told, told.deliveries) for told in self.told]

    @cached_property
    def again(self) -> list[Array]:
        """By life: the messages that it delivered more than once."""
        return [
            np.unique(told.message[told.deliveries][told.said.pos[told.deliveries] != first])
            for told, had in zip(self.told, self.had, strict=True)
            for first in (had[told.message[told.deliveries]],)
        ]

    def at_level(self, told: ShardEvents, level: int) -> Array:
        """Its deliveries of this level or above."""
        rows = told.deliveries
        enough = told.said.level[rows] >= level
        return rows if enough.all() else rows[enough]

    @cached_property
    def reliably(self) -> list[Array]:
        """The same as `had`, of reliable deliveries only."""
        found = []
        for told, had in zip(self.told, self.had, strict=True):
            rows = self.at_level(told, RELIABLE)
            found.append(had if len(rows) == len(told.deliveries) else self.first(told, rows))
        return found

    @cached_property
    def missing(self) -> list[Array]:
        """By life, for one that is correct: messages that someone delivered and it did not, though
        it owes them."""
        anyone = np.zeros(self.count, np.bool_)
        for had in self.had:
            anyone |= had >= 0
        none = np.empty(0, np.int64)
        return [
            self.owed(told, np.flatnonzero(anyone & (had < 0))) if told.life.correct else none
            for told, had in zip(self.told, self.had, strict=True)
        ]

    def owed(self, told: ShardEvents, messages: Array) -> Array:
        """Those of the messages that a life owes."""
        return messages[told.owes(self.source[messages], self.number[messages])]


def _read(shard: Shard, ordered: bool) -> Iterator[EventColumns]:
    for stretches in shard.stretches:
        pieces = [piece for stretch in stretches for piece in stretch.pieces]
        parts = said_of(shard.plan, pieces)
        yield joined(list(map(_only_ordered, parts) if ordered else parts))


def _only_ordered(said: EventColumns) -> EventColumns:
    rows = said.take(~said.send & (said.level >= AGREED))
    nothing = np.zeros(len(rows), np.bool_)
    rows.size = rows.digest = rows.t_us = rows.service = rows.probe = nothing
    return rows


def said_of(plan: HistoryPlan, pieces: list[Piece]) -> Iterator[EventColumns]:
    """The rows of pieces, in their order."""
    codes = plan.codes
    at = 0
    while at < len(pieces):
        file = pieces[at].file
        end = at
        while end < len(pieces) and pieces[end].file == file:
            end += 1
        mine = pieces[at:end]
        at = end
        if mine[0].said is not None:
            yield from (piece.said for piece in mine if piece.said is not None)
            continue
        groups = list(dict.fromkeys(piece.group for piece in mine))
        tables = groups_again(plan.files[file].at, groups, file in plan.recovered)
        for group, table in zip(groups, tables, strict=True):
            said, rows = said_again(table, codes)
            for piece in mine:
                if piece.group == group:
                    yield _cut_out(said, rows, piece)


def _cut_out(said: EventColumns, rows: Array, piece: Piece) -> EventColumns:
    """The rows of one piece, of a row group; `rows` are their places in the group."""
    if piece.mask is None:
        first, last = np.searchsorted(rows, (piece.start, piece.stop))
        found = said.take(slice(first, last))
        found.pos = found.pos + (piece.first_pos - piece.start)
        return found
    count = piece.stop - piece.start
    mask = np.unpackbits(np.frombuffer(piece.mask, np.uint8), count=count).astype(np.bool_)
    pos = piece.first_pos - 1 + np.cumsum(mask, dtype=np.int64)
    first, last = np.searchsorted(rows, (piece.start, piece.stop))
    found = said.take(slice(first, last))
    inside = rows[first:last] - piece.start
    found.pos = pos[inside]
    return found.take(mask[inside])


def fresh_codes(codes: Codes) -> Codes:
    """The same lives by the same numbers; services are given anew."""
    return Codes(lives=dict(codes.lives), names=list(codes.names))
