"""What the shards of a history say, put together: the second step of the laws that need one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from unisono.spark.laws import places
from unisono.spark.laws.case import AGREED, Case, said_of
from unisono.spark.laws.columns import NUMBER_MIN, Array
from unisono.spark.laws.order import KnownNumbers
from unisono.spark.laws.places import PlaceSummary
from unisono.spark.laws.plan import HistoryPlan, Shard, merged
from unisono.spark.laws.sequence import (
    APART,
    Sequences,
    first_differing,
    ordered,
    reaching,
)
from unisono.spark.laws.survey import RELIABLE, AtView, Fallen, Piece, places_fallen
from unisono.spark.laws.telling import with_rows
from unisono.trace.history import History, life_of, number_of
from unisono.trace.record import Row


class ShardPart(NamedTuple):
    """A shard, and what it says of a law."""

    shard: Shard
    said: Any


class ShardParts(list[ShardPart]):
    """The shards of a history in order, with what they say of a law."""

    @cached_property
    def in_order(self) -> InOrder:
        """Of what `sequence.ordered` says."""
        return _in_order(self)

    @cached_property
    def apart(self) -> tuple[list[Violation], list[Violation]]:
        """Of what `places.placed` says: violations of `uniform_order` and of `one_place`."""
        return _apart(self)


def together(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    """The violations of all shards."""
    return [violation for part in parts for violation in part.said]


def gathered(law: str) -> Callable[[HistoryPlan, ShardParts], list[Violation]]:
    """The plain function, on what is told in few rows and those that the shards give."""

    def fold(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
        return LAWS[law].check(with_rows(plan, (row for part in parts for row in part.said)))

    return fold


def local_order(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    """What is not about a message needs to know when a life last spoke, and of each view the
    largest place before it: rows are made up that say so, for the one and for the other."""
    spoke: list[Row] = []
    placed: list[Row] = []
    for life in plan.lives:
        said = Row(*plan.named, *life.name, 0, 0, "deliver", sender="", sender_incarnation=0)
        said = said._replace(number=0, service="reliable")
        for kind, step in (("send", life.sent_pos), ("deliver", life.heard_pos)):
            if step >= 0:
                spoke.append(said._replace(step=step, kind=kind))
        # At the view's own step, and listed before it.
        for at in life.at_views:
            if at.place != NUMBER_MIN:
                placed.append(said._replace(step=at.step, seq=at.place))
    history = plan.history
    found = together(plan, parts)
    for alone, of_ends in ((spoke, True), (placed, False)):
        rows = (*alone, *history.rows)
        whole = History(history.run, history.protocol, history.group, rows, history.torn)
        found += [
            each
            for each in LAWS["local_order"].check(whole)
            if not each.message and each.detail.endswith(AFTER_END) == of_ends
        ]
    return found


def cut(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    """The plain function, with what the plan knows of who had delivered what before a view."""
    history = plan.history
    last = {life_of(row): number_of(row) for row in plan.last_sends}
    had = {life.key: _heard(plan, life.at_views) for life in plan.lives}
    found = unjust_cuts(history, had, last, lambda s, upto: plan.floors[RELIABLE, s, upto])
    return violations("cut", history.run, found)


def receipts(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    """As with cuts."""
    last = {life_of(row): number_of(row) for row in plan.last_sends}
    had = {
        life.key: _heard(plan, sorted((*life.at_views, *life.at_ends), key=lambda at: at.step))
        for life in plan.lives
    }
    found = false_receipts(plan.history, had, last)
    return violations("receipts", plan.history.run, found)


def _heard(plan: HistoryPlan, at: Sequence[AtView]) -> list[dict[str, int]]:
    """By sender, the largest number delivered before each of these."""
    return [{plan.codes.key(code): n for code, n in each.heard.items()} for each in at]


def progress(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    """What the law of progress says that is not about a message stands in the plan."""
    history = plan.history
    rows = (*history.rows, *plan.probes)
    whole = History(history.run, history.protocol, history.group, rows, history.torn)
    alone = [each for each in LAWS["progress"].check(whole) if not each.message]
    return together(plan, parts) + alone


def fifo(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    """With answers to what shards asked about those before them."""
    asked = sorted({each for part in parts for each in part.said[1]})
    found: list[Violation] = [violation for part in parts for violation in part.said[0]]
    known: dict[int, KnownNumbers] = {}
    for question in asked:
        source = question.source
        hole = 0
        for at, (shard, _) in enumerate(parts):
            # Shards whose numbers of this source are all too small or too large.
            if shard.high[source] <= question.before:
                continue
            if shard.low[source] >= question.number or hole:
                break
            if at not in known:
                known[at] = KnownNumbers(Case(shard))
            one = np.array([source]), np.array([question.before])
            above = int(known[at].above(*one)[0])
            hole = above if above < question.number else 0
        if hole:
            key = plan.codes.key(source)
            message, run = f"{key}:{question.number}", plan.history.run
            found.append(Violation("fifo", run, question.life, message, key, f"without {hole}"))
    return found


# -- one order -----------------------------------------------------------------------------------


class InOrder(NamedTuple):
    """Shards of which none reaches into another: where they did, they are judged again as one."""

    violations: list[Violation]
    """Of the total order."""
    sequences: list[Sequences]
    spans: list[tuple[Shard, Shard]]
    """The first and the last shard that are in each."""


def _in_order(parts: ShardParts) -> InOrder:
    again = {which.start: which for which in reaching([part.said[1] for part in parts])}
    found = InOrder([], [], [])
    at = 0
    while at < len(parts):
        which = again.get(at, range(at, at + 1))
        violations, sequences = parts[at].said
        if len(which) > 1:
            case = Case(merged([parts[each].shard for each in which]), ordered=True)
            violations, sequences = ordered(case)
        found.violations.extend(violations)
        found.sequences.append(sequences)
        found.spans.append((parts[which.start].shard, parts[which.stop - 1].shard))
        at = which.stop
    return found


def total_order(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    return parts.in_order.violations + _fallen(plan, parts) + _circle(plan, parts)


def _circle(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    """Told where no two lives disagree."""
    sequences = parts.in_order.sequences
    if any(each.crossed for each in sequences):
        return []
    lines: dict[str, list[str]] = {life.key: [] for life in plan.lives}
    for line, *each in zip(
        lines.values(), *(s.circles for s in sequences if s.circles), strict=True
    ):
        line += [message for messages in each for message in messages]
    return violations("total_order", plan.history.run, cycle(lines))


def _fallen(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    """Places that are not above the place before."""
    run = plan.history.run
    found: set[Violation] = set()
    for at, life in enumerate(plan.lives):
        fallen = life.fallen
        if not fallen:
            continue
        again = [said[1].again[at] for _, said in parts if at in said[1].again]
        if again:
            # A message's second delivery has no place in the order: look once more, without it.
            fallen = _fallen_again(at, parts, np.unique(np.concatenate(again)))
        for row in fallen:
            message = f"{plan.codes.key(row.source)}:{row.number}"
            detail = f"place {row.seq} after {row.last}"
            found.add(Violation("total_order", run, life.key, message, "", detail))
    return nsmallest(VIOLATIONS_MAX, found)


def _fallen_again(at: int, parts: ShardParts, again: Array) -> list[Fallen]:
    pieces: dict[tuple[int, int, int], Piece] = {}
    for shard, _ in parts:
        for stretch in shard.stretches[at]:
            for piece in stretch.pieces:
                pieces[piece.file, piece.group, piece.start] = piece
    last: int | None = None
    fallen: list[Fallen] = []
    for said in said_of(parts[0].shard.plan, [pieces[place] for place in sorted(pieces)]):
        rows = np.flatnonzero(~said.send & (said.level >= AGREED))
        rows = rows[~np.isin(said.pos[rows], again)]
        last, some = places_fallen(said, rows, last)
        fallen += some
    return fallen


def prefix(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    """Of two lives' sequences one begins the other."""
    _, sequences, spans = parts.in_order
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


# -- places --------------------------------------------------------------------------------------


def uniform_order(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    return parts.apart[0] + _gone_back("uniform_order", plan, parts, of_safe=False)


def one_place(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    return parts.apart[1] + _gone_back("one_place", plan, parts, of_safe=True)


def _gone_back(law: str, plan: HistoryPlan, parts: ShardParts, of_safe: bool) -> list[Violation]:
    views = Succession(plan.history)
    highest: dict[str, Highest] = {}
    for at, life in enumerate(plan.lives):
        tops: dict[str, places.Top] = {}
        for part in parts:
            said: PlaceSummary = part.said
            for view, top in (said.safe_tops if of_safe else said.tops)[at].items():
                tops[view] = max(top, tops.get(view, top), key=lambda top: (top.place, -top.pos))
        for view, top in tops.items():
            if views.own.get(view) == views.lineage[life.key]:
                if view not in highest or top.place > highest[view].place:
                    message = f"{plan.codes.key(top.source)}:{top.number}"
                    highest[view] = Highest(top.place, message, life.key)
    return violations(law, plan.history.run, gone_back(views, highest))


def every_place(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    lineage = lineages(plan.history)
    held: dict[str, list[Array]] = {}
    for at, life in enumerate(plan.lives):
        views = plan.history.lives[life.key].views
        placed = np.array(sorted(row.seq for row in views if row.seq is not None), np.int64)
        mine = held.setdefault(lineage[life.key], [])
        mine += [places.spans_of(placed), *(part.said.own[at] for part in parts)]
    known = {name: places.all_spans(spans) for name, spans in held.items()}
    found: list[Violation] = []
    for at, life in enumerate(plan.lives):
        nobodys = places.between(known[lineage[life.key]])
        jumped = [part.said.jumps[at] for part in parts]
        for jumps in (*jumped, places.view_jumps(plan, life)) if len(nobodys) else ():
            for message, hole in _passed_over(plan, nobodys, jumps):
                detail = f"place {hole}, which nobody has"
                found.append(
                    Violation("every_place", plan.history.run, life.key, message, "", detail)
                )
    return nsmallest(VIOLATIONS_MAX, set(found))


def _passed_over(plan: HistoryPlan, spans: Array, jumps: places.Jumps) -> list[tuple[str, int]]:
    """The messages (none for a view) that pass over a place of the spans, with the first."""
    first = places.first_in(spans, jumps)
    found = []
    for row in np.flatnonzero(first != NUMBER_MIN).tolist():
        source = int(jumps.source[row])
        message = f"{plan.codes.key(source)}:{int(jumps.number[row])}" if source >= 0 else ""
        found.append((message, int(first[row])))
    return found


def _apart(parts: ShardParts) -> tuple[list[Violation], list[Violation]]:
    """A place that two shards have holds two messages: they are judged again as one."""
    uniform: list[Violation] = []
    safe: list[Violation] = []
    at = 0
    while at < len(parts):
        last = at
        for other in range(len(parts) - 1, at, -1):
            if any(_share_places(parts[each].said, parts[other].said) for each in range(at, other)):
                last = other
                break
        if last == at:
            said = parts[at].said
            found = said.uniform, said.safe
        else:
            case = Case(merged([part.shard for part in parts[at : last + 1]]), ordered=True)
            found = places.apart(case)
        uniform += found[0]
        safe += found[1]
        at = last + 1
    return uniform, safe


def _share_places(one: PlaceSummary, two: PlaceSummary) -> bool:
    return any(places.meeting(one.known[name], two.known[name]) for name in one.known)


def gap_free(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
    lineage = lineages(plan.history)
    known = {
        name: places.all_spans([part.said.known[name] for part in parts])
        for name in set(lineage.values())
    }
    holes: list[tuple[str, str, int]] = []
    for at, life in enumerate(plan.lives):
        own = places.all_spans([part.said.own[at] for part in parts])
        lacking = places.without(known[lineage[life.key]], own)
        jumped = [part.said.jumps[at] for part in parts]
        for jumps in (*jumped, places.view_jumps(plan, life)) if len(lacking) else ():
            for message, hole in _passed_over(plan, lacking, jumps):
                holes.append((life.key, message, hole))
    read: dict[int, Case] = {}
    told = []
    # The few that are told are the first by life and message: only their witnesses are looked for.
    for key, message, hole in nsmallest(VIOLATIONS_MAX, set(holes)):
        name = lineage[key]
        held = []
        for at, (shard, said) in enumerate(parts):
            if places.meeting(said.known[name], np.array([[hole, hole]])):
                if at not in read:
                    read[at] = Case(shard)
                held.append(places.holder_of(read[at], name, hole))
        _, other = min(each for each in held if each is not None)
        detail = f"without place {hole}"
        told.append(Violation("gap_free", plan.history.run, key, message, other, detail))
    return told
