"""Members that left cleanly, and are in the others' view for ever.

Clocks of machines are not compared, but what is delivered was sent before: the least that a life's
clock has advanced over another's, when something of the other's came to it, bounds when the other
left."""

from __future__ import annotations

from collections.abc import Iterator

from unisono.laws.verdict import Finding
from unisono.trace.history import DEPARTED, History, IncarnationTrace, number_of, sender_of
from unisono.trace.record import Row

LONG_US = 60_000_000
"""Those that stay have a view without one that left long before this."""


def still_there(history: History) -> Iterator[Finding]:
    """Each that left, and the smallest that keeps it and delivers a message of its own that it sent
    so long after."""
    for left, stays in kept(history):
        view = stays.views[-1]
        sent, came = last_of(stays, stays), last_of(left, stays)
        first = next(row for row in stays.views if left.key in (row.members or ()))
        ahead_us = [first.t_us - left.rows[0].t_us]
        if came is not None:
            ahead_us.append(came[1].t_us - came[0].t_us)
        end = next(row for row in left.rows if row.kind == "leave")
        if sent is not None and sent[1].step > view.step:
            if sent[0].t_us > end.t_us + min(ahead_us) + LONG_US:
                detail = f"left, and is in view {view.view} a minute later"
                yield Finding(left.key, "", stays.key, detail)


def kept(history: History) -> Iterator[tuple[IncarnationTrace, IncarnationTrace]]:
    """By their views: one that left cleanly, and another with the same last view, that nobody has
    left behind."""
    passed = {row.view for trace in history.lives.values() for row in trace.views[:-1]}
    for left in history.lives.values():
        if left.end == DEPARTED and left.inside and left.views[-1].view not in passed:
            for stays in history.lives.values():
                same = stays.inside and stays.views[-1].view == left.views[-1].view
                if same and stays is not left and left.key in stays.final:
                    yield left, stays


def last_of(sender: IncarnationTrace, receiver: IncarnationTrace) -> tuple[Row, Row] | None:
    """The send and the delivery of the last message of one that another delivered."""
    for came in reversed(receiver.deliveries):
        if sender_of(came) == sender.key:
            sent = (row for row in sender.sends if number_of(row) == number_of(came))
            return next(((row, came) for row in sent), None)
    return None
