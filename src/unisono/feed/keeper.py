"""Which places the log has, gives and lacks: what a feed knows, and keeps in its log.

A *stretch* is a part of the log in which place = base + the group's own count of its messages. A
new one begins when the group was founded anew, with a gap row that takes a place of its own. Pure
but for the log it asks; what it answers is appended in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from unisono.errors import Misuse
from unisono.feed import rows
from unisono.feed.epochs import Books, LogEpoch, books_of
from unisono.log import BadLog, Log, LogBatch
from unisono.model import Message, View

STRETCHES_COUNT_MAX: Final = 256
"""More than so many are not remembered; the oldest is forgotten first."""
VIEWS_COUNT_MAX: Final = 1024
"""Views that wait for a message; more, and the oldest is forgotten."""
KEY, VIEWS, ALONE = "feed", "views", "alone"


@dataclass(slots=True)
class Append:
    """What is to be made durable together."""

    batches: list[LogBatch] = field(default_factory=list)
    meta: dict[str, str | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.batches or self.meta)


class Keeper:
    """The feed's books. One call at a time, each appended before the next."""

    def __init__(self, log: Log, group: str) -> None:
        self._log = log
        self.group = group
        self.life = ""
        self.stretches: list[LogEpoch] = []
        self._lost = 0
        """The last place of this stretch that is lost: what is before it is told to nobody."""
        self._heard = 0
        """How many messages the group had said when we came."""
        self.opening = 0
        """Up to here the log begins with what was lost before there was a feed."""
        self._is_open = False
        """Whether the last stretch is the one we hear."""
        self._views: list[dict[str, Any]] = []
        """Rows that wait for the message after them."""
        self._early: list[tuple[View, int]] = []
        """Views of a life that has said nothing yet."""
        self.skipped_count = 0
        """Messages without a place: of a service that has no order."""
        self._remember()

    def _remember(self) -> None:
        told = self._log.meta(KEY)
        if told is None:
            if self._log.last:
                raise Misuse(f"{self._log.directory}: this log is not a feed's; name another")
            return
        try:
            known = books_of(told)
            self._views = json.loads(self._log.meta(VIEWS) or "[]")
        except ValueError:
            raise BadLog(f"{self._log.path}: what the feed knew is not readable") from None
        if known.group != self.group:
            raise Misuse(
                f"{self._log.directory} is the log of the group {known.group!r}, not of"
                f" {self.group!r}: name another directory"
            )
        self.stretches = [*known.stretches]
        self._lost, self.opening = known.lost, known.opening

    # -- what is known ----------------------------------------------------------------------------

    @property
    def base(self) -> int:
        return self.stretches[-1].base if self.stretches else 0

    @property
    def is_open(self) -> bool:
        return self._is_open

    def missing(self) -> list[tuple[int, int]]:
        """Places that the group has said and we have not, first and last of each hole."""
        if not self._is_open:
            return []
        holes = self._log.holes()
        upto = self.base + self._heard
        if self._log.last < upto:
            holes.append((self._log.last + 1, upto))
        return holes

    def solid(self) -> tuple[int, int]:
        """The group's own counts of what we can tell others of this life, first and last."""
        if not self._is_open or not self.stretches:
            return 0, 0
        stretch = self.stretches[-1]
        first = max(self._log.first, stretch.begins, self._lost + 1)
        if self._log.end < first:
            return 0, 0
        return first - stretch.base, self._log.end - stretch.base

    def tails(self) -> list[tuple[int, int, int]]:
        """What we hold of this life, each part as its base and the first and last of its counts:
        up to the first hole, after the last, and before another life came between."""
        if not self._is_open or not self.stretches:
            return []
        stretch, log = self.stretches[-1], self._log
        first, last = self.solid()
        found = [(stretch.base, first, last)] if last else []
        if holes := log.holes():
            after = max(holes[-1][1] + 1, stretch.begins)
            found.append((stretch.base, after - stretch.base, log.last - stretch.base))
        former = next((s for s in reversed(self.stretches[:-1]) if s.life == self.life), None)
        if former is not None and log.last < stretch.begins:
            first = max(former.begins, log.first) - former.base
            found.append((former.base, first, log.last - stretch.base))
        return [each for each in found if each[1] <= each[2]]

    # -- what happens -----------------------------------------------------------------------------

    def enter(self, life: str, heard: int, t_us: int) -> Append:
        """We are in a group of this life, which has said so many messages before."""
        self.life, self._heard = life, heard
        self._early = []
        made = Append()
        self._views = [cells for cells in self._views if self._is_free(cells["place"])]
        ours = bool(self.stretches) and self.stretches[-1].life == life
        self._is_open = ours
        held = self._log.last - self.base
        if ours and held > heard:
            made = self.take_back(heard, t_us)
        elif not ours and heard:
            # While it has said nothing, it may be one of two that will become one.
            self._begin_anew(made, t_us)
        return made

    def hear(self, items: Sequence[object], t_us: int) -> Append:
        """The next of the stream."""
        made = Append()
        run: list[Message] = []
        views_before = len(self._views)
        for item in items:
            if isinstance(item, Message):
                if item.seq is None:
                    self.skipped_count += 1
                    continue
                if not self._is_open:
                    self._begin_anew(made, t_us)
                run.append(item)
            elif isinstance(item, View):
                self._see(item, t_us)
        batches = self._batches(run, t_us, after=max(self._log.last, self._end_of(made)))
        made.batches += batches
        if views_before or self._views:
            made.meta[VIEWS] = json.dumps(self._views) if self._views else None
        return made

    def fill(self, messages: Sequence[Message], t_us: int) -> Append:
        """Of what was missing, what others told us; what is there already is left out."""
        made = Append()
        for first, last in self.missing():
            inside = [m for m in messages if first <= self.base + (m.seq or 0) <= last]
            made.batches += self._batches(inside, t_us, after=first - 1)
        if made and self._log.meta(VIEWS) is not None:
            made.meta[VIEWS] = json.dumps(self._views) if self._views else None
        return made

    def lose(self, first: int, last: int, why: str, t_us: int) -> Append:
        """Nobody can tell us these places: a gap row says so, at the last of them."""
        made = Append()
        count = last - first + 1
        gap = self._gap(last, f"places {first} to {last} are lost: {why}", count, t_us)
        made.batches.append(self._batch([*self._views_at(first, last), gap], first, last))
        self._lost = max(self._lost, last)
        self._open_after(first, last)
        self._keep(made)
        return made

    def _open_after(self, first: int, last: int) -> None:
        if first == self.opening + 1:
            self.opening = last

    def take_back(self, upto: int, t_us: int) -> Append:
        """The group no longer says what we have after its message `upto`: what we have stays, a gap
        row says so, and what the group says instead follows it."""
        made = Append()
        told = f"the group takes back what it had said after its message {upto}, and says it anew"
        self._begin(made, upto, told, self._log.last - self.base - upto, t_us)
        return made

    def left_alone(self) -> Append:
        """We leave as the last of the group: whoever founds it anew has missed nothing."""
        return Append(meta={ALONE: self.life})

    # -- stretches --------------------------------------------------------------------------------

    def _begin_anew(self, made: Append, t_us: int) -> None:
        if not self.stretches:
            self._is_open = True
            self.stretches = [LogEpoch(self.life, 0, 1)]
            self._keep(made)
            self._late_views(t_us)
            return
        before = self.stretches[-1]
        known = next((s for s in reversed(self.stretches) if s.life == self.life), None)
        # A life that we have seen before another: go on where we left it.
        at = self.stretches.index(known) + 1 if known is not None else 0
        reached = self.stretches[at].begins - 2 - known.base if known is not None else 0
        if self._log.meta(ALONE) == before.life and known is None:
            told, lost = f"the group was founded anew after {before.life}: nothing is lost", 0
        else:
            told = (
                f"the group was founded anew: what {before.life} said after place"
                f" {self._log.end} is not known"
            )
            lost = None
        if reached > self._heard:
            told += (
                f"; and {self.life}, which returns, takes back what it had said after its message"
                f" {self._heard}, up to {reached}"
            )
        self._begin(made, max(0, min(reached, self._heard)), told, lost, t_us)
        made.meta[ALONE] = None

    def _begin(self, made: Append, reached: int, told: str, lost: int | None, t_us: int) -> None:
        """A new stretch, after a gap row; the life's messages up to `reached` stand before it."""
        for first, last in self._log.holes():
            gap = f"places {first} to {last} are lost: nobody is left to tell them"
            row = self._gap(last, gap, last - first + 1, t_us)
            made.batches.append(self._batch([row], first, last))
            self._open_after(first, last)
        place = self._log.last + 1
        self._views = []
        made.meta[VIEWS] = None
        gap_row = self._gap(place, told, lost, t_us)
        made.batches.append(self._batch([gap_row], place, place))
        self.stretches.append(LogEpoch(self.life, place - reached, place + 1))
        del self.stretches[:-STRETCHES_COUNT_MAX]
        self._is_open = True
        self._keep(made)
        self._late_views(t_us)

    def _keep(self, made: Append) -> None:
        made.meta[KEY] = Books(self.group, (*self.stretches,), self._lost, self.opening).written()

    # -- rows -------------------------------------------------------------------------------------

    def _see(self, view: View, t_us: int) -> None:
        if not self._is_open:
            self._early.append((view, t_us))
            del self._early[:-VIEWS_COUNT_MAX]
            return
        place = self.base + (view.seq or 0) + 1
        self._views.append(rows.view_cells(view, place, self.group, self.life, t_us))
        del self._views[:-VIEWS_COUNT_MAX]

    def _late_views(self, t_us: int) -> None:
        early, self._early = self._early, []
        for view, seen_us in early:
            self._see(view, seen_us)

    def _views_at(self, first: int, last: int) -> list[pa.RecordBatch]:
        """The views that stand before messages of these places."""
        due = [cells for cells in self._views if first <= cells["place"] <= last]
        self._views = [cells for cells in self._views if cells not in due]
        return [rows.row(**cells) for cells in due]

    def _is_free(self, place: int) -> bool:
        """Whether something may still be put there."""
        holes = self._log.holes()
        return place > self._log.last or any(first <= place <= last for first, last in holes)

    def _batches(self, run: Sequence[Message], t_us: int, after: int) -> list[LogBatch]:
        """Messages in order as batches without holes; those not after this place are left out."""
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
            place = base + (run[start].seq or 0)
            parts += self._views_at(first, place)
            waiting = [c["place"] for c in self._views if place < c["place"] <= last]
            later = min(waiting, default=last + 1)
            end = min(len(run), start + later - place)
            told = (run[start:end], base, self.group, self.life, t_us)
            parts.append(rows.messages_rows(*told))
            start = end
        return self._batch(parts, first, last)

    def _gap(self, place: int, detail: str, lost: int | None, t_us: int) -> pa.RecordBatch:
        """`number` says how many messages are lost, null when nobody knows."""
        return rows.row(
            place=place,
            kind=rows.GAP,
            group=self.group,
            life=self.life,
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
