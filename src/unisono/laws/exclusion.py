"""The laws of exclusion: who is left out, and what ailed whom.

A world that tells its faults has one clock. A `fault` row ails the nodes that it names (`members`;
the life's own without any), from its time on until its number, and for ever without one; who ends
ails up to then. The details `none` and `healed` ail nobody. Of a life itself `leaving` says that it
is about to leave, and `namesake` that the name is another's: who leaves it out does nothing wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from unisono.laws.verdict import Finding
from unisono.trace.history import ALIVE, EXCLUDED, STOPPED, VANISHED, History, IncarnationTrace
from unisono.trace.record import HEALED, LEAVING, NAMESAKE, NOTHING, Row

AFTER_US: Final = 2_000_000
"""A fault excuses what happens up to this long after its end."""

EVER: Final = 1 << 62


class LeftOut(NamedTuple):
    """Others went on without a life."""

    at_us: int
    who: str
    by: str
    """Who has a view without it; empty when it only stopped."""
    view: str


class _Spells:
    """What ailed one node, or any."""

    def __init__(self) -> None:
        self._spells: list[tuple[int, int]] = []
        self._reach: list[int] = []

    def add(self, from_us: int, until_us: int) -> None:
        self._spells.append((from_us, until_us))

    def close(self) -> None:
        self._spells.sort()
        reach = -EVER
        for _, until_us in self._spells:
            reach = max(reach, until_us)
            self._reach.append(reach)

    def until_us(self, now_us: int) -> int:
        """Until when what had begun by now lasts; before all time for nothing."""
        at = bisect_right(self._spells, (now_us, EVER))
        return self._reach[at - 1] if at else -EVER


class Ailments:
    """The faults of a history, by node."""

    def __init__(self, history: History) -> None:
        self.lives = history.lives
        self._torn = history.torn
        self._last = {
            life.node: life.incarnation
            for life in sorted(self.lives.values(), key=lambda life: life.incarnation)
        }
        """By node its last incarnation."""
        self.told = False
        """Whether the history tells its faults at all."""
        self.anybody = _Spells()
        self._nodes: dict[str, _Spells] = {}
        self._spared_us: dict[str, int] = {}
        """By life, from when on it may be left out."""
        for life in self.lives.values():
            for row in life.rows:
                if row.kind == "fault":
                    self.told = True
                    self._take(life, row)
            if life.key not in self._namesakes:
                end = _end(life)
                if end is not None:
                    # At its own end nothing has ailed it yet.
                    self._ail((life.node,), end.t_us + 1, end.t_us)
        for spells in (self.anybody, *self._nodes.values()):
            spells.close()

    @property
    def _namesakes(self) -> set[str]:
        return {key for key, at_us in self._spared_us.items() if at_us < 0}

    def _take(self, life: IncarnationTrace, row: Row) -> None:
        if row.detail == LEAVING:
            self._spared_us.setdefault(life.key, row.t_us)
        elif row.detail == NAMESAKE:
            self._spared_us[life.key] = -1
        elif row.detail not in (NOTHING, HEALED):
            until_us = EVER if row.number is None else row.number
            self._ail(row.members or (life.node,), row.t_us, until_us)

    def _ail(self, nodes: tuple[str, ...], from_us: int, until_us: int) -> None:
        self.anybody.add(from_us, until_us)
        for node in nodes:
            self._nodes.setdefault(node, _Spells()).add(from_us, until_us)

    def ailed(self, key: str, now_us: int, since_us: int) -> bool:
        """Whether something ailed the node of this life since then."""
        spells = self._nodes.get(self.lives[key].node)
        return spells is not None and spells.until_us(now_us) >= since_us

    def is_spared(self, key: str, now_us: int) -> bool:
        """Whether it may be left out, or is over."""
        life = self.lives[key]
        end = _end(life)
        over = end is not None and end.t_us <= now_us and not _excluded(life)
        return self._spared_us.get(key, EVER) <= now_us or over or not self.is_known(life)

    def is_known(self, life: IncarnationTrace) -> bool:
        """Whether its end is known. A world that tells its faults tells who crashed, too: who has
        no end lives, unless its file is torn, or a later incarnation follows."""
        lost = life.key in self._torn or self._last[life.node] > life.incarnation
        return life.end != VANISHED or not lost

    def since_us(self, key: str, now_us: int) -> int:
        """From when on a fault excuses that it is left out now: shortly before its last view."""
        life = self.lives[key]
        at = bisect_right([row.t_us for row in life.views], now_us)
        if at:
            return life.views[at - 1].t_us - AFTER_US
        return next((row.t_us for row in life.rows if row.kind == "join"), 0) - AFTER_US

    def left_out(self) -> Iterator[LeftOut]:
        """Each time that a life is left out by another, or stops as excluded."""
        for key, life in self.lives.items():
            for before, row in pairwise(life.views):
                for other in sorted({*(before.members or ())} - {*(row.members or ()), key}):
                    end = _end(self.lives[other]) if other in self.lives else None
                    if other in self.lives and (end is None or end.t_us > row.t_us):
                        yield LeftOut(row.t_us, other, key, row.view)
            end = _end(life)
            if end is not None and _excluded(life):
                yield LeftOut(end.t_us, key, "", "")


def _end(life: IncarnationTrace) -> Row | None:
    return next((row for row in life.rows if row.kind in ("leave", "crash")), None)


def _excluded(life: IncarnationTrace) -> bool:
    return life.end == STOPPED and life.cause == EXCLUDED


def exclusion(history: History) -> Iterator[Finding]:
    """Nobody is left out where nothing ailed anybody.

    Asked only of a history that tells its faults (rows of kind `fault`), by its one clock. A life q
    is left out when a life p has a view without q right after one with q, and q has not ended; or
    when q stops with the cause `excluded`. The first time counts, and not when q is leaving, is a
    namesake, or its end is not known: it has none, and its file is torn or a later incarnation
    follows. When nothing that had begun by then ailed anybody since two seconds
    before q's last view, or its `join` row, the law is broken. Named are q, and p or nobody.
    """
    ailments = history.derived(Ailments)
    seen: set[str] = set()
    for each in sorted(ailments.left_out()) if ailments.told else ():
        if each.who in seen or ailments.is_spared(each.who, each.at_us):
            continue
        since_us = ailments.since_us(each.who, each.at_us)
        seen.add(each.who)
        if ailments.anybody.until_us(each.at_us) < since_us:
            how = f"left out of view {each.view}" if each.by else "stopped as excluded"
            yield Finding(each.who, "", each.by, f"{how}, and nothing ailed anybody")


def accuracy(history: History) -> Iterator[Finding]:
    """Nobody is left out that neither failed nor left, and that nothing kept from being heard.

    Asked only of a history that tells its faults. Life q is left out when a life p has a view
    without q right after one with q; or, with no p, when q stopped with the cause `excluded`. It is
    for nothing when q has no other end (see `exclusion`), is not leaving and no namesake, and
    nothing that had begun by then ailed the node of q, or of p, since two seconds before q's last
    view. The violation names q and the smallest such p, or nobody.
    """
    ailments = history.derived(Ailments)
    seen: set[str] = set()
    told = sorted(ailments.left_out(), key=lambda each: (each.who, not each.by, each.by))
    for each in told if ailments.told else ():
        life = history.lives[each.who]
        well = life.end in (ALIVE, VANISHED) or _excluded(life)
        if each.who in seen or not well or ailments.is_spared(each.who, each.at_us):
            continue
        since_us = ailments.since_us(each.who, each.at_us)
        if any(
            ailments.ailed(key, each.at_us, since_us) for key in (each.who, each.by or each.who)
        ):
            continue
        seen.add(each.who)
        how = f"left out of view {each.view}" if each.by else "stopped as excluded,"
        yield Finding(each.who, "", each.by, f"{how} for nothing")
