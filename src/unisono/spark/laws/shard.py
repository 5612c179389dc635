"""A shard in memory: all rows about its messages, and the messages as one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from unisono.spark.laws.columns import (
    AGREED,
    NUMBER_MAX,
    RELIABLE,
    Array,
    EventColumns,
    concatenated,
)
from unisono.spark.laws.plan import HistoryPlan, Segment, Shard
from unisono.spark.laws.reader import read_checked_groups, read_events
from unisono.spark.laws.scan import Chunk, IncarnationSummary
from unisono.trace.history import IncarnationTrace, ViewCut, cut_of
from unisono.trace.record import Row


@dataclass
class MemberEvents:
    """The sends and deliveries of one incarnation in the chunks of a shard."""

    summary: IncarnationSummary
    trace: IncarnationTrace
    events: EventColumns
    starts: list[tuple[int, Segment]]
    """Where in `events` a segment begins."""
    slot: Array
    """By row the index of its message in the table, -1 for one of another shard."""
    knows: Array
    """By source: whether a view has it."""
    base: Array
    """By source that is known: obligations begin above, until a cut changes that."""
    cuts: dict[int, tuple[ViewCut, ...]]
    """By source."""

    @property
    def key(self) -> str:
        return self.trace.key

    @cached_property
    def deliveries(self) -> Array:
        """The rows that deliver a message of the shard."""
        return np.flatnonzero(~self.events.send & (self.slot >= 0))

    @cached_property
    def sends(self) -> Array:
        return np.flatnonzero(self.events.send & (self.slot >= 0))

    @cached_property
    def seq_deliveries(self) -> Array:
        """The deliveries with a sequence number."""
        has = self.events.has_seq[self.deliveries]
        return self.deliveries if has.all() else self.deliveries[has]

    def at_level(self, level: int) -> Array:
        """The deliveries of this level or above."""
        enough = self.events.level[self.deliveries] >= level
        return self.deliveries if enough.all() else self.deliveries[enough]

    def owes(self, source: Array, number: Array) -> Array:
        """By message, whether it should have it if others do."""
        owed: Array = self.knows[source]
        for code, cuts in self.cuts.items():
            for cut in cuts:
                owed &= (source != code) | (number <= cut.after) | (number > cut.upto)
        return owed

    def base_at(self, source: int, pos: Array) -> Array:
        """The base for a source at each of these positions."""
        base = np.full(len(pos), self.base[source])
        for cut in self.cuts.get(source, ()):
            np.maximum(base, np.where(pos >= cut.step, cut.upto, 0), out=base)
        return base

    def bases(self, rows: Array) -> Array:
        """By row the base for its source; 0 where there is none."""
        source = self.events.source[rows]
        base: Array = self.base[source]
        for code in self.cuts:
            mine = np.flatnonzero(source == code)
            base[mine] = self.base_at(code, self.events.pos[rows[mine]])
        return base

    def segments(self) -> Iterator[tuple[int, int, Segment]]:
        """Each segment with the rows where it begins and ends."""
        ends = [*(start for start, _ in self.starts[1:]), len(self.events)]
        for (start, segment), end in zip(self.starts, ends, strict=False):
            yield start, end, segment

    def running_max(self, values: Array, initial: Iterable[int]) -> Array:
        """By row the largest value before it; `initial` is by segment the largest before that."""
        before = np.empty_like(values)
        for (start, end, _), first in zip(self.segments(), initial, strict=True):
            before[start] = first
            before[start + 1 : end] = values[start : end - 1]
            part = before[start:end]
            np.maximum.accumulate(part, out=part)
        return before

    def epochs(self, views: Iterable[Row], rows: Array) -> Array:
        """By row the index of the last of these views before it, -1 for none."""
        return np.searchsorted([view.step for view in views], self.events.pos[rows]) - 1


class ShardData:
    """A shard, read. With `ordered_only` it has just the ordered deliveries and their order, some
    fifty bytes a row, so that many shards fit into memory as one."""

    def __init__(self, shard: Shard, ordered_only: bool = False) -> None:
        self.shard = shard
        self.plan = shard.plan
        self.codes = shard.plan.codes
        self.run = shard.plan.history.run
        events = [_read(shard.plan, segments, ordered_only) for segments in shard.segments]
        self._build_table(events)
        self.members = [
            self._member(summary, segments, mine)
            for summary, segments, mine in zip(
                shard.plan.members, shard.segments, events, strict=True
            )
        ]

    # -- the table of messages -------------------------------------------------------------------

    def _build_table(self, events: list[EventColumns]) -> None:
        """The messages of the shard, by source and number. Where numbers are dense, every number
        between the smallest and the largest has a slot, used or not."""
        size = len(self.codes)
        low, high = self.shard.low, self.shard.high
        lows, highs = np.full(size, NUMBER_MAX), np.zeros(size, np.int64)
        counts = np.zeros(size, np.int64)
        for mine in events:
            for source in np.flatnonzero(np.bincount(mine.source, minlength=size)).tolist():
                numbers = mine.number[mine.source == source]
                if not self.shard.is_whole:
                    numbers = numbers[(numbers > low[source]) & (numbers <= high[source])]
                if len(numbers):
                    lows[source] = min(int(lows[source]), int(numbers.min()))
                    highs[source] = max(int(highs[source]), int(numbers.max()))
                    counts[source] += len(numbers)
        self._lows = lows
        self._sparse: dict[int, Array] = {}
        numbers_of = []
        for source in range(size):
            span = int(highs[source]) - int(lows[source]) + 1 if counts[source] else 0
            if span > 8 * int(counts[source]) + 1024:
                every = np.concatenate([mine.number[mine.source == source] for mine in events])
                every = np.unique(every)
                inside = (every > low[source]) & (every <= high[source])
                self._sparse[source] = every[inside]
                numbers_of.append(every[inside])
            else:
                first = int(lows[source]) if span else 0
                numbers_of.append(np.arange(first, first + span))
        sizes = [len(numbers) for numbers in numbers_of]
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.count = int(self.starts[-1])
        self.source = np.repeat(np.arange(size, dtype=np.int32), sizes)
        self.number = np.concatenate([*numbers_of, np.empty(0, np.int64)])

    def slots_of(self, source: int) -> slice:
        return slice(int(self.starts[source]), int(self.starts[source + 1]))

    def _slots(self, events: EventColumns) -> Array:
        shift = self.starts[:-1] - np.where(self._lows == NUMBER_MAX, 0, self._lows)
        slots = events.number + shift[events.source]
        if not self.shard.is_whole:
            slots[~self.shard.has(events.source, events.number)] = -1
        for source, numbers in self._sparse.items():
            mine = np.flatnonzero(events.source == source)
            mine = mine[self.shard.has(events.source[mine], events.number[mine])]
            slots[mine] = self.starts[source] + np.searchsorted(numbers, events.number[mine])
        return slots

    def slot(self, source: int, number: int) -> int | None:
        """The slot of a message; None for one of another shard."""
        numbers = self.number[self.slots_of(source)]
        at = int(np.searchsorted(numbers, number))
        return (
            int(self.starts[source]) + at if at < len(numbers) and numbers[at] == number else None
        )

    def name(self, slot: int) -> str:
        """`name#incarnation:number` of a message."""
        return self.codes.message(self.source[slot], self.number[slot])

    def _member(
        self, summary: IncarnationSummary, segments: list[Segment], events: EventColumns
    ) -> MemberEvents:
        trace = self.plan.history.lives[summary.key]
        keys = self.codes.keys
        bases = [trace.base(key) for key in keys]
        counts = [sum(chunk.count for chunk in segment.chunks) for segment in segments]
        starts = np.cumsum([0, *counts]).tolist()
        return MemberEvents(
            summary,
            trace,
            events,
            list(zip(starts, segments, strict=False)),
            self._slots(events),
            knows=np.array([base is not None for base in bases], np.bool_),
            base=np.array([base or 0 for base in bases], np.int64),
            cuts={code: trace.cuts[key] for code, key in enumerate(keys) if key in trace.cuts},
        )

    def member_index(self) -> dict[str, int]:
        return {member.key: at for at, member in enumerate(self.members)}

    # -- who has delivered what --------------------------------------------------------------------

    def first(self, member: MemberEvents, rows: Array) -> Array:
        """By slot the position of the first of these rows about it, -1 for none."""
        first = np.full(self.count, -1, np.int64)
        backwards = rows[::-1]
        first[member.slot[backwards]] = member.events.pos[backwards]
        return first

    def first_at_level(self, at: int, level: int) -> Array:
        """By slot the position of a member's first delivery of this level or above."""
        member = self.members[at]
        rows = member.at_level(level)
        if len(rows) == len(member.deliveries):
            return self.delivered[at]
        return self.first(member, rows)

    @cached_property
    def delivered(self) -> list[Array]:
        """By member and slot: the position of the first delivery, -1 for none."""
        return [self.first(member, member.deliveries) for member in self.members]

    @cached_property
    def delivered_reliably(self) -> list[Array]:
        return [self.first_at_level(at, RELIABLE) for at in range(len(self.members))]

    def repeated(self, at: int) -> Array:
        """The slots that a member delivered more than once, one for each time."""
        member = self.members[at]
        slots = member.slot[member.deliveries]
        again: Array = slots[member.events.pos[member.deliveries] != self.delivered[at][slots]]
        return again

    @cached_property
    def missing(self) -> list[Array]:
        """By member, if it is correct: slots that somebody delivered, it did not, and it owes."""
        anyone = np.zeros(self.count, np.bool_)
        for delivered in self.delivered:
            anyone |= delivered >= 0
        none = np.empty(0, np.int64)
        return [
            self.owed(member, np.flatnonzero(anyone & (delivered < 0)))
            if member.trace.correct
            else none
            for member, delivered in zip(self.members, self.delivered, strict=True)
        ]

    def owed(self, member: MemberEvents, slots: Array) -> Array:
        """The slots among these that a member owes."""
        return slots[member.owes(self.source[slots], self.number[slots])]


def _read(plan: HistoryPlan, segments: list[Segment], ordered_only: bool) -> EventColumns:
    parts = events_of(plan, [chunk for segment in segments for chunk in segment.chunks])
    return concatenated(list(map(_ordered, parts) if ordered_only else parts))


def _ordered(events: EventColumns) -> EventColumns:
    rows = events.take(~events.send & (events.level >= AGREED))
    unused = np.zeros(len(rows), np.bool_)
    rows.size = rows.digest = rows.t_us = rows.service = rows.probe = unused
    return rows


def events_of(plan: HistoryPlan, chunks: list[Chunk]) -> Iterator[EventColumns]:
    """The rows of chunks, in their order."""
    for file, of_file in groupby(chunks, key=lambda chunk: chunk.file):
        mine = list(of_file)
        if mine[0].events is not None:
            yield from (chunk.events for chunk in mine if chunk.events is not None)
            continue
        groups = list(dict.fromkeys(chunk.group for chunk in mine))
        tables = read_checked_groups(plan.files[file].path, groups, file in plan.recovered)
        for group, table in zip(groups, tables, strict=True):
            events = read_events(table, plan.codes)
            for chunk in mine:
                if chunk.group == group:
                    yield _chunk_events(events, chunk)


def _chunk_events(events: EventColumns, chunk: Chunk) -> EventColumns:
    first, last = np.searchsorted(events.pos, (chunk.start, chunk.stop))
    found = events.take(slice(first, last))
    rows = found.pos - chunk.start
    if chunk.mask is None:
        found.pos = chunk.first_pos + rows
        return found
    size = chunk.stop - chunk.start
    mask = np.unpackbits(np.frombuffer(chunk.mask, np.uint8), count=size).astype(np.bool_)
    found.pos = (chunk.first_pos - 1 + np.cumsum(mask, dtype=np.int64))[rows]
    return found.take(mask[rows])


# -- floors of cuts ------------------------------------------------------------------------------


def floors_of(plan: HistoryPlan, levels: Iterable[int]) -> dict[tuple[int, str, int], int]:
    """See `HistoryPlan.floors`."""
    views = (row for row in plan.history.rows if row.kind == "view")
    entries = sorted({entry for row in views for entry in cut_of(row.detail).items()})
    return {(level, *entry): _floor(plan, level, *entry) for level in levels for entry in entries}


def _floor(plan: HistoryPlan, level: int, sender: str, upto: int) -> int:
    """The chunks that may have the largest number are read first, until none can have a larger."""
    source = plan.codes.source(sender)
    candidates = []
    for member in plan.members:
        for chunk in member.chunks:
            at = np.flatnonzero(chunk.stats.sources == source)
            if len(at) and chunk.stats.low[at[0]] <= upto:
                candidates.append((min(int(chunk.stats.high[at[0]]), upto), chunk))
    best = 0
    for bound, chunk in sorted(candidates, key=lambda each: -each[0]):
        if bound <= best:
            break
        for events in events_of(plan, [chunk]):
            known = events.number[(events.source == source) & (events.level >= level)]
            best = max(best, int(known[known <= upto].max(initial=0)))
    return best
