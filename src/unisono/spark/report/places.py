"""Where in a trace a violation happened, and what happened near it."""

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

LOOKED_AT_MAX: Final = 50
"""Of a run's violations, the first so many are looked for."""
ABOUT_MAX: Final = 4_000
"""So many rows about their messages, and so many views, are remembered."""
NEAR_MAX: Final = 1_500
"""So many rows around a violation are kept,"""
BONES_MAX: Final = 500
"""and so many of the nearest views, joins and ends, wherever they are."""
BONES: Final = (*VIEWS, "join", "leave", "crash", "restart")

_message = re.compile(r"(.+)#([0-9]{1,19}):([0-9]{1,18})", re.DOTALL).fullmatch


class _Files:
    """The sound rows of a run's files, group by group; each life's steps counted anew, and no life
    told twice."""

    def __init__(self, files: Iterable[TraceFiles]) -> None:
        self._files = files
        self._told: dict[tuple[str, int], int] = {}
        self._steps = 0
        self.torn: set[str] = set()

    def groups(self) -> Iterator[tuple[int, pa.Table]]:
        """Each with the number of rows before it, which is a step for rows in their order."""
        for found in self._files:
            part, last, lives = ParquetPart(found.path), dict(self._told), set()
            for table in part.tables():
                here = table.group_by(["node", "incarnation"]).aggregate([("step", "max")])
                for node, incarnation, step in zip(
                    *(
                        here.column(name).to_pylist()
                        for name in ("node", "incarnation", "step_max")
                    ),
                    strict=True,
                ):
                    if None not in (node, incarnation, step):
                        lives.add((node, incarnation))
                        last[node, incarnation] = max(step, last.get((node, incarnation), -1))
                yield self._steps, table
                self._steps += table.num_rows
            if part.torn:
                self.torn |= {f"{node}#{incarnation}" for node, incarnation in lives}
            self._told = last

    def rows(self, start: int, table: pa.Table, chosen: pa.Array) -> Iterator[Row]:
        """The chosen places of a group, as rows; without those that are not judged."""
        columns = (column.to_pylist() for column in table.take(chosen).columns)
        for place, fields in zip(chosen.to_pylist(), zip(*columns, strict=True), strict=True):
            row = Row._make(tuple(v) if isinstance(v, list) else v for v in fields)
            if reason_against(row) is None:
                told = self._told.get((row.node, row.incarnation), -1)
                if row.step > told:
                    yield row._replace(step=start + place)


def _where(mask: pa.ChunkedArray) -> pa.Array:
    return pc.indices_nonzero(pc.fill_null(mask, False))


# -- where it was ----------------------------------------------------------------------------------


class ViolationEvents(NamedTuple):
    """What a trace tells of the messages and views of some violations."""

    spoken: dict[str, list[Row]]
    """By message."""
    views: dict[str, list[Row]]
    """By life."""
    last: dict[str, Row]
    """By life, its last row."""

    def first(self, violations: Sequence[Violation]) -> tuple[Violation, Row] | None:
        """The violation that happened first, of those looked for, and the row where it is seen."""
        seen = []
        for place, violation in enumerate(violations[:LOOKED_AT_MAX]):
            row = self._row_of(violation)
            if row is not None:
                seen.append((row.t_us, place, violation, row))
        if not seen:
            return None
        _, _, violation, row = min(seen, key=lambda each: each[:2])
        return violation, row

    def about(self, violation: Violation) -> list[Row]:
        """The rows about its messages at the lives it names, and their sends; nearest to the first
        place last."""
        lives = {violation.life, violation.other}
        return [
            row
            for message in (violation.message, violation.other)
            for row in self.spoken.get(message, ())
            if row.kind == "send" or life_of(row) in lives
        ]

    def _row_of(self, violation: Violation) -> Row | None:
        rows = self.spoken.get(violation.message, []) or self.spoken.get(violation.other, [])
        heard = [row for row in rows if row.kind == "deliver"]
        for life in (violation.life, violation.other):
            mine = [row for row in heard if life_of(row) == life]
            if mine:
                return mine[-1]
        if rows:
            return next((row for row in rows if row.kind == "send"), rows[0])
        for life in (violation.life, violation.other):
            words = set(re.findall(r"[^\s,;:()]+", violation.detail))
            views = [row for row in self.views.get(life, ()) if row.view in words]
            if views:
                return views[-1]
        for life in (violation.life, violation.other):
            if life in self.last:
                return self.last[life]
        return max(self.last.values(), key=lambda row: row.t_us, default=None)


def told_of(files: Iterable[TraceFiles], violations: Sequence[Violation]) -> ViolationEvents:
    """One way through the files of a run."""
    looked_for = violations[:LOOKED_AT_MAX]
    wanted = {each for found in looked_for for each in (found.message, found.other)}
    named = [match for match in map(_message, sorted(wanted)) if match]
    numbers = pa.array([int(match[3]) for match in named], pa.int64())
    senders = pa.array([match[1] for match in named], pa.string())
    told = ViolationEvents({}, {}, {})
    spoken = views = 0
    reading = _Files(files)
    for start, table in reading.groups():
        kind = table.column("kind")
        about = pc.and_kleene(
            pc.is_in(kind, pa.array(SPOKEN)),
            pc.and_kleene(
                pc.is_in(table.column("number"), numbers),
                pc.is_in(table.column("sender"), senders),
            ),
        )
        mask = pc.or_kleene(about, pc.is_in(kind, pa.array(VIEWS)))
        for row in reading.rows(start, table, _where(mask)):
            if row.kind in VIEWS:
                views += 1
                if views <= ABOUT_MAX:
                    told.views.setdefault(life_of(row), []).append(row)
            elif message_of(row) in wanted and spoken < ABOUT_MAX:
                spoken += 1
                told.spoken.setdefault(message_of(row), []).append(row)
        if table.num_rows:
            end = pa.array([table.num_rows - 1])
            for row in reading.rows(start, table, end):
                told.last[life_of(row)] = row
    return told


# -- what was near it ------------------------------------------------------------------------------


class Near(NamedTuple):
    rows: list[Row]
    """All that a drawing needs."""
    near: list[Row]
    """Those of them that are nearest in time."""
    torn: frozenset[str]


def near(files: Iterable[TraceFiles], focus: Row) -> Near:
    """The rows of the same group nearest to this one; and, wherever they are, views, joins and
    ends, and the first and the last row of each life."""
    reading = _Files(files)
    close: list[Row] = []
    bones: list[Row] = []
    edges: dict[tuple[str, bool], Row] = {}
    for start, table in reading.groups():
        ours = pc.and_kleene(
            pc.equal(table.column("protocol"), focus.protocol),
            pc.equal(table.column("group"), focus.group),
        )
        mine = _where(ours)
        if not len(mine):
            continue
        for row in reading.rows(start, table, _nearest(table, mine, focus.t_us, NEAR_MAX)):
            close.append(row)
        skeleton = _where(pc.and_kleene(ours, pc.is_in(table.column("kind"), pa.array(BONES))))
        bones += reading.rows(start, table, _nearest(table, skeleton, focus.t_us, BONES_MAX))
        for row in reading.rows(start, table, pa.array([mine[0].as_py(), mine[-1].as_py()])):
            edges.setdefault((life_of(row), False), row)
            edges[life_of(row), True] = row
        close = _nearest_rows(close, focus, NEAR_MAX)
        bones = _nearest_rows(bones, focus, BONES_MAX)
    kept = {(row.node, row.incarnation, row.step): row for row in (*close, *bones, *edges.values())}
    rows = [kept[key] for key in sorted(kept)]
    return Near(rows, close, frozenset(reading.torn))


def _nearest(table: pa.Table, places: pa.Array, t_us: int, most: int) -> pa.Array:
    """Of these places of a group, in their order, the nearest in time."""
    if len(places) <= most:
        return places
    times = pc.fill_null(table.column("t_us").take(places), 1 << 62)
    apart = np.abs(times.to_numpy().astype(np.float64) - float(t_us))
    chosen = np.sort(np.argpartition(apart, most)[:most])
    return places.take(pa.array(chosen))


def _nearest_rows(rows: list[Row], focus: Row, most: int) -> list[Row]:
    if len(rows) <= most:
        return rows
    apart = sorted(rows, key=lambda row: (abs(row.t_us - focus.t_us), row.step))
    return apart[:most]
