"""The first look at a run's files: what may be judged, whose it is, and where it lies.

A survey reads files in the order of their names, row group by row group, and keeps of them what is
small: views, ends, counts, and for every piece of a file which numbers of which sender are in it.
The rules about files are those of `unisono.trace.checks`, as `unisono.trace.files` follows them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from unisono.laws.holding import ENDS
from unisono.spark.laws.columns import (
    DELIVER,
    NUMBER_MIN,
    SEND,
    Array,
    Codes,
    EventColumns,
    numbers_of,
)
from unisono.spark.laws.reading import IS_FEW, LoadedRowGroup, WordedPart, read_group
from unisono.trace.checks import AFTER_TORN, LEVELS, TOLD_TWICE
from unisono.trace.history import cut_of
from unisono.trace.record import Row
from unisono.trace.retold import contradicted

RELIABLE, CAUSAL, AGREED = LEVELS["reliable"], LEVELS["causal"], LEVELS["agreed"]


Heard: TypeAlias = dict[int, tuple[int, EventColumns]]
"""By source, the largest number delivered, and rows with its delivery."""


class File(NamedTuple):
    """One file of a run, as the driver found it."""

    at: bytes
    name: str
    chain: int
    gap: bool


@dataclass(slots=True)
class Piece:
    """Rows of one life that lie together in one row group of one file."""

    file: int
    group: int
    start: int
    stop: int
    mask: bytes | None
    """Which of the rows count, a bit each; all when None."""
    first_pos: int
    count: int
    """How many of them are sends and deliveries."""
    sources: Array
    """Whose messages are in it; what follows is by source, in this order."""
    low: Array
    high: Array
    first: Array
    """The first number delivered, 0 for none."""
    last: Array
    heard: Array
    """The largest number delivered, 0 for none."""
    fifo: Array
    """The same with level fifo or above."""
    causal: Array
    own: int
    """The largest number sent with level causal or above."""
    place: int
    """The largest place delivered at; the least of all numbers for none."""
    said: EventColumns | None = None
    """The rows themselves, when they are kept in memory."""


class Fallen(NamedTuple):
    """An ordered delivery whose place is not above that of the one before it."""

    source: int
    number: int
    seq: int
    last: int


class AtView(NamedTuple):
    """What a life had delivered before a regular view, or an end."""

    step: int
    place: int
    """The largest place delivered at; the least of all numbers for none."""
    heard: dict[int, int]
    """By source, the largest number delivered."""


@dataclass(slots=True)
class Strand:
    """One life in one history: what is small of it."""

    history: tuple[str, str]
    life: int
    """Its code."""
    count: int = 0
    few: list[Row] = field(default_factory=list)
    """What it tells besides sends and deliveries: views, receipts, its end."""
    sent: int = 0
    delivered: int = 0
    octets: int = 0
    told_us: int = 0
    """The time of its last row."""
    t_low: int | None = None
    t_high: int | None = None
    probe: Row | None = None
    """One of its probes."""
    last_send: Row | None = None
    """The send row with the largest number."""
    pieces: list[Piece] = field(default_factory=list)
    heard: Heard = field(default_factory=dict)
    """What was delivered so far."""
    marks: list[Row] = field(default_factory=list)
    """Before each view with a cut, the deliveries with the largest numbers of those it names."""
    place: int = NUMBER_MIN
    """The largest place delivered at so far."""
    at_views: list[AtView] = field(default_factory=list)
    """By regular view, in their order."""
    at_ends: list[AtView] = field(default_factory=list)
    """The same by `leave` and `crash` row."""
    sent_pos: int = -1
    """The position of its last send, -1 for none."""
    heard_pos: int = -1
    """The position of its last delivery, -1 for none."""
    first_ordered: tuple[int, int] | None = None
    """Source and number of its first ordered delivery."""
    last_seq: int | None = None
    fallen: list[Fallen] = field(default_factory=list)


@dataclass
class Surveyed:
    """What a survey found."""

    files: list[File]
    codes: Codes
    strands: dict[tuple[tuple[str, str], int], Strand] = field(default_factory=dict)
    events: int = 0
    quarantined: list[tuple[str, Array | None, str]] = field(default_factory=list)
    """File, rows (None for the file itself or its rest) and reason."""
    torn: set[int] = field(default_factory=set)
    met: set[int] = field(default_factory=set)
    """Lives with sound rows, judged or not."""
    recovered: set[int] = field(default_factory=set)
    """Files without a footer of their own."""
    contradicted: list[str] = field(default_factory=list)
    """Lives that a second file tells otherwise."""

    @property
    def quarantine_count(self) -> int:
        return sum(1 if rows is None else len(rows) for _, rows, _ in self.quarantined)


class Survey:
    """Reads the files of a run, or of one chain of it."""

    def __init__(self, files: Iterable[File], piece_rows: int, keep: bool) -> None:
        self.found = Surveyed(list(files), Codes())
        self._piece_rows = piece_rows
        self._keep = keep
        self._told: dict[int, int] = {}
        self._cut: set[int] = set()
        self._broken: set[int] = set()
        self._chains: dict[int, set[int]] = {}
        self._twice: set[int] = set()
        """Lives that are told again."""

    def run(self) -> Surveyed:
        for index, file in enumerate(self.found.files):
            self._read(index, file)
        for chain in self._broken:
            self.found.torn |= self._chains[chain]
        if self._twice:
            paths = [Path(os.fsdecode(file.at)) for file in self.found.files]
            names = [self.found.codes.names[life] for life in sorted(self._twice)]
            self.found.contradicted = sorted(f"{n}#{i}" for n, i in contradicted(paths, names))
        return self.found

    def _read(self, index: int, file: File) -> None:
        if file.gap:
            self._broken.add(file.chain)
        after = file.chain in self._broken
        part = WordedPart(Path(os.fsdecode(file.at)), together=self._keep)
        last: dict[int, int] = {}
        fresh: set[int] = set()
        start = 0
        for number, table in enumerate(part.tables()):
            group = read_group(table, self.found.codes)
            self._take(group, (index, number), start, after, last, fresh)
            start += table.num_rows
        if part.lost:
            self.found.quarantined.append((file.name, None, part.lost))
        if part.torn:
            self._broken.add(file.chain)
        if part.recovered:
            self.found.recovered.add(index)
        if part.torn or after:
            self._cut |= fresh
        for life, step in last.items():
            self._told[life] = max(step, self._told.get(life, -1))
        self.found.met |= last.keys()
        self._chains.setdefault(file.chain, set()).update(fresh)

    def _take(
        self,
        group: LoadedRowGroup,
        at: tuple[int, int],
        start: int,
        after: bool,
        last: dict[int, int],
        fresh: set[int],
    ) -> None:
        name = self.found.files[at[0]].name
        sound = None if group.bad is None else ~group.bad
        if group.bad is not None:
            self._put_aside(group, name, start)
        lives = np.unique(group.life if sound is None else group.life[sound]).tolist()
        for life in lives:
            mine = None
            if sound is not None or len(lives) > 1:
                mine = group.life == life if sound is None else (group.life == life) & sound
            steps = group.step if mine is None else group.step[mine]
            last[life] = max(int(steps.max()), last.get(life, -1))
            told = self._told.get(life, -1)
            if int(steps.min()) <= told:
                everyone = np.ones(len(group.kind), np.bool_) if mine is None else mine
                twice = everyone & (group.step <= told)
                self._aside(name, twice, start, TOLD_TWICE)
                self._twice.add(life)
                mine = everyone & ~twice
                if not mine.any():
                    continue
            fresh.add(life)
            if after or life in self._cut:
                everyone = np.ones(len(group.kind), np.bool_) if mine is None else mine
                self._aside(name, everyone, start, AFTER_TORN)
                continue
            for code, history in enumerate(group.histories):
                if len(group.histories) == 1:
                    self._strand(group, at, life, history, mine)
                    continue
                here = group.history == code
                here = here if mine is None else here & mine
                if here.any():
                    self._strand(group, at, life, history, here)

    def _put_aside(self, group: LoadedRowGroup, name: str, start: int) -> None:
        assert group.bad is not None
        reasons: dict[str, list[int]] = {}
        for row in np.flatnonzero(group.bad).tolist():
            reasons.setdefault(group.reason(row), []).append(row + start)
        for reason, rows in reasons.items():
            self.found.quarantined.append((name, np.array(rows, np.int64), reason))

    def _aside(self, name: str, rows: Array, start: int, reason: str) -> None:
        if rows.any():
            self.found.quarantined.append((name, np.flatnonzero(rows) + start, reason))

    def _strand(
        self,
        group: LoadedRowGroup,
        at: tuple[int, int],
        life: int,
        history: tuple[str, str],
        mine: Array | None,
    ) -> None:
        strand = self.found.strands.get((history, life))
        if strand is None:
            strand = self.found.strands[history, life] = Strand(history, life)
        count = len(group.kind)
        for start in range(0, count, self._piece_rows):
            stop = min(start + self._piece_rows, count)
            self._piece(
                strand, group, at, (start, stop), None if mine is None else mine[start:stop]
            )

    def _piece(
        self,
        strand: Strand,
        group: LoadedRowGroup,
        at: tuple[int, int],
        span: tuple[int, int],
        mine: Array | None,
    ) -> None:
        start, stop = span
        kind = group.kind[start:stop]
        if mine is None:
            rows = stop - start
            pos = np.arange(strand.count, strand.count + rows, dtype=np.int64)
        else:
            rows = int(mine.sum())
            pos = strand.count - 1 + np.cumsum(mine, dtype=np.int64)
        if not rows:
            return
        first_pos = strand.count
        strand.count += rows
        last = rows - 1 if mine is None else int(np.flatnonzero(mine)[-1])
        strand.told_us = int(group.said.t_us[start + last])
        self.found.events += rows
        few = IS_FEW[kind] if mine is None else IS_FEW[kind] & mine
        rare = [
            group.row(start + row)._replace(step=int(pos[row]))
            for row in np.flatnonzero(few).tolist()
        ]
        strand.few += rare
        spoke = (kind == SEND) | (kind == DELIVER)
        if mine is not None:
            spoke &= mine
        said = group.said.take(slice(start, stop))
        said.pos = pos
        if not spoke.all():
            said = said.take(spoke)
        for row in rare:
            if row.kind == "view":
                self._note_view(strand, said, row)
            elif row.kind in ENDS:
                strand.at_ends.append(self._had(strand, said, row)[0])
        if len(said):
            mask = None if mine is None else np.packbits(mine).tobytes()
            piece = Piece(*at, start, stop, mask, first_pos, len(said), *numbers_of(said))
            piece.said = said if self._keep else None
            strand.pieces.append(piece)
            strand.place = max(strand.place, piece.place)
            for source, number in zip(piece.sources.tolist(), piece.heard.tolist(), strict=True):
                if number > strand.heard.get(source, (0,))[0]:
                    strand.heard[source] = number, said
            self._measure(strand, said)

    def _had(self, strand: Strand, said: EventColumns, row: Row) -> tuple[AtView, Heard]:
        """What the life had delivered before this row."""
        before = said.take(~said.send & (said.pos < row.step))
        places = before.seq[before.placed]
        place = max(strand.place, int(places.max()) if len(places) else NUMBER_MIN)
        best = dict(strand.heard)
        for source in np.unique(before.source).tolist():
            number = int(before.number[before.source == source].max())
            if number > best.get(source, (0,))[0]:
                best[source] = number, before
        heard = {source: number for source, (number, _) in best.items()}
        return AtView(row.step, place, heard), best

    def _note_view(self, strand: Strand, said: EventColumns, view: Row) -> None:
        """What the life had delivered before a view, as far as laws ask."""
        at_view, best = self._had(strand, said, view)
        strand.at_views.append(at_view)
        codes, life = self.found.codes, self.found.codes.names[strand.life]
        for sender in cut_of(view.detail):
            name, _, incarnation = sender.rpartition("#")
            source = codes.lives.get((name, int(incarnation)), -1)
            if source in best:
                number, rows = best[source]
                at = np.flatnonzero(~rows.send & (rows.source == source) & (rows.number == number))
                strand.marks.append(rows.row(int(at[0]), life, codes, strand.history))

    def _measure(self, strand: Strand, said: EventColumns) -> None:
        codes, life = self.found.codes, self.found.codes.names[strand.life]
        sends = int(said.send.sum())
        strand.sent += sends
        strand.delivered += len(said) - sends
        if sends:
            strand.sent_pos = int(said.pos[said.send][-1])
        if sends < len(said):
            strand.heard_pos = int(said.pos[~said.send][-1])
        strand.octets += int(said.size[~said.send].sum(dtype=np.int64))
        low, high = int(said.t_us.min()), int(said.t_us.max())
        strand.t_low = low if strand.t_low is None else min(low, strand.t_low)
        strand.t_high = high if strand.t_high is None else max(high, strand.t_high)
        if sends:
            largest = int(np.where(said.send, said.number, 0).argmax())
            before = strand.last_send
            if before is None or int(said.number[largest]) > (before.number or 0):
                strand.last_send = said.row(largest, life, codes, strand.history)
            if strand.probe is None and said.probe.any():
                at = int(said.probe.argmax())
                strand.probe = said.row(at, life, codes, strand.history)
        self._place(strand, said)

    def _place(self, strand: Strand, said: EventColumns) -> None:
        ordered = np.flatnonzero(~said.send & (said.level >= AGREED))
        if not len(ordered):
            return
        if strand.first_ordered is None:
            at = ordered[0]
            strand.first_ordered = int(said.source[at]), int(said.number[at])
        strand.last_seq, fallen = places_fallen(said, ordered, strand.last_seq)
        strand.fallen += fallen


def places_fallen(
    said: EventColumns, ordered: Array, last: int | None
) -> tuple[int | None, list[Fallen]]:
    """Of ordered deliveries, those whose place is not above that of the one before, which for the
    first of them is `last`; and the last place."""
    placed = ordered[said.placed[ordered]]
    if not len(placed):
        return last, []
    seq = said.seq[placed]
    before = np.empty_like(seq)
    before[1:] = seq[:-1]
    before[0] = seq[0] if last is None else last
    fallen = np.flatnonzero(seq <= before)
    if last is None:
        fallen = fallen[fallen > 0]
    rows: list[Fallen] = [
        Fallen(
            int(said.source[placed[at]]),
            int(said.number[placed[at]]),
            int(seq[at]),
            int(before[at]),
        )
        for at in fallen.tolist()
    ]
    return int(seq[-1]), rows
