"""The first pass over a run's files: which rows may be judged, and where each message is.

A scan reads files in the order of their names, row group by row group. It keeps what is small:
control rows, counts, and for each chunk of rows which numbers of which sender it holds. The rules
about files are those of `unisono.trace.checks`, as `unisono.trace.files` applies them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from unisono.laws.holding import ENDS
from unisono.spark.laws.columns import (
    AGREED,
    DELIVER,
    NUMBER_MIN,
    SEND,
    Array,
    ChunkStats,
    Codes,
    EventColumns,
    SeqRegression,
    max_seq,
    seq_regressions,
    stats_of,
)
from unisono.spark.laws.reader import IS_CONTROL, DictionaryPart, RowGroup, read_group
from unisono.spark.laws.work import Work
from unisono.spark.tables import WORK_CODE_MIN, RowTables
from unisono.trace.checks import AFTER_TORN, TOLD_TWICE
from unisono.trace.history import cut_of
from unisono.trace.record import Row
from unisono.trace.retold import contradicted

if TYPE_CHECKING:
    from unisono.spark.partitioned import RunWriter


class InputFile(NamedTuple):
    path: bytes
    name: str
    chain: int
    gap: bool


@dataclass(slots=True)
class Chunk:
    """Rows of one incarnation that are adjacent in one row group."""

    file: int
    group: int
    start: int
    stop: int
    mask: bytes | None
    """Which of the rows count, a bit each; None for all."""
    first_pos: int
    count: int
    """The number of sends and deliveries."""
    stats: ChunkStats
    events: EventColumns | None = None
    """The rows themselves, when they are kept in memory."""

    @property
    def location(self) -> tuple[int, int, int]:
        return self.file, self.group, self.start


class DeliveredBefore(NamedTuple):
    """What an incarnation had delivered before a view or its end."""

    step: int
    seq: int
    """The largest sequence number, `NUMBER_MIN` for none."""
    numbers: dict[int, int]
    """By source, the largest number."""


@dataclass(slots=True)
class IncarnationSummary:
    """One incarnation in one history: everything about it that is small."""

    history: tuple[str, str]
    name: tuple[str, int]
    code: int
    count: int = 0
    control: list[Row] = field(default_factory=list)
    sent: int = 0
    delivered: int = 0
    nbytes: int = 0
    """Of the payloads delivered."""
    last_us: int = 0
    """The time of its last row."""
    t_low: int | None = None
    t_high: int | None = None
    """The times of its first and last send or delivery."""
    probe: Row | None = None
    """One of its probes."""
    last_send: Row | None = None
    """The send with the largest number."""
    chunks: list[Chunk] = field(default_factory=list)
    latest: dict[int, Row] = field(default_factory=dict)
    """By source, the delivery with the largest number so far."""
    cut_marks: list[Row] = field(default_factory=list)
    """Before each view with a cut, the latest delivery of each sender that it names."""
    seq: int = NUMBER_MIN
    """The largest sequence number delivered so far."""
    at_views: list[DeliveredBefore] = field(default_factory=list)
    at_ends: list[DeliveredBefore] = field(default_factory=list)
    """For each `leave` and `crash` row."""
    sent_pos: int = -1
    delivered_pos: int = -1
    """The positions of its last send and delivery, -1 for none."""
    first_ordered: tuple[int, int] | None = None
    """Source and number of its first ordered delivery."""
    last_seq: int | None = None
    regressions: list[SeqRegression] = field(default_factory=list)
    delivered_us: tuple[int, int] | None = None
    """The times of its first and last delivery."""
    work: Work = field(default_factory=Work)

    @property
    def key(self) -> str:
        return f"{self.name[0]}#{self.name[1]}"

    @property
    def span_us(self) -> int:
        return (self.t_high or 0) - (self.t_low or 0)

    @property
    def ended_us(self) -> int:
        """The time of its end, or of its last row if it has none."""
        ends = (row.t_us for row in self.control if row.kind in ("leave", "crash"))
        return next(ends, self.last_us)

    @property
    def view_sizes(self) -> list[int]:
        return [len(row.members or ()) for row in self.control if row.kind == "view"]

    def row(self, events: EventColumns, at: int, codes: Codes) -> Row:
        return events.row(at, self.name, codes, self.history)

    def recode(self, code_of: Array, first_file: int) -> None:
        """Put the codes and file numbers of all scans of a run in place of one scan's."""
        self.code = int(code_of[self.code])
        self.latest = {}
        self.chunks = [
            replace(
                chunk,
                file=chunk.file + first_file,
                stats=chunk.stats._replace(sources=code_of[chunk.stats.sources]),
            )
            for chunk in self.chunks
        ]
        self.regressions = [
            each._replace(source=int(code_of[each.source])) for each in self.regressions
        ]
        if self.first_ordered is not None:
            self.first_ordered = int(code_of[self.first_ordered[0]]), self.first_ordered[1]
        self.at_views, self.at_ends = (
            [
                each._replace(numbers={int(code_of[s]): n for s, n in each.numbers.items()})
                for each in states
            ]
            for states in (self.at_views, self.at_ends)
        )

    def without_chunks(self) -> IncarnationSummary:
        return replace(self, chunks=[])


@dataclass
class ScanResult:
    files: list[InputFile]
    codes: Codes
    summaries: dict[tuple[tuple[str, str], int], IncarnationSummary] = field(default_factory=dict)
    events: int = 0
    quarantined: list[tuple[str, Array | None, str]] = field(default_factory=list)
    """File, rows (None for the file or the rest of it) and reason."""
    torn: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    """Incarnations with valid rows, judged or not."""
    recovered: set[int] = field(default_factory=set)
    """Files without a footer of their own."""
    contradicted: list[str] = field(default_factory=list)
    """Incarnations whose rows differ between two files."""
    whole: bool = True
    """Each file has its end, and none is missing."""


class Scan:
    """Reads the files of a run, or of one chain of it."""

    def __init__(
        self,
        files: Iterable[InputFile],
        chunk_rows: int,
        keep: bool,
        writer: RunWriter | None = None,
    ) -> None:
        """`keep`: the rows stay in memory; `writer`: they are written as tables."""
        self.result = ScanResult(list(files), Codes())
        self._tables = RowTables(writer, self.result.codes) if writer else None
        self._chunk_rows = chunk_rows
        self._keep = keep
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
        for index, file in enumerate(result.files):
            self._read(index, file)
        result.whole = not self._broken
        for chain in self._broken:
            result.torn |= self._chains[chain]
        if self._repeated:
            paths = [Path(os.fsdecode(file.path)) for file in result.files]
            names = [result.codes.incarnations.names[code] for code in sorted(self._repeated)]
            result.contradicted = sorted(f"{n}#{i}" for n, i in contradicted(paths, names))
        return result

    def _read(self, index: int, file: InputFile) -> None:
        if file.gap:
            self._broken.add(file.chain)
        after_gap = file.chain in self._broken
        part = DictionaryPart(Path(os.fsdecode(file.path)), whole=self._keep)
        last: dict[int, int] = {}
        fresh: set[int] = set()
        start = 0
        for number, table in enumerate(part.tables()):
            group = read_group(table, self.result.codes)
            for code, rows in self._new_rows(group, file.name, start, last):
                fresh.add(code)
                if after_gap or code in self._incomplete:
                    self._quarantine(file.name, _all(group, rows), start, AFTER_TORN)
                    continue
                if self._tables is not None:
                    self._tables.add(table, group, code, rows)
                for history, mine in group.by_history(rows):
                    self._summarize(self._summary(history, code), group, (index, number), mine)
            start += table.num_rows
        if part.lost:
            self.result.quarantined.append((file.name, None, part.lost))
        if part.torn:
            self._broken.add(file.chain)
        if part.recovered:
            self.result.recovered.add(index)
        if part.torn or after_gap:
            self._incomplete |= fresh
        for code, step in last.items():
            self._last_step[code] = max(step, self._last_step.get(code, -1))
        self.result.seen |= last.keys()
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
        codes = np.unique(group.incarnation if valid is None else group.incarnation[valid])
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

    def _summary(self, history: tuple[str, str], code: int) -> IncarnationSummary:
        found = self.result.summaries.get((history, code))
        if found is None:
            name = self.result.codes.incarnations.names[code]
            found = self.result.summaries[history, code] = IncarnationSummary(history, name, code)
        return found

    def _summarize(
        self,
        summary: IncarnationSummary,
        group: RowGroup,
        location: tuple[int, int],
        mine: Array | None,
    ) -> None:
        count = len(group.kind)
        work = group.kind >= WORK_CODE_MIN
        if mine is not None:
            work &= mine
        if work.any():
            summary.work.add(group, np.flatnonzero(work), summary.history[0])
        for start in range(0, count, self._chunk_rows):
            stop = min(start + self._chunk_rows, count)
            mask = None if mine is None else mine[start:stop]
            self._chunk(summary, group, location, (start, stop), mask)

    def _chunk(
        self,
        summary: IncarnationSummary,
        group: RowGroup,
        location: tuple[int, int],
        bounds: tuple[int, int],
        mine: Array | None,
    ) -> None:
        start, stop = bounds
        kind = group.kind[start:stop]
        first_pos = summary.count
        rows = np.arange(stop - start) if mine is None else np.flatnonzero(mine)
        if not len(rows):
            return
        summary.count += len(rows)
        self.result.events += len(rows)
        summary.last_us = int(group.events.t_us[start + rows[-1]])
        control = rows[IS_CONTROL[kind[rows]]]
        control_rows = [
            group.row(start + row)._replace(step=first_pos + step)
            for row, step in zip(
                control.tolist(), np.searchsorted(rows, control).tolist(), strict=True
            )
        ]
        summary.control += control_rows
        of_message = np.flatnonzero((kind[rows] == SEND) | (kind[rows] == DELIVER))
        whole = mine is None and len(of_message) == len(rows)
        events = group.events.take(slice(start, stop) if whole else start + rows[of_message])
        events.pos = first_pos + of_message
        for row in control_rows:
            if row.kind == "view":
                self._at_view(summary, events, row)
            elif row.kind in ENDS:
                summary.at_ends.append(self._before(summary, events, row.step)[0])
        if len(events):
            mask = None if mine is None else np.packbits(mine).tobytes()
            stats = stats_of(events)
            chunk = Chunk(*location, start, stop, mask, first_pos, len(events), stats)
            chunk.events = events if self._keep else None
            summary.chunks.append(chunk)
            summary.seq = max(summary.seq, stats.seq)
            self._update_latest(summary, events, summary.latest)
            self._measure(summary, events)

    def _update_latest(
        self, summary: IncarnationSummary, events: EventColumns, latest: dict[int, Row]
    ) -> None:
        deliveries = np.flatnonzero(~events.send)
        sources = events.source[deliveries]
        for source in np.flatnonzero(np.bincount(sources)).tolist():
            mine = deliveries[sources == source]
            at = int(mine[events.number[mine].argmax()])
            if source not in latest or events.number[at] > (latest[source].number or 0):
                latest[source] = summary.row(events, at, self.result.codes)

    def _before(
        self, summary: IncarnationSummary, events: EventColumns, step: int
    ) -> tuple[DeliveredBefore, dict[int, Row]]:
        """What was delivered before a step, and by source the latest delivery."""
        before = events.take(~events.send & (events.pos < step))
        latest = dict(summary.latest)
        self._update_latest(summary, before, latest)
        seq = max(summary.seq, max_seq(before, np.ones(len(before), np.bool_)))
        numbers = {source: row.number or 0 for source, row in latest.items()}
        return DeliveredBefore(step, seq, numbers), latest

    def _at_view(self, summary: IncarnationSummary, events: EventColumns, view: Row) -> None:
        before, latest = self._before(summary, events, view.step)
        summary.at_views.append(before)
        sources = map(self.result.codes.source, cut_of(view.detail))
        summary.cut_marks += [latest[source] for source in sources if source in latest]

    def _measure(self, summary: IncarnationSummary, events: EventColumns) -> None:
        codes = self.result.codes
        sends, deliveries = np.flatnonzero(events.send), np.flatnonzero(~events.send)
        summary.sent += len(sends)
        summary.delivered += len(deliveries)
        summary.nbytes += int(events.size[deliveries].sum(dtype=np.int64))
        low, high = int(events.t_us.min()), int(events.t_us.max())
        summary.t_low = low if summary.t_low is None else min(low, summary.t_low)
        summary.t_high = high if summary.t_high is None else max(high, summary.t_high)
        if len(sends):
            summary.sent_pos = int(events.pos[sends[-1]])
            largest = int(sends[events.number[sends].argmax()])
            before = summary.last_send
            if before is None or int(events.number[largest]) > (before.number or 0):
                summary.last_send = summary.row(events, largest, codes)
            if summary.probe is None and events.probe.any():
                summary.probe = summary.row(events, int(events.probe.argmax()), codes)
        if len(deliveries):
            summary.delivered_pos = int(events.pos[deliveries[-1]])
            times = events.t_us[deliveries]
            low, high = summary.delivered_us or (int(times[0]), int(times[0]))
            summary.delivered_us = min(low, int(times.min())), max(high, int(times.max()))
            ordered = deliveries[events.level[deliveries] >= AGREED]
            if len(ordered) and summary.first_ordered is None:
                at = ordered[0]
                summary.first_ordered = int(events.source[at]), int(events.number[at])
            summary.last_seq, found = seq_regressions(events, ordered, summary.last_seq)
            summary.regressions += found


def _all(group: RowGroup, rows: Array | None) -> Array:
    return np.ones(len(group.kind), np.bool_) if rows is None else rows
