"""The one reader of trace files: it hands on the rows that may be judged, and the reasons against
the others.

A scan reads the files of a run in the order of their names, row group by row group, and applies the
rules of `unisono.trace.checks`. What it finds it hands to readers: those that keep columns for the
laws, rows, or tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from unisono.trace.checks import AFTER_TORN, REPEATED
from unisono.trace.columns import (
    DELIVER,
    SEND,
    Array,
    Codes,
    EventColumns,
    concatenated,
    distinct,
)
from unisono.trace.contradictions import contradicted
from unisono.trace.files import TraceFiles
from unisono.trace.record import Row
from unisono.trace.row_groups import IS_CONTROL, DictionaryPart, RowGroup, read_group
from unisono.trace.unread import unread_of

PARTS_MAX: Final = 500
"""So many parts of an incarnation are joined as they come: in a file, when they are large."""


class RowReader(Protocol):
    """What takes rows that may be judged."""

    def add(self, table: pa.Table, group: RowGroup, code: int, rows: Array | None) -> None:
        """The rows of a mask (None: all) of one incarnation."""


@dataclass
class ScanResult:
    codes: Codes
    events: int = 0
    quarantined: list[tuple[str, Array | None, str]] = field(default_factory=list)
    """File, rows (None for the file or the rest of it) and reason."""
    torn: set[int] = field(default_factory=set)
    contradicted: list[str] = field(default_factory=list)
    """Incarnations whose rows differ between two files."""
    whole: bool = True
    """Each file has its end, and none is missing."""

    @property
    def torn_lives(self) -> frozenset[str]:
        return frozenset(map(self.codes.key, self.torn))

    def unread(self) -> Mapping[str, str]:
        """By incarnation, which rows of it were there and could not be judged."""
        return unread_of(
            (path, [None] if rows is None else rows.tolist(), reason)
            for path, rows, reason in self.quarantined
        )


def scanned(files: Sequence[TraceFiles], codes: Codes, *readers: RowReader) -> ScanResult:
    """Read the files of a run."""
    return _Scan(files, codes, readers).run()


class _Scan:
    def __init__(
        self, files: Sequence[TraceFiles], codes: Codes, readers: Sequence[RowReader]
    ) -> None:
        self._result = ScanResult(codes)
        self._files = files
        self._readers = readers
        self._last_step: dict[int, int] = {}
        """By incarnation, in the files read so far."""
        self._incomplete: set[int] = set()
        """Incarnations of which an earlier part is missing."""
        self._broken: set[Path] = set()
        """Chains of which a part is torn or missing."""
        self._chains: dict[Path, set[int]] = {}
        self._repeated: set[int] = set()
        """Incarnations that a later file holds again."""

    def run(self) -> ScanResult:
        result = self._result
        for file in self._files:
            self._read(file)
        result.whole = not self._broken
        for chain in self._broken:
            result.torn |= self._chains[chain]
        if self._repeated:
            paths = [file.path for file in self._files]
            found = contradicted(paths, self._repeated, result.codes)
            result.contradicted = sorted(map(result.codes.key, found))
        return result

    def _read(self, file: TraceFiles) -> None:
        if file.gap:
            self._broken.add(file.chain)
        after_gap = file.chain in self._broken
        part = DictionaryPart(file.path, whole=True)
        last: dict[int, int] = {}
        fresh: set[int] = set()
        start = 0
        for table in part.tables():
            group = read_group(table, self._result.codes)
            for code, rows in self._new_rows(group, file.name, start, last):
                fresh.add(code)
                if after_gap or code in self._incomplete:
                    self._quarantine(file.name, _all(group, rows), start, AFTER_TORN)
                    continue
                self._result.events += len(group.kind) if rows is None else int(rows.sum())
                for reader in self._readers:
                    reader.add(table, group, code, rows)
            start += table.num_rows
        if part.lost:
            self._result.quarantined.append((file.name, None, part.lost))
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
                self._result.quarantined.append((name, np.array(bad, np.int64), reason))
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
                self._quarantine(name, repeated, start, REPEATED)
                self._repeated.add(code)
                rows = rows & ~repeated
                if not rows.any():
                    continue
            yield code, rows

    def _quarantine(self, name: str, rows: Array, start: int, reason: str) -> None:
        self._result.quarantined.append((name, np.flatnonzero(rows) + start, reason))


def _all(group: RowGroup, rows: Array | None) -> Array:
    return np.ones(len(group.kind), np.bool_) if rows is None else rows


# -- what the laws need ----------------------------------------------------------------------------


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


class KeptColumns:
    """Keeps rows of few kinds as they are, and of sends and deliveries the columns that the laws
    need. Steps are counted anew."""

    def __init__(self, codes: Codes) -> None:
        self._codes = codes
        self.incarnations: dict[tuple[tuple[str, str], int], IncarnationRows] = {}

    def add(self, table: pa.Table, group: RowGroup, code: int, rows: Array | None) -> None:
        for history, mask in group.by_history(rows):
            mine = self.incarnations.get((history, code))
            if mine is None:
                name = self._codes.incarnations.names[code]
                mine = self.incarnations[history, code] = IncarnationRows(history, name, code)
            self._keep(mine, group, mask)

    def _keep(self, mine: IncarnationRows, group: RowGroup, mask: Array | None) -> None:
        rows = np.arange(len(group.kind)) if mask is None else np.flatnonzero(mask)
        kind, first = group.kind[rows], mine.count
        mine.count += len(rows)
        mine.last_us = int(group.events.t_us[rows[-1]])
        mine.control += [
            group.columns.row(int(rows[at]))._replace(step=first + at)
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
