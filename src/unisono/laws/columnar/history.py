"""A history in memory: the sends and deliveries of its incarnations, and its messages as one
table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from unisono.laws.holding import ENDS
from unisono.trace.checks import VIEWS
from unisono.trace.columns import (
    NUMBER_MAX,
    NUMBER_MIN,
    RELIABLE,
    Array,
    Codes,
    EventColumns,
    is_dense,
)
from unisono.trace.history import History, IncarnationTrace, ViewCut, cut_of
from unisono.trace.record import Row
from unisono.trace.scan import IncarnationRows, KeptColumns, ScanResult


@dataclass
class MemberEvents:
    """One incarnation."""

    rows: IncarnationRows
    events: EventColumns
    slot: Array
    """By event the index of its message in the table."""
    trace: IncarnationTrace = field(init=False)
    knows: Array = field(init=False)
    """By source: whether a view has it."""
    base: Array = field(init=False)
    """By source that is known: obligations begin above, until a cut changes that."""
    cuts: dict[int, tuple[ViewCut, ...]] = field(init=False)
    """By source."""

    def set_trace(self, trace: IncarnationTrace, keys: Sequence[str]) -> None:
        bases = [trace.base(key) for key in keys]
        self.trace = trace
        self.knows = np.array([base is not None for base in bases], np.bool_)
        self.base = np.array([base or 0 for base in bases], np.int64)
        self.cuts = {code: trace.cuts[key] for code, key in enumerate(keys) if key in trace.cuts}

    @property
    def key(self) -> str:
        return self.rows.key

    def row(self, at: int, codes: Codes) -> Row:
        return self.events.row(at, self.rows.name, codes, self.rows.history)

    @cached_property
    def deliveries(self) -> Array:
        return np.flatnonzero(~self.events.send)

    @cached_property
    def sends(self) -> Array:
        return np.flatnonzero(self.events.send)

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

    def epochs(self, views: Sequence[Row], rows: Array) -> Array:
        """By row the index of the last of these views before it, -1 for none."""
        return np.searchsorted([view.step for view in views], self.events.pos[rows]) - 1

    @cached_property
    def view_epochs(self) -> tuple[list[Row], Array]:
        """Its views, also transitional ones, and by delivery the index of the last before it."""
        views = [row for row in self.rows.control if row.kind in VIEWS]
        return views, self.epochs(views, self.deliveries)

    def seqs_before(self, rows: Sequence[Row]) -> Array:
        """The largest sequence number delivered before each of these, `NUMBER_MIN` for none."""
        mine = self.seq_deliveries
        largest = np.maximum.accumulate(np.append(NUMBER_MIN, self.events.seq[mine]))
        steps = np.array([row.step for row in rows], np.int64)
        found: Array = largest[np.searchsorted(self.events.pos[mine], steps)]
        return found


def running_max(values: Array, first: int = 0) -> Array:
    """By row the largest value before it, `first` at the beginning."""
    before = np.empty_like(values)
    before[:1] = first
    before[1:] = values[:-1]
    return np.maximum.accumulate(before, out=before)


class HistoryColumns:
    """All that the laws need of one history."""

    def __init__(
        self,
        run: str,
        name: tuple[str, str],
        incarnations: Sequence[IncarnationRows],
        codes: Codes,
        torn: frozenset[str],
        unread: Mapping[str, str],
    ) -> None:
        self.run = run
        self.codes = codes
        incarnations = sorted(incarnations, key=lambda each: each.key)
        events = [each.events() for each in incarnations]
        self._build_table(events)
        self.members = [
            MemberEvents(each, mine, self._slots(mine))
            for each, mine in zip(incarnations, events, strict=True)
        ]
        rows = tuple(row for at in range(len(self.members)) for row in self._control_rows(at))
        self.history = History(run, *name, rows, torn, unread)
        """Control rows alone; and the latest deliveries before views with a cut, which determine
        where a cut begins."""
        for member in self.members:
            member.set_trace(self.history.lives[member.key], codes.keys)

    def _control_rows(self, at: int) -> Iterator[Row]:
        """With one row that shows that it existed."""
        member = self.members[at]
        control = member.rows.control
        yield Row(*member.rows.history, *member.rows.name, -1, 0, "timer")
        yield from control
        views = [row for row in control if row.kind == "view" and cut_of(row.detail)]
        marks: dict[int, None] = {}
        for view, latest in zip(views, self.delivered_before(member, views), strict=True):
            for key in cut_of(view.detail):
                if key in latest:
                    slot = self.slot(self.codes.source(key), latest[key])
                    marks[int(np.searchsorted(member.events.pos, self.delivered[at][slot]))] = None
        yield from (member.row(row, self.codes) for row in marks)

    def with_rows(self, *rows: Row) -> History:
        """The history with these rows first. A row may be in both."""
        return replace(self.history, rows=tuple(dict.fromkeys((*rows, *self.history.rows))))

    @cached_property
    def last_sends(self) -> list[Row]:
        """Each one's send with the largest number."""
        return [
            each.row(int(each.sends[each.events.number[each.sends].argmax()]), self.codes)
            for each in self.members
            if len(each.sends)
        ]

    def delivered_before(
        self, member: MemberEvents, rows: Sequence[Row]
    ) -> Iterator[dict[str, int]]:
        """Before each of these rows, by sender the largest number delivered."""
        if not rows:
            return
        events, mine, size = member.events, member.deliveries, len(self.codes)
        largest = np.zeros((len(rows) + 1, size), np.int64)
        after = np.searchsorted([row.step for row in rows], events.pos[mine])
        np.maximum.at(largest.reshape(-1), after * size + events.source[mine], events.number[mine])
        keys = self.codes.keys
        for numbers in np.maximum.accumulate(largest, axis=0)[:-1]:
            yield {keys[code]: int(numbers[code]) for code in np.flatnonzero(numbers).tolist()}

    def delivered_at_ends(self) -> dict[str, list[dict[str, int]]]:
        """By incarnation, before each row that ends a view."""
        return {
            each.key: list(
                self.delivered_before(each, [row for row in each.rows.control if row.kind in ENDS])
            )
            for each in self.members
        }

    # -- the table of messages -------------------------------------------------------------------

    def _build_table(self, events: list[EventColumns]) -> None:
        """By source and number. Where numbers are dense, every number between the smallest and the
        largest has a slot, used or not."""
        size = len(self.codes)
        lows, highs = np.full(size, NUMBER_MAX), np.zeros(size, np.int64)
        counts = np.zeros(size, np.int64)
        for mine in events:
            np.minimum.at(lows, mine.source, mine.number)
            np.maximum.at(highs, mine.source, mine.number)
            counts += np.bincount(mine.source, minlength=size)
        self._lows = np.where(counts, lows, 0)
        self._sparse: dict[int, Array] = {}
        numbers_of = []
        for source in range(size):
            span = int(highs[source]) - int(lows[source]) + 1 if counts[source] else 0
            if not is_dense(0, span, int(counts[source])):
                every = [mine.number[mine.source == source] for mine in events]
                self._sparse[source] = np.unique(np.concatenate(every))
                numbers_of.append(self._sparse[source])
            else:
                first = int(self._lows[source])
                numbers_of.append(np.arange(first, first + span))
        sizes = [len(numbers) for numbers in numbers_of]
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.count = int(self.starts[-1])
        self.source = np.repeat(np.arange(size, dtype=np.int32), sizes)
        self.number = np.concatenate([*numbers_of, np.empty(0, np.int64)])

    def slots_of(self, source: int) -> slice:
        return slice(int(self.starts[source]), int(self.starts[source + 1]))

    def _slots(self, events: EventColumns) -> Array:
        slots: Array = events.number + (self.starts[:-1] - self._lows)[events.source]
        for source, numbers in self._sparse.items():
            mine = np.flatnonzero(events.source == source)
            slots[mine] = self.starts[source] + np.searchsorted(numbers, events.number[mine])
        return slots

    def slot(self, source: int, number: int) -> int | None:
        """The slot of a message; None for an unknown one."""
        numbers = self.number[self.slots_of(source)]
        at = int(np.searchsorted(numbers, number))
        return (
            int(self.starts[source]) + at if at < len(numbers) and numbers[at] == number else None
        )

    def name(self, slot: int) -> str:
        """`name#incarnation:number` of a message."""
        return self.codes.message(self.source[slot], self.number[slot])

    def member_index(self) -> dict[str, int]:
        return {member.key: at for at, member in enumerate(self.members)}

    def floor(self, level: int, sender: str, upto: int) -> int:
        """The largest number of a sender that is not above another, of a message of this level or
        above; 0 for none."""
        source = self.codes.source(sender)
        if source < 0:
            return 0
        if level not in self._known:
            known = self._known[level] = np.zeros(self.count, np.bool_)
            for member in self.members:
                known[member.slot[member.events.level >= level]] = True
        mine = self.slots_of(source)
        count = np.searchsorted(self.number[mine], upto, side="right")
        at = np.flatnonzero(self._known[level][mine][:count])
        return int(self.number[mine][at[-1]]) if len(at) else 0

    @cached_property
    def _known(self) -> dict[int, Array]:
        """By level and slot, whether a message of it is known."""
        return {}

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
        """By member, if it is correct or went on from a view: slots that somebody delivered, it did
        not, and it owes."""
        anyone = np.zeros(self.count, np.bool_)
        for delivered in self.delivered:
            anyone |= delivered >= 0
        none = np.empty(0, np.int64)
        return [
            self.owed(member, np.flatnonzero(anyone & (delivered < 0)))
            if member.trace.correct or member.trace.views[1:]
            else none
            for member, delivered in zip(self.members, self.delivered, strict=True)
        ]

    def owed(self, member: MemberEvents, slots: Array) -> Array:
        """The slots among these that a member owes."""
        return slots[member.owes(self.source[slots], self.number[slots])]


def histories_in(run: str, scan: ScanResult, kept: KeptColumns) -> list[HistoryColumns]:
    """One per protocol and group, in that order."""
    by_name: dict[tuple[str, str], list[IncarnationRows]] = {}
    for each in kept.incarnations.values():
        by_name.setdefault(each.history, []).append(each)
    torn, unread = scan.torn_lives, scan.unread()
    return [
        HistoryColumns(run, name, mine, scan.codes, torn, unread)
        for name, mine in sorted(by_name.items())
    ]
