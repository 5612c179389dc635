"""Between two incarnations: whether to join again, after how long, and what `Rejoined` reports."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final, NamedTuple

from unisono.core import Cause
from unisono.delivered_counts import DeliveredCounts
from unisono.model import Member, View
from unisono.net.outstanding import Outstanding
from unisono.net.stream import Rejoined

PAUSE_S: Final = 0.2
PAUSE_MAX_S: Final = 10.0
"""The pause doubles up to this, until an incarnation lasts."""
LASTING_S: Final = 30.0
"""An incarnation that lasts this long resets the pause and the count of setbacks."""
RETURNS_MAX: Final = 32
"""Setbacks in a row before the member stops for good: two processes of one name, for instance,
exclude each other for ever."""
FINAL: Final = frozenset((Cause.MEMORY_LOST, Cause.ATOMICITY_VIOLATED))
"""After these the application must decide: safe messages may be lost."""
APART_COUNT_MAX: Final = 5

log = logging.getLogger("unisono.group")


class Former(NamedTuple):
    """The last incarnation that had a view."""

    reason: str
    cause: Cause
    seq: int | None
    sent: Sent


class Sent(NamedTuple):
    """What an incarnation sent."""

    me: Member
    undelivered: tuple[tuple[int, bytes], ...]
    """By number, what was not delivered here."""

    def beyond(self, count: int) -> tuple[bytes, ...]:
        """What is lost, and not among the first `count`."""
        return tuple(message for number, message in self.undelivered if number > count)


class RejoinPolicy:
    """Called when an incarnation begins, has its first view, and ends."""

    def __init__(self, name: str, rejoin: bool, founds: bool) -> None:
        self.outstanding = Outstanding()
        self._name = name
        self._rejoin = self.asked_for = rejoin
        """The application wants to rejoin after any stop that is not final."""
        self._founds = founds
        """Whether an incarnation that finds no members founds the group."""
        self._setbacks = self._apart_count = 0
        self._began_s = 0.0
        self._former: Former | None = None
        self.inside = False
        """This incarnation has had a view."""

    def give_up(self) -> None:
        """This incarnation is the last."""
        self._rejoin, self._apart_count = False, APART_COUNT_MAX

    def begin(self, me: Member) -> None:
        self.outstanding.begin(me)
        self.inside = False

    def arrived(
        self,
        me: Member,
        view: View,
        now_s: float,
        counts: DeliveredCounts | None = None,
    ) -> Rejoined | None:
        """An incarnation has its first view: returns what the application reads before it.
        `counts`: of the group's state, if it has one."""
        self.inside, self._began_s = True, now_s
        former, self._former = self._former, None
        if former is None:
            return None
        missed = None
        if former.seq is not None and view.seq is not None and view.seq >= former.seq:
            missed = range(former.seq + 1, view.seq + 1)
        sent = former.sent
        again = Rejoined(former.reason, me, former.cause, missed, sent.beyond(0))
        count = counts.of(sent.me, view) if counts is not None else None
        if counts is None or count is None:
            return again
        return replace(again, unsaid=sent.beyond(count), undone=counts.undone(me.name))

    def ended(self, reason: str, cause: Cause, now_s: float) -> None:
        """An incarnation ended, and another follows."""
        if self.inside:
            of = self.outstanding
            assert of.me is not None, "it ended and never began"
            sent = Sent(of.me, of.undelivered())
            self._former = Former(reason, cause, of.seq, sent)
            if now_s - self._began_s >= LASTING_S:
                self._setbacks = 0
        self.inside = False

    def comes_back(self, reason: str, cause: Cause, view: View | None, silent: bool) -> bool:
        """Whether to join again, given the last view of any incarnation, and whether this one sent
        nothing (`silent`)."""
        alone = view is None or len(view.members) == 1
        broken = reason.startswith("internal error")
        if cause in (Cause.REFUSED, Cause.UNREADABLE) and alone:
            return False  # Refused at the first join: joining again would not help.
        superseded = cause is Cause.SUPERSEDED  # Our clock was set back: use a higher number.
        insists = view is not None or (self._founds and not broken)
        if superseded or (self._rejoin and insists):
            why = self._why_not(cause)
            if why:
                log.warning("%s stopped: %s; %s", self._name, reason, why)
            return not why
        # Members that start together may found their group twice before they meet. One that was
        # alone and silent loses nothing by joining the others, so it does so even unasked.
        if view is None or not alone or not silent or broken or not self._founds:
            return False
        self._apart_count += 1
        return self._apart_count <= APART_COUNT_MAX

    def _why_not(self, cause: Cause) -> str:
        """Why not to rejoin; empty if there is no reason."""
        if cause in FINAL:
            return "rejoining would not help"
        if self._setbacks >= RETURNS_MAX:
            return f"rejoined {RETURNS_MAX} times and was stopped each time"
        return ""

    def next_pause_s(self) -> float:
        pause_s = min(PAUSE_MAX_S, PAUSE_S * (1 << min(self._setbacks, 10)))
        self._setbacks += 1
        return pause_s
