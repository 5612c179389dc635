"""How a history is divided into shards, from the scans of its files.

A shard is a range of numbers for every sender, with all rows about these messages. The ranges end
where the deliveries of one incarnation stood at some step. Where all deliver in one order that is a
point of everyone's order, and the rows of a shard are adjacent in every file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from unisono.errors import Misuse
from unisono.laws import LAWS
from unisono.spark.laws.columns import FLOORS, NUMBER_MAX, NUMBER_MIN, Array, Codes
from unisono.spark.laws.scan import Chunk, IncarnationSummary, InputFile, ScanResult
from unisono.trace.history import History
from unisono.trace.record import Row

Claims: TypeAlias = Mapping[str, Sequence[str]]
"""By protocol, the laws that it claims."""


def check_claims(claimed: Claims) -> None:
    """`Misuse` when a claimed law does not exist."""
    unknown = sorted({law for laws in claimed.values() for law in laws} - LAWS.keys())
    if unknown:
        raise Misuse(f"no law {', '.join(unknown)}; there are {', '.join(LAWS)}")


class ShardLimits(NamedTuple):
    """How the work is divided; the defaults need about a gigabyte of memory per task."""

    shard_rows: int = 3_000_000
    """A history with more sends and deliveries is judged in shards of about this size."""
    chunk_rows: int = 20_000
    """Statistics are kept for chunks of this many rows of a row group."""
    giant_bytes: int = 24 << 20
    """A run with smaller files is judged whole by one task, which may take several runs."""
    task_bytes: int = 16 << 20
    """A task takes small runs until their files have this size."""
    tasks_max: int = 4_000
    """More shards than this share tasks."""


@dataclass
class HistoryPlan:
    """What every shard of a history needs to know about the whole."""

    history: History
    """Control rows alone; and the latest deliveries before views with a cut, which determine where
    a cut begins."""
    codes: Codes
    files: list[InputFile]
    recovered: set[int]
    members: list[IncarnationSummary]
    """In order of keys."""
    floors: dict[tuple[int, str, int], int]
    """By level, and sender and number of an entry of a cut: the largest number known of the sender
    that is not above it, of a message of that level or above; 0 for none."""
    bins: tuple[int, float] = (0, 1.0)
    """Of the rate curve: where the first begins, and the width of each, in microseconds."""

    @property
    def last_sends(self) -> list[Row]:
        return [member.last_send for member in self.members if member.last_send]

    @property
    def probes(self) -> list[Row]:
        return [member.probe for member in self.members if member.probe]

    def with_rows(self, *rows: Row) -> History:
        """The history with these rows first. A row may be in both."""
        return replace(self.history, rows=tuple(dict.fromkeys((*rows, *self.history.rows))))


class Segment(NamedTuple):
    """Adjacent chunks of one incarnation, and what it had delivered before them."""

    chunks: list[Chunk]
    delivered: Array
    """By floor and source, the largest number delivered with that level or above, 0 for none."""
    own: int
    """The largest number that it had sent with level causal or above."""
    seq: int
    """The largest sequence number delivered, `NUMBER_MIN` for none."""


@dataclass
class Shard:
    plan: HistoryPlan
    """Without chunks."""
    index: int
    low: Array
    """By source: numbers above this one,"""
    high: Array
    """and up to this one."""
    segments: list[list[Segment]]
    """By member."""

    @cached_property
    def is_whole(self) -> bool:
        return not self.low.any() and bool((self.high == NUMBER_MAX).all())

    def has(self, source: Array, number: Array) -> Array:
        inside: Array = (number > self.low[source]) & (number <= self.high[source])
        return inside


def overlapping(scans: Sequence[ScanResult]) -> bool:
    """Whether two chains have rows of one incarnation, so that the order of files matters."""
    seen = [scan.codes.incarnations.names[code] for scan in scans for code in scan.seen]
    return len(set(seen)) < len(seen)


def plans_of(run: str, scans: Sequence[ScanResult]) -> list[HistoryPlan]:
    """One per history of a run, in order of protocol and group."""
    codes = scans[0].codes if len(scans) == 1 else Codes()
    files: list[InputFile] = []
    recovered: set[int] = set()
    torn: set[str] = set()
    by_history: dict[tuple[str, str], list[IncarnationSummary]] = {}
    for scan in scans:
        code_of = np.array([codes.incarnations[n] for n in scan.codes.incarnations.names], np.int32)
        for summary in scan.summaries.values():
            summary.recode(code_of, len(files))
            by_history.setdefault(summary.history, []).append(summary)
        torn |= {scan.codes.key(code) for code in scan.torn}
        recovered |= {len(files) + index for index in scan.recovered}
        files += scan.files
    plans = []
    for (protocol, group), members in sorted(by_history.items()):
        rows = tuple(row for member in members for row in _control_rows(member))
        history = History(run, protocol, group, rows, frozenset(torn))
        members.sort(key=lambda member: member.key)
        plans.append(HistoryPlan(history, codes, files, recovered, members, floors={}))
    return plans


def _control_rows(member: IncarnationSummary) -> Iterator[Row]:
    """With one row that shows that it existed."""
    yield Row(*member.history, *member.name, -1, 0, "timer")
    yield from member.control
    yield from dict.fromkeys(member.cut_marks)


# -- shards --------------------------------------------------------------------------------------


def shards_of(plan: HistoryPlan, limits: ShardLimits) -> list[Shard]:
    """The parts in which a history is judged: one unless it is large."""
    rows = sum(chunk.count for member in plan.members for chunk in member.chunks)
    count = max(1, -(-rows // limits.shard_rows))
    size = len(plan.codes)
    bounds = [np.zeros(size, np.int64), *_cuts(plan, count), np.full(size, NUMBER_MAX)]
    before = [_maxima_before(member.chunks, size) for member in plan.members]
    bare = replace(plan, members=[member.without_chunks() for member in plan.members])
    return [
        Shard(
            bare,
            index,
            low,
            high,
            [
                list(_segments(member.chunks, maxima, low, high))
                for member, maxima in zip(plan.members, before, strict=True)
            ],
        )
        for index, (low, high) in enumerate(itertools.pairwise(bounds))
    ]


def _cuts(plan: HistoryPlan, count: int) -> list[Array]:
    """The numbers by which the shards end, all but the last."""
    if count == 1:
        return []
    size = len(plan.codes)
    chunks_with = np.zeros((len(plan.members), size), np.int64)
    for at, member in enumerate(plan.members):
        for chunk in member.chunks:
            chunks_with[at, chunk.stats.sources] += chunk.stats.first > 0
    leader = int(chunks_with.sum(axis=1).argmax())
    # For a sender that the leader hardly delivers, another member decides.
    enough = chunks_with[leader] * 10 >= chunks_with.max(axis=0) * 9
    guides = np.where(enough, leader, chunks_with.argmax(axis=0))
    cuts = [np.zeros(size, np.int64) for _ in range(count - 1)]
    for guide in np.unique(guides).tolist():
        mine = guides == guide
        chunks = plan.members[guide].chunks
        for cut, numbers in zip(cuts, _numbers_at(chunks, count, size), strict=True):
            cut[mine] = numbers[mine]
    for before, cut in itertools.pairwise(cuts):
        np.maximum(cut, before, out=cut)
    return cuts


def _numbers_at(chunks: list[Chunk], count: int, size: int) -> list[Array]:
    """The numbers delivered at equal parts of an incarnation's deliveries. A single outlier does
    not count: the median of two numbers before the point and one after it."""
    firsts, lasts = np.zeros((2, len(chunks) + 1, size), np.int64)
    for at, chunk in enumerate(chunks):
        firsts[at, chunk.stats.sources] = chunk.stats.first
        lasts[at, chunk.stats.sources] = chunk.stats.last
    found = []
    for part in range(1, count):
        at = round(part * len(chunks) / count)
        cut = np.zeros(size, np.int64)
        for source in range(size):
            before, after = lasts[:at, source], firsts[at:, source]
            around = np.sort(np.append(before[before > 0][-2:], after[after > 0][:1] - 1))
            cut[source] = around[len(around) // 2] if len(around) else 0
        found.append(cut)
    return found


def _maxima_before(chunks: list[Chunk], size: int) -> tuple[Array, Array, Array]:
    """Before each chunk: by floor and source the largest number delivered, the largest number sent,
    and the largest sequence number."""
    delivered = np.zeros((len(chunks) + 1, len(FLOORS), size), np.int64)
    own = np.zeros(len(chunks) + 1, np.int64)
    seq = np.full(len(chunks) + 1, NUMBER_MIN)
    for at, chunk in enumerate(chunks, 1):
        delivered[at][:, chunk.stats.sources] = chunk.stats.delivered
        own[at], seq[at] = chunk.stats.own, chunk.stats.seq
    for maxima in (delivered, own, seq):
        np.maximum.accumulate(maxima, axis=0, out=maxima)
    return delivered, own, seq


def _segments(
    chunks: list[Chunk], before: tuple[Array, Array, Array], low: Array, high: Array
) -> Iterator[Segment]:
    """The chunks with messages of a shard."""
    delivered, own, seq = before
    segment = None
    for at, chunk in enumerate(chunks):
        stats = chunk.stats
        inside = (stats.high > low[stats.sources]) & (stats.low <= high[stats.sources])
        if inside.any():
            if segment is None:
                segment = Segment([], delivered[at], int(own[at]), int(seq[at]))
            segment.chunks.append(chunk)
        elif segment is not None:
            yield segment
            segment = None
    if segment is not None:
        yield segment


def merged(shards: Sequence[Shard]) -> Shard:
    """Consecutive shards as one."""
    segments = []
    for parts in zip(*(shard.segments for shard in shards), strict=True):
        found: dict[tuple[int, int, int], tuple[Chunk, Segment, bool]] = {}
        for segment in itertools.chain.from_iterable(parts):
            for at, chunk in enumerate(segment.chunks):
                old = found.get(chunk.location)
                if old is None or (at == 0 and not old[2]):
                    found[chunk.location] = (chunk, segment, at == 0)
        joined: list[Segment] = []
        for location in sorted(found):
            chunk, segment, is_first = found[location]
            if is_first:
                joined.append(segment._replace(chunks=[]))
            joined[-1].chunks.append(chunk)
        segments.append(joined)
    return replace(shards[0], high=shards[-1].high, segments=segments)
