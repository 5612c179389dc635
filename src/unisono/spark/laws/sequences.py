"""Total order on columns: what a shard shows, and how shards are combined.

A shard has a part of each incarnation's sequence of ordered messages. While no part overlaps
another, the parts in order are the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, NamedTuple

import numpy as np

from unisono.laws import VIOLATIONS_MAX, Violation
from unisono.spark.laws.columns import AGREED, Array
from unisono.spark.laws.cycles import on_cycles
from unisono.spark.laws.shard import MemberEvents, ShardData
from unisono.spark.laws.suspects import first_violations

EQUAL, LEFT_SHORTER, RIGHT_SHORTER, DIFFERENT = (
    "equal",
    "left shorter",
    "right shorter",
    "different",
)
INCOMPARABLE: Final = ""


class Comparison(NamedTuple):
    """Two sequences element by element: the first messages that differ, or the first that only the
    longer one has."""

    outcome: str
    left: str = ""
    right: str = ""


class PairComparison(NamedTuple):
    """Two members' parts in a shard, compared from their beginnings; from the left member's very
    first message, if the shard has it and the right member delivered it; and the reverse."""

    whole: Comparison
    from_left: Comparison | None
    from_right: Comparison | None


SAME: Final = PairComparison(Comparison(EQUAL), Comparison(EQUAL), Comparison(EQUAL))
"""For a pair that is not listed."""


class SequencePart(NamedTuple):
    """One member's part of its sequence."""

    low: int
    """The position of the first message, -1 for an empty part."""
    high: int
    first: str


@dataclass
class ShardSequences:
    parts: list[SequencePart]
    """By member."""
    pairs: dict[tuple[int, int], PairComparison] = field(default_factory=dict)
    """By members, for those whose parts differ."""
    repeated: dict[int, Array] = field(default_factory=dict)
    """By member, the positions of ordered deliveries that are not a message's first."""
    inverted: bool = False
    """Whether two members deliver two messages in different orders."""
    cycles: list[list[str]] = field(default_factory=list)
    """By member the messages on a cycle that it delivered, if there is one and nothing is inverted.
    A cycle is within one part, because parts are in order."""


class _Sequence(NamedTuple):
    member: MemberEvents
    rows: Array
    """Ordered deliveries, each message at its first."""
    slots: Array
    first: Array
    """By slot the position of its delivery, -1 for none."""


def total_order(data: ShardData) -> tuple[list[Violation], ShardSequences]:
    """The violations of total order that the shard proves, and its sequences."""
    sequences, repeated = [], {}
    for at, member in enumerate(data.members):
        rows = member.at_level(AGREED)
        first = data.first_at_level(at, AGREED)
        new = member.events.pos[rows] == first[member.slot[rows]]
        if not new.all():
            repeated[at] = member.events.pos[rows[~new]]
            rows = rows[new]
        sequences.append(_Sequence(member, rows, member.slot[rows], first))
    found = ShardSequences([_part(data, each) for each in sequences], repeated=repeated)
    violations = _different_seqs(data, sequences)
    classes = _classes(sequences)
    inversions: dict[tuple[int, int], Array] = {}
    for left, p in enumerate(sequences):
        for right, q in enumerate(sequences[left + 1 :], left + 1):
            pair = classes[left], classes[right]
            if pair[0] == pair[1]:
                continue
            if pair not in inversions:
                inversions[pair] = _inversions(p, q)
            found.inverted |= bool(len(inversions[pair]))
            violations += first_violations(
                Violation(
                    *("total_order", data.run, p.member.key, data.name(second), q.member.key),
                    f"after {data.name(first)} here, before it there",
                )
                for first, second in inversions[pair].tolist()
            )
            compared = _compare_pair(data, p, q)
            if compared != SAME:
                found.pairs[left, right] = compared
    if not found.inverted:
        distinct = [sequences[at].slots for at in sorted(set(classes))]
        on_cycle = np.zeros(data.count, np.bool_)
        on_cycle[on_cycles(distinct, data.count)] = True
        if on_cycle.any():
            found.cycles = [
                list(map(data.name, each.slots[on_cycle[each.slots]].tolist()))
                for each in sequences
            ]
    return nsmallest(VIOLATIONS_MAX, violations), found


def _part(data: ShardData, sequence: _Sequence) -> SequencePart:
    if not len(sequence.rows):
        return SequencePart(-1, -1, "")
    pos = sequence.member.events.pos[sequence.rows]
    return SequencePart(int(pos[0]), int(pos[-1]), data.name(int(sequence.slots[0])))


def _classes(sequences: Sequence[_Sequence]) -> list[int]:
    """By member the first member with the same part."""
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


def _different_seqs(data: ShardData, sequences: Sequence[_Sequence]) -> list[Violation]:
    """Messages with another sequence number than at the first member that has one for it."""
    owner = np.full(data.count, -1, np.int32)
    reference = np.zeros(data.count, np.int64)
    found: list[Violation] = []
    for at, each in enumerate(sequences):
        has_seq = each.member.events.has_seq[each.rows]
        slots, seq = each.slots[has_seq], each.member.events.seq[each.rows[has_seq]]
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


def _compare_pair(data: ShardData, p: _Sequence, q: _Sequence) -> PairComparison:
    in_q = _index(data, p.member.summary.first_ordered, q)
    in_p = _index(data, q.member.summary.first_ordered, p)
    return PairComparison(
        _compare(data, p.slots, q.slots),
        None if in_q is None else _compare(data, p.slots, q.slots[in_q:]),
        None if in_p is None else _compare(data, p.slots[in_p:], q.slots),
    )


def _index(data: ShardData, message: tuple[int, int] | None, sequence: _Sequence) -> int | None:
    """The index of a message in a part, if it is there."""
    slot = None if message is None else data.slot(*message)
    if slot is None or sequence.first[slot] < 0:
        return None
    pos = sequence.member.events.pos[sequence.rows]
    return int(np.searchsorted(pos, sequence.first[slot]))


def _compare(data: ShardData, left: Array, right: Array) -> Comparison:
    count = min(len(left), len(right))
    differ = np.flatnonzero(left[:count] != right[:count])
    if len(differ):
        at = int(differ[0])
        return Comparison(DIFFERENT, data.name(int(left[at])), data.name(int(right[at])))
    if len(left) < len(right):
        return Comparison(LEFT_SHORTER, right=data.name(int(right[count])))
    if len(left) > len(right):
        return Comparison(RIGHT_SHORTER, left=data.name(int(left[count])))
    return Comparison(EQUAL)


# -- combining shards ----------------------------------------------------------------------------


def overlapping_shards(shards: Sequence[ShardSequences]) -> list[range]:
    """Ranges of more than one shard that must be judged as one, so that afterwards no member's part
    overlaps another."""
    done: list[tuple[range, list[tuple[int, int]]]] = []
    for index, shard in enumerate(shards):
        done.append((range(index, index + 1), [(part.low, part.high) for part in shard.parts]))
        while (at := _first_overlapping(done)) is not None:
            merged = done[at:]
            which = range(merged[0][0].start, merged[-1][0].stop)
            done[at:] = [(which, list(map(_hull, zip(*(p for _, p in merged), strict=True))))]
    return [which for which, _ in done if len(which) > 1]


def _first_overlapping(done: list[tuple[range, list[tuple[int, int]]]]) -> int | None:
    """The first of those before the last that overlaps it."""
    *before, (_, last) = done
    for at, (_, parts) in enumerate(before):
        if any(
            low >= 0 and high >= start >= 0
            for (low, high), (start, _) in zip(parts, last, strict=True)
        ):
            return at
    return None


def _hull(parts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    some = [part for part in parts if part[0] >= 0]
    return (min(low for low, _ in some), max(high for _, high in some)) if some else (-1, -1)


def compare_sequences(
    left: int, right: int, starts: tuple[int, int], shards: Sequence[ShardSequences]
) -> Comparison:
    """Two members' whole sequences, aligned as the law of prefixes requires; `starts` are the
    shards with each one's first message. The outcome is `DIFFERENT`, `EQUAL` when one is a prefix
    of the other, or `INCOMPARABLE` without a common start."""
    at, compared = starts[0], shards[starts[0]].pairs.get((left, right), SAME).from_left
    if compared is None:
        at, compared = starts[1], shards[starts[1]].pairs.get((left, right), SAME).from_right
    if compared is None:
        return Comparison(INCOMPARABLE)
    while compared.outcome == EQUAL and at + 1 < len(shards):
        at += 1
        compared = shards[at].pairs.get((left, right), SAME).whole
    if compared.outcome in (LEFT_SHORTER, RIGHT_SHORTER):
        shorter, side = (left, "left") if compared.outcome == LEFT_SHORTER else (right, "right")
        firsts = (shard.parts[shorter].first for shard in shards[at + 1 :])
        following = next(filter(None, firsts), "")
        if not following:
            return Comparison(EQUAL)
        return compared._replace(outcome=DIFFERENT, **{side: following})
    return compared
