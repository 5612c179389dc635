"""The law of one incarnation by itself: the order of its own rows."""

from __future__ import annotations

from collections.abc import Iterator

from unisono.laws.verdict import Finding
from unisono.trace.history import History, IncarnationTrace, message_of, number_of
from unisono.trace.record import Row

ACTS = frozenset(("send", "deliver", "view", "transitional", "stable"))
"""Rows that only a running process writes."""
AFTER_END = "after its end"
SENT_AFTER = "sent after its number, or a larger one"


def local_order(history: History) -> Iterator[Finding]:
    """Rows of one incarnation are in order: view first, end last, causes first, numbers rising.

    In the order of a life's steps:
    - `delivered in no view`: a delivery before its first view.
    - `sent after its number, or a larger one`: a send row whose number is not above those before.
    - `delivered before it was sent`: a delivery of a message of its own whose first send row comes
      later.
    - `transitional view T ends no view`: it comes before the first view, or after another one that
      ended the last.
    - `transitional view T has X, V has not`: V is the last regular view.
    - `KIND after its end`: a send, delivery, view or notice of stability after a `leave` or `crash`
      row; told once for each kind.
    - `view V at N after place M`: a view with a place N below M, the largest place of a view or
      delivery before it.
    - `place N in view V at M`: a delivery at the place N, not above the place M of its last regular
      view V.
    - `view V without a place`: a view that has none, though an earlier view of the life has one.
    """
    for key, trace in history.lives.items():
        for message, detail in (*_ends(trace), *_places(trace), *_transitions(trace)):
            yield Finding(key, message, "", detail)


def _ends(trace: IncarnationTrace) -> Iterator[tuple[str, str]]:
    sent: dict[str, int] = {}
    for row in trace.sends:
        sent.setdefault(message_of(row), row.step)
    over = inside = False
    most = 0
    for row in trace.rows:
        if row.kind == "send":
            if number_of(row) <= most:
                yield message_of(row), SENT_AFTER
            most = max(most, number_of(row))
        over = over or row.kind in ("leave", "crash")
        inside = inside or row.kind == "view"
        if over and row.kind in ACTS:
            yield "", f"{row.kind} {AFTER_END}"
        if row.kind == "deliver":
            message = message_of(row)
            if not inside:
                yield message, "delivered in no view"
            if sent.get(message, -1) > row.step:
                yield message, "delivered before it was sent"


def _transitions(trace: IncarnationTrace) -> Iterator[tuple[str, str]]:
    view: Row | None = None
    ended = True
    for row in trace.rows:
        if row.kind == "view":
            view, ended = row, False
        elif row.kind == "transitional":
            if view is None or ended:
                yield "", f"transitional view {row.view} ends no view"
            if view is not None:
                for member in sorted({*(row.members or ())} - {*(view.members or ())}):
                    yield "", f"transitional view {row.view} has {member}, {view.view} has not"
            ended = True


def _places(trace: IncarnationTrace) -> Iterator[tuple[str, str]]:
    most: int | None = None
    view: Row | None = None
    placed = False
    for row in trace.events:
        if row.kind == "view":
            if row.seq is None and placed:
                yield "", f"view {row.view} without a place"
            elif row.seq is not None and most is not None and row.seq < most:
                yield "", f"view {row.view} at {row.seq} after place {most}"
            view, placed = row, placed or row.seq is not None
        elif row.kind == "deliver" and row.seq is not None and view is not None:
            if view.seq is not None and row.seq <= view.seq:
                yield message_of(row), f"place {row.seq} in view {view.view} at {view.seq}"
        if row.kind != "send" and row.seq is not None:
            most = row.seq if most is None else max(most, row.seq)
