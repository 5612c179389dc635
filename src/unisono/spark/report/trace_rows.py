"""Finds the rows of a violation in a trace, and the rows around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unisono.laws import Violation
from unisono.trace.checks import SPOKEN, VIEWS, reason_against
from unisono.trace.files import TraceFiles
from unisono.trace.history import life_of, message_of
from unisono.trace.parquet import ParquetPart
from unisono.trace.record import Row

EXAMINED_MAX: Final = 50
"""Violations of a run that are looked up."""
KEPT_MAX: Final = 4_000
"""Rows about their messages, and views, that are kept."""
NEAR_MAX: Final = 1_500
"""Rows around a violation that are kept,"""
SKELETON_MAX: Final = 500
"""and of the nearest views, joins and ends, wherever they are."""
SKELETON: Final = (*VIEWS, "join", "leave", "crash", "restart")

_message = re.compile(r"(.+)#([0-9]{1,19}):([0-9]{1,18})", re.DOTALL).fullmatch


class _RunReader:
    """The valid rows of a run's files, group by group, without rows that an earlier file has."""

    def __init__(self, files: Iterable[TraceFiles]) -> None:
        self._files = files
        self._last_step: dict[tuple[str, int], int] = {}
        self.torn: set[str] = set()

    def groups(self) -> Iterator[tuple[int, pa.Table]]:
        """Each with the number of rows before it: a row's number serves as its step."""
        start = 0
        for found in self._files:
            part, last, seen = ParquetPart(found.path), dict(self._last_step), set()
            for table in part.tables():
                steps = table.group_by(["node", "incarnation"]).aggregate([("step", "max")])
                for each in steps.to_pylist():
                    if None not in each.values():
                        key = each["node"], each["incarnation"]
                        seen.add(key)
                        last[key] = max(each["step_max"], last.get(key, -1))
                yield start, table
                start += table.num_rows
            if part.torn:
                self.torn |= {f"{node}#{incarnation}" for node, incarnation in seen}
            self._last_step = last

    def rows(self, start: int, table: pa.Table, chosen: pa.Array) -> Iterator[Row]:
        """The chosen rows of a group that may be judged."""
        columns = (column.to_pylist() for column in table.take(chosen).columns)
        for number, fields in zip(chosen.to_pylist(), zip(*columns, strict=True), strict=True):
            row = Row._make(tuple(v) if isinstance(v, list) else v for v in fields)
            if reason_against(row) is None:
                if row.step > self._last_step.get((row.node, row.incarnation), -1):
                    yield row._replace(step=start + number)


def _where(mask: pa.ChunkedArray) -> pa.Array:
    return pc.indices_nonzero(pc.fill_null(mask, False))


# -- the rows of violations ------------------------------------------------------------------------


class ViolationRows(NamedTuple):
    """What a trace has about the messages and views of some violations."""

    messages: dict[str, list[Row]]
    """By message."""
    views: dict[str, list[Row]]
    """By incarnation."""
    last: dict[str, Row]
    """By incarnation, its last row."""

    def first(self, violations: Sequence[Violation]) -> tuple[Violation, Row] | None:
        """The earliest violation, and the row that shows it."""
        found = [
            (row.t_us, index, violation, row)
            for index, violation in enumerate(violations[:EXAMINED_MAX])
            if (row := self._row_of(violation)) is not None
        ]
        return min(found, key=lambda each: each[:2])[2:] if found else None

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
            if views := [row for row in self.views.get(key, ()) if row.view in named]:
                return views[-1]
        for key in keys:
            if key in self.last:
                return self.last[key]
        return max(self.last.values(), key=lambda row: row.t_us, default=None)


def violation_rows(files: Iterable[TraceFiles], violations: Sequence[Violation]) -> ViolationRows:
    """In one pass through the files of a run."""
    examined = violations[:EXAMINED_MAX]
    wanted = {each for violation in examined for each in (violation.message, violation.other)}
    named = [match for match in map(_message, sorted(wanted)) if match]
    numbers = pa.array([int(match[3]) for match in named], pa.int64())
    senders = pa.array([match[1] for match in named], pa.string())
    found = ViolationRows({}, {}, {})
    message_count = view_count = 0
    reader = _RunReader(files)
    for start, table in reader.groups():
        kind = table.column("kind")
        of_message = pc.and_kleene(
            pc.is_in(kind, pa.array(SPOKEN)),
            pc.and_kleene(
                pc.is_in(table.column("number"), numbers),
                pc.is_in(table.column("sender"), senders),
            ),
        )
        mask = pc.or_kleene(of_message, pc.is_in(kind, pa.array(VIEWS)))
        for row in reader.rows(start, table, _where(mask)):
            if row.kind in VIEWS:
                view_count += 1
                if view_count <= KEPT_MAX:
                    found.views.setdefault(life_of(row), []).append(row)
            elif message_of(row) in wanted and message_count < KEPT_MAX:
                message_count += 1
                found.messages.setdefault(message_of(row), []).append(row)
        for row in reader.rows(start, table, pa.array(range(table.num_rows)[-1:], pa.int64())):
            found.last[life_of(row)] = row
    return found


# -- the rows around one ---------------------------------------------------------------------------


class NearbyRows(NamedTuple):
    rows: list[Row]
    """Everything that a diagram needs."""
    near: list[Row]
    """The nearest in time among them."""
    torn: frozenset[str]


def rows_near(files: Iterable[TraceFiles], focus: Row) -> NearbyRows:
    """The rows of the same group nearest to this one; and, wherever they are, views, joins and
    ends, and the first and the last row of each incarnation."""
    reader = _RunReader(files)
    near: list[Row] = []
    skeleton: list[Row] = []
    edges: dict[tuple[str, bool], Row] = {}
    for start, table in reader.groups():
        of_group = pc.and_kleene(
            pc.equal(table.column("protocol"), focus.protocol),
            pc.equal(table.column("group"), focus.group),
        )
        mine = _where(of_group)
        if not len(mine):
            continue
        of_skeleton = pc.and_kleene(of_group, pc.is_in(table.column("kind"), pa.array(SKELETON)))
        nearest = _nearest(table, mine, focus.t_us, NEAR_MAX)
        near = _nearest_rows([*near, *reader.rows(start, table, nearest)], focus, NEAR_MAX)
        nearest = _nearest(table, _where(of_skeleton), focus.t_us, SKELETON_MAX)
        rows = [*skeleton, *reader.rows(start, table, nearest)]
        skeleton = _nearest_rows(rows, focus, SKELETON_MAX)
        for row in reader.rows(start, table, pa.array([mine[0].as_py(), mine[-1].as_py()])):
            edges.setdefault((life_of(row), False), row)
            edges[life_of(row), True] = row
    kept = {row[2:5]: row for row in (*near, *skeleton, *edges.values())}
    return NearbyRows([kept[key] for key in sorted(kept)], near, frozenset(reader.torn))


def _nearest(table: pa.Table, numbers: pa.Array, t_us: int, most: int) -> pa.Array:
    """The nearest in time of these rows of a group, in their order."""
    if len(numbers) <= most:
        return numbers
    times = pc.fill_null(table.column("t_us").take(numbers), 1 << 62)
    distance = np.abs(times.to_numpy().astype(np.float64) - float(t_us))
    return numbers.take(pa.array(np.sort(np.argpartition(distance, most)[:most])))


def _nearest_rows(rows: list[Row], focus: Row, most: int) -> list[Row]:
    if len(rows) <= most:
        return rows
    return sorted(rows, key=lambda row: (abs(row.t_us - focus.t_us), row.step))[:most]
