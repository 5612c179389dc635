"""The laws of the primary component: a group begins once, and one part of it goes on, large enough.

An incarnation promises to be of a primary component when its `join` row has a number: the least
size of a view with which a part of the group goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, combinations, dropwhile, pairwise
from typing import NamedTuple

from unisono.laws.succession import (
    FOUNDED,
    PARTED,
    PRIMARY,
    Succession,
    beginnings,
    components,
    in_order,
    lineages,
    own_views,
    tells,
)
from unisono.laws.verdict import Finding
from unisono.trace.history import ALIVE, EXCLUDED, STOPPED, VANISHED, History, IncarnationTrace
from unisono.trace.record import Row


def promised(trace: IncarnationTrace) -> int:
    """The least size of its views, from its `join` row; 0 when any part may go on."""
    return next((row.number or 0 for row in trace.rows if row.kind == "join"), 0)


def quorum(history: History) -> Iterator[Finding]:
    """No part of a group continues with fewer members than its protocol promises.

    Asked of a life whose `join` row says of how many members a view has at least: `view V has N
    members, fewer than K`. Who was let go on by an operator's word may be fewer: views that a life
    installed from its first on that has the change `parted` are asked of nobody, nor those of a
    lineage (see `lineages`) that has such a counting view.
    """
    lineage = history.derived(lineages)
    parted = beginnings(history, lineage, PARTED)
    spared = {row.view for trace in history.lives.values() for row in _since_parting(trace)}
    for key, trace in history.lives.items():
        least = promised(trace)
        for row in trace.views if least else ():
            count = len(set(row.members or ()))
            if count >= least or row.view in spared:
                continue
            if not (lineage[key] in parted and row in own_views(trace)):
                detail = f"view {row.view} has {count} members, fewer than {least}"
                yield Finding(key, "", "", detail)


def _since_parting(trace: IncarnationTrace) -> Iterator[Row]:
    return dropwhile(lambda row: not tells(row, PARTED), trace.views)


def one_primary(history: History) -> Iterator[Finding]:
    """At most one part of a partitioned group continues at a time.

    The views of a node are those of its lives, in their order (see `in_order`). One view
    leads to another when a node has it right before the other, and so on; or when it is the last of
    a life whose `leave` row says that the other excluded it, or that it left with the other, and
    some life is a member of both; or when it is the last of a life that left with the other, and
    more than half of its members left with the other, crashed, stopped, vanished or told nothing;
    or when it is the last of a life that crashed or stopped, and the other, which that life did not
    install, is the first of a node, and lists that life but not among those that joined: to one
    whose first view it is all did, and then it lists most members of that life's last view, whose
    place (`seq`) is not above its own.
    - `view V beside W`: two views of one lineage (see `lineages`; a view is of that of the smallest
      life of whose counting views it is) that share no node, and of which neither leads to the
      other. V is the smaller of the two. Named is the smallest life that installed V; the other is
      the smallest that installed W.
    - `founded beside it`: two lineages that share no node, each with a counting view that has the
      change `founded`, and none with `parted`; and each with a life that is alive in the end and
      whose `join` row has a number. Named is the smallest such life; the other is that of the other
      lineage.
    """
    views = history.derived(Succession)
    for one, two in views.unordered():
        if views.own.get(one, one) != views.own.get(two) or views.nodes[one] & views.nodes[two]:
            continue
        yield Finding(views.installed[one], "", views.installed[two], f"view {one} beside {two}")
    for p, q in _side_by_side(history, views.lineage):
        yield Finding(p, "", q, "founded beside it")


def _side_by_side(history: History, lineage: dict[str, str]) -> Iterator[tuple[str, str]]:
    begun = beginnings(history, lineage, FOUNDED) - beginnings(history, lineage, PARTED)
    nodes: dict[str, set[str]] = {}
    going_on: dict[str, str] = {}
    for key, trace in history.lives.items():
        if trace.inside and lineage[key] in begun:
            known = {member.rpartition("#")[0] for member in (key, *trace.known)}
            nodes.setdefault(lineage[key], set()).update(known)
            if trace.end == ALIVE and promised(trace):
                going_on.setdefault(lineage[key], key)
    for one, two in combinations(sorted(going_on, key=lambda name: going_on[name]), 2):
        if not nodes[one] & nodes[two]:
            yield going_on[one], going_on[two]


def begun(history: History) -> Iterator[Finding]:
    """A group that continues has begun with a founding.

    Of lives that installed the same counting views (see `lineages`), and so on, one has such a view
    with the change `founded` or `parted`: else `view V, and no founding`, of the smallest of them
    and its first view. Not asked where they may go on from a founding out of sight: one of them has
    a `restart` row, or vanished; a node of them was inside as another life; a member of a view of
    theirs is not among them; another's `leave` row says that it left with a view of theirs. Asked
    only where one of them has a number in its `join` row.
    """
    group = components(history)
    told = beginnings(history, group, FOUNDED) | beginnings(history, group, PARTED)
    inside = [trace for trace in history.lives.values() if trace.inside]
    times = Counter(trace.node for trace in inside)
    taken_over = {trace.left_with for trace in inside}
    together: dict[str, list[IncarnationTrace]] = {}
    for trace in inside:
        together.setdefault(group[trace.key], []).append(trace)
    for name, traces in together.items():
        keys = {trace.key for trace in traces}
        out_of_sight = any(
            trace.end == VANISHED
            or times[trace.node] > 1
            or not trace.known <= keys
            or not taken_over.isdisjoint(row.view for row in trace.views)
            or any(row.kind == "restart" for row in trace.rows)
            for trace in traces
        )
        if name not in told and not out_of_sight and any(map(promised, traces)):
            first = traces[0]
            yield Finding(first.key, "", "", f"view {first.views[0].view}, and no founding")


class PrimaryView(NamedTuple):
    """A view that tells `primary`."""

    number: int
    """Among the primary components; 0: it has none."""
    view: str
    key: str
    """The smallest life that installed it."""
    nodes: frozenset[str]


def one_component(history: History) -> Iterator[Finding]:
    """Of components that go on apart, at most one at a time is the primary one.

    Asked of views that have the change `primary`, with its number among such views or without.
    - `view V beside W`: two primary ones without a number that share no node; two with one number;
      and of those with numbers two that follow each other in this order and share no node. Where a
      life vanished, there may have been others between numbers that are not neighbours. V is
      the smaller of the two, by number and name; named are the smallest lives that installed them.
    """
    found: dict[str, PrimaryView] = {}
    for key, trace in history.lives.items():
        for row in trace.views:
            if tells(row, PRIMARY):
                nodes = frozenset(member.rpartition("#")[0] for member in row.members or ())
                found.setdefault(row.view, PrimaryView(_number_told(row), row.view, key, nodes))
    unnumbered = sorted(each for each in found.values() if not each.number)
    numbered = sorted(each for each in found.values() if each.number)
    is_torn = any(trace.end == VANISHED for trace in history.lives.values())
    for one, two in chain(combinations(unnumbered, 2), pairwise(numbered)):
        if is_torn and two.number > one.number + 1:
            continue
        if one.nodes.isdisjoint(two.nodes) or (one.number and one.number == two.number):
            yield Finding(one.key, "", two.key, f"view {one.view} beside {two.view}")


def _number_told(row: Row) -> int:
    words = next(change.split() for change in row.changes or () if change.startswith(PRIMARY))
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0


def one_founding(history: History) -> Iterator[Finding]:
    """A group is not founded again while a member of it is there and has its records.

    Let life p be of a lineage (see `lineages`) that has a life of some node, of which a later life
    (see `in_order`) is of another lineage that has a view with the change `founded`; and no node is
    in their counting views the other way round, as where a clock was set back. Let no counting view
    of the two lineages have the change `parted`, and p's last view lead to no other (see
    `one_primary`) of its lineage, or of one that has no view with `founded` or `parted` and so may
    go on from it; a view that p says excluded it, and that is none of its own, is one that p's last
    view leads to. If nobody installed that view, it is of the lineage of the founding that p's
    `leave` row names beside it, or of none: also where p's `join` row asks for more members than
    there are nodes with other lives to have it. If p's `join` row has a number, and p is alive, or
    stopped with the cause `excluded` and its last view leads to no lineage with `parted`, which may
    have excluded it, the law is broken. Named is p; the other is the smallest life of another
    lineage that is such a later life. Where a member of p's last view that is no such later life
    has views, and none of p's, it has gone on from there, though it was never told of that view:
    nothing was founded anew.
    """
    views = history.derived(Succession)
    lineage = views.lineage
    parted = beginnings(history, lineage, PARTED)
    founded = beginnings(history, lineage, FOUNDED)
    later = _later_lineages(history, lineage, founded - parted)
    known = set(history.lives).union(*(trace.known for trace in history.lives.values()))
    for key, trace in history.lives.items():
        if not trace.inside or not promised(trace) or lineage[key] in parted:
            continue
        anew = later.get(lineage[key], [])
        others = [history.lives[each] for each in trace.final if each in lineage]
        if any(each.inside and each.key not in anew and not _met(each, trace) for each in others):
            continue
        excluder = {trace.excluded_by} - {"", *(row.view for row in trace.views)}
        nexts = excluder.union(views.leads.get(trace.views[-1].view, ()))
        after = {lineage[views.installed[view]] for view in nexts if view in views.installed}
        nodes = {life.rpartition("#")[0] for life in known - {key}}
        named = excluder.isdisjoint(views.installed) and len(nodes) >= promised(trace)
        if named and trace.excluded_by_founding in views.own:
            after.add(views.own[trace.excluded_by_founding])
        if lineage[key] in after or after - founded - parted:
            continue
        excluded = trace.end == STOPPED and trace.cause == EXCLUDED and not after & parted
        if trace.end == ALIVE or excluded:
            for other in anew[:1]:
                yield Finding(key, "", other, "founded anew without it")


def _met(one: IncarnationTrace, two: IncarnationTrace) -> bool:
    """Whether they have a view in common."""
    return not {row.view for row in one.views}.isdisjoint(row.view for row in two.views)


def _later_lineages(
    history: History, lineage: dict[str, str], founded: set[str]
) -> dict[str, list[str]]:
    """By lineage, lives of others, of those that were founded, that are later ones of its nodes,
    sorted."""
    by_node: dict[str, list[IncarnationTrace]] = {}
    listed: dict[str, dict[str, list[int]]] = {}
    lives = history.derived(in_order)
    place = {key: at for at, key in enumerate(lives)}
    for trace in lives.values():
        if trace.inside:
            by_node.setdefault(trace.node, []).append(trace)
            nodes = listed.setdefault(lineage[trace.key], {})
            for member in {each for row in own_views(trace) for each in row.members or ()}:
                if each := lives.get(member):
                    nodes.setdefault(each.node, []).append(place[each.key])
    later: dict[tuple[str, str], set[str]] = {}
    for traces in by_node.values():
        for earlier, trace in combinations(traces, 2):
            pair = (lineage[earlier.key], lineage[trace.key])
            if pair[0] != pair[1]:
                later.setdefault(pair, set()).add(trace.key)
    found: dict[str, list[str]] = {}
    for (one, two), keys in later.items():
        p, q = listed[one], listed[two]
        reverse = any(min(q[node]) < max(p[node]) for node in p.keys() & q.keys())
        if two in founded and not reverse:
            found[one] = sorted({*keys, *found.get(one, ())})
    return found
