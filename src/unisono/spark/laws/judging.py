"""A shard is judged; what the shards of a run say is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np

from unisono.laws import LAWS, VIOLATIONS_MAX, Violation
from unisono.spark.laws.case import Case
from unisono.spark.laws.columns import Array
from unisono.spark.laws.folding import ShardPart, ShardParts
from unisono.spark.laws.plan import HistoryPlan, Shard
from unisono.spark.laws.roads import road_of


class Latencies(NamedTuple):
    """Rising values, and how often each was seen."""

    values: Array
    counts: Array


@dataclass
class ShardFound:
    shard: Shard
    said: dict[str, Any] = field(default_factory=dict)
    """By the function that looked, what it says."""
    latencies: list[Latencies] = field(default_factory=list)
    """By life."""


def judge_shard(shard: Shard, laws: Sequence[str]) -> ShardFound:
    """What the rows of a shard say of the laws that are claimed, and how long messages took."""
    case = Case(shard)
    found = ShardFound(shard)
    for look in (road_of(law).look for law in laws):
        if look is not None and look.__name__ not in found.said:
            found.said[look.__name__] = look(case)
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
    said = {
        look: ShardParts(ShardPart(each.shard, each.said[look]) for each in shards)
        for look in found[0].said
    }
    told: list[Violation] = []
    for law in laws:
        look, fold = road_of(law)
        parts = said[look.__name__] if look else ShardParts()
        told += nsmallest(VIOLATIONS_MAX, set(fold(plan, parts)))
    return told


# -- a run ---------------------------------------------------------------------------------------


def verdicts(plans: Sequence[HistoryPlan], claimed: Any, broken: set[str]) -> dict[str, str]:
    """Of every law what it says of a run: a run of several groups keeps a law when each that
    claims it does."""
    claims = {law for plan in plans for law in claimed.get(plan.history.protocol, ())}
    return {
        law: "broken" if law in broken else "kept" if law in claims else "not claimed"
        for law in LAWS
    }
