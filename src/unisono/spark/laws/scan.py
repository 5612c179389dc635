"""The one pass over a run's files: the rows that may be judged, as columns.

A scan reads files in the order of their names, row group by row group. It keeps rows of few kinds
as they are, and of sends and deliveries the columns that the laws need. The rules about files are
those of `unisono.trace.checks`, as `unisono.trace.files` applies them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from unisono.spark.laws.columns import (
    DELIVER,
    SEND,
    Array,
    Codes,
    EventColumns,
    concatenated,
    distinct,
)
from unisono.spark.laws.reader import IS_CONTROL, DictionaryPart, RowGroup, read_group
from unisono.spark.laws.work import Work
from unisono.spark.tables import WORK_CODE_MIN, RowTables
from unisono.trace.checks import AFTER_TORN, TOLD_TWICE
from unisono.trace.record import Row
from unisono.trace.retold import contradicted
from unisono.trace.unread import unread_of

if TYPE_CHECKING:
    from unisono.spark.partitioned import RunWriter


PARTS_MAX: Final = 500
"""So many parts of an incarnation are joined as they come: in a file, when they are large."""


class InputFile(NamedTuple):
    path: bytes
    name: str
    chain: int
    gap: bool


@dataclass(slots=True)
class IncarnationRows:
    """One incarnation in one history."""

    history: tuple[str, str]
    name: tuple[str, int]
    code: int
    count: int = 0
    control: list[Row] = field(default_factory=list)
    parts: list[EventColumns] = field(default_factory=list)
    """Sends and deliveries, in order."""
    last_us: int = 0
    """The time of its last row."""
    work: Work = field(default_factory=Work)

    @property
    def key(self) -> str:
        return f"{self.name[0]}#{self.name[1]}"

    @property
    def ended_us(self) -> int:
        """The time of its end, or of its last row if it has none."""
        ends = (row.t_us for row in self.control if row.kind in ("leave", "crash"))
        return next(ends, self.last_us)

    @property
    def view_sizes(self) -> list[int]:
        return [len(row.members or ()) for row in self.control if row.kind == "view"]

    def events(self) -> EventColumns:
        self.parts = [concatenated(self.parts)]
        return self.parts[0]


@dataclass
class ScanResult:
    codes: Codes
    incarnations: dict[tuple[tuple[str, str], int], IncarnationRows] = field(default_factory=dict)
    events: int = 0
    quarantined: list[tuple[str, Array | None, str]] = field(default_factory=list)
    """File, rows (None for the file or the rest of it) and reason."""
    torn: set[int] = field(default_factory=set)
    contradicted: list[str] = field(default_factory=list)
    """Incarnations whose rows differ between two files."""
    whole: bool = True
    """Each file has its end, and none is missing."""

    def unread(self) -> dict[str, str]:
        """By incarnation, which rows of it were there and could not be judged."""
        return unread_of(
            (path, [None] if rows is None else rows.tolist(), reason)
            for path, rows, reason in self.quarantined
        )


class Scan:
    """Reads the files of a run."""

    def __init__(self, files: Iterable[InputFile], writer: RunWriter | None = None) -> None:
        """`writer`: the rows are written as tables."""
        self.result = ScanResult(Codes())
        self._files = list(files)
        self._tables = RowTables(writer, self.result.codes) if writer else None
        self._last_step: dict[int, int] = {}
        """By incarnation, in the files read so far."""
        self._incomplete: set[int] = set()
        """Incarnations of which an earlier part is missing."""
        self._broken: set[int] = set()
        self._chains: dict[int, set[int]] = {}
        self._repeated: set[int] = set()
        """Incarnations that a later file holds again."""

    def run(self) -> ScanResult:
        result = self.result
        for file in self._files:
            self._read(file)
        result.whole = not self._broken
        for chain in self._broken:
            result.torn |= self._chains[chain]
        if self._repeated:
            paths = [Path(os.fsdecode(file.path)) for file in self._files]
            names = [result.codes.incarnations.names[code] for code in sorted(self._repeated)]
            result.contradicted = sorted(f"{n}#{i}" for n, i in contradicted(paths, names))
        return result

    def _read(self, file: InputFile) -> None:
        if file.gap:
            self._broken.add(file.chain)
        after_gap = file.chain in self._broken
        part = DictionaryPart(Path(os.fsdecode(file.path)), whole=True)
        last: dict[int, int] = {}
        fresh: set[int] = set()
        start = 0
        for table in part.tables():
            group = read_group(table, self.result.codes)
            for code, rows in self._new_rows(group, file.name, start, last):
                fresh.add(code)
                if after_gap or code in self._incomplete:
                    self._quarantine(file.name, _all(group, rows), start, AFTER_TORN)
                    continue
                if self._tables is not None:
                    self._tables.add(table, group, code, rows)
                for history, mine in group.by_history(rows):
                    self._keep(self._incarnation(history, code), group, mine)
            start += table.num_rows
        if part.lost:
            self.result.quarantined.append((file.name, None, part.lost))
        if part.torn:
            self._broken.add(file.chain)
        if part.torn or after_gap:
            self._incomplete |= fresh
        for code, step in last.items():
            self._last_step[code] = max(step, self._last_step.get(code, -1))
        self._chains.setdefault(file.chain, set()).update(fresh)

    def _new_rows(
        self, group: RowGroup, name: str, start: int, last: dict[int, int]
    ) -> Iterator[tuple[int, Array | None]]:
        """The valid rows that no earlier file holds, by incarnation; None for all rows."""
        valid = None if group.bad is None else ~group.bad
        if group.bad is not None:
            reasons: dict[str, list[int]] = {}
            for row in np.flatnonzero(group.bad).tolist():
                reasons.setdefault(group.reason(row), []).append(row + start)
            for reason, bad in reasons.items():
                self.result.quarantined.append((name, np.array(bad, np.int64), reason))
        codes = distinct(group.incarnation if valid is None else group.incarnation[valid])
        for code in codes.tolist():
            rows = None
            if valid is not None or len(codes) > 1:
                rows = group.incarnation == code
                if valid is not None:
                    rows &= valid
            steps = group.step if rows is None else group.step[rows]
            last[code] = max(int(steps.max()), last.get(code, -1))
            known = self._last_step.get(code, -1)
            if int(steps.min()) <= known:
                rows = _all(group, rows)
                repeated = rows & (group.step <= known)
                self._quarantine(name, repeated, start, TOLD_TWICE)
                self._repeated.add(code)
                rows = rows & ~repeated
                if not rows.any():
                    continue
            yield code, rows

    def _quarantine(self, name: str, rows: Array, start: int, reason: str) -> None:
        self.result.quarantined.append((name, np.flatnonzero(rows) + start, reason))

    def _incarnation(self, history: tuple[str, str], code: int) -> IncarnationRows:
        found = self.result.incarnations.get((history, code))
        if found is None:
            name = self.result.codes.incarnations.names[code]
            found = self.result.incarnations[history, code] = IncarnationRows(history, name, code)
        return found

    def _keep(self, mine: IncarnationRows, group: RowGroup, mask: Array | None) -> None:
        """Positions are counted anew."""
        rows = np.arange(len(group.kind)) if mask is None else np.flatnonzero(mask)
        kind, first = group.kind[rows], mine.count
        mine.count += len(rows)
        self.result.events += len(rows)
        mine.last_us = int(group.events.t_us[rows[-1]])
        work = rows[kind >= WORK_CODE_MIN]
        if len(work):
            mine.work.add(group, work, mine.history[0])
        mine.control += [
            group.row(int(rows[at]))._replace(step=first + at)
            for at in np.flatnonzero(IS_CONTROL[kind]).tolist()
        ]
        of_message = np.flatnonzero((kind == SEND) | (kind == DELIVER))
        if len(of_message):
            every = len(of_message) == len(group.kind)
            events = group.events.take(slice(None) if every else rows[of_message])
            events.pos = first + of_message
            mine.parts.append(events)
            if len(mine.parts) > PARTS_MAX:
                mine.events()


def _all(group: RowGroup, rows: Array | None) -> Array:
    return np.ones(len(group.kind), np.bool_) if rows is None else rows
