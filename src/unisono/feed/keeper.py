"""Which offsets the log holds and lacks, and what to append next.

A *stretch* is a part of the log in which offset = base + the group's own sequence number. A new one
begins when the group was founded anew, with a gap row that has an offset of its own. Pure except
for reading the log; each result is appended in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from unisono.errors import Misuse
from unisono.feed import rows
from unisono.feed.epochs import FeedMeta, LogEpoch, meta_of
from unisono.feed.writers import Writers
from unisono.log import BadLog, Log, LogBatch
from unisono.model import Message, View

STRETCHES_COUNT_MAX: Final = 256
"""Stretches remembered; beyond, the oldest is forgotten."""
VIEWS_COUNT_MAX: Final = 1024
"""Views that wait for a message; beyond, the oldest is forgotten."""
KEY, VIEWS, ALONE = "feed", "views", "alone"


@dataclass(slots=True)
class Append:
    """What to make durable in one transaction."""

    batches: list[LogBatch] = field(default_factory=list)
    meta: dict[str, str | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.batches or self.meta)


class Keeper:
    """Maps the group's stream to appends. One call at a time, each appended before the next."""

    def __init__(self, log: Log, group: str) -> None:
        self._log = log
        self.group = group
        self.incarnation = ""
        self.stretches: list[LogEpoch] = []
        self._lost = 0
        """The last offset of this stretch that is lost: others are given nothing before it."""
        self._delivered = 0
        """Messages that the group had delivered when we joined."""
        self.opening = 0
        """The offsets up to this one were lost before there was a feed."""
        self._is_open = False
        """Whether the last stretch is that of the current incarnation."""
        self._views: list[dict[str, Any]] = []
        """Rows that wait for the message after them."""
        self._early: list[tuple[View, int]] = []
        """Views of an incarnation without messages so far."""
        self.writers = Writers(log)
        self._remember()

    def _remember(self) -> None:
        saved = self._log.meta(KEY)
        if saved is None:
            if self._log.last:
                raise Misuse(f"{self._log.directory}: not the log of a feed; name another")
            return
        try:
            known = meta_of(saved)
            self._views = json.loads(self._log.meta(VIEWS) or "[]")
        except ValueError:
            raise BadLog(f"{self._log.path}: malformed metadata of a feed") from None
        if known.group != self.group:
            raise Misuse(
                f"{self._log.directory} is the log of the group {known.group!r}, not of"
                f" {self.group!r}: name another directory"
            )
        self.stretches = [*known.stretches]
        self._lost, self.opening = known.lost, known.opening

    # -- inspection -------------------------------------------------------------------------------

    @property
    def base(self) -> int:
        return self.stretches[-1].base if self.stretches else 0

    @property
    def is_open(self) -> bool:
        return self._is_open

    def missing(self) -> list[tuple[int, int]]:
        """First and last offset of each hole: what the group delivered and the log lacks."""
        if not self._is_open:
            return []
        holes = self._log.holes()
        upto = self.base + self._delivered
        if self._log.last < upto:
            holes.append((self._log.last + 1, upto))
        return holes

    def solid(self) -> tuple[int, int]:
        """First and last sequence number, in this incarnation, that we can give to others."""
        if not self._is_open or not self.stretches:
            return 0, 0
        stretch = self.stretches[-1]
        first = max(self._log.first, stretch.begins, self._lost + 1)
        if self._log.end < first:
            return 0, 0
        return first - stretch.base, self._log.end - stretch.base

    def tails(self) -> list[tuple[int, int, int]]:
        """What we hold of this incarnation, each part as its base and its first and last sequence
        number: up to the first hole, after the last, and before another incarnation intervened."""
        if not self._is_open or not self.stretches:
            return []
        stretch, log = self.stretches[-1], self._log
        first, last = self.solid()
        found = [(stretch.base, first, last)] if last else []
        if holes := log.holes():
            after = max(holes[-1][1] + 1, stretch.begins)
            found.append((stretch.base, after - stretch.base, log.last - stretch.base))
        former = next(
            (s for s in reversed(self.stretches[:-1]) if s.incarnation == self.incarnation), None
        )
        if former is not None and log.last < stretch.begins:
            first = max(former.begins, log.first) - former.base
            found.append((former.base, first, log.last - stretch.base))
        return [each for each in found if each[1] <= each[2]]

    # -- events -----------------------------------------------------------------------------------

    def enter(
        self,
        incarnation: str,
        delivered: int,
        t_us: int,
        writers: Mapping[tuple[str, int], tuple[int, int]] = MappingProxyType({}),
        ordered: int = 0,
    ) -> Append:
        """We joined this incarnation of the group after `delivered` messages. The group knows these
        writers, as of `ordered` messages."""
        self.incarnation, self._delivered = incarnation, delivered
        self._early = []
        made = Append()
        self._views = [cells for cells in self._views if self._is_free(cells["place"])]
        ours = bool(self.stretches) and self.stretches[-1].incarnation == incarnation
        self._is_open = ours
        held = self._log.last - self.base
        if ours and held > delivered:
            made = self.take_back(delivered, t_us)
        elif not ours and delivered:
            # Without messages it may be one of two foundings that will merge.
            self._begin_anew(made, t_us)
        self.writers.expect(self.base + ordered, writers)
        return made

    def deliver(self, items: Sequence[object], t_us: int) -> Append:
        """The next items of the stream."""
        made = Append()
        run: list[Message] = []
        views_before = len(self._views)
        for item in items:
            if isinstance(item, Message):
                if item.seq is None:  # Of an unordered service: it has no offset.
                    continue
                if not self._is_open:
                    self._begin_anew(made, t_us)
                run.append(item)
            elif isinstance(item, View):
                self._see(item, t_us)
        batches = self._batches(run, t_us, after=max(self._log.last, self._end_of(made)))
        made.batches += batches
        made.meta |= self.writers.note(run, self.base, self._log.end)
        if views_before or self._views:
            made.meta[VIEWS] = json.dumps(self._views) if self._views else None
        return made

    def fill(self, messages: Sequence[Message], t_us: int) -> Append:
        """Recalled messages that fill holes; what the log holds already is left out."""
        made = Append()
        for first, last in self.missing():
            inside = [m for m in messages if first <= self.base + (m.seq or 0) <= last]
            made.batches += self._batches(inside, t_us, after=first - 1)
        made.meta |= self.writers.note((), self.base, self._log.end)
        if made and self._log.meta(VIEWS) is not None:
            made.meta[VIEWS] = json.dumps(self._views) if self._views else None
        return made

    def lose(self, first: int, last: int, why: str, t_us: int) -> Append:
        """No member has these offsets any more: record it in a gap row at the last of them."""
        made = Append()
        count = last - first + 1
        gap = self._gap(last, f"offsets {first} to {last} are lost: {why}", count, t_us)
        made.batches.append(self._batch([*self._views_at(first, last), gap], first, last))
        self._lost = max(self._lost, last)
        self._open_after(first, last)
        self.writers.lose()
        self._keep(made)
        return made

    def _open_after(self, first: int, last: int) -> None:
        if first == self.opening + 1:
            self.opening = last

    def take_back(self, upto: int, t_us: int) -> Append:
        """The group has other messages after `upto` than the log: those of the log stay, a gap row
        follows, then the group's."""
        made = Append()
        detail = f"the group replaced its messages after {upto}: the new ones follow"
        self._begin(made, upto, detail, self._log.last - self.base - upto, t_us)
        return made

    def left_alone(self) -> Append:
        """We leave as the last member: a new founding misses nothing."""
        noted = self.writers.note((), self.base, self._log.end)
        return Append(meta={ALONE: self.incarnation, **noted})

    # -- stretches --------------------------------------------------------------------------------

    def _begin_anew(self, made: Append, t_us: int) -> None:
        if not self.stretches:
            self._is_open = True
            self.stretches = [LogEpoch(self.incarnation, 0, 1)]
            self._keep(made)
            self._late_views(t_us)
            return
        before = self.stretches[-1]
        known = next(
            (s for s in reversed(self.stretches) if s.incarnation == self.incarnation), None
        )
        # An incarnation seen before another one: continue where we left it.
        at = self.stretches.index(known) + 1 if known is not None else 0
        reached = self.stretches[at].begins - 2 - known.base if known is not None else 0
        if self._log.meta(ALONE) == before.incarnation and known is None:
            detail, lost = (
                f"the group was founded anew after {before.incarnation}: nothing is lost",
                0,
            )
        else:
            detail = (
                f"the group was founded anew: messages of {before.incarnation} after offset"
                f" {self._log.end} are unknown"
            )
            lost = None
        if reached > self._delivered:
            detail += (
                f"; {self.incarnation} returns and replaces its messages after"
                f" {self._delivered}, up to {reached}"
            )
        self._begin(made, max(0, min(reached, self._delivered)), detail, lost, t_us)
        made.meta[ALONE] = None

    def _begin(self, made: Append, reached: int, detail: str, lost: int | None, t_us: int) -> None:
        """Begin a stretch after a gap row; the log has the incarnation's messages up to
        `reached`."""
        for first, last in self._log.holes():
            gap = f"offsets {first} to {last} are lost: no member is left that had them"
            row = self._gap(last, gap, last - first + 1, t_us)
            made.batches.append(self._batch([row], first, last))
            self._open_after(first, last)
        offset = self._log.last + 1
        self._views = []
        made.meta[VIEWS] = None
        gap_row = self._gap(offset, detail, lost, t_us)
        made.batches.append(self._batch([gap_row], offset, offset))
        self.stretches.append(LogEpoch(self.incarnation, offset - reached, offset + 1))
        del self.stretches[:-STRETCHES_COUNT_MAX]
        self._is_open = True
        self._keep(made)
        self._late_views(t_us)

    def _keep(self, made: Append) -> None:
        made.meta[KEY] = FeedMeta(
            self.group, (*self.stretches,), self._lost, self.opening
        ).encoded()

    # -- rows -------------------------------------------------------------------------------------

    def _see(self, view: View, t_us: int) -> None:
        if not self._is_open:
            self._early.append((view, t_us))
            del self._early[:-VIEWS_COUNT_MAX]
            return
        offset = self.base + (view.seq or 0) + 1
        self._views.append(rows.view_cells(view, offset, self.group, self.incarnation, t_us))
        del self._views[:-VIEWS_COUNT_MAX]

    def _late_views(self, t_us: int) -> None:
        early, self._early = self._early, []
        for view, seen_us in early:
            self._see(view, seen_us)

    def _views_at(self, first: int, last: int) -> list[pa.RecordBatch]:
        """The views before messages of these offsets."""
        due = [cells for cells in self._views if first <= cells["place"] <= last]
        self._views = [cells for cells in self._views if cells not in due]
        return [rows.row(**cells) for cells in due]

    def _is_free(self, offset: int) -> bool:
        """Whether the offset can still be appended."""
        holes = self._log.holes()
        return offset > self._log.last or any(first <= offset <= last for first, last in holes)

    def _batches(self, run: Sequence[Message], t_us: int, after: int) -> list[LogBatch]:
        """Messages in order as batches without holes; those not after this offset are left out."""
        base, made = self.base, list[LogBatch]()
        fresh = [m for m in run if base + (m.seq or 0) > after]
        start = 0
        for at in range(1, len(fresh) + 1):
            if at == len(fresh) or fresh[at].seq != (fresh[at - 1].seq or 0) + 1:
                made.append(self._of_messages(fresh[start:at], t_us))
                start = at
        return made

    def _of_messages(self, run: Sequence[Message], t_us: int) -> LogBatch:
        base, parts, start = self.base, list[pa.RecordBatch](), 0
        first, last = base + (run[0].seq or 0), base + (run[-1].seq or 0)
        while start < len(run):
            offset = base + (run[start].seq or 0)
            parts += self._views_at(first, offset)
            waiting = [c["place"] for c in self._views if offset < c["place"] <= last]
            later = min(waiting, default=last + 1)
            end = min(len(run), start + later - offset)
            part = (run[start:end], base, self.group, self.incarnation, t_us)
            parts.append(rows.messages_rows(*part))
            start = end
        return self._batch(parts, first, last)

    def _gap(self, offset: int, detail: str, lost: int | None, t_us: int) -> pa.RecordBatch:
        """`lost` is the number of messages lost, None if unknown."""
        return rows.row(
            place=offset,
            kind=rows.GAP,
            group=self.group,
            life=self.incarnation,
            number=lost,
            detail=detail,
            t_us=t_us,
        )

    def _batch(self, parts: list[pa.RecordBatch], first: int, last: int) -> LogBatch:
        whole = rows.together(parts)
        return LogBatch(first, last, rows.encoded(whole), whole.num_rows)

    @staticmethod
    def _end_of(made: Append) -> int:
        return max((batch.last for batch in made.batches), default=0)
