"""The laws of sequence numbers on columns: what a shard shows, and how shards are combined.

A message is in one shard, so a sequence number that two shards have belongs to two messages.
Known sequence numbers are exchanged as ranges, which are few where a group counts without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unisono.laws import Violation
from unisono.laws.succession import lineages
from unisono.spark.laws.columns import AGREED, NUMBER_MIN, SAFE, Array
from unisono.spark.laws.plan import HistoryPlan
from unisono.spark.laws.scan import IncarnationSummary
from unisono.spark.laws.shard import MemberEvents, ShardData
from unisono.spark.laws.suspects import first_violations
from unisono.trace.checks import VIEWS
from unisono.trace.history import cut_of


class Jumps(NamedTuple):
    """Deliveries whose sequence number is not the next after the largest before."""

    source: Array
    number: Array
    before: Array
    seq: Array


class HighestDelivery(NamedTuple):
    """A member's first delivery at the largest sequence number that it delivered in a view."""

    seq: int
    pos: int
    source: int
    number: int


@dataclass
class SeqSummary:
    """What a shard shows about sequence numbers."""

    uniform: list[Violation]
    safe: list[Violation]
    known: dict[str, Array]
    """By lineage, the ranges of sequence numbers that have an ordered message."""
    own: list[Array]
    """By member, the ranges that it delivered."""
    jumps: list[Jumps]
    """By member."""
    highest: list[dict[str, HighestDelivery]]
    """By member and regular view, of ordered messages."""
    highest_safe: list[dict[str, HighestDelivery]]
    """The same of the messages that `one_place` is about."""


def sequence_numbers(data: ShardData) -> SeqSummary:
    lineage = lineages(data.plan.history)
    known: dict[str, list[Array]] = {}
    for member in data.members:
        seqs = member.events.seq[_at_level(member, AGREED)]
        known.setdefault(lineage[member.key], []).append(ranges_of(seqs))
    return SeqSummary(
        *conflicts(data),
        known={name: union(parts) for name, parts in known.items()},
        own=[ranges_of(member.events.seq[member.seq_deliveries]) for member in data.members],
        jumps=[_jumps(member) for member in data.members],
        highest=[_highest(member, AGREED) for member in data.members],
        highest_safe=[
            _highest(member, AGREED if member.trace.correct else SAFE) for member in data.members
        ],
    )


def _at_level(member: MemberEvents, level: int) -> Array:
    """The deliveries of this level or above with a sequence number."""
    rows = member.seq_deliveries
    found: Array = rows[member.events.level[rows] >= level]
    return found


def _highest(member: MemberEvents, level: int) -> dict[str, HighestDelivery]:
    """By view; deliveries in a transitional view do not count."""
    events, rows = member.events, _at_level(member, level)
    views = [row for row in member.trace.rows if row.kind in VIEWS]
    epochs = member.epochs(views, rows)
    found: dict[str, HighestDelivery] = {}
    for epoch in np.unique(epochs[epochs >= 0]).tolist():
        view = views[epoch]
        if view.kind == "view":
            mine = rows[epochs == epoch]
            at = mine[events.seq[mine].argmax()]
            columns = (events.seq, events.pos, events.source, events.number)
            highest = HighestDelivery(*(int(column[at]) for column in columns))
            if view.view not in found or highest.seq > found[view.view].seq:
                found[view.view] = highest
    return found


# -- one message per sequence number -------------------------------------------------------------


def conflicts(data: ShardData) -> tuple[list[Violation], list[Violation]]:
    """Violations of `uniform_order` and of `one_place`."""
    uniform = _conflicts(data, "uniform_order", AGREED)
    # Without conflicts between ordered messages there are none between safe ones.
    return uniform, _conflicts(data, "one_place", SAFE) if uniform else []


def _conflicts(data: ShardData, law: str, level: int) -> list[Violation]:
    lineage = lineages(data.plan.history)
    found: list[Violation] = []
    for name in sorted(set(lineage.values())):
        rows = {
            at: _at_level(member, AGREED if member.trace.correct else level)
            for at, member in enumerate(data.members)
            if lineage[member.key] == name
        }
        found += _conflicts_within(data, law, {at: some for at, some in rows.items() if len(some)})
    return found


def _conflicts_within(data: ShardData, law: str, rows: dict[int, Array]) -> list[Violation]:
    """Among members of one lineage."""
    if not rows:
        return []
    seqs = np.concatenate([data.members[at].events.seq[mine] for at, mine in rows.items()])
    slots = np.concatenate([data.members[at].slot[mine] for at, mine in rows.items()])
    owner = np.repeat(np.array(list(rows), np.int32), [len(mine) for mine in rows.values()])
    codes = _dense_codes(seqs)
    # The first of each counts, members in order: written last, because all are written backwards.
    backwards = np.arange(len(codes))[::-1]
    first_at_seq = np.empty(int(codes.max()) + 1, np.int64)
    first_at_seq[codes[backwards]] = backwards
    first_of_message = np.empty(data.count, np.int64)
    first_of_message[slots[backwards]] = backwards

    def violation(at: int, first: int, detail: str) -> Violation:
        key, other = (data.members[owner[row]].key for row in (at, first))
        return Violation(law, data.run, key, data.name(slots[at]), other, detail)

    at_seq, of_message = first_at_seq[codes], first_of_message[slots]
    taken = np.flatnonzero(slots[at_seq] != slots)
    moved = np.flatnonzero(seqs[of_message] != seqs)
    return first_violations(
        violation(at, first, f"place {seqs[at]} holds {data.name(slots[first])} there")
        for at, first in zip(taken.tolist(), at_seq[taken].tolist(), strict=True)
    ) + first_violations(
        violation(at, first, f"place {seqs[at]} here, {seqs[first]} there")
        for at, first in zip(moved.tolist(), of_message[moved].tolist(), strict=True)
    )


def _dense_codes(numbers: Array) -> Array:
    """By number a small code, the same for equal numbers."""
    low, high = int(numbers.min()), int(numbers.max())
    if high - low <= 8 * len(numbers) + 1024:
        return numbers - low
    return np.unique(numbers, return_inverse=True)[1]


# -- gaps ----------------------------------------------------------------------------------------


def _jumps(member: MemberEvents) -> Jumps:
    events, rows = member.events, member.seq_deliveries
    seqs = np.where(~events.send & events.has_seq, events.seq, NUMBER_MIN)
    before = member.running_max(seqs, (segment.seq for _, _, segment in member.segments()))
    views = [(row.step, row.seq) for row in member.trace.views if row.seq is not None]
    if views:
        steps, view_seqs = np.array(views, np.int64).T
        largest = np.append(NUMBER_MIN, np.maximum.accumulate(view_seqs))
        np.maximum(before, largest[np.searchsorted(steps, events.pos)], out=before)
    last = before[rows]
    jumped = (last != NUMBER_MIN) & (events.seq[rows] - 1 > last)
    rows, last = rows[jumped], last[jumped]
    return Jumps(events.source[rows], events.number[rows], last, events.seq[rows])


def view_jumps(plan: HistoryPlan, member: IncarnationSummary) -> Jumps:
    """Views without a cut above the largest sequence number before. They have no message, and may
    not skip their own number either."""
    found: list[tuple[int, int, int, int]] = []
    largest = NUMBER_MIN
    for row, at in zip(plan.history.lives[member.key].views, member.at_views, strict=True):
        if row.seq is None:
            continue
        before = max(largest, at.seq)
        if before != NUMBER_MIN and row.seq > before and not cut_of(row.detail):
            found.append((-1, 0, before, row.seq + 1))
        largest = max(largest, row.seq)
    return Jumps(*np.array(found, np.int64).reshape(-1, 4).T)


def skipped_in(ranges: Array, jumps: Jumps) -> Array:
    """By jump the smallest number of the ranges that it skips, `NUMBER_MIN` for none."""
    at = np.searchsorted(ranges[:, 1], jumps.before, side="right")
    found = np.full(len(jumps.seq), NUMBER_MIN)
    some = np.flatnonzero(at < len(ranges))
    first = np.maximum(ranges[at[some], 0], jumps.before[some] + 1)
    skipped = first < jumps.seq[some]
    found[some[skipped]] = first[skipped]
    return found


def holder_of(data: ShardData, lineage: str, seq: int) -> tuple[int, str] | None:
    """The first member of a lineage that delivered an ordered message at a sequence number, by its
    index, and its first message there."""
    known = lineages(data.plan.history)
    for at, member in enumerate(data.members):
        if known[member.key] == lineage:
            rows = _at_level(member, AGREED)
            rows = rows[member.events.seq[rows] == seq]
            if len(rows):
                return at, data.name(int(member.slot[rows[0]]))
    return None


# -- ranges: arrays of first and last, ascending and disjoint --------------------------------------


def ranges_of(numbers: Array) -> Array:
    if not len(numbers):
        return np.empty((0, 2), np.int64)
    ends = np.flatnonzero(np.diff(numbers) != 1)
    firsts = numbers[np.append(0, ends + 1)]
    return union([np.column_stack([firsts, numbers[np.append(ends, len(numbers) - 1)]])])


def union(parts: Sequence[Array]) -> Array:
    ranges = np.concatenate([*parts, np.empty((0, 2), np.int64)])
    if not len(ranges):
        return ranges
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reach = np.maximum.accumulate(ranges[:, 1])
    at = np.flatnonzero(np.append(True, ranges[1:, 0] > reach[:-1] + 1))
    return np.column_stack([ranges[at, 0], reach[np.append(at[1:], len(ranges)) - 1]])


def gaps(ranges: Array) -> Array:
    """The ranges between them."""
    return np.column_stack([ranges[:-1, 1] + 1, ranges[1:, 0] - 1])


def intersect(one: Array, two: Array) -> bool:
    both = np.concatenate([one, two])
    both = both[np.argsort(both[:, 0], kind="stable")]
    return bool((both[1:, 0] <= np.maximum.accumulate(both[:, 1])[:-1]).any())


def difference(one: Array, two: Array) -> Array:
    edges = np.unique(np.concatenate([one[:, 0], one[:, 1] + 1, two[:, 0], two[:, 1] + 1]))
    at = np.flatnonzero((_contain(one, edges) & ~_contain(two, edges))[:-1])
    return np.column_stack([edges[at], edges[at + 1] - 1])


def _contain(ranges: Array, numbers: Array) -> Array:
    at = np.searchsorted(ranges[:, 1], numbers)
    found = np.zeros(len(numbers), np.bool_)
    some = at < len(ranges)
    found[some] = ranges[at[some], 0] <= numbers[some]
    return found
