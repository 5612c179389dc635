"""The second step of laws that need one: what the shards of a history show, combined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np

from unisono.laws import LAWS, VIOLATIONS_MAX, Violation
from unisono.laws.cuts import unjust_cuts
from unisono.laws.holding import false_receipts
from unisono.laws.local import AFTER_END
from unisono.laws.order import _same_start, cycle
from unisono.laws.places import Highest, gone_back
from unisono.laws.succession import Succession, lineages
from unisono.laws.verdict import violations
from unisono.spark.laws import seqs
from unisono.spark.laws.columns import (
    AGREED,
    FLOORS,
    NUMBER_MIN,
    RELIABLE,
    Array,
    SeqRegression,
    seq_regressions,
)
from unisono.spark.laws.order import GapQuery, KnownNumbers
from unisono.spark.laws.plan import HistoryPlan, Shard, merged
from unisono.spark.laws.scan import Chunk, DeliveredBefore
from unisono.spark.laws.seqs import HighestDelivery, Jumps
from unisono.spark.laws.sequences import (
    DIFFERENT,
    INCOMPARABLE,
    ShardSequences,
    compare_sequences,
    overlapping_shards,
    total_order,
)
from unisono.spark.laws.shard import ShardData, events_of
from unisono.trace.history import life_of, number_of
from unisono.trace.record import Row


class ShardResult(NamedTuple):
    shard: Shard
    result: Any
    """Of the first step."""


class OrderedShards(NamedTuple):
    """Shards of which none overlaps another: those that did are judged again as one."""

    violations: list[Violation]
    """Of total order."""
    sequences: list[ShardSequences]
    bounds: list[tuple[Shard, Shard]]
    """The first and the last shard in each."""


class ShardResults(list[ShardResult]):
    """The shards of a history in order, with the results of one first step."""

    @cached_property
    def ordered(self) -> OrderedShards:
        """Of `sequences.total_order`."""
        again = {which.start: which for which in overlapping_shards([r[1] for _, r in self])}
        found = OrderedShards([], [], [])
        at = 0
        while at < len(self):
            which = again.get(at, range(at, at + 1))
            proven, sequences = self[at].result
            if len(which) > 1:
                proven, sequences = total_order(self._merged(which))
            found.violations.extend(proven)
            found.sequences.append(sequences)
            found.bounds.append((self[which.start].shard, self[which.stop - 1].shard))
            at = which.stop
        return found

    @cached_property
    def conflicts(self) -> tuple[list[Violation], list[Violation]]:
        """Of `seqs.sequence_numbers`: violations of `uniform_order` and of `one_place`. Two shards
        with a sequence number in common are judged again as one."""
        uniform: list[Violation] = []
        safe: list[Violation] = []
        at = 0
        while at < len(self):
            last = next(
                (
                    other
                    for other in range(len(self) - 1, at, -1)
                    if any(self._share_seqs(each, other) for each in range(at, other))
                ),
                at,
            )
            found = self[at].result.uniform, self[at].result.safe
            if last > at:
                found = seqs.conflicts(self._merged(range(at, last + 1)))
            uniform += found[0]
            safe += found[1]
            at = last + 1
        return uniform, safe

    def _share_seqs(self, one: int, two: int) -> bool:
        known, other = self[one].result.known, self[two].result.known
        return any(seqs.intersect(known[name], other[name]) for name in known)

    def _merged(self, which: range) -> ShardData:
        return ShardData(merged([self[at].shard for at in which]), ordered_only=True)


def concatenated(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    return [violation for _, result in results for violation in result]


def stable(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    return LAWS["stable"].check(plan.with_rows(*(row for _, rows in results for row in rows)))


def local_order(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    """Violations without a message depend on the last send and delivery, and on the largest
    sequence number before each view: rows are made up for them."""
    last: list[Row] = []
    highest: list[Row] = []
    for member in plan.members:
        row = Row(*member.history, *member.name, 0, 0, "deliver", sender="", sender_incarnation=0)
        row = row._replace(number=0, service="reliable")
        for kind, step in (("send", member.sent_pos), ("deliver", member.delivered_pos)):
            if step >= 0:
                last.append(row._replace(step=step, kind=kind))
        # At the step of the view, and listed before it.
        highest += [
            row._replace(step=at.step, seq=at.seq) for at in member.at_views if at.seq != NUMBER_MIN
        ]
    found = concatenated(plan, results)
    for rows, of_ends in ((last, True), (highest, False)):
        found += [
            each
            for each in LAWS["local_order"].check(plan.with_rows(*rows))
            if not each.message and each.detail.endswith(AFTER_END) == of_ends
        ]
    return found


def cut(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    delivered = {member.key: _delivered(plan, member.at_views) for member in plan.members}
    last = {life_of(row): number_of(row) for row in plan.last_sends}

    def floor(sender: str, upto: int) -> int:
        return plan.floors[RELIABLE, sender, upto]

    found = unjust_cuts(plan.history, delivered, last, floor)
    return violations("cut", plan.history.run, found)


def receipts(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    delivered = {
        member.key: _delivered(plan, sorted((*member.at_views, *member.at_ends)))
        for member in plan.members
    }
    last = {life_of(row): number_of(row) for row in plan.last_sends}
    found = false_receipts(plan.history, delivered, last)
    return violations("receipts", plan.history.run, found)


def _delivered(plan: HistoryPlan, states: Sequence[DeliveredBefore]) -> list[dict[str, int]]:
    """By sender, the largest number delivered before each."""
    return [{plan.codes.key(code): n for code, n in each.numbers.items()} for each in states]


def progress(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    """Violations without a message follow from the plan."""
    found = LAWS["progress"].check(plan.with_rows(*plan.probes))
    return concatenated(plan, results) + [each for each in found if not each.message]


def fifo(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    return _disorder(plan, results, "fifo", FLOORS[:1])


def fifo_by_level(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    return _disorder(plan, results, "fifo_by_level", FLOORS)


def _disorder(plan: HistoryPlan, results: ShardResults, law: str, floors: range) -> list[Violation]:
    """With answers to the queries about earlier shards."""
    found: list[Violation] = [each for _, (proven, _) in results for each in proven]
    known: dict[int, KnownNumbers] = {}

    def first_gap(query: GapQuery) -> int:
        source = query.source
        for at, (shard, _) in enumerate(results):
            if shard.low[source] >= query.number:
                break
            if shard.high[source] > min(query.before):
                if at not in known:
                    known[at] = KnownNumbers(ShardData(shard), floors)
                before = np.array(query.before)[:, None]
                above = int(known[at].above(np.array([source]), before)[0])
                if above < query.number:
                    return above
        return 0

    for query in sorted({each for _, (_, queries) in results for each in queries}):
        if gap := first_gap(query):
            sender, run = plan.codes.key(query.source), plan.history.run
            message = f"{sender}:{query.number}"
            found.append(Violation(law, run, query.key, message, sender, f"without {gap}"))
    return found


# -- total order ---------------------------------------------------------------------------------


def total_order_combined(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    found = results.ordered.violations + _regressions(plan, results)
    sequences = results.ordered.sequences
    if not any(each.inverted for each in sequences):
        with_cycles = [each.cycles for each in sequences if each.cycles]
        lines = {
            member.key: [message for cycles in with_cycles for message in cycles[at]]
            for at, member in enumerate(plan.members)
        }
        found += violations("total_order", plan.history.run, cycle(lines))
    return found


def _regressions(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    """Sequence numbers that are not above the one before."""
    found: set[Violation] = set()
    for at, member in enumerate(plan.members):
        regressions = member.regressions
        repeated = [r[1].repeated[at] for _, r in results if at in r[1].repeated]
        if regressions and repeated:
            # Only a message's first delivery counts: look again without the others.
            regressions = _regressions_without(at, results, np.unique(np.concatenate(repeated)))
        found.update(
            Violation(
                *("total_order", plan.history.run, member.key),
                *(plan.codes.message(each.source, each.number), ""),
                f"place {each.seq} after {each.last}",
            )
            for each in regressions
        )
    return nsmallest(VIOLATIONS_MAX, found)


def _regressions_without(at: int, results: ShardResults, repeated: Array) -> list[SeqRegression]:
    chunks: dict[tuple[int, int, int], Chunk] = {
        chunk.location: chunk
        for shard, _ in results
        for segment in shard.segments[at]
        for chunk in segment.chunks
    }
    last: int | None = None
    found: list[SeqRegression] = []
    for events in events_of(results[0].shard.plan, [chunks[key] for key in sorted(chunks)]):
        rows = np.flatnonzero(~events.send & (events.level >= AGREED))
        last, some = seq_regressions(events, rows[~np.isin(events.pos[rows], repeated)], last)
        found += some
    return found


def prefix(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    _, sequences, bounds = results.ordered
    history, found = plan.history, []
    firsts = {
        at: member.first_ordered
        for at, member in enumerate(plan.members)
        if member.first_ordered is not None
    }
    home = {
        at: next(
            index
            for index, (first, last) in enumerate(bounds)
            if first.low[source] < number <= last.high[source]
        )
        for at, (source, number) in firsts.items()
    }
    for p in firsts:
        for q in firsts:
            if p >= q:
                continue
            one, two = plan.members[p].key, plan.members[q].key
            compared = compare_sequences(p, q, (home[p], home[q]), sequences)
            left, right = compared.left, compared.right
            if compared.outcome == INCOMPARABLE:
                if not _same_start(history.lives[one], history.lives[two]):
                    continue
                left, right = plan.codes.message(*firsts[p]), plan.codes.message(*firsts[q])
            elif compared.outcome != DIFFERENT:
                continue
            found.append(Violation("prefix", history.run, one, left, two, f"{right} there"))
    return found


# -- sequence numbers ----------------------------------------------------------------------------


def uniform_order(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    highest = [result.highest for _, result in results]
    return results.conflicts[0] + _gone_back("uniform_order", plan, highest)


def one_place(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    highest = [result.highest_safe for _, result in results]
    return results.conflicts[1] + _gone_back("one_place", plan, highest)


def _gone_back(
    law: str, plan: HistoryPlan, highest: Sequence[Sequence[dict[str, HighestDelivery]]]
) -> list[Violation]:
    views = Succession(plan.history)
    found: dict[str, Highest] = {}
    for at, member in enumerate(plan.members):
        mine: dict[str, HighestDelivery] = {}
        for of_shard in highest:
            for view, top in of_shard[at].items():
                mine[view] = max(top, mine.get(view, top), key=lambda top: (top.seq, -top.pos))
        for view, top in mine.items():
            if views.own.get(view) == views.lineage[member.key]:
                if view not in found or top.seq > found[view].place:
                    message = plan.codes.message(top.source, top.number)
                    found[view] = Highest(top.seq, message, member.key)
    return violations(law, plan.history.run, gone_back(views, found))


def every_place(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    lineage = lineages(plan.history)
    held: dict[str, list[Array]] = {}
    for at, member in enumerate(plan.members):
        views = plan.history.lives[member.key].views
        of_views = np.array(sorted(row.seq for row in views if row.seq is not None), np.int64)
        mine = held.setdefault(lineage[member.key], [])
        mine += [seqs.ranges_of(of_views), *(result.own[at] for _, result in results)]
    free = {name: seqs.gaps(seqs.union(ranges)) for name, ranges in held.items()}
    found = {
        Violation(
            *("every_place", plan.history.run, member.key, message, ""),
            f"place {gap}, which nobody has",
        )
        for at, member in enumerate(plan.members)
        for message, gap in _skipped(plan, results, at, free[lineage[member.key]])
    }
    return nsmallest(VIOLATIONS_MAX, found)


def _skipped(
    plan: HistoryPlan, results: ShardResults, at: int, ranges: Array
) -> Iterator[tuple[str, int]]:
    """The messages (none for a view) of a member that skip a number of the ranges, with the first
    one."""
    if not len(ranges):
        return
    every: list[Jumps] = [result.jumps[at] for _, result in results]
    for jumps in (*every, seqs.view_jumps(plan, plan.members[at])):
        first = seqs.skipped_in(ranges, jumps)
        for row in np.flatnonzero(first != NUMBER_MIN).tolist():
            source = jumps.source[row]
            message = plan.codes.message(source, jumps.number[row]) if source >= 0 else ""
            yield message, int(first[row])


def gap_free(plan: HistoryPlan, results: ShardResults) -> list[Violation]:
    lineage = lineages(plan.history)
    known = {
        name: seqs.union([result.known[name] for _, result in results])
        for name in {lineage[member.key] for member in plan.members}
    }
    skipped: set[tuple[str, str, int]] = set()
    for at, member in enumerate(plan.members):
        own = seqs.union([result.own[at] for _, result in results])
        lacking = seqs.difference(known[lineage[member.key]], own)
        skipped.update((member.key, *each) for each in _skipped(plan, results, at, lacking))
    data: dict[int, ShardData] = {}
    found = []
    # Reported are the first by member and message: witnesses are looked up for these alone.
    for key, message, gap in nsmallest(VIOLATIONS_MAX, skipped):
        holders = []
        for at, (shard, result) in enumerate(results):
            if seqs.intersect(result.known[lineage[key]], np.array([[gap, gap]])):
                if at not in data:
                    data[at] = ShardData(shard)
                holders.append(seqs.holder_of(data[at], lineage[key], gap))
        _, other = min(each for each in holders if each is not None)
        detail = f"without place {gap}"
        found.append(Violation("gap_free", plan.history.run, key, message, other, detail))
    return found
