"""The laws of views: their order, their members, and what is delivered between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from unisono.laws.order import inversions
from unisono.laws.verdict import Finding
from unisono.trace.checks import LEVELS, VIEWS, level_of
from unisono.trace.history import History, IncarnationTrace, message_of, number_of, sender_of
from unisono.trace.record import Row


def view_order(history: History) -> Iterator[Finding]:
    """Members install the views that they share in the same order.

    - `view V: members … here, … there`: at its first installation of V a life has other members
      than the smallest life that installed V at its own first. The other is that life.
    - `view V: at N here, M there`: the same of its place (`seq`).
    - `view V after U: joined …, recorded …`: those that V has and U, the life's view before, lacks
      are not those in the row of V; likewise `left …`.
    - `view V has NODE twice`: two members of V, or of a transitional view, are of one node.
    - `view V installed N times`: by one life.
    - `view V after W here, before it there`: for lives p < q, of the views both installed, in p's
      order (first installations), W and V are neighbours, and q has V before W.
    """
    first: dict[str, dict[str, tuple[str, str]]] = {}
    reference: dict[str, tuple[str, tuple[str, str]]] = {}
    for key, trace in history.lives.items():
        yield from _misreported(trace)
        yield from _twice(trace)
        counts = Counter(row.view for row in trace.views)
        for view, count in counts.items():
            if count > 1:
                yield Finding(key, "", "", f"view {view} installed {count} times")
        mine = first.setdefault(key, {})
        for row in trace.views:
            members = " ".join(sorted(row.members or ()))
            mine.setdefault(row.view, (members, "nowhere" if row.seq is None else str(row.seq)))
        for view, about in mine.items():
            other, theirs = reference.setdefault(view, (key, about))
            for what, here, there in zip(("members", "at"), about, theirs, strict=True):
                if here != there:
                    yield Finding(key, "", other, f"view {view}: {what} {here} here, {there} there")
    for p, q, earlier, later in inversions(first):
        yield Finding(p, "", q, f"view {later} after {earlier} here, before it there")


def _misreported(trace: IncarnationTrace) -> Iterator[Finding]:
    for before, row in pairwise(trace.views):
        old, new = {*(before.members or ())}, {*(row.members or ())}
        for what, came, told in (("joined", new - old, row.joined), ("left", old - new, row.left)):
            if told is not None and came != {*told}:
                words = (
                    f"{' '.join(sorted(came)) or 'nobody'}, recorded {' '.join(told) or 'nobody'}"
                )
                detail = f"view {row.view} after {before.view}: {what} {words}"
                yield Finding(trace.key, "", "", detail)


def _twice(trace: IncarnationTrace) -> Iterator[Finding]:
    for row in trace.rows:
        if row.kind in VIEWS:
            nodes = Counter(member.rpartition("#")[0] for member in row.members or ())
            for node, count in nodes.items():
                if count > 1:
                    yield Finding(trace.key, "", "", f"{_name(row)} has {node} twice")


def _name(row: Row) -> str:
    return f"{'transitional ' * (row.kind == 'transitional')}view {row.view}"


def self_inclusion(history: History) -> Iterator[Finding]:
    """A member is in every view that it installs, transitional ones too."""
    for key, trace in history.lives.items():
        for row in trace.rows:
            if row.kind in VIEWS and key not in (row.members or ()):
                yield Finding(key, "", "", f"not in its {_name(row)}")


def virtual_synchrony(history: History) -> Iterator[Finding]:
    """Members that move from one view to the next together delivered the same messages in it.

    Of all lives that installed W right after V, let m be a reliable message that one of them
    delivered between the two (by step). Each of the others that may owe m (see `agreement`)
    delivered m between them too; but where a life's row of W has a transitional set (`stayed`), it
    goes together with those in it alone. What is delivered outside the order (see `agreement`) is
    in no view. The violation names the life that did not, and m; the
    other is the smallest that did and goes together with it. Of a pair that a life installs twice
    only the first time counts.
    """
    passages: dict[tuple[str, str], dict[str, ViewTransition]] = {}
    for key, trace in history.lives.items():
        for pair, passage in _passages(trace).items():
            passages.setdefault(pair, {})[key] = passage
    for (view, following), by_key in passages.items():
        witness: dict[str, list[tuple[str, Row]]] = {}
        for key in sorted(by_key):
            for message, row in by_key[key].rows.items():
                witness.setdefault(message, []).append((key, row))
        for key, mine in by_key.items():
            for message, told in witness.items():
                if message in mine.rows:
                    continue
                others = [
                    other
                    for other, row in told
                    if mine.with_(other)
                    and by_key[other].with_(key)
                    and history.lives[key].owes(sender_of(row), number_of(row))
                ]
                if others:
                    detail = f"not delivered between views {view} and {following}"
                    yield Finding(key, message, others[0], detail)


class ViewTransition(NamedTuple):
    """One incarnation's step from a view to the next."""

    rows: dict[str, Row]
    """What it delivered in between, by message."""
    stayed: tuple[str, ...] | None
    """The transitional set, where the trace has it."""

    def with_(self, other: str) -> bool:
        return self.stayed is None or other in self.stayed


def _passages(trace: IncarnationTrace) -> dict[tuple[str, str], ViewTransition]:
    """By consecutive views, the first time that they are installed so."""
    passages: dict[tuple[str, str], ViewTransition] = {}
    view: str | None = None
    between: dict[str, Row] = {}
    for row in trace.events:
        if row.kind == "view":
            if view is not None:
                passages.setdefault((view, row.view), ViewTransition(between, row.stayed))
            view, between = row.view, {}
        elif row.kind == "deliver" and level_of(row.service) >= LEVELS["reliable"]:
            if not trace.is_outside_order(row):
                between.setdefault(message_of(row), row)
    return passages
