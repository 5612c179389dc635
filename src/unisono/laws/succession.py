"""How the views of a history follow each other: lineages, and which view leads to which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

from unisono.laws.cycles import knots
from unisono.trace.checks import VIEWS
from unisono.trace.history import ALIVE, History, IncarnationTrace
from unisono.trace.record import Row

FOUNDED, PARTED, MERGED = "founded", "parted", "merged"
PRIMARY = "primary"
OF: Final = "of "
"""Before the founding of the group, in a first view."""


def tells(row: Row, what: str) -> bool:
    """Whether the view has this change."""
    return any(change.partition(" ")[0] == what for change in row.changes or ())


def stretches(trace: IncarnationTrace) -> dict[str, tuple[Row, ...]]:
    """The views before and between those with the change `parted`, by a name; the last by its
    key."""
    parted = (at for at, row in enumerate(trace.views) if at and tells(row, PARTED))
    bounds = pairwise((0, *parted, len(trace.views)))
    found = [trace.views[start:end] for start, end in bounds]
    names = (*(f"{trace.key}/{at}" for at in range(1, len(found))), trace.key)
    return dict(zip(names, found, strict=True))


def own_views(trace: IncarnationTrace) -> tuple[Row, ...]:
    """The views from the last on that has the change `parted`; else all."""
    return stretches(trace)[trace.key]


def in_order(history: History) -> dict[str, IncarnationTrace]:
    """The lives by key, those of a node in the order in which they were: that of their
    incarnations. A clock that was set back turns it round; a world that tells its faults has one
    clock, and there the times of the `join` rows decide."""
    has_clock = any(row.kind == "fault" for row in history.rows)

    def place(trace: IncarnationTrace) -> tuple[str, int, int]:
        joined_us = next((row.t_us for row in trace.rows if row.kind == "join"), 0)
        return trace.node, joined_us if has_clock else 0, trace.incarnation

    return {trace.key: trace for trace in sorted(history.lives.values(), key=place)}


def lineages(history: History) -> dict[str, str]:
    """By life, which numbering its places belong to.

    Only a life's views from the last on count that has the change `parted`, if there is one: a part
    that was let go on by itself counts on its own. Lives that installed the same of these views are
    of one lineage, and so on: it is named by its smallest life. What a life installed before, up to
    a view with `parted` or between two of them, counts as if another life had: so those it met then
    are of one lineage, and have its founding. A lineage to which no view with the
    change `founded` or `parted` belongs goes on from another one: when there is exactly one that
    has such a view, and it is `founded`, it is of that one. Where there are several, it is of the
    one without `parted` that other lives in its views are of, if that is one; where they are of
    none, of the one that the last earlier incarnations of its nodes were of, if that is one.
    Otherwise, of which is not known, and it is not compared with others. Lives that tell the same
    founding, or installed it, are of one lineage. A lineage of which a member, or a life that it
    excluded, tells the founding, which nobody installed, goes on from no other.
    """
    found = components(history)
    begun = beginnings(history, found, FOUNDED) | beginnings(history, found, PARTED)
    begun |= _founded_unseen(history, found)
    if len(begun) == 1 and beginnings(history, found, FOUNDED):
        (only,) = begun
        outside = {key for key, trace in history.lives.items() if not trace.inside}
        return {key: key if key in outside else only for key in found}
    return _continued(history, found, begun) if begun else found


def beginnings(history: History, lineage: Mapping[str, str], what: str) -> set[str]:
    """Those of these that have a counting view with this change."""
    return {
        lineage[name]
        for trace in history.lives.values()
        for name, rows in stretches(trace).items()
        if any(tells(row, what) for row in rows)
    }


def told_founding(row: Row) -> str:
    """The founding of the group that the row tells; empty if it tells none, or is one itself."""
    told = (each.removeprefix(OF) for each in row.changes or () if each.startswith(OF))
    return "" if tells(row, FOUNDED) or tells(row, PARTED) else next(told, "")


def _founded_unseen(history: History, found: Mapping[str, str]) -> set[str]:
    """Lineages of which a member, or a life that they excluded, tells the founding, which nobody
    installed."""
    views = {
        row.view: found[name]
        for trace in history.lives.values()
        for name, rows in stretches(trace).items()
        for row in rows
    }
    told = {
        views[trace.excluded_by]
        for trace in history.lives.values()
        if trace.excluded_by in views
        and trace.excluded_by_founding
        and trace.excluded_by_founding not in views
    }
    rows = (row for trace in history.lives.values() for row in trace.views)
    return told | {views[row.view] for row in rows if told_founding(row) not in ("", *views)}


class Spell(NamedTuple):
    """Some time of a life, in steps."""

    start: int
    lineage: str
    """Of its places."""
    part: str
    """The lineage, where that has a counting view with the change `parted`; else empty."""
    is_last: bool
    """These views count (see `lineages`)."""


class Spells:
    """By life its times before, between and after its views with the change `parted`. To a part
    that is let go on belongs what is delivered in the transitional view right before, too."""

    def __init__(self, history: History) -> None:
        lineage = history.derived(lineages)
        parted = beginnings(history, lineage, PARTED)
        self._of: dict[str, tuple[Spell, ...]] = {}
        for key, trace in history.lives.items():
            found = [
                Spell(
                    _start(trace, rows[0]) if at else -1,
                    lineage[name],
                    lineage[name] if lineage[name] in parted else "",
                    name == key,
                )
                for at, (name, rows) in enumerate(stretches(trace).items())
            ]
            self._of[key] = tuple(found)

    def of(self, key: str) -> tuple[Spell, ...]:
        """In their order."""
        return self._of[key]

    def at(self, key: str, step: int) -> Spell:
        """When a life was at this step."""
        spells = self._of[key]
        if len(spells) == 1:
            return spells[0]
        return next(spell for spell in reversed(spells) if step >= spell.start)


def _start(trace: IncarnationTrace, parted: Row) -> int:
    before = [row for row in trace.rows if row.kind in VIEWS and row.step < parted.step][-1:]
    return before[0].step if before and before[0].kind == "transitional" else parted.step


def components(history: History) -> dict[str, str]:
    """By name of a stretch of views, and so by key, the smallest of those that have the same views,
    or tell the same founding or have it, and so on."""
    named = {
        name: rows for trace in history.lives.values() for name, rows in stretches(trace).items()
    }
    parent = {name: name for name in named}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    first: dict[str, str] = {}
    for name, rows in named.items():
        for view in {row.view for row in rows} | {told_founding(row) for row in rows} - {""}:
            one, two = sorted((root(name), root(first.setdefault(view, name))))
            parent[two] = one
    return {name: root(name) for name in named}


def _continued(history: History, found: dict[str, str], begun: set[str]) -> dict[str, str]:
    """With those that have not begun put to the one that they go on from."""
    before: dict[str, set[str]] = {}
    last: dict[str, str] = {}
    listed: dict[str, set[str]] = {}
    founded = begun - beginnings(history, found, PARTED)
    for trace in history.derived(in_order).values():
        if trace.inside:
            mine = found[trace.key]
            if mine not in begun and last.get(trace.node, mine) != mine:
                before.setdefault(mine, set()).add(last[trace.node])
            last[trace.node] = mine
            if mine not in begun:
                known = {member for row in own_views(trace) for member in row.members or ()}
                others = {found[each] for each in known if each in found}
                listed.setdefault(mine, set()).update(others & founded)
    before |= {mine: others for mine, others in listed.items() if others}

    def origin(name: str) -> str:
        seen = {name}
        while len(before.get(name, ())) == 1:
            (name,) = before[name]
            if name in seen:
                break
            seen.add(name)
        return name

    return {key: origin(name) for key, name in found.items()}


class NextViews:
    """Which view a life, or any life, has right after another."""

    def __init__(self, history: History) -> None:
        self._own = {
            key: {row.step: after for row, after in pairwise(trace.views)}
            for key, trace in history.lives.items()
        }
        self._any: dict[str, Row] = {}
        for trace in history.lives.values():
            for row, after in pairwise(trace.views):
                self._any.setdefault(row.view, after)

    def after(self, trace: IncarnationTrace, view: Row) -> Row | None:
        """That of the life itself; if it has none, and is not alive, the one that the smallest life
        that has one has right after that view."""
        own = self._own[trace.key].get(view.step)
        return own if own is not None or trace.end == ALIVE else self._any.get(view.view)


def _joined_by_view(history: History) -> dict[str, set[str]]:
    """By view, those that joined with it, as members tell that had a view before."""
    found: dict[str, set[str]] = {}
    for trace in history.lives.values():
        for row in trace.views[1:]:
            found.setdefault(row.view, set()).update(row.joined or ())
    return found


def _agreed(history: History, view: Row, after: str) -> bool:
    """Whether most members of the view left with the one after, or may have agreed to it before
    they crashed or stopped. Those that are there in the end, or left without, did not."""
    members = set(view.members or ())
    lives = [history.lives.get(key) for key in members]
    agreed = [life is None or life.left_with == after or not life.correct for life in lives]
    return 2 * sum(agreed) > len(members)


def _holds_most_of(after: Row, view: Row) -> bool:
    """Whether most lives of the view are listed in the other, which begins no earlier."""
    members = set(view.members or ())
    most = 2 * len(members.intersection(after.members or ())) > len(members)
    return most and (view.seq or 0) <= (after.seq or 0)


class Succession:
    """The views of a node are in the order of its lives (see `in_order`) and their steps. One view
    leads to another when a node has it right before the other, and so on; or when it is the last of
    a life that says the other excluded it, or that it left with the other, and a life is a member
    of both: that one may have gone on without showing it; or when it is the last of a life that
    left with the other, and most of its members did, or may have agreed to the other before they
    crashed or stopped; or when it is the last of a life that did not go on to the end, and the
    other is the first of a node whose members list that life and, where they say that it joined,
    most of those that had the one: it went on there without showing it."""

    def __init__(self, history: History) -> None:
        self.lineage = history.derived(lineages)
        """By life."""
        self.leads: dict[str, set[str]] = {}
        """By view, those that some node has right after it."""
        self._unshown: dict[str, set[str]] = {}
        """By the last view of a life that crashed or stopped, those that list it and that others
        begin with."""
        self.nodes: dict[str, set[str]] = {}
        """By view, the nodes of its members."""
        self.installed: dict[str, str] = {}
        """By view, the smallest incarnation that installed it."""
        self.own: dict[str, str] = {}
        """By view, the lineage of the smallest incarnation of whose counting views it is."""
        self.place: dict[str, int | None] = {}
        """By view, its sequence number at the smallest incarnation that installed it."""
        self._kept: set[str] = set()
        """Views that a correct incarnation installed, or that lead to such a one in one life."""
        self._members: dict[str, frozenset[str]] = {}
        """By view, as at the smallest incarnation that installed it."""
        self._installers: dict[str, set[str]] = {}
        """By view, all that installed it."""
        self._chains: dict[str, list[str]] = {}
        for key, trace in history.lives.items():
            for row in trace.views:
                self.installed.setdefault(row.view, key)
                self.place.setdefault(row.view, row.seq)
                self._members.setdefault(row.view, frozenset(row.members or ()))
                self._installers.setdefault(row.view, set()).add(key)
            for row in own_views(trace):
                self.own.setdefault(row.view, self.lineage[key])
                if trace.correct:
                    self._kept.add(row.view)
        self._keep_what_leads_on(history)
        for trace in history.derived(in_order).values():
            chain = self._chains.setdefault(trace.node, [])
            for row in trace.views:
                nodes = {member.rpartition("#")[0] for member in row.members or ()}
                self.nodes.setdefault(row.view, set()).update(nodes)
                if chain and chain[-1] != row.view:
                    self.leads.setdefault(chain[-1], set()).add(row.view)
                if not chain or chain[-1] != row.view:
                    chain.append(row.view)
        self._add_told(history)
        self._add_unshown(history)

    def _keep_what_leads_on(self, history: History) -> None:
        chains = [
            [r.view for r in rows] for t in history.lives.values() for rows in stretches(t).values()
        ]
        count = -1
        while count < len(self._kept):
            count = len(self._kept)
            for chain in chains:
                last = max((at for at, view in enumerate(chain) if view in self._kept), default=-1)
                self._kept.update(chain[: last + 1])

    def went_on(self, before: str, after: str) -> bool:
        """Whether the group went on with the view after that before. Not if those that installed it
        were few: none of them correct, nor in a later view of a correct life, and no majority of
        the view before. The others may go on without it, and never know."""
        installed = self._installers[after] & self._members[before]
        return after in self._kept or 2 * len(installed) > len(self._members[before])

    def _add_told(self, history: History) -> None:
        """What led to what, by the `leave` rows."""
        for trace in history.lives.values():
            after, views = trace.excluded_by or trace.left_with, trace.views
            if after in self.installed and views and after not in {row.view for row in views}:
                have_both = self._members[after].intersection(views[-1].members or ())
                if have_both or (trace.left_with and _agreed(history, views[-1], after)):
                    self.leads.setdefault(views[-1].view, set()).add(after)

    def _add_unshown(self, history: History) -> None:
        told = _joined_by_view(history)
        for chain in self._chains.values():
            for view in chain[:1]:
                first = history.lives[self.installed[view]]
                row = next(row for row in first.views if row.view == view)
                for key in set(row.members or ()) - told.get(view, set()):
                    member = history.lives.get(key)
                    if member is None or member.correct or not member.inside:
                        continue
                    if key in (row.joined or ()) and not _holds_most_of(row, member.views[-1]):
                        continue
                    if view not in {each.view for each in member.views}:
                        self._unshown.setdefault(member.views[-1].view, set()).add(view)

    def _leads(self) -> dict[str, set[str]]:
        """With what nobody showed."""
        found = dict(self.leads)
        for view, after in self._unshown.items():
            found[view] = found.get(view, set()) | after
        return found

    @cached_property
    def knot(self) -> dict[str, str]:
        """By view the smallest of those that lead to it and to which it leads; where clocks were
        set back there are such."""
        found = {view: view for view in self.nodes}
        for views in knots(self._leads()):
            found.update(dict.fromkeys(views, min(views)))
        return found

    def steps(self) -> Iterator[tuple[str, str]]:
        """A view, and one of its lineage that a node has right after it, but not the other way
        round."""
        for view in sorted(self.leads):
            for after in sorted(self.leads[view]):
                same = view in self.own and self.own[view] == self.own.get(after)
                if same and self.knot[view] != self.knot[after]:
                    yield view, after

    def unordered(self) -> Iterator[tuple[str, str]]:
        """Pairs of views, the smaller first, of which neither leads to the other.

        Each node's views are a chain. Those of a chain to which a view leads are its end, those
        that lead to the view its beginning; what is between is unordered with it, and where one
        part goes on at a time that is hardly anything. A pair may come more than once.
        """
        on_chains: dict[str, dict[str, tuple[int, int]]] = {}
        for node, chain in self._chains.items():
            for at, view in enumerate(chain):
                spots = on_chains.setdefault(self.knot[view], {})
                low, high = spots.get(node, (at, at))
                spots[node] = min(low, at), max(high, at)
        order = self._in_order()
        after = {knot: {node: low for node, (low, _) in on_chains[knot].items()} for knot in order}
        before = {
            knot: {node: high for node, (_, high) in on_chains[knot].items()} for knot in order
        }
        following = self._following
        for knot in reversed(order):
            mine = after[knot]
            for other in following.get(knot, ()):
                for node, at in after[other].items():
                    mine[node] = min(at, mine.get(node, at))
        for knot in order:
            for other in following.get(knot, ()):
                theirs = before[other]
                for node, at in before[knot].items():
                    theirs[node] = max(at, theirs.get(node, at))
        for view, knot in self.knot.items():
            for node, chain in self._chains.items():
                start = before[knot].get(node, -1) + 1
                for other in chain[start : after[knot].get(node, len(chain))]:
                    if view < other:
                        yield view, other

    @cached_property
    def _following(self) -> Mapping[str, set[str]]:
        """By knot, those right after it."""
        found: dict[str, set[str]] = {}
        for view, after in self._leads().items():
            mine = {self.knot[each] for each in after} - {self.knot[view]}
            if mine:
                found.setdefault(self.knot[view], set()).update(mine)
        return found

    def _in_order(self) -> list[str]:
        """The knots, each after all that lead to it."""
        waiting = dict.fromkeys(self.knot.values(), 0)
        for following in self._following.values():
            for knot in following:
                waiting[knot] += 1
        ready = [knot for knot, count in waiting.items() if not count]
        for knot in ready:
            for after in self._following.get(knot, ()):
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
        return ready
