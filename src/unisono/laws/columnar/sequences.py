"""Total order and prefixes on columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import combinations
from typing import NamedTuple

import numpy as np

from unisono.laws import VIOLATIONS_MAX, Violation
from unisono.laws.columnar.cycles import on_cycles
from unisono.laws.columnar.history import HistoryColumns, MemberEvents
from unisono.laws.columnar.suspects import first_violations
from unisono.laws.order import _same_start, cycle
from unisono.laws.verdict import violations
from unisono.trace.columns import AGREED, Array


class _Sequence(NamedTuple):
    member: MemberEvents
    rows: Array
    """Ordered deliveries, each message at its first."""
    slots: Array
    first: Array
    """By slot the position of its delivery, -1 for none."""


def _sequences(data: HistoryColumns) -> list[_Sequence]:
    found = []
    for at, member in enumerate(data.members):
        rows = member.at_level(AGREED)
        first = data.first_at_level(at, AGREED)
        new = member.events.pos[rows] == first[member.slot[rows]]
        rows = rows if new.all() else rows[new]
        found.append(_Sequence(member, rows, member.slot[rows], first))
    return found


def total_order(data: HistoryColumns) -> list[Violation]:
    sequences = _sequences(data)
    found = [*_different_seqs(data, sequences), *_regressions(data, sequences)]
    classes = _classes(sequences)
    inversions: dict[tuple[int, int], Array] = {}
    for (left, p), (right, q) in combinations(enumerate(sequences), 2):
        pair = classes[left], classes[right]
        if pair[0] == pair[1]:
            continue
        if pair not in inversions:
            inversions[pair] = _inversions(p, q)
        found += first_violations(
            Violation(
                *("total_order", data.run, p.member.key, data.name(second), q.member.key),
                f"after {data.name(first)} here, before it there",
            )
            for first, second in inversions[pair].tolist()
        )
    if not any(map(len, inversions.values())):
        found += _cycles(data, sequences, classes)
    return nsmallest(VIOLATIONS_MAX, found)


def _cycles(
    data: HistoryColumns, sequences: Sequence[_Sequence], classes: Sequence[int]
) -> list[Violation]:
    on_cycle = np.zeros(data.count, np.bool_)
    distinct = [sequences[at].slots for at in sorted(set(classes))]
    on_cycle[on_cycles(distinct, data.count)] = True
    lines = {
        each.member.key: list(map(data.name, each.slots[on_cycle[each.slots]].tolist()))
        for each in sequences
    }
    return violations("total_order", data.run, cycle(lines))


def _classes(sequences: Sequence[_Sequence]) -> list[int]:
    """By member the first member with the same sequence."""
    classes: list[int] = []
    for at, each in enumerate(sequences):
        same = (
            other
            for other in sorted(set(classes))
            if np.array_equal(sequences[other].slots, each.slots)
        )
        classes.append(next(same, at))
    return classes


def _inversions(p: _Sequence, q: _Sequence) -> Array:
    """Neighbours in p's order of the messages both have that are in the other order at q."""
    there = q.first[p.slots]
    shared = p.slots[there >= 0]
    there = there[there >= 0]
    at = np.flatnonzero(there[:-1] > there[1:])
    return np.column_stack([shared[at], shared[at + 1]])


def _different_seqs(data: HistoryColumns, sequences: Sequence[_Sequence]) -> list[Violation]:
    """Messages with another sequence number than at the first member that has one for it."""
    owner = np.full(data.count, -1, np.int32)
    reference = np.zeros(data.count, np.int64)
    found: list[Violation] = []
    for at, each in enumerate(sequences):
        slots, seq = _with_seqs(each)
        new = owner[slots] < 0
        owner[slots[new]], reference[slots[new]] = at, seq[new]
        differ = reference[slots] != seq
        found += first_violations(
            Violation(
                *("total_order", data.run, each.member.key, data.name(slot)),
                data.members[owner[slot]].key,
                f"place {number} here, {reference[slot]} there",
            )
            for slot, number in zip(slots[differ].tolist(), seq[differ].tolist(), strict=True)
        )
    return found


def _with_seqs(each: _Sequence) -> tuple[Array, Array]:
    """The messages with a sequence number, and these."""
    has_seq = each.member.events.has_seq[each.rows]
    return each.slots[has_seq], each.member.events.seq[each.rows[has_seq]]


def _regressions(data: HistoryColumns, sequences: Sequence[_Sequence]) -> Iterator[Violation]:
    """Sequence numbers that are not above the one before."""
    for each in sequences:
        slots, seq = _with_seqs(each)
        yield from first_violations(
            Violation(
                *("total_order", data.run, each.member.key, data.name(slots[at + 1]), ""),
                f"place {seq[at + 1]} after {seq[at]}",
            )
            for at in np.flatnonzero(np.diff(seq) <= 0).tolist()
        )


def prefix(data: HistoryColumns) -> Iterator[Violation]:
    for p, q in combinations((each for each in _sequences(data) if len(each.slots)), 2):
        left, right = p.slots, q.slots
        if not _same_start(p.member.trace, q.member.trace):
            if q.first[left[0]] >= 0:
                right = right[_index(q, left[0]) :]
            elif p.first[right[0]] >= 0:
                left = left[_index(p, right[0]) :]
            else:
                continue
        count = min(len(left), len(right))
        for at in np.flatnonzero(left[:count] != right[:count])[:1].tolist():
            yield Violation(
                *("prefix", data.run, p.member.key, data.name(left[at]), q.member.key),
                f"{data.name(right[at])} there",
            )


def view_prefix(data: HistoryColumns) -> Iterator[Violation]:
    by_view: dict[str, list[tuple[str, Array]]] = {}
    for each in _sequences(data):
        for view, slots in _by_view(each):
            by_view.setdefault(view, []).append((each.member.key, slots))
    for view, sequences in by_view.items():
        other, right = max(sequences, key=lambda each: len(each[1]))
        for key, left in sequences:
            for at in np.flatnonzero(left != right[: len(left)])[:1].tolist():
                yield Violation(
                    *("view_prefix", data.run, key, data.name(left[at]), other),
                    f"{data.name(right[at])} there, in view {view}",
                )


def _by_view(sequence: _Sequence) -> Iterator[tuple[str, Array]]:
    """The slots of each regular view, at its first installation."""
    views, _ = sequence.member.view_epochs
    epochs = sequence.member.epochs(views, sequence.rows)
    seen: set[str] = set()
    for epoch, row in enumerate(views):
        if row.kind == "view" and row.view not in seen:
            seen.add(row.view)
            first, last = np.searchsorted(epochs, (epoch, epoch + 1))
            yield row.view, sequence.slots[first:last]


def _index(sequence: _Sequence, slot: int) -> int:
    pos = sequence.member.events.pos[sequence.rows]
    return int(np.searchsorted(pos, sequence.first[slot]))
