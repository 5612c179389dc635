"""The laws of one sender's order and of cause and effect, on columns, exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from heapq import nsmallest
from typing import Final, NamedTuple

import numpy as np

from unisono.laws import VIOLATIONS_MAX, Violation
from unisono.laws.order import Departed
from unisono.spark.laws.case import Case, ShardEvents
from unisono.spark.laws.columns import CAUSAL, FIFO, NUMBER_MAX, Array
from unisono.trace.history import IncarnationTrace

ROWS_AT_ONCE: Final = 50_000
"""Where a law is broken everywhere, so many violations are named before most are forgotten."""


def first_told(rows: Array, violation: Callable[[int], Violation]) -> list[Violation]:
    """The first violations of the rows."""
    best: list[Violation] = []
    for at in range(0, len(rows), ROWS_AT_ONCE):
        some = {violation(row) for row in rows[at : at + ROWS_AT_ONCE].tolist()}
        best = nsmallest(VIOLATIONS_MAX, some.union(best))
    return best


# -- fifo ----------------------------------------------------------------------------------------


class CausalQuery(NamedTuple):
    """A delivery that may leave out a message of an earlier shard: one whose number is above
    `before` and below `number`. `hole` is the smallest in its own shard, 0 for none."""

    life: str
    source: int
    number: int
    before: int
    hole: int


def fifo(case: Case) -> tuple[list[Violation], list[CausalQuery]]:
    """Violations that the shard alone proves, and questions about shards before it."""
    found: list[Violation] = []
    asked: list[CausalQuery] = []
    known = KnownNumbers(case)
    for told in case.told:
        rows, earlier = _earlier(told)
        late = earlier > told.said.number[rows]

        def after(
            at: int, told: ShardEvents = told, rows: Array = rows, had: Array = earlier
        ) -> Violation:
            return _fifo(case, told, int(rows[at]), f"after {had[at]}")

        found += first_told(np.flatnonzero(late), after)
        source, number = told.said.source[rows], told.said.number[rows]
        begun = (earlier > 0) | told.based[source]
        before = np.maximum(earlier, told.bases(rows))
        # Between a number and the next there is none.
        jumps = np.flatnonzero(~late & begun & (number - 1 > before))
        holes = known.above(source[jumps], before[jumps])
        holes[holes >= number[jumps]] = 0
        outside = before[jumps] < case.shard.low[source[jumps]]
        asked += [
            CausalQuery(told.plan.key, int(source[at]), int(number[at]), int(before[at]), int(hole))
            for at, hole in zip(jumps[outside].tolist(), holes[outside].tolist(), strict=True)
        ]
        seen = ~outside & (holes > 0)
        jumps, holes = jumps[seen], holes[seen]

        def without(
            at: int, told: ShardEvents = told, rows: Array = rows[jumps], holes: Array = holes
        ) -> Violation:
            return _fifo(case, told, int(rows[at]), f"without {holes[at]}")

        found += first_told(np.arange(len(jumps)), without)
    return nsmallest(VIOLATIONS_MAX, found), asked


def _fifo(case: Case, told: ShardEvents, row: int, detail: str) -> Violation:
    sender = case.codes.key(int(told.said.source[row]))
    message = f"{sender}:{int(told.said.number[row])}"
    run = case.plan.history.run
    return Violation("fifo", run, told.plan.key, message, sender, detail)


def _earlier(told: ShardEvents) -> tuple[Array, Array]:
    """Deliveries of level fifo or above of the shard's messages; and the largest number of the same
    sender that the life delivered so before, 0 for none."""
    said = told.said
    heard = ~said.send & (said.level >= FIFO)
    earlier = np.zeros(len(said), np.int64)
    for start, end, stretch in told.stretches():
        rows = np.flatnonzero(heard[start:end]) + start
        rows = rows[np.argsort(said.source[rows], kind="stable")]
        source = said.source[rows]
        bounds = np.flatnonzero(np.diff(source, prepend=-1, append=-1))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            mine = rows[first:last]
            before = np.empty(len(mine), np.int64)
            before[0] = stretch.fifo[source[first]]
            before[1:] = said.number[mine[:-1]]
            earlier[mine] = np.maximum.accumulate(before)
    rows = np.flatnonzero(heard & (told.message >= 0))
    return rows, earlier[rows]


class KnownNumbers:
    """By source, the rising numbers of the messages of level fifo or above."""

    def __init__(self, case: Case) -> None:
        self._case = case
        known = np.zeros(case.count, np.bool_)
        for told in case.told:
            known[told.message[(told.message >= 0) & (told.said.level >= FIFO)]] = True
        self._known = known
        self._numbers: dict[int, Array] = {}

    def of(self, source: int) -> Array:
        numbers = self._numbers.get(source)
        if numbers is None:
            mine = self._case.of_source(source)
            numbers = self._numbers[source] = self._case.number[mine][self._known[mine]]
        return numbers

    def above(self, sources: Array, numbers: Array) -> Array:
        """The smallest above each; the largest of all numbers where there is none."""
        found = np.full(len(numbers), NUMBER_MAX)
        for source in np.unique(sources).tolist():
            mine = sources == source
            known = np.append(self.of(source), NUMBER_MAX)
            found[mine] = known[np.searchsorted(known[:-1], numbers[mine], side="right")]
        return found


# -- causal --------------------------------------------------------------------------------------


class _Hearing(NamedTuple):
    """What of a life the law of causality looks at."""

    told: ShardEvents
    heard: Array
    """By row the number delivered with level causal or above, 0 for any other row."""
    rows: Array
    """Deliveries of the shard's messages with that level."""
    sends: Array
    """The first sends of the shard's messages with that level."""
    gone: dict[str, list[tuple[int, int]]]
    """By source, from which position on to which nothing is needed of it."""


def causal(case: Case) -> list[Violation]:
    """A message is delivered after all that its sender knew when it sent it."""
    hearings = [_hearing(told) for told in case.told]
    found: list[Violation] = []
    for source in range(len(case.codes.names)):
        need = np.zeros(case.count, np.int64)
        had = [_running(hearing, source) for hearing in hearings]
        for hearing, mine in zip(hearings, had, strict=True):
            own = hearing.told.plan.code == source
            rows = hearing.sends
            knew = _own(hearing.told)[rows] if own else _adopted(case, hearing, source, mine[rows])
            need[hearing.told.message[rows]] = knew
        if not need.any():
            continue
        for hearing, mine in zip(hearings, had, strict=True):
            told = hearing.told
            if told.based[source]:
                rows = hearing.rows
                needed = need[told.message[rows]]
                enough = np.maximum(mine[rows], told.base_at(source, told.said.pos[rows]))
                early = needed > enough
                for start, end in hearing.gone.get(case.codes.key(source), ()):
                    early &= (told.said.pos[rows] < start) | (told.said.pos[rows] >= end)
                found += _early(case, told, source, rows[early], need)
    return nsmallest(VIOLATIONS_MAX, found)


def _hearing(told: ShardEvents) -> _Hearing:
    said = told.said
    enough = said.level >= CAUSAL
    heard = np.where(~said.send & enough, said.number, 0)
    rows = told.deliveries[enough[told.deliveries]]
    sends = told.sends[enough[told.sends]]
    if (np.diff(told.message[sends]) <= 0).any():
        _, first = np.unique(told.message[sends], return_index=True)
        sends = sends[first]
    return _Hearing(told, heard, rows, sends, _gone(told.life))


def _gone(life: IncarnationTrace) -> dict[str, list[tuple[int, int]]]:
    spans: dict[str, list[tuple[int, int]]] = {}
    gone = Departed()
    bounds = [*(row.step for row in life.views), NUMBER_MAX]
    for row, (_, end) in zip(life.views, itertools.pairwise(bounds), strict=True):
        gone.see(row.members or ())
        for source in gone.members:
            spans.setdefault(source, []).append((row.step, end))
    return spans


def _running(hearing: _Hearing, source: int) -> Array:
    """By row, the largest number of a source that the life delivered before."""
    told = hearing.told
    mine = np.where(told.said.source == source, hearing.heard, 0)
    before = np.empty_like(mine)
    for start, end, stretch in told.stretches():
        before[start] = stretch.causal[source]
        before[start + 1 : end] = mine[start : end - 1]
        part = before[start:end]
        np.maximum.accumulate(part, out=part)
    return before


def _adopted(case: Case, hearing: _Hearing, source: int, heard: Array) -> Array:
    """By send what the life knew of a source: what it had heard, or adopted with a cut."""
    told, key = hearing.told, case.codes.key(source)
    pos = told.said.pos[hearing.sends]
    for cut in told.cuts.get(source, ()):
        floor = case.plan.floors[CAUSAL, key, cut.upto]
        heard = np.maximum(heard, np.where(pos > cut.step, floor, 0))
    return heard


def _own(told: ShardEvents) -> Array:
    """By row, the largest number that the life had sent before, with level causal or above."""
    said = told.said
    mine = np.where(said.send & (said.level >= CAUSAL), said.number, 0)
    before = np.empty_like(mine)
    for start, end, stretch in told.stretches():
        before[start] = stretch.own
        before[start + 1 : end] = mine[start : end - 1]
        part = before[start:end]
        np.maximum.accumulate(part, out=part)
    return before


def _early(case: Case, told: ShardEvents, source: int, rows: Array, need: Array) -> list[Violation]:
    key, run = case.codes.key(source), case.plan.history.run

    def violation(row: int) -> Violation:
        place = int(told.message[row])
        return Violation(
            *("causal", run, told.plan.key, case.name(place), f"{key}:{int(need[place])}"),
            "delivered before what it depends on",
        )

    return first_told(rows, violation)
