"""The laws of views and messages together: the view of a delivery, and the transitional set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from unisono.laws.succession import Spells
from unisono.laws.verdict import Finding
from unisono.trace.checks import LEVELS, level_of
from unisono.trace.history import (
    History,
    IncarnationTrace,
    message_of,
    sender_of,
)
from unisono.trace.record import Row

RELIABLE = LEVELS["reliable"]


def _in_views(trace: IncarnationTrace) -> Iterator[tuple[Row, Row]]:
    """Its sends and deliveries, each with its last regular view before; none before the first."""
    view: Row | None = None
    for row in trace.events:
        if row.kind == "view":
            view = row
        elif view is not None:
            yield row, view


def same_view(history: History) -> Iterator[Finding]:
    """All members that deliver a message deliver it in the same view.

    Of each life that delivered a reliable message m in a view, its first such delivery counts, and
    the view is the last regular one before it, by step: `in view V here, W there`, where W is the
    view at the smallest life that delivered m so, which is the other. What is delivered in a
    transitional view counts as of the view that it ends. Lives of a lineage (see `lineages`) that
    has a counting view with the change `parted` are compared with each other, and since then (see
    `Spells`) with no others: what was on its way through the others when it was let go on by itself
    may be said again on either side. What is delivered outside the order (see `agreement`) is in no
    view.
    """
    spells = history.derived(Spells)
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for key, trace in history.lives.items():
        mine: set[str] = set()
        for row, view in _in_views(trace):
            if row.kind != "deliver" or level_of(row.service) < RELIABLE:
                continue
            message = message_of(row)
            if message in mine or trace.is_outside_order(row):
                continue
            mine.add(message)
            for part in sorted({spells.at(key, row.step).part, spells.of(key)[-1].part}):
                other, there = first.setdefault((part, message), (key, view.view))
                if view.view != there:
                    detail = f"in view {view.view} here, {there} there"
                    yield Finding(key, message, other, detail)


def sending_view(history: History) -> Iterator[Finding]:
    """A message is delivered in the view in which it was sent.

    When a life delivers a reliable message in the view V (the last regular one before, by step),
    and the sender's last regular view before its first send row of it is W, then V is W: `in view
    V, sent in W`. The other is the sender. What was sent before the first view is not asked for.
    """
    sent: dict[str, str] = {}
    for trace in history.lives.values():
        for row, view in _in_views(trace):
            if row.kind == "send":
                sent.setdefault(message_of(row), view.view)
    for key, trace in history.lives.items():
        for row, view in _in_views(trace):
            if row.kind == "deliver" and level_of(row.service) >= RELIABLE:
                message = message_of(row)
                there = sent.get(message, view.view)
                if there != view.view:
                    detail = f"in view {view.view}, sent in {there}"
                    yield Finding(key, message, sender_of(row), detail)


def sender_in_view(history: History) -> Iterator[Finding]:
    """The sender of a message is a member of the view in which it is delivered.

    When a life delivers a message of any level in the view V (the last regular one before, by
    step), V has the sender: `from outside view V`. The other is the sender.
    """
    for key, trace in history.lives.items():
        for row, view in _in_views(trace):
            sender = sender_of(row)
            if row.kind == "deliver" and sender not in (view.members or ()):
                yield Finding(key, message_of(row), sender, f"from outside view {view.view}")


def transitional_set(history: History) -> Iterator[Finding]:
    """Members of a transitional set come along from the last view, and report the same set.

    Let life p install W right after V, and its row of W have a transitional set T (`stayed`).
    - `not in its own`: p is not in T.
    - `not of both views`: q is in T, and not a member of both V and W (p's rows); q is the other.
    - `came from X`: q is in T, installed W, and right before it another view X than V (or none).
    - `not the same there`: q is in T, and q's row of W has another transitional set than T.
    - `came from it too`: q is not in T, and installed W right after V, with a transitional set.
    - `none there`: q installed W right after some view, and q's row of W has no transitional set.
    - `transitional view T: not the same there`: a life q in T has T too, with other members.
    Each life and view counts once, at its first installation; a first view has no V, and only the
    first of these is asked of it.
    """
    by_view: dict[str, dict[str, ViewArrival]] = {}
    for key, trace in history.lives.items():
        came, there = "", frozenset[str]()
        for row in trace.views:
            members = frozenset(row.members or ())
            stayed = None if row.stayed is None else frozenset(row.stayed)
            change = ViewArrival(came, stayed, there & members)
            by_view.setdefault(row.view, {}).setdefault(key, change)
            came, there = row.view, members
    for view, by_key in by_view.items():
        for key, mine in by_key.items():
            if mine.stayed is not None:
                found = _of_one(key, mine.stayed, mine, by_key)
                yield from (Finding(key, "", other, f"view {view}: {why}") for other, why in found)
    yield from _transitional_members(history)


class ViewArrival(NamedTuple):
    """An incarnation installs a view for the first time."""

    came: str
    """From which view; empty for the first."""
    stayed: frozenset[str] | None
    both: frozenset[str]
    """The members of both views."""


def _of_one(
    key: str, stayed: frozenset[str], mine: ViewArrival, by_key: Mapping[str, ViewArrival]
) -> Iterator[tuple[str, str]]:
    """What is wrong with one incarnation's transitional set, and at whom it shows."""
    if key not in stayed:
        yield "", "not in its own"
    if not mine.came:
        return
    for other in sorted(stayed - mine.both):
        yield other, "not of both views"
    for other, theirs in by_key.items():
        if other in stayed and theirs.came != mine.came:
            yield other, f"came from {theirs.came or 'nowhere'}"
        if other in stayed and theirs.stayed not in (None, stayed):
            yield other, "not the same there"
        if theirs.came and theirs.stayed is None:
            yield other, "none there"
        if other not in (key, *stayed) and theirs.came == mine.came and theirs.stayed is not None:
            yield other, "came from it too"


def _transitional_members(history: History) -> Iterator[Finding]:
    members: dict[tuple[str, str], set[str]] = {}
    for key, trace in history.lives.items():
        for row in trace.rows:
            if row.kind == "transitional":
                members.setdefault((key, row.view), {*(row.members or ())})
    for (key, view), mine in members.items():
        for other in sorted(mine):
            if members.get((other, view), mine) != mine:
                yield Finding(key, "", other, f"transitional view {view}: not the same there")
