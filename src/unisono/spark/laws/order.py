"""Fifo and causal order, exactly, on columns."""

from __future__ import annotations

import itertools
from heapq import nsmallest
from typing import NamedTuple

import numpy as np

from unisono.laws import VIOLATIONS_MAX, Violation
from unisono.laws.order import Departed
from unisono.spark.laws.columns import CAUSAL, FIFO, FLOORS, NUMBER_MAX, Array
from unisono.spark.laws.shard import MemberEvents, ShardData
from unisono.spark.laws.suspects import first_violations
from unisono.trace.history import IncarnationTrace

# -- fifo ----------------------------------------------------------------------------------------


class GapQuery(NamedTuple):
    """A delivery that may skip a message of an earlier shard."""

    key: str
    source: int
    number: int
    before: tuple[int, ...]
    """By floor: skipped are messages from this floor up to the next, numbered above."""


def fifo(data: ShardData) -> tuple[list[Violation], list[GapQuery]]:
    return _disorder(data, "fifo", FLOORS[:1])


def fifo_by_level(data: ShardData) -> tuple[list[Violation], list[GapQuery]]:
    return _disorder(data, "fifo_by_level", FLOORS)


def _disorder(data: ShardData, law: str, floors: range) -> tuple[list[Violation], list[GapQuery]]:
    """Violations that the shard alone proves, and queries to earlier shards."""
    found: list[Violation] = []
    queries: list[GapQuery] = []
    known = KnownNumbers(data, floors)
    for member in data.members:
        rows = member.at_level(FIFO)
        events = member.events.take(rows)
        source, number = events.source, events.number
        earlier = np.array([_delivered_earlier(member, floor)[rows] for floor in floors])
        own = np.minimum(events.level, floors[-1]) - floors[0]
        later = np.take_along_axis(earlier, own[None].astype(np.intp), 0)[0]
        late = later > number
        found += first_violations(
            fifo_violation(data, law, member.key, source[at], number[at], f"after {later[at]}")
            for at in np.flatnonzero(late).tolist()
        )
        begun = (earlier > 0) | member.knows[source]
        before = np.maximum(earlier, member.bases(rows))
        before[~begun | (np.array(floors)[:, None] > events.level)] = NUMBER_MAX
        jumps = np.flatnonzero(~late & (number - 1 > before.min(0)))
        outside = (before[:, jumps] < data.shard.low[source[jumps]]).any(0)
        queries += [
            GapQuery(member.key, int(source[at]), int(number[at]), tuple(before[:, at].tolist()))
            for at in jumps[outside].tolist()
        ]
        inside = jumps[~outside]
        skipped = known.above(source[inside], before[:, inside])
        found += first_violations(
            fifo_violation(data, law, member.key, source[at], number[at], f"without {gap}")
            for at, gap in zip(inside.tolist(), skipped.tolist(), strict=True)
            if gap < number[at]
        )
    return nsmallest(VIOLATIONS_MAX, found), queries


def fifo_violation(
    data: ShardData, law: str, key: str, source: int, number: int, detail: str
) -> Violation:
    sender = data.codes.key(int(source))
    return Violation(law, data.run, key, f"{sender}:{int(number)}", sender, detail)


def _delivered_earlier(member: MemberEvents, floor: int) -> Array:
    """By delivery with level fifo or above, the largest number of the same sender that was
    delivered before with the level of the floor or above, 0 for none."""
    events = member.events
    delivered = ~events.send & (events.level >= FIFO)
    numbers = np.where(events.level >= floor, events.number, 0)
    earlier = np.zeros(len(events), np.int64)
    for start, end, segment in member.segments():
        rows = np.flatnonzero(delivered[start:end]) + start
        rows = rows[np.argsort(events.source[rows], kind="stable")]
        source = events.source[rows]
        bounds = np.flatnonzero(np.diff(source, prepend=-1, append=-1)).tolist()
        for first, last in itertools.pairwise(bounds):
            mine = rows[first:last]
            initial = segment.delivered[floor - FIFO, source[first]]
            earlier[mine] = np.maximum.accumulate(np.append(initial, numbers[mine[:-1]]))
    return earlier


class KnownNumbers:
    """By floor and source, the ascending numbers of the messages from this floor up to the next."""

    def __init__(self, data: ShardData, floors: range) -> None:
        self._known = np.zeros((len(floors), data.count), np.bool_)
        for member in data.members:
            used = (member.slot >= 0) & (member.events.level >= FIFO)
            own = np.minimum(member.events.level[used], floors[-1]) - floors[0]
            self._known[own, member.slot[used]] = True
        self._data = data

    def above(self, sources: Array, numbers: Array) -> Array:
        """The smallest that is above the number of its floor, `NUMBER_MAX` for none."""
        found = np.full(len(sources), NUMBER_MAX)
        for source in np.unique(sources).tolist():
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
    """Deliveries of the shard's messages with that level."""
    sends: Array
    """The first sends of the shard's messages with that level."""
    departed: dict[str, list[tuple[int, int]]]
    """By sender, the positions between which nothing is needed of it."""


def causal(data: ShardData) -> list[Violation]:
    members = [_causal_events(member) for member in data.members]
    found: list[Violation] = []
    for source, key in enumerate(data.codes.keys):
        need = np.zeros(data.count, np.int64)
        delivered = [_delivered_before(each, source) for each in members]
        for each, before in zip(members, delivered, strict=True):
            need[each.member.slot[each.sends]] = (
                _sent_before(each)
                if each.member.summary.code == source
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
        departed.see(row.members or ())
        for key in departed.members:
            spans.setdefault(key, []).append((start, end))
    return spans


def _delivered_before(each: _CausalEvents, source: int) -> Array:
    """By row, the largest number of a source that was delivered before."""
    mine = np.where(each.member.events.source == source, each.delivered, 0)
    initial = (segment.delivered[CAUSAL - FIFO, source] for _, _, segment in each.member.segments())
    return each.member.running_max(mine, initial)


def _known_at_send(data: ShardData, each: _CausalEvents, source: int, before: Array) -> Array:
    """By send what was known of a source: what was delivered, or adopted with a cut."""
    pos, known = each.member.events.pos[each.sends], before[each.sends]
    for cut in each.member.cuts.get(source, ()):
        floor = data.plan.floors[CAUSAL, data.codes.key(source), cut.upto]
        known = np.maximum(known, np.where(pos > cut.step, floor, 0))
    return known


def _sent_before(each: _CausalEvents) -> Array:
    """By send, the largest number sent before with level causal or above."""
    events = each.member.events
    mine = np.where(events.send & (events.level >= CAUSAL), events.number, 0)
    initial = (segment.own for _, _, segment in each.member.segments())
    return each.member.running_max(mine, initial)[each.sends]
