"""Finds the rows of a violation among those of a run, and the rows around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple

from unisono.laws import Violation
from unisono.trace.checks import ABOUT_MESSAGES, VIEWS
from unisono.trace.history import life_of, message_of
from unisono.trace.record import Row

EXAMINED_MAX: Final = 50
"""Violations of a run that are looked up."""
NEAR_MAX: Final = 1_500
"""Rows around a violation that are kept,"""
SKELETON_MAX: Final = 500
"""and of the nearest views, joins and ends, wherever they are."""
SKELETON: Final = (*VIEWS, "join", "leave", "crash", "restart")


class ViolationRows:
    """What the rows of a run have about the messages and views of some violations."""

    def __init__(self, rows: Iterable[Row], violations: Sequence[Violation]) -> None:
        self._examined = violations[:EXAMINED_MAX]
        wanted = {each for found in self._examined for each in (found.message, found.other)}
        self.messages: dict[str, list[Row]] = {}
        self._views: dict[str, list[Row]] = {}
        self._last: dict[str, Row] = {}
        """By incarnation, its last row."""
        for row in rows:
            self._last[life_of(row)] = row
            if row.kind in VIEWS:
                self._views.setdefault(life_of(row), []).append(row)
            elif row.kind in ABOUT_MESSAGES and (message := message_of(row)) in wanted:
                self.messages.setdefault(message, []).append(row)

    def first(self) -> tuple[Violation, Row] | None:
        """The earliest violation, and the row that shows it."""
        shown = [(self._row_of(each), each) for each in self._examined]
        found = [(each, row) for row, each in shown if row is not None]
        return min(found, key=lambda pair: pair[1].t_us, default=None)

    def about(self, violation: Violation) -> list[Row]:
        """The rows about its messages at the incarnations it names, and their sends."""
        keys = {violation.life, violation.other}
        return [
            row
            for message in (violation.message, violation.other)
            for row in self.messages.get(message, ())
            if row.kind == "send" or life_of(row) in keys
        ]

    def _row_of(self, violation: Violation) -> Row | None:
        """Its last delivery at an incarnation it names; else the send; else a view it names; else
        the last row."""
        keys = (violation.life, violation.other)
        rows = self.messages.get(violation.message, []) or self.messages.get(violation.other, [])
        deliveries = [row for row in rows if row.kind == "deliver"]
        named = set(re.findall(r"[^\s,;:()]+", violation.detail))
        for key in keys:
            if mine := [row for row in deliveries if life_of(row) == key]:
                return mine[-1]
        if rows:
            return next((row for row in rows if row.kind == "send"), rows[0])
        for key in keys:
            if views := [row for row in self._views.get(key, ()) if row.view in named]:
                return views[-1]
        for key in keys:
            if key in self._last:
                return self._last[key]
        return max(self._last.values(), key=lambda row: row.t_us, default=None)


class NearbyRows(NamedTuple):
    rows: list[Row]
    """Everything that a diagram needs."""
    near: list[Row]
    """The nearest in time among them."""


def rows_near(rows: Sequence[Row], focus: Row) -> NearbyRows:
    """The rows of the same group nearest to this one; and, wherever they are, views, joins and
    ends, and the first and the last row of each incarnation."""

    def nearest(most: int, is_wanted: Callable[[Row], bool]) -> list[Row]:
        return nsmallest(most, filter(is_wanted, mine), lambda row: abs(row.t_us - focus.t_us))

    mine = [row for row in rows if row[:2] == focus[:2]]
    near = nearest(NEAR_MAX, lambda row: True)
    skeleton = nearest(SKELETON_MAX, lambda row: row.kind in SKELETON)
    first = {life_of(row): row for row in reversed(mine)}
    last = {life_of(row): row for row in mine}
    kept = {row[2:5]: row for row in (*near, *skeleton, *first.values(), *last.values())}
    return NearbyRows([kept[key] for key in sorted(kept)], near)
