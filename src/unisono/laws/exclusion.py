"""The laws of exclusion: members that were excluded, and the faults that excuse it.

A world that records its faults has one clock. A `fault` row affects the nodes that it names
(`members`; its own node without any), from its time on until its number, or for ever without one;
the end of an incarnation is a fault up to then. The details `none` and `healed` are no faults.
`leaving` and `namesake` (the name is another's) excuse the exclusion of the incarnation itself.
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


class Exclusion(NamedTuple):
    """The group went on without an incarnation."""

    at_us: int
    excluded: str
    by: str
    """The incarnation with a view without it; empty when it only stopped."""
    view: str


class _Periods:
    """When one node, or any, had a fault."""

    def __init__(self) -> None:
        self._periods: list[tuple[int, int]] = []
        self._reach: list[int] = []

    def add(self, from_us: int, until_us: int) -> None:
        self._periods.append((from_us, until_us))

    def close(self) -> None:
        self._periods.sort()
        reach = -EVER
        for _, until_us in self._periods:
            reach = max(reach, until_us)
            self._reach.append(reach)

    def until_us(self, now_us: int) -> int:
        """The end of the faults that had begun by now; before all time for none."""
        at = bisect_right(self._periods, (now_us, EVER))
        return self._reach[at - 1] if at else -EVER


class Faults:
    """The faults of a history, by node."""

    def __init__(self, history: History) -> None:
        self.lives = history.lives
        self._torn = history.torn
        self._last = {
            trace.node: trace.incarnation
            for trace in sorted(self.lives.values(), key=lambda trace: trace.incarnation)
        }
        """By node its last incarnation."""
        self.recorded = False
        """Whether the history has `fault` rows at all."""
        self.any_node = _Periods()
        self._nodes: dict[str, _Periods] = {}
        self._excused_us: dict[str, int] = {}
        """By incarnation, from when on it may be excluded."""
        for trace in self.lives.values():
            for row in trace.rows:
                if row.kind == "fault":
                    self.recorded = True
                    self._take(trace, row)
            if trace.key not in self._namesakes:
                end = _end(trace)
                if end is not None:
                    # Its end excuses only later exclusions.
                    self._add((trace.node,), end.t_us + 1, end.t_us)
        for periods in (self.any_node, *self._nodes.values()):
            periods.close()

    @property
    def _namesakes(self) -> set[str]:
        return {key for key, at_us in self._excused_us.items() if at_us < 0}

    def _take(self, trace: IncarnationTrace, row: Row) -> None:
        if row.detail == LEAVING:
            self._excused_us.setdefault(trace.key, row.t_us)
        elif row.detail == NAMESAKE:
            self._excused_us[trace.key] = -1
        elif row.detail not in (NOTHING, HEALED):
            until_us = EVER if row.number is None else row.number
            self._add(row.members or (trace.node,), row.t_us, until_us)

    def _add(self, nodes: tuple[str, ...], from_us: int, until_us: int) -> None:
        self.any_node.add(from_us, until_us)
        for node in nodes:
            self._nodes.setdefault(node, _Periods()).add(from_us, until_us)

    def was_faulty(self, key: str, now_us: int, since_us: int) -> bool:
        """Whether the node of this incarnation had a fault since then."""
        periods = self._nodes.get(self.lives[key].node)
        return periods is not None and periods.until_us(now_us) >= since_us

    def is_excused(self, key: str, now_us: int) -> bool:
        """Whether it may be excluded, or is over."""
        trace = self.lives[key]
        end = _end(trace)
        over = end is not None and end.t_us <= now_us and not _excluded(trace)
        return self._excused_us.get(key, EVER) <= now_us or over or not self.is_known(trace)

    def is_known(self, trace: IncarnationTrace) -> bool:
        """Whether its end is known. A world that records faults records crashes: without an end
        row it is alive, unless its file is torn, or a later incarnation follows."""
        lost = trace.key in self._torn or self._last[trace.node] > trace.incarnation
        return trace.end != VANISHED or not lost

    def since_us(self, key: str, now_us: int) -> int:
        """From when on a fault excuses its exclusion now: shortly before its last view."""
        trace = self.lives[key]
        at = bisect_right([row.t_us for row in trace.views], now_us)
        if at:
            return trace.views[at - 1].t_us - AFTER_US
        return next((row.t_us for row in trace.rows if row.kind == "join"), 0) - AFTER_US

    def exclusions(self) -> Iterator[Exclusion]:
        """Each exclusion by another incarnation, and each stop as excluded."""
        for key, trace in self.lives.items():
            for before, row in pairwise(trace.views):
                for other in sorted({*(before.members or ())} - {*(row.members or ()), key}):
                    end = _end(self.lives[other]) if other in self.lives else None
                    if other in self.lives and (end is None or end.t_us > row.t_us):
                        yield Exclusion(row.t_us, other, key, row.view)
            end = _end(trace)
            if end is not None and _excluded(trace):
                yield Exclusion(end.t_us, key, "", "")


def _end(trace: IncarnationTrace) -> Row | None:
    return next((row for row in trace.rows if row.kind in ("leave", "crash")), None)


def _excluded(trace: IncarnationTrace) -> bool:
    return trace.end == STOPPED and trace.cause == EXCLUDED


def exclusion(history: History) -> Iterator[Finding]:
    """No member is excluded while no fault affects any member.

    Asked only of a history that tells its faults (rows of kind `fault`), by its one clock. A life q
    is left out when a life p has a view without q right after one with q, and q has not ended; or
    when q stops with the cause `excluded`. The first time counts, and not when q is leaving, is a
    namesake, or its end is not known: it has none, and its file is torn or a later incarnation
    follows. When nothing that had begun by then ailed anybody since two seconds
    before q's last view, or its `join` row, the law is broken. Named are q, and p or nobody.
    """
    faults = history.derived(Faults)
    seen: set[str] = set()
    for each in sorted(faults.exclusions()) if faults.recorded else ():
        if each.excluded in seen or faults.is_excused(each.excluded, each.at_us):
            continue
        since_us = faults.since_us(each.excluded, each.at_us)
        seen.add(each.excluded)
        if faults.any_node.until_us(each.at_us) < since_us:
            how = f"left out of view {each.view}" if each.by else "stopped as excluded"
            yield Finding(each.excluded, "", each.by, f"{how}, and nothing ailed anybody")


def accuracy(history: History) -> Iterator[Finding]:
    """A member is excluded only if it failed, left, or a fault kept its packets from others.

    Asked only of a history that tells its faults. Life q is left out when a life p has a view
    without q right after one with q; or, with no p, when q stopped with the cause `excluded`. It is
    for nothing when q has no other end (see `exclusion`), is not leaving and no namesake, and
    nothing that had begun by then ailed the node of q, or of p, since two seconds before q's last
    view. The violation names q and the smallest such p, or nobody.
    """
    faults = history.derived(Faults)
    seen: set[str] = set()
    recorded = sorted(faults.exclusions(), key=lambda each: (each.excluded, not each.by, each.by))
    for each in recorded if faults.recorded else ():
        trace = history.lives[each.excluded]
        well = trace.end in (ALIVE, VANISHED) or _excluded(trace)
        if each.excluded in seen or not well or faults.is_excused(each.excluded, each.at_us):
            continue
        since_us = faults.since_us(each.excluded, each.at_us)
        if any(
            faults.was_faulty(key, each.at_us, since_us)
            for key in (each.excluded, each.by or each.excluded)
        ):
            continue
        seen.add(each.excluded)
        how = f"left out of view {each.view}" if each.by else "stopped as excluded,"
        yield Finding(each.excluded, "", each.by, f"{how} for nothing")
