"""A shard is judged; what the shards of a run say is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, NamedTuple

import numpy as np

from unisono.laws import LAWS, VIOLATIONS_MAX, Violation
from unisono.laws.delivery import progress
from unisono.laws.order import _same_start
from unisono.laws.views import self_inclusion, view_order
from unisono.spark.laws.case import AGREED, Case, said_of
from unisono.spark.laws.columns import Array
from unisono.spark.laws.delivery import SCREENS
from unisono.spark.laws.order import Asked, Known, causal, fifo
from unisono.spark.laws.plan import HistoryPlan, Shard, merged
from unisono.spark.laws.sequence import (
    APART,
    Sequences,
    first_differing,
    ordered,
    reaching,
)
from unisono.spark.laws.survey import Fallen, Piece, places_fallen
from unisono.spark.laws.telling import tell
from unisono.trace.history import History

OF_VIEWS: Final = {"view_order": view_order, "self_inclusion": self_inclusion}


class Latencies(NamedTuple):
    """Rising values, and how often each was seen."""

    values: Array
    counts: Array


@dataclass
class ShardFound:
    shard: Shard
    violations: dict[str, list[Violation]] = field(default_factory=dict)
    """By law, the first few."""
    asked: list[Asked] = field(default_factory=list)
    sequences: Sequences | None = None
    latencies: list[Latencies] = field(default_factory=list)
    """By life."""


def judge_shard(shard: Shard, laws: Sequence[str]) -> ShardFound:
    """What the rows of a shard say of the laws that are claimed, and how long messages took."""
    case = Case(shard)
    found = ShardFound(shard)
    for law in laws:
        if law in SCREENS:
            found.violations[law] = tell(case, law, SCREENS[law](case))
    if "fifo" in laws:
        found.violations["fifo"], found.asked = fifo(case)
    if "causal" in laws:
        found.violations["causal"] = causal(case)
    if "total_order" in laws or "prefix" in laws:
        found.violations["total_order"], found.sequences = ordered(case)
    found.latencies = _latencies(case)
    return found


def _latencies(case: Case) -> list[Latencies]:
    """From a message's first send to each delivery, where the send is known."""
    sent = np.zeros(case.count, np.bool_)
    when = np.zeros(case.count, np.int64)
    for told in case.told:
        rows = told.sends[::-1]
        sent[told.message[rows]] = True
        when[told.message[rows]] = told.said.t_us[rows]
    found = []
    for told in case.told:
        rows, places = told.deliveries, told.message[told.deliveries]
        timed = sent[places]
        if not timed.all():
            rows, places = rows[timed], places[timed]
        found.append(counted(told.said.t_us[rows] - when[places]))
    return found


def counted(values: Array) -> Latencies:
    if not len(values):
        return Latencies(values, values)
    low, high = int(values.min()), int(values.max())
    if high - low > 4 * len(values) + 1024:
        return Latencies(*np.unique(values, return_counts=True))
    counts = np.bincount(values - low)
    seen = np.flatnonzero(counts)
    return Latencies(seen + low, counts[seen])


def added(parts: Sequence[Latencies]) -> Latencies:
    """All together."""
    values = np.concatenate([part.values for part in parts] or [np.empty(0, np.int64)])
    counts = np.concatenate([part.counts for part in parts] or [np.empty(0, np.int64)])
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    if not len(values):
        return Latencies(values, counts)
    starts = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    return Latencies(values[starts], np.add.reduceat(counts, starts))


# -- a history -----------------------------------------------------------------------------------


def judge_history(
    plan: HistoryPlan, found: Sequence[ShardFound], laws: Sequence[str]
) -> list[Violation]:
    """The violations of one history, at most so many of a law, from what its shards say."""
    shards = sorted(found, key=lambda each: each.shard.index)
    told: dict[str, list[Violation]] = {law: [] for law in laws}
    for each in shards:
        for law, violations in each.violations.items():
            if law in told and law != "total_order":
                told[law] += violations
    for law, check in OF_VIEWS.items():
        if law in told:
            told[law] += check(plan.history)
    if "progress" in told:
        told["progress"] += _progress(plan)
    if "fifo" in told:
        told["fifo"] += _holes(plan, shards)
    if "total_order" in told or "prefix" in told:
        crossed, sequences, spans = _together(shards)
        if "total_order" in told:
            told["total_order"] += crossed
            told["total_order"] += _fallen(plan, shards)
        if "prefix" in told:
            told["prefix"] += _prefix(plan, sequences, spans)
    return [violation for law in laws for violation in nsmallest(VIOLATIONS_MAX, set(told[law]))]


def _progress(plan: HistoryPlan) -> list[Violation]:
    """What the law of progress says that is not about a message."""
    history = plan.history
    rows = (*history.rows, *plan.probes)
    whole = History(history.run, history.protocol, history.group, rows, history.torn)
    return [violation for violation in progress(whole) if not violation.message]


def _holes(plan: HistoryPlan, shards: Sequence[ShardFound]) -> list[Violation]:
    """Answers to what shards asked about those before them."""
    asked = sorted({each for shard in shards for each in shard.asked})
    found: list[Violation] = []
    known: dict[int, Known] = {}
    for question in asked:
        source = question.source
        hole = 0
        for at, each in enumerate(shards):
            # Shards whose numbers of this source are all too small or too large.
            if each.shard.high[source] <= question.before:
                continue
            if each.shard.low[source] >= question.number or hole:
                break
            if at not in known:
                known[at] = Known(Case(each.shard))
            one = np.array([source]), np.array([question.before])
            above = int(known[at].above(*one)[0])
            hole = above if above < question.number else 0
        if hole:
            key = plan.codes.key(source)
            message, run = f"{key}:{question.number}", plan.history.run
            found.append(Violation("fifo", run, question.life, message, key, f"without {hole}"))
    return found


def _together(
    shards: Sequence[ShardFound],
) -> tuple[list[Violation], list[Sequences], list[tuple[Shard, Shard]]]:
    """The violations of the total order, and the sequences of shards of which none reaches into
    another: where they did, they are judged again as one. Each comes with the first and the last
    shard that are in it."""
    plain = [each.sequences for each in shards if each.sequences is not None]
    again = {which.start: which for which in reaching(plain)}
    violations: list[Violation] = []
    sequences: list[Sequences] = []
    spans: list[tuple[Shard, Shard]] = []
    at = 0
    while at < len(shards):
        which = again.get(at, range(at, at + 1))
        if len(which) > 1:
            case = Case(merged([shards[each].shard for each in which]), ordered=True)
            found, sequence = ordered(case)
        else:
            found, sequence = shards[at].violations["total_order"], plain[at]
        violations += found
        sequences.append(sequence)
        spans.append((shards[which.start].shard, shards[which.stop - 1].shard))
        at = which.stop
    return violations, sequences, spans


def _fallen(plan: HistoryPlan, shards: Sequence[ShardFound]) -> list[Violation]:
    """Places that are not above the place before."""
    run = plan.history.run
    found: set[Violation] = set()
    for at, life in enumerate(plan.lives):
        fallen = life.fallen
        if not fallen:
            continue
        again = [
            each.sequences.again[at]
            for each in shards
            if each.sequences is not None and at in each.sequences.again
        ]
        if again:
            # A message's second delivery has no place in the order: look once more, without it.
            fallen = _fallen_again(at, shards, np.unique(np.concatenate(again)))
        for row in fallen:
            message = f"{plan.codes.key(row.source)}:{row.number}"
            detail = f"place {row.seq} after {row.last}"
            found.add(Violation("total_order", run, life.key, message, "", detail))
    return nsmallest(VIOLATIONS_MAX, found)


def _fallen_again(at: int, shards: Sequence[ShardFound], again: Array) -> list[Fallen]:
    pieces: dict[tuple[int, int, int], Piece] = {}
    for each in shards:
        for stretch in each.shard.stretches[at]:
            for piece in stretch.pieces:
                pieces[piece.file, piece.group, piece.start] = piece
    last: int | None = None
    fallen: list[Fallen] = []
    for said in said_of(shards[0].shard, [pieces[place] for place in sorted(pieces)]):
        rows = np.flatnonzero(~said.send & (said.level >= AGREED))
        rows = rows[~np.isin(said.pos[rows], again)]
        last, some = places_fallen(said, rows, last)
        fallen += some
    return fallen


def _prefix(
    plan: HistoryPlan, sequences: Sequence[Sequences], spans: Sequence[tuple[Shard, Shard]]
) -> list[Violation]:
    """Of two lives' sequences one begins the other."""
    history, found = plan.history, []
    begun = [at for at, life in enumerate(plan.lives) if life.first_ordered is not None]
    homes: dict[int, int] = {}
    for at in begun:
        source, number = plan.lives[at].first_ordered or (0, 0)
        homes[at] = next(
            place
            for place, (first, last) in enumerate(spans)
            if first.low[source] < number <= last.high[source]
        )
    for index, p in enumerate(begun):
        for q in begun[index + 1 :]:
            one, two = plan.lives[p], plan.lives[q]
            beside = first_differing(p, q, (homes[p], homes[q]), sequences)
            left, right = beside.left, beside.right
            if not beside.word and _same_start(history.lives[one.key], history.lives[two.key]):
                left, right = (
                    f"{plan.codes.key(first[0])}:{first[1]}"
                    for first in (one.first_ordered, two.first_ordered)
                    if first is not None
                )
            elif beside.word != APART:
                continue
            found.append(Violation("prefix", history.run, one.key, left, two.key, f"{right} there"))
    return found


# -- a run ---------------------------------------------------------------------------------------


def verdicts(plans: Sequence[HistoryPlan], claimed: Any, broken: set[str]) -> dict[str, str]:
    """Of every law what it says of a run: a run of several groups keeps a law when each that
    claims it does."""
    claims = {law for plan in plans for law in claimed.get(plan.history.protocol, ())}
    return {
        law: "broken" if law in broken else "kept" if law in claims else "not claimed"
        for law in LAWS
    }
