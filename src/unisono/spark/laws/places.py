"""The laws of places on columns: what a shard says, and how shards are put together.

A message is in one shard, so a place that two shards have holds two messages. What everyone knows
of places travels as spans, pairs of the first and the last of places that follow each other: where
a group counts on, there are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from unisono.laws import Violation
from unisono.laws.succession import lineages
from unisono.spark.laws.case import AGREED, Case, ShardEvents
from unisono.spark.laws.columns import NUMBER_MIN, Array
from unisono.spark.laws.order import first_told
from unisono.spark.laws.plan import HistoryPlan, LifePlan
from unisono.trace.checks import LEVELS, VIEWS
from unisono.trace.history import cut_of

SAFE: Final = LEVELS["safe"]


class Jumps(NamedTuple):
    """Deliveries whose place is not the next after the largest before it."""

    source: Array
    number: Array
    before: Array
    place: Array


class Top(NamedTuple):
    """A life's first delivery in a view at the largest place that it delivered at in it."""

    place: int
    pos: int
    source: int
    number: int


@dataclass
class PlaceSummary:
    """What a shard says of places."""

    uniform: list[Violation]
    safe: list[Violation]
    known: dict[str, Array]
    """By lineage, the spans of the places that hold an ordered message."""
    own: list[Array]
    """By life, the spans of the places that it delivered at."""
    jumps: list[Jumps]
    """By life."""
    tops: list[dict[str, Top]]
    """By life and regular view, of ordered messages."""
    safe_tops: list[dict[str, Top]]
    """The same of what `one_place` is asked of."""


def placed(case: Case) -> PlaceSummary:
    lineage = lineages(case.plan.history)
    rows = [_rows(told) for told in case.told]
    known: dict[str, list[Array]] = {}
    for told, mine in zip(case.told, rows, strict=True):
        ordered = mine[told.said.level[mine] >= AGREED]
        known.setdefault(lineage[told.plan.key], []).append(spans_of(told.said.seq[ordered]))
    return PlaceSummary(
        *apart(case),
        known={name: all_spans(parts) for name, parts in known.items()},
        own=[spans_of(told.said.seq[mine]) for told, mine in zip(case.told, rows, strict=True)],
        jumps=[_jumps(told) for told in case.told],
        tops=[_tops(told, mine, AGREED) for told, mine in zip(case.told, rows, strict=True)],
        safe_tops=[
            _tops(told, mine, AGREED if told.life.correct else SAFE)
            for told, mine in zip(case.told, rows, strict=True)
        ],
    )


def _tops(told: ShardEvents, rows: Array, level: int) -> dict[str, Top]:
    """By view, of deliveries with a place; not of what is delivered in a transitional one."""
    said = told.said
    rows = rows[said.level[rows] >= level]
    views = [row for row in told.life.rows if row.kind in VIEWS]
    epochs = np.searchsorted([row.step for row in views], said.pos[rows]) - 1
    found: dict[str, Top] = {}
    for epoch in np.unique(epochs[epochs >= 0]).tolist():
        view = views[epoch]
        if view.kind != "view":
            continue
        mine = rows[epochs == epoch]
        at = int(mine[said.seq[mine].argmax()])
        top = Top(int(said.seq[at]), int(said.pos[at]), int(said.source[at]), int(said.number[at]))
        if view.view not in found or top.place > found[view.view].place:
            found[view.view] = top
    return found


def _rows(told: ShardEvents) -> Array:
    """Its deliveries with a place."""
    rows = told.deliveries
    has = told.said.placed[rows]
    return rows if has.all() else rows[has]


# -- one message a place -------------------------------------------------------------------------


def apart(case: Case) -> tuple[list[Violation], list[Violation]]:
    """Violations of `uniform_order` and of `one_place`."""
    rows = [_rows(told) for told in case.told]
    uniform = _apart(case, rows, "uniform_order", AGREED)
    # Where no ordered messages are apart, no safe ones are.
    return uniform, _apart(case, rows, "one_place", SAFE) if uniform else []


def _apart(case: Case, rows: Sequence[Array], law: str, level: int) -> list[Violation]:
    lineage = lineages(case.plan.history)
    found: list[Violation] = []
    for name in sorted(set(lineage.values())):
        lives = [at for at, told in enumerate(case.told) if lineage[told.plan.key] == name]
        least = {at: AGREED if case.told[at].life.correct else level for at in lives}
        mine = {at: rows[at][case.told[at].said.level[rows[at]] >= least[at]] for at in lives}
        found += _apart_in(case, law, {at: some for at, some in mine.items() if len(some)})
    return found


def _apart_in(case: Case, law: str, rows: dict[int, Array]) -> list[Violation]:
    """Of lives that count from the same founding."""
    if not rows:
        return []
    told = {at: case.told[at] for at in rows}
    seqs = np.concatenate([told[at].said.seq[mine] for at, mine in rows.items()])
    places, codes = _coded(seqs)
    messages = np.concatenate([told[at].message[mine] for at, mine in rows.items()])
    owner = np.repeat(np.array(list(rows), np.int32), [len(mine) for mine in rows.values()])
    # The first of each counts, lives in order: written last, when all are written backwards.
    back = slice(None, None, -1)
    holder = np.empty(len(places), np.int64)
    holder[codes[back]] = np.arange(len(codes))[back]
    stander = np.empty(case.count, np.int64)
    stander[messages[back]] = np.arange(len(codes))[back]
    run = case.plan.history.run

    def holds(at: int) -> Violation:
        first = int(holder[codes[at]])
        detail = f"place {int(seqs[at])} holds {case.name(int(messages[first]))} there"
        return _told(at, first, detail)

    def stands(at: int) -> Violation:
        first = int(stander[messages[at]])
        return _told(at, first, f"place {int(seqs[at])} here, {int(seqs[first])} there")

    def _told(at: int, first: int, detail: str) -> Violation:
        life, other = (case.told[int(owner[row])].plan.key for row in (at, first))
        return Violation(law, run, life, case.name(int(messages[at])), other, detail)

    others = np.flatnonzero(messages[holder[codes]] != messages)
    elsewhere = np.flatnonzero(seqs[stander[messages]] != seqs)
    return first_told(others, holds) + first_told(elsewhere, stands)


def _coded(numbers: Array) -> tuple[Array, Array]:
    """Different numbers, at least those that are there, and by number its place among them."""
    low, high = int(numbers.min()), int(numbers.max())
    if high - low <= 8 * len(numbers) + 1024:
        return np.arange(low, high + 1), numbers - low
    unique, codes = np.unique(numbers, return_inverse=True)
    return unique, codes


# -- places passed over --------------------------------------------------------------------------


def _jumps(told: ShardEvents) -> Jumps:
    said = told.said
    heard = np.where(~said.send & said.placed, said.seq, NUMBER_MIN)
    before = np.empty_like(heard)
    for start, end, stretch in told.stretches():
        before[start] = stretch.place
        before[start + 1 : end] = heard[start : end - 1]
        part = before[start:end]
        np.maximum.accumulate(part, out=part)
    views = [(row.step, row.seq) for row in told.life.views if row.seq is not None]
    if views:
        steps, seqs = np.array(views, np.int64).T
        largest = np.concatenate([[NUMBER_MIN], np.maximum.accumulate(seqs)])
        np.maximum(before, largest[np.searchsorted(steps, said.pos)], out=before)
    rows = _rows(told)
    last = before[rows]
    over = (last != NUMBER_MIN) & (said.seq[rows] - 1 > last)
    rows, last = rows[over], last[over]
    return Jumps(said.source[rows], said.number[rows], last, said.seq[rows])


def view_jumps(plan: HistoryPlan, life: LifePlan) -> Jumps:
    """Views without a cut whose place is above the largest before; they have no message, and may
    not pass over their own place either."""
    found: list[tuple[int, int, int, int]] = []
    viewed = NUMBER_MIN
    for row, at in zip(plan.history.lives[life.key].views, life.at_views, strict=True):
        if row.seq is None:
            continue
        before = max(viewed, at.place)
        if before != NUMBER_MIN and row.seq > before and not cut_of(row.detail):
            found.append((-1, 0, before, row.seq + 1))
        viewed = max(viewed, row.seq)
    return Jumps(*np.array(found, np.int64).reshape(-1, 4).T)


# -- spans ---------------------------------------------------------------------------------------


def spans_of(numbers: Array) -> Array:
    """The numbers as spans, one a row: first and last of those that follow each other."""
    if not len(numbers):
        return np.empty((0, 2), np.int64)
    ends = np.flatnonzero(np.diff(numbers) != 1)
    firsts = numbers[np.append(0, ends + 1)]
    return all_spans([np.column_stack([firsts, numbers[np.append(ends, len(numbers) - 1)]])])


def all_spans(parts: Sequence[Array]) -> Array:
    """All of several spans."""
    spans = np.concatenate([*parts, np.empty((0, 2), np.int64)])
    if not len(spans):
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    starts = np.append(True, spans[1:, 0] > reach[:-1] + 1)
    at = np.flatnonzero(starts)
    return np.column_stack([spans[at, 0], reach[np.append(at[1:], len(spans)) - 1]])


def between(spans: Array) -> Array:
    """The spans between them."""
    return np.column_stack([spans[:-1, 1] + 1, spans[1:, 0] - 1])


def meeting(one: Array, two: Array) -> bool:
    """Whether two lists of spans have a number in common."""
    both = np.concatenate([one, two])
    both = both[np.argsort(both[:, 0], kind="stable")]
    return bool((both[1:, 0] <= np.maximum.accumulate(both[:, 1])[:-1]).any())


def without(one: Array, two: Array) -> Array:
    """The spans of what is in the one and not in the other."""
    edges = np.concatenate([one[:, 0], one[:, 1] + 1, two[:, 0], two[:, 1] + 1])
    edges = np.unique(edges)
    alone = _inside(one, edges) & ~_inside(two, edges)
    at = np.flatnonzero(alone[:-1])
    return np.column_stack([edges[at], edges[at + 1] - 1])


def _inside(spans: Array, numbers: Array) -> Array:
    at = np.searchsorted(spans[:, 1], numbers)
    found = np.zeros(len(numbers), np.bool_)
    some = at < len(spans)
    found[some] = spans[at[some], 0] <= numbers[some]
    return found


def first_in(spans: Array, jumps: Jumps) -> Array:
    """By jump the smallest number of the spans that it passes over; the least of all for none."""
    at = np.searchsorted(spans[:, 1], jumps.before, side="right")
    found = np.full(len(jumps.place), NUMBER_MIN)
    some = np.flatnonzero(at < len(spans))
    first = np.maximum(spans[at[some], 0], jumps.before[some] + 1)
    passed = first < jumps.place[some]
    found[some[passed]] = first[passed]
    return found


def holder_of(case: Case, lineage: str, place: int) -> tuple[int, str] | None:
    """The smallest life of a lineage that delivered an ordered message at a place, by its number
    among the lives, and its first message there."""
    known = lineages(case.plan.history)
    for life, told in enumerate(case.told):
        if known[told.plan.key] == lineage:
            rows = _rows(told)
            here = (told.said.seq[rows] == place) & (told.said.level[rows] >= AGREED)
            if here.any():
                return life, case.name(int(told.message[rows[int(here.argmax())]]))
    return None
