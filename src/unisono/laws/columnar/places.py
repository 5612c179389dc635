"""The laws of sequence numbers on columns."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from typing import NamedTuple

import numpy as np

from unisono.laws import VIOLATIONS_MAX, Violation
from unisono.laws.columnar.history import HistoryColumns, MemberEvents, running_max
from unisono.laws.columnar.suspects import first_violations
from unisono.laws.places import Highest, gone_back
from unisono.laws.succession import Spell, Spells, Succession
from unisono.laws.verdict import violations
from unisono.trace.columns import (
    AGREED,
    NUMBER_MAX,
    NUMBER_MIN,
    SAFE,
    Array,
    distinct,
    is_dense,
)
from unisono.trace.history import cut_of


def uniform_order(data: HistoryColumns) -> list[Violation]:
    return _conflicts(data, "uniform_order", AGREED) + _gone_back(data, "uniform_order", AGREED)


def one_place(data: HistoryColumns) -> list[Violation]:
    """Of those who do not go on, safe messages alone count."""
    return _conflicts(data, "one_place", SAFE) + _gone_back(data, "one_place", SAFE)


def _counting(
    data: HistoryColumns, member: MemberEvents, level: int, of_correct: int = AGREED
) -> Iterator[tuple[str, Array]]:
    """By lineage, the deliveries with a sequence number of this level or above; of a correct
    member, since it was last let go on, all ordered ones, or those of that level."""
    for spell, rows in _in_spells(data, member, member.seq_deliveries):
        correct = member.trace.correct and spell.is_last
        enough = member.events.level[rows] >= (of_correct if correct else level)
        yield spell.lineage, rows if enough.all() else rows[enough]


def _in_spells(
    data: HistoryColumns, member: MemberEvents, rows: Array
) -> Iterator[tuple[Spell, Array]]:
    """The rows, which are in order, at each time of a member's life."""
    spells = data.history.derived(Spells).of(member.key)
    starts = [spell.start for spell in spells[1:]]
    ends = np.searchsorted(member.events.pos[rows], starts).tolist()
    yield from zip(spells, np.split(rows, ends), strict=True)


def _ordered(member: MemberEvents) -> Array:
    rows = member.seq_deliveries
    enough = member.events.level[rows] >= AGREED
    return rows if enough.all() else rows[enough]


def _gone_back(data: HistoryColumns, law: str, level: int) -> list[Violation]:
    views = data.history.derived(Succession)
    highest = _highest(data, views, level, AGREED), _highest(data, views, level, level)
    return violations(law, data.run, gone_back(views, *highest))


def _highest(
    data: HistoryColumns, views: Succession, level: int, of_correct: int
) -> dict[str, Highest]:
    """By view, of the deliveries of this level or above; of a correct member, of the other."""
    found: dict[str, Highest] = {}
    for member in data.members:
        events = member.events
        shown, _ = member.view_epochs
        for lineage, rows in _counting(data, member, level, of_correct):
            epochs = member.epochs(shown, rows)
            # Deliveries in a transitional view do not count.
            for epoch in distinct(epochs[epochs >= 0]).tolist():
                view = shown[epoch]
                if view.kind == "view" and views.own.get(view.view) == lineage:
                    mine = rows[epochs == epoch]
                    at = int(mine[events.seq[mine].argmax()])
                    if view.view not in found or events.seq[at] > found[view.view].place:
                        message = data.name(member.slot[at])
                        found[view.view] = Highest(int(events.seq[at]), message, member.key)
    return found


# -- one message per sequence number -------------------------------------------------------------


def _conflicts(data: HistoryColumns, law: str, level: int) -> list[Violation]:
    by_lineage: dict[str, dict[int, Array]] = {}
    for at, member in enumerate(data.members):
        for lineage, rows in _counting(data, member, level):
            if len(rows):
                mine = by_lineage.setdefault(lineage, {})
                mine[at] = np.append(mine[at], rows) if at in mine else rows
    found: list[Violation] = []
    for name in sorted(by_lineage):
        found += _conflicts_within(data, law, by_lineage[name])
    return found


def _conflicts_within(data: HistoryColumns, law: str, rows: dict[int, Array]) -> list[Violation]:
    """Among members of one lineage."""
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
    if is_dense(low, high, len(numbers)):
        return numbers - low
    return np.unique(numbers, return_inverse=True)[1]


# -- gaps ----------------------------------------------------------------------------------------


class _Jumps(NamedTuple):
    """Deliveries and views whose sequence number is not the next after the largest before."""

    slot: Array
    """-1 for a view."""
    before: Array
    seq: Array
    step: Array


def _jumps(member: MemberEvents) -> _Jumps:
    events, rows = member.events, member.seq_deliveries
    before = running_max(events.seq[rows], NUMBER_MIN)
    views = [row for row in member.trace.views if row.seq is not None]
    seqs = np.array([row.seq for row in views], np.int64)
    steps = np.array([row.step for row in views], np.int64)
    at = np.searchsorted(steps, events.pos[rows])
    np.maximum(before, np.append(NUMBER_MIN, np.maximum.accumulate(seqs))[at], out=before)
    jumped = (before != NUMBER_MIN) & (events.seq[rows] - 1 > before)
    # A view has no message, and may not skip its own number either.
    earlier = np.maximum(running_max(seqs, NUMBER_MIN), member.seqs_before(views))
    uncut = np.array([not cut_of(row.detail) for row in views], np.bool_)
    ahead = np.flatnonzero(uncut & (earlier != NUMBER_MIN) & (seqs > earlier))
    return _Jumps(
        np.append(member.slot[rows[jumped]], np.full(len(ahead), -1)),
        np.append(before[jumped], earlier[ahead]),
        np.append(events.seq[rows[jumped]], seqs[ahead] + 1),
        np.append(events.pos[rows[jumped]], steps[ahead]),
    )


def _skipped(jumps: _Jumps, starts: Array, ends: Array) -> Iterator[tuple[int, int]]:
    """The messages (-1 for a view) that skip a number of these ranges, which are in order, with the
    first such number."""
    if not len(starts):
        return
    at = np.searchsorted(ends, jumps.before, side="right")
    some = np.flatnonzero(at < len(starts))
    first = np.maximum(starts[at[some]], jumps.before[some] + 1)
    skips = first < jumps.seq[some]
    yield from zip(jumps.slot[some[skips]].tolist(), first[skips].tolist(), strict=True)


def _jumps_by_lineage(data: HistoryColumns, member: MemberEvents) -> Iterator[tuple[str, _Jumps]]:
    jumps = _jumps(member)
    spells = data.history.derived(Spells).of(member.key)
    ends = [*(spell.start for spell in spells[1:]), NUMBER_MAX]
    for spell, end in zip(spells, ends, strict=True):
        mine = (jumps.step >= spell.start) & (jumps.step < end)
        yield spell.lineage, _Jumps(*(column[mine] for column in jumps))


def every_place(data: HistoryColumns) -> list[Violation]:
    spells = data.history.derived(Spells)
    held: dict[str, list[Array]] = {}
    for member in data.members:
        for spell, rows in _in_spells(data, member, member.seq_deliveries):
            held.setdefault(spell.lineage, []).append(member.events.seq[rows].astype(np.int64))
        for view in member.trace.views:
            if view.seq is not None:
                name = spells.at(member.key, view.step).lineage
                held.setdefault(name, []).append(np.array([view.seq], np.int64))
    free = {}
    for name, parts in held.items():
        numbers = distinct(*parts)
        gaps = np.flatnonzero(np.diff(numbers) > 1)
        free[name] = numbers[gaps] + 1, numbers[gaps + 1] - 1
    return first_violations(
        Violation(
            *("every_place", data.run, member.key, data.name(slot) if slot >= 0 else "", ""),
            f"place {gap}, which nobody has",
        )
        for member in data.members
        for name, jumps in _jumps_by_lineage(data, member)
        for slot, gap in _skipped(jumps, *free[name])
    )


def gap_free(data: HistoryColumns) -> list[Violation]:
    ordered: dict[str, list[tuple[MemberEvents, Array]]] = {}
    for member in data.members:
        for spell, rows in _in_spells(data, member, _ordered(member)):
            ordered.setdefault(spell.lineage, []).append((member, rows))
    known = {
        name: distinct(*(member.events.seq[rows] for member, rows in parts))
        for name, parts in ordered.items()
    }
    skipped: set[tuple[str, str, int, str]] = set()
    for member in data.members:
        own = np.append(distinct(member.events.seq[member.seq_deliveries]), NUMBER_MAX)
        for name, jumps in _jumps_by_lineage(data, member):
            lacking = known[name][own[np.searchsorted(own, known[name])] != known[name]]
            skipped.update(
                (member.key, data.name(slot) if slot >= 0 else "", gap, name)
                for slot, gap in _skipped(jumps, lacking, lacking)
            )
    # Reported are the first by member and message: witnesses are looked up for these alone.
    return [
        Violation(
            *("gap_free", data.run, key, message, _holder(data, ordered[name], gap)),
            f"without place {gap}",
        )
        for key, message, gap, name in nsmallest(VIOLATIONS_MAX, skipped)
    ]


def _holder(data: HistoryColumns, parts: list[tuple[MemberEvents, Array]], seq: int) -> str:
    """The first ordered message that one of these delivered at a sequence number."""
    for member, rows in parts:
        for at in rows[member.events.seq[rows] == seq][:1].tolist():
            return data.name(member.slot[at])
    raise AssertionError("a number that is known has a message")
