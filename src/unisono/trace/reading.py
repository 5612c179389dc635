"""A trace directory in memory: all its rows, as the laws in process read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from unisono.trace.checks import TORN
from unisono.trace.columns import Array, Codes
from unisono.trace.files import printable, runs_of, trace_files
from unisono.trace.history import History, histories_of
from unisono.trace.parquet import LISTS
from unisono.trace.record import Row
from unisono.trace.row_groups import RowGroup
from unisono.trace.scan import ScanResult, scanned
from unisono.trace.unread import unread_of


class Quarantined(NamedTuple):
    """What was not judged: a row of a file, or (without a row) the file or the rest of it."""

    path: str
    """Under the trace directory."""
    row: int | None
    """Its index in the file, from 0."""
    reason: str

    @property
    def is_cut(self) -> bool:
        """It is the end of a file whose process was killed."""
        return self.row is None and self.reason.startswith(TORN)


class Trace(NamedTuple):
    """All that a trace directory holds, in memory."""

    runs: dict[str, list[Row]]
    """Sound rows by run, in order of node, incarnation and step. An incarnation's steps
    are counted from 0 in the order of its rows in its files, whatever their own steps."""
    events: int
    """How many they are."""
    quarantined: list[Quarantined]
    torn: dict[str, frozenset[str]]
    """By run, the incarnations of which a file is torn or missing: their last rows are unknown."""
    contradicted: dict[str, frozenset[str]]
    """By run, the incarnations of which a second file contradicts the first, which is judged."""

    @property
    def unjudged(self) -> list[Quarantined]:
        """What was there and was not judged: all but what a killed process could not write."""
        return [each for each in self.quarantined if not each.is_cut]

    def histories(self) -> list[History]:
        """One a run, protocol and group, in that order."""
        found: dict[str, list[tuple[str, list[int | None], str]]] = {}
        for path, row, reason in self.quarantined:
            run = printable(unquote(path.partition("/")[0][4:]))
            found.setdefault(run, []).append((path, [row], reason))
        unread = {run: unread_of(rows) for run, rows in found.items()}
        return [
            history
            for run, rows in sorted(self.runs.items())
            for history in histories_of(run, rows, self.torn.get(run, frozenset()), unread.get(run))
        ]


def read_trace(directory: str | os.PathLike[str]) -> Trace:
    """Everything a trace directory holds: sound rows by run, the rest in quarantine.

    Raises `BadTrace` when there is no trace at all; a bad file or row never raises.
    """
    trace = Trace({}, 0, [], {}, {})
    for run, files in runs_of(trace_files(directory)):
        codes, kept = Codes(), _KeptRows()
        found = scanned(files, codes, kept)
        trace.quarantined.extend(quarantined_in(found))
        if kept.rows:
            trace.runs[run] = sorted(kept.rows, key=lambda row: row[2:5])
        if found.torn:
            trace.torn[run] = found.torn_lives
        if found.contradicted:
            trace.contradicted[run] = frozenset(found.contradicted)
    return trace._replace(events=sum(map(len, trace.runs.values())))


def quarantined_in(found: ScanResult) -> Iterator[Quarantined]:
    """One by one, in the order of files and rows."""
    first = {path: at for at, (path, _, _) in reversed(list(enumerate(found.quarantined)))}
    rows = [
        Quarantined(path, row, reason)
        for path, some, reason in found.quarantined
        for row in ([None] if some is None else some.tolist())
    ]
    return iter(sorted(rows, key=lambda each: (first[each.path], each.row is None, each.row)))


class _KeptRows:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._counts: dict[int, int] = {}
        """By incarnation."""

    def add(self, table: pa.Table, group: RowGroup, code: int, rows: Array | None) -> None:
        some = table if rows is None else table.take(np.flatnonzero(rows))
        first = self._counts.get(code, 0)
        self._counts[code] = first + some.num_rows
        for step, row in enumerate(_rows(some), first):
            self.rows.append(row if row.step == step else row._replace(step=step))


def _rows(table: pa.Table) -> Iterator[Row]:
    columns = [
        [each if each is None else tuple(each) for each in column.to_pylist()]
        if name in LISTS and column.null_count < len(column)
        else column.to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return map(Row._make, zip(*columns, strict=True))
