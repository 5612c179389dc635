"""The laws of one order for all, on columns: what a shard can say, and how shards are put together.

Of each life a shard has a part of its sequence of ordered messages. When no part of a life reaches
into another, the parts in their order are the sequence, and so are two lives' parts side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, NamedTuple

import numpy as np

from unisono.laws import VIOLATIONS_MAX, Violation
from unisono.spark.laws.case import AGREED, Case, ShardEvents
from unisono.spark.laws.circles import on_circles
from unisono.spark.laws.columns import Array
from unisono.spark.laws.order import first_told

EQUAL, LEFT_SHORT, RIGHT_SHORT, APART = "equal", "left short", "right short", "apart"


class Beside(NamedTuple):
    """Two sequences side by side: the first messages that differ, or the first that only the
    longer one has."""

    word: str
    left: str = ""
    right: str = ""


class Pair(NamedTuple):
    """Two lives' parts of a shard. `mine` is the comparison from the first life's first message
    of all, if that is in the shard and the second has it; `yours` the reverse."""

    whole: Beside
    mine: Beside | None
    yours: Beside | None


SAME: Final = Pair(Beside(EQUAL), Beside(EQUAL), Beside(EQUAL))
"""What is not said of a pair: their parts are equal."""


class SequencePart(NamedTuple):
    """One life's part of its sequence."""

    low: int
    """The position of the first; -1 when the part is empty."""
    high: int
    first: str


@dataclass
class Sequences:
    """What a shard says of the order."""

    parts: list[SequencePart]
    """By life."""
    pairs: dict[tuple[int, int], Pair] = field(default_factory=dict)
    """By places of lives, for those that are not the same."""
    again: dict[int, Array] = field(default_factory=dict)
    """By life, the positions of ordered deliveries that are not a message's first."""
    crossed: bool = False
    """Whether two lives deliver two messages the other way round."""
    circles: list[list[str]] = field(default_factory=list)
    """By life what it delivered of messages on a circle, where there is one and none are crossed.
    A circle lies in one part: from part to part all go forward."""


class _Items(NamedTuple):
    told: ShardEvents
    rows: Array
    """Ordered deliveries, each message at its first."""
    places: Array
    first: Array
    """By message its position, -1 for none."""


def ordered(case: Case) -> tuple[list[Violation], Sequences]:
    """The violations of the total order that the shard proves, and what it says of the whole."""
    items, again = [], {}
    for life, told in enumerate(case.told):
        rows = case.at_level(told, AGREED)
        first = case.had[life] if len(rows) == len(told.deliveries) else case.first(told, rows)
        new = told.said.pos[rows] == first[told.message[rows]]
        if not new.all():
            again[life] = told.said.pos[rows[~new]]
            rows = rows[new]
        items.append(_Items(told, rows, told.message[rows], first))
    found = Sequences([_part(case, item) for item in items], again=again)
    violations = _places_apart(case, items)
    classes = _classes(items)
    crossed: dict[tuple[int, int], Array] = {}
    for p in range(len(items)):
        for q in range(p + 1, len(items)):
            if classes[p] == classes[q]:
                continue
            key = (classes[p], classes[q])
            if key not in crossed:
                crossed[key] = _crossed(items[p], items[q])
            if len(crossed[key]):
                found.crossed = True
                violations += _inversions(case, items[p], items[q], crossed[key])
            pair = _pair(case, items[p], items[q])
            if pair != SAME:
                found.pairs[p, q] = pair
    if not found.crossed:
        found.circles = _circles(case, items, sorted(set(classes)))
    return nsmallest(VIOLATIONS_MAX, violations), found


def _circles(case: Case, items: Sequence[_Items], different: Sequence[int]) -> list[list[str]]:
    round_ = np.zeros(case.count, np.bool_)
    round_[on_circles([items[at].places for at in different], case.count)] = True
    if not round_.any():
        return []
    return [
        [case.name(each) for each in item.places[round_[item.places]].tolist()] for item in items
    ]


def _part(case: Case, item: _Items) -> SequencePart:
    if not len(item.rows):
        return SequencePart(-1, -1, "")
    pos = item.told.said.pos
    first, last = int(item.rows[0]), int(item.rows[-1])
    return SequencePart(int(pos[first]), int(pos[last]), case.name(int(item.places[0])))


def _classes(items: Sequence[_Items]) -> list[int]:
    """By life the smallest life that has the same part."""
    classes: list[int] = []
    for at, item in enumerate(items):
        same = (
            other
            for other in sorted(set(classes))
            if np.array_equal(items[other].places, item.places)
        )
        classes.append(next(same, at))
    return classes


def _crossed(p: _Items, q: _Items) -> Array:
    """Pairs of messages, flat: neighbours in p's order of what both have that stand the other way
    in q's."""
    there = q.first[p.places]
    shared = p.places[there >= 0]
    there = there[there >= 0]
    at = np.flatnonzero(there[:-1] > there[1:])
    return np.column_stack([shared[at], shared[at + 1]])


def _inversions(case: Case, p: _Items, q: _Items, crossed: Array) -> list[Violation]:
    run = case.plan.history.run

    def violation(at: int) -> Violation:
        first, second = (case.name(int(place)) for place in crossed[at])
        detail = f"after {first} here, before it there"
        return Violation("total_order", run, p.told.plan.key, second, q.told.plan.key, detail)

    return first_told(np.arange(len(crossed)), violation)


def _places_apart(case: Case, items: Sequence[_Items]) -> list[Violation]:
    """Messages that have one place here and another at the smallest life that has one for it."""
    run = case.plan.history.run
    owner = np.full(case.count, -1, np.int32)
    place = np.zeros(case.count, np.int64)
    found: list[Violation] = []
    for life, item in enumerate(items):
        said = item.told.said
        placed = said.placed[item.rows]
        rows, messages = item.rows[placed], item.places[placed]
        seq = said.seq[rows]
        new = owner[messages] < 0
        owner[messages[new]], place[messages[new]] = life, seq[new]
        apart = np.flatnonzero(place[messages] != seq)

        def violation(
            at: int, key: str = item.told.plan.key, m: Array = messages, s: Array = seq
        ) -> Violation:
            message = int(m[at])
            other = case.told[owner[message]].plan.key
            detail = f"place {int(s[at])} here, {int(place[message])} there"
            return Violation("total_order", run, key, case.name(message), other, detail)

        found += first_told(apart, violation)
    return found


def _pair(case: Case, p: _Items, q: _Items) -> Pair:
    whole = _beside(case, p.places, q.places)
    mine = yours = None
    at = _index(case, p.told.plan.first_ordered, q)
    if at is not None:
        mine = _beside(case, p.places, q.places[at:])
    at = _index(case, q.told.plan.first_ordered, p)
    if at is not None:
        yours = _beside(case, p.places[at:], q.places)
    return Pair(whole, mine, yours)


def _index(case: Case, message: tuple[int, int] | None, item: _Items) -> int | None:
    """Where in a part a message stands, if it does."""
    if message is None:
        return None
    place = case.place(*message)
    if place is None or item.first[place] < 0:
        return None
    pos = item.told.said.pos[item.rows]
    return int(np.searchsorted(pos, item.first[place]))


def _beside(case: Case, left: Array, right: Array) -> Beside:
    count = min(len(left), len(right))
    differ = np.flatnonzero(left[:count] != right[:count])
    if len(differ):
        at = int(differ[0])
        return Beside(APART, case.name(int(left[at])), case.name(int(right[at])))
    if len(left) < len(right):
        return Beside(LEFT_SHORT, right=case.name(int(right[count])))
    if len(left) > len(right):
        return Beside(RIGHT_SHORT, left=case.name(int(left[count])))
    return Beside(EQUAL)


# -- putting shards together ---------------------------------------------------------------------


def reaching(shards: Sequence[Sequences]) -> list[range]:
    """Shards that must be looked at as one: each such range has more than one, and after that no
    life's part reaches into another's."""
    spans = [
        (range(at, at + 1), [(part.low, part.high) for part in shard.parts])
        for at, shard in enumerate(shards)
    ]
    done: list[tuple[range, list[tuple[int, int]]]] = []
    for span in spans:
        done.append(span)
        while (at := _reached(done)) is not None:
            together = done[at:]
            which = range(together[0][0].start, together[-1][0].stop)
            parts = [_around(each) for each in zip(*(part for _, part in together), strict=True)]
            done[at:] = [(which, parts)]
    return [which for which, _ in done if len(which) > 1]


def _reached(done: list[tuple[range, list[tuple[int, int]]]]) -> int | None:
    """The first of those before the last that reaches into it."""
    _, last = done[-1]
    for at, (_, parts) in enumerate(done[:-1]):
        if any(
            low >= 0 and high >= begin >= 0
            for (low, high), (begin, _) in zip(parts, last, strict=True)
        ):
            return at
    return None


def _around(parts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    some = [part for part in parts if part[0] >= 0]
    return (min(low for low, _ in some), max(high for _, high in some)) if some else (-1, -1)


def first_differing(p: int, q: int, starts: tuple[int, int], shards: Sequence[Sequences]) -> Beside:
    """Where the sequences of two lives part, when they are laid side by side from where the law of
    prefixes says; `starts` are the shards with the first message of each. The word is that of the
    place: `APART`, or `EQUAL` when one begins the other, or empty when they have no common start.
    """
    at, beside = starts[0], shards[starts[0]].pairs.get((p, q), SAME).mine
    if beside is None:
        at, beside = starts[1], shards[starts[1]].pairs.get((p, q), SAME).yours
    if beside is None:
        return Beside("")
    while beside.word == EQUAL and at + 1 < len(shards):
        at += 1
        beside = shards[at].pairs.get((p, q), SAME).whole
    if beside.word == LEFT_SHORT:
        left = _next(p, at, shards)
        return beside._replace(word=APART, left=left) if left else Beside(EQUAL)
    if beside.word == RIGHT_SHORT:
        right = _next(q, at, shards)
        return beside._replace(word=APART, right=right) if right else Beside(EQUAL)
    return beside


def _next(life: int, at: int, shards: Sequence[Sequences]) -> str:
    """The life's first ordered message after a shard; empty for none."""
    firsts = (shard.parts[life].first for shard in shards[at + 1 :])
    return next(filter(None, firsts), "")
