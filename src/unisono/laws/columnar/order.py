"""Fifo and causal order, exactly, on columns."""

from __future__ import annotations

import itertools
from heapq import nsmallest
from typing import NamedTuple

import numpy as np

from unisono.laws import VIOLATIONS_MAX, Violation
from unisono.laws.columnar.history import HistoryColumns, MemberEvents, running_max
from unisono.laws.columnar.suspects import first_violations
from unisono.laws.order import Departed
from unisono.trace.columns import (
    CAUSAL,
    FIFO,
    FLOORS,
    NUMBER_MAX,
    Array,
    EventColumns,
    distinct,
)
from unisono.trace.history import IncarnationTrace

# -- fifo ----------------------------------------------------------------------------------------


def fifo(data: HistoryColumns) -> list[Violation]:
    return _disorder(data, "fifo", FLOORS[:1])


def fifo_by_level(data: HistoryColumns) -> list[Violation]:
    return _disorder(data, "fifo_by_level", FLOORS)


def _disorder(data: HistoryColumns, law: str, floors: range) -> list[Violation]:
    found: list[Violation] = []
    known = _KnownNumbers(data, floors)
    for member in data.members:
        rows = member.at_level(FIFO)
        events = member.events.take(rows)
        source, number = events.source, events.number
        earlier = _delivered_earlier(events, floors)
        own = np.minimum(events.level, floors[-1]) - floors[0]
        later = np.take_along_axis(earlier, own[None].astype(np.intp), 0)[0]
        late = later > number
        found += first_violations(
            _violation(data, law, member.key, source[at], number[at], f"after {later[at]}")
            for at in np.flatnonzero(late).tolist()
        )
        begun = (earlier > 0) | member.knows[source]
        before = np.maximum(earlier, member.bases(rows))
        before[~begun | (np.array(floors)[:, None] > events.level)] = NUMBER_MAX
        jumps = np.flatnonzero(~late & (number - 1 > before.min(0)))
        skipped = known.above(source[jumps], before[:, jumps])
        found += first_violations(
            _violation(data, law, member.key, source[at], number[at], f"without {gap}")
            for at, gap in zip(jumps.tolist(), skipped.tolist(), strict=True)
            if gap < number[at]
        )
    return nsmallest(VIOLATIONS_MAX, found)


def _violation(
    data: HistoryColumns, law: str, key: str, source: int, number: int, detail: str
) -> Violation:
    sender = data.codes.key(int(source))
    return Violation(law, data.run, key, f"{sender}:{int(number)}", sender, detail)


def _delivered_earlier(events: EventColumns, floors: range) -> Array:
    """By floor and delivery, the largest number of the same sender that was delivered before with
    the level of the floor or above, 0 for none."""
    order = np.argsort(events.source, kind="stable")
    bounds = np.flatnonzero(np.diff(events.source[order], prepend=-1, append=-1)).tolist()
    earlier = np.zeros((len(floors), len(events)), np.int64)
    for floor, found in zip(floors, earlier, strict=True):
        numbers = np.where(events.level >= floor, events.number, 0)
        for first, last in itertools.pairwise(bounds):
            mine = order[first:last]
            found[mine] = running_max(numbers[mine])
    return earlier


class _KnownNumbers:
    """By floor and source, the ascending numbers of the messages from this floor up to the next."""

    def __init__(self, data: HistoryColumns, floors: range) -> None:
        self._known = np.zeros((len(floors), data.count), np.bool_)
        for member in data.members:
            used = member.events.level >= FIFO
            own = np.minimum(member.events.level[used], floors[-1]) - floors[0]
            self._known[own, member.slot[used]] = True
        self._data = data

    def above(self, sources: Array, numbers: Array) -> Array:
        """The smallest that is above the number of its floor, `NUMBER_MAX` for none."""
        found = np.full(len(sources), NUMBER_MAX)
        for source in distinct(sources).tolist():
            mine, slots = np.flatnonzero(sources == source), self._data.slots_of(source)
            for used, before in zip(self._known, numbers, strict=True):
                known = np.append(self._data.number[slots][used[slots]], NUMBER_MAX)
                first = known[np.searchsorted(known[:-1], before[mine], side="right")]
                found[mine] = np.minimum(found[mine], first)
        return found


# -- causal --------------------------------------------------------------------------------------


class _CausalEvents(NamedTuple):
    member: MemberEvents
    delivered: Array
    """By row the number delivered with level causal or above, 0 for any other row."""
    rows: Array
    """Deliveries with that level."""
    sends: Array
    """The first sends with that level."""
    departed: dict[str, list[tuple[int, int]]]
    """By sender, the positions between which nothing is needed of it."""


def causal(data: HistoryColumns) -> list[Violation]:
    members = [_causal_events(member) for member in data.members]
    found: list[Violation] = []
    for source, key in enumerate(data.codes.keys):
        need = np.zeros(data.count, np.int64)
        delivered = [_delivered_before(each, source) for each in members]
        for each, before in zip(members, delivered, strict=True):
            need[each.member.slot[each.sends]] = (
                _sent_before(each)
                if each.member.rows.code == source
                else _known_at_send(data, each, source, before)
            )
        if not need.any():
            continue
        for each, before in zip(members, delivered, strict=True):
            member, rows = each.member, each.rows
            if member.knows[source]:
                pos, slots = member.events.pos[rows], member.slot[rows]
                early = need[slots] > np.maximum(before[rows], member.base_at(source, pos))
                for start, end in each.departed.get(key, ()):
                    early &= (pos < start) | (pos >= end)
                found += first_violations(
                    Violation(
                        "causal",
                        data.run,
                        member.key,
                        data.name(slot),
                        f"{key}:{need[slot]}",
                        "delivered before what it depends on",
                    )
                    for slot in slots[early].tolist()
                )
    return nsmallest(VIOLATIONS_MAX, found)


def _causal_events(member: MemberEvents) -> _CausalEvents:
    events = member.events
    enough = events.level >= CAUSAL
    delivered = np.where(~events.send & enough, events.number, 0)
    sends = member.sends[enough[member.sends]]
    if (np.diff(member.slot[sends]) <= 0).any():
        _, first = np.unique(member.slot[sends], return_index=True)
        sends = sends[first]
    rows = member.deliveries[enough[member.deliveries]]
    return _CausalEvents(member, delivered, rows, sends, _departed(member.trace))


def _departed(trace: IncarnationTrace) -> dict[str, list[tuple[int, int]]]:
    spans: dict[str, list[tuple[int, int]]] = {}
    departed = Departed()
    bounds = [*(row.step for row in trace.views), NUMBER_MAX]
    for row, (start, end) in zip(trace.views, itertools.pairwise(bounds), strict=True):
        departed.see(row)
        for key in departed.members:
            spans.setdefault(key, []).append((start, end))
    return spans


def _delivered_before(each: _CausalEvents, source: int) -> Array:
    """By row, the largest number of a source that was delivered before."""
    return running_max(np.where(each.member.events.source == source, each.delivered, 0))


def _known_at_send(data: HistoryColumns, each: _CausalEvents, source: int, before: Array) -> Array:
    """By send what was known of a source: what was delivered, or adopted with a cut."""
    pos, known = each.member.events.pos[each.sends], before[each.sends]
    for cut in each.member.cuts.get(source, ()):
        floor = data.floor(CAUSAL, data.codes.key(source), cut.upto)
        known = np.maximum(known, np.where(pos > cut.step, floor, 0))
    return known


def _sent_before(each: _CausalEvents) -> Array:
    """By send, the largest number sent before with level causal or above."""
    events = each.member.events
    mine = np.where(events.send & (events.level >= CAUSAL), events.number, 0)
    return running_max(mine)[each.sends]
