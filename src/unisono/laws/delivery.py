"""The laws of delivery: nothing invented, nothing twice, nothing withheld from a member."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Iterator
from itertools import pairwise
from typing import TypeAlias

from unisono.laws.holding import Holdings
from unisono.laws.leaving import still_there
from unisono.laws.succession import PARTED, NextViews, tells
from unisono.laws.verdict import Finding
from unisono.trace.checks import LEVELS, VIEWS, level_of
from unisono.trace.history import (
    ALIVE,
    CRASHED,
    DEPARTED,
    STOPPED,
    VANISHED,
    History,
    IncarnationTrace,
    message_of,
    number_of,
    sender_of,
)
from unisono.trace.record import APART, PROBE, Row

RELIABLE = LEVELS["reliable"]
Form: TypeAlias = tuple[int | None, int | None, str | None]
"""Size, digest and service."""


def no_creation(history: History) -> Iterator[Finding]:
    """A delivered message was sent, unchanged, and does not precede the receiver's cut.

    A delivery of message m of sender life s at life q breaks the law when
    - `never sent`: s has rows in the history but no send row of m; unless s vanished and m's number
      is above that of every send row of s, for then the row may be lost;
    - `not as sent`: s has send rows of m, and none has the size and digest delivered, and the
      service delivered or one of a lower level;
    - `not as at X`: no send row of m is known, and the smallest life X that delivered m did so with
      another size, digest or service (of several at X, the smallest of these);
    - `before its time: after N`: a view of q before that delivery, by step, says in its cut that s
      had sent N messages before their time, m's number is not above N, and above all numbers of s
      that q had delivered before that view.
    """
    sent: dict[str, set[Form]] = {}
    last: dict[str, int] = {}
    for trace in history.lives.values():
        for row in trace.sends:
            sent.setdefault(message_of(row), set()).add(_form(row))
            last[trace.key] = max(last.get(trace.key, 0), number_of(row))
    heard = _forms_heard(history, sent.keys())
    for trace in history.lives.values():
        for message, row in zip(trace.messages, trace.deliveries, strict=True):
            sender, number = sender_of(row), number_of(row)
            source = history.lives.get(sender)
            details = []
            if message in sent:
                if not any(_is_as_sent(_form(row), form) for form in sent[message]):
                    details.append("not as sent")
            else:
                if source and not (source.end == VANISHED and number > last.get(sender, 0)):
                    details.append("never sent")
                other, form = heard[message]
                if _form(row) != form:
                    details.append(f"not as at {other}")
            for cut in trace.cuts.get(sender, ()):
                if cut.step < row.step and cut.after < number <= cut.upto:
                    details.append(f"before its time: after {cut.upto}")
            for detail in details:
                yield Finding(trace.key, message, sender, detail)


def _form(row: Row) -> Form:
    return row.size, row.digest, row.service


def _is_as_sent(form: Form, sent: Form) -> bool:
    return form == sent or (form[:2] == sent[:2] and level_of(form[2]) > level_of(sent[2]))


def _forms_heard(history: History, sent: Container[str]) -> dict[str, tuple[str, Form]]:
    """Of each message without a send row: the smallest incarnation that delivered it, and how."""
    heard: dict[str, tuple[str, Form]] = {}
    for key, trace in history.lives.items():
        for message, row in zip(trace.messages, trace.deliveries, strict=True):
            if message not in sent:
                form = (key, _form(row))
                heard[message] = min(form, heard.get(message, form))
    return heard


def no_duplication(history: History) -> Iterator[Finding]:
    """A message, identified by sender and number, is delivered at most once by an incarnation."""
    for key, trace in history.lives.items():
        for message, count in Counter(trace.messages).items():
            if count > 1:
                yield Finding(key, message, "", f"delivered {count} times")


def validity(history: History) -> Iterator[Finding]:
    """A correct member (inside; alive, or cleanly left) delivers every reliable message it sent."""
    for trace in history.lives.values():
        if trace.correct:
            for row in trace.sends:
                if level_of(row.service) >= RELIABLE and message_of(row) not in trace.delivered:
                    yield Finding(trace.key, message_of(row), "", "sent, not delivered")


def agreement(history: History) -> Iterator[Finding]:
    """What one correct member delivers, every correct member that stays with it delivers.

    Let p and q be correct lives. q may owe a message when a view of q has its sender or names it in
    its cut, unless such a cut says that it was before their time together: its number is not above
    the cut, and above all numbers of that sender that q had delivered before that view. Of these, q
    owes each reliable message m that p delivered when
    - both are alive, and each is in the other's last view: any m; or
    - p left cleanly and q is alive, q is in p's last view and p is in some view of q: any m; or
    - both left cleanly, q is in p's last view, and p is in some view of q but not in its last, so
      that q outlived it: any m; or
    - q left cleanly, p is in q's last view, and p's first view without q after one with q lacks
      nobody else of the view before it: any m that p delivered before that view. (Where others go
      with q, what they leave behind may come to light only after q's leave.)
    Of a clean leaver nothing else is asked: not what those deliver that leave in the same view
    change as it, nor what comes to light where others go with it, nor what p delivers after q's
    leave; nor what p delivered outside the order (below agreed and without a place, where its views
    have places), which is neither before q's leave nor after it.
    Nor is anything asked that p delivered when the two had parted: in a view without q after one
    with q; or in a view that q installed too, and after which, by step, q has a view without p and
    then one with it again; or in a view with q from which q did not come along, by the transitional
    view that p has before its next one or its end, or by the transitional set of the next one; or
    before their first view together, if q had a view before that one, and its transitional set at q
    has not p: they merged; or, where they never were in a view that both installed, before the
    first one of p with q, if p had a view before that one, and its transitional set at p has not q.
    A violation names q and m; the other is the smallest such p.
    """
    witness: dict[tuple[str, str], Finding] = {}
    correct = [trace for trace in history.lives.values() if trace.correct]
    for q in correct:
        for p in correct:
            if p.delivered <= q.delivered:
                continue
            apart = _apart(p, q)
            for row in _owed(p, q):
                message = message_of(row)
                if message in q.delivered or level_of(row.service) < RELIABLE:
                    continue
                if q.end == DEPARTED and p.is_outside_order(row):
                    continue
                if q.owes(sender_of(row), number_of(row)) and not _is_in(row.step, apart):
                    finding = Finding(q.key, message, p.key, "not delivered")
                    witness.setdefault((q.key, message), finding)
    yield from witness.values()


def _owed(p: IncarnationTrace, q: IncarnationTrace) -> tuple[Row, ...]:
    """The deliveries of p that q must match, before q's base is looked at."""
    if q.end == ALIVE and p.end == ALIVE:
        return p.deliveries if q.key in p.final and p.key in q.final else ()
    if q.end == ALIVE:
        return p.deliveries if q.key in p.final and p.key in q.known else ()
    if p.end == DEPARTED and q.key in p.final and p.key in q.known and p.key not in q.final:
        return p.deliveries
    parting = _parting(p, q) if p.key in q.final else None
    if parting is None:
        return ()
    return tuple(row for row in p.deliveries if row.step < parting)


def _apart(p: IncarnationTrace, q: IncarnationTrace) -> list[tuple[int, int]]:
    """From which step of p on to which it had parted from q."""
    spans: list[tuple[int, int]] = []
    later = {row.view: row.step for row in q.views}
    lost = again = -1
    for row in reversed(q.views):
        if p.key in (row.members or ()):
            again = max(again, row.step)
        elif again >= 0:
            lost = max(lost, row.step)
    met, merged = False, _merge(p, q)
    ends = [row.step for row in p.views[1:]] + [sys.maxsize]
    left_behind = {
        end for row, end in _ended(p) if row.stayed is not None and q.key not in row.stayed
    }
    for row, end in zip(p.views, ends, strict=True):
        inside = q.key in (row.members or ())
        if inside:
            parted = later.get(row.view, sys.maxsize) < lost or end in left_behind
        else:
            parted = met or merged
        if parted:
            spans.append((row.step, end))
        met = met or inside
    return spans


def _merge(p: IncarnationTrace, q: IncarnationTrace) -> bool:
    """Whether q comes from another component to its first view with p; or, if they never were in a
    view that both installed, p to its first view with q."""
    shared = {row.view for row in p.views}
    for before, row in pairwise(q.views):
        if row.view in shared and p.key in (row.members or ()):
            return row.stayed is not None and p.key not in row.stayed and before.view not in shared
        if before.view in shared and p.key in (before.members or ()):
            return False
    if any(row.view in shared and p.key in (row.members or ()) for row in q.views):
        return False
    met = next((row for row in p.views if q.key in (row.members or ())), p.views[0])
    return met is not p.views[0] and met.stayed is not None and q.key not in met.stayed


def _ended(p: IncarnationTrace) -> Iterator[tuple[Row, int]]:
    """Rows with a transitional set, and the step at which the view that they end has ended: views,
    and transitional views before the next view or the end."""
    end = sys.maxsize
    for row in reversed(p.rows):
        if row.kind == "view":
            yield row, (end := row.step)
        elif row.kind == "transitional":
            yield row, end


def _is_in(step: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= step < end for start, end in spans)


def _parting(p: IncarnationTrace, q: IncarnationTrace) -> int | None:
    """The step of p's first view without q after one with q, when q alone is gone."""
    before: set[str] = set()
    for row in p.views:
        members = set(row.members or ())
        if q.key in before and q.key not in members:
            return row.step if before - members == {q.key} else None
        before = members
    return None


def safe(history: History) -> Iterator[Finding]:
    """A safe message that any member delivers, even one that then fails, all deliver.

    Let any life p deliver a safe message m while its last view before, regular or transitional, is
    v (of p's own rows). Each life q among v's members that may owe m (see `agreement`) delivers m,
    if it is correct, or did not fail in v: it has a view right after it. But not one that an
    operator let go on without p, where the others had gone on without it: right after v, or, where
    q does not have v, right after its last view that some life has before v, q has a view with the
    change `parted` that lacks p, and the view that p has right after v (if it has none, and is not
    alive, the smallest life that has one) lacks q; and q tells that it did not have m when its view
    before that ended (see `received`). The violation names q and m; the other is the smallest such
    p, and the detail has the id of v (of p's first delivery of m).
    """
    witness: dict[tuple[str, str], Finding] = {}
    for p in history.lives.values():
        view: Row | None = None
        for row in p.rows:
            view = row if row.kind in VIEWS else view
            if row.kind != "deliver" or row.service != "safe" or view is None:
                continue
            message = message_of(row)
            for key in view.members or ():
                q = history.lives.get(key)
                if q is None or message in q.delivered or not did_not_fail(q, view.view):
                    continue
                if q.owes(sender_of(row), number_of(row)) and not _let_go(history, p, q, view, row):
                    detail = f"not delivered; was safe in view {view.view}"
                    witness.setdefault((key, message), Finding(key, message, p.key, detail))
    yield from witness.values()


def did_not_fail(q: IncarnationTrace, view: str) -> bool:
    """Whether a member of a view is correct, or went on from there to another one."""
    last = q.views[-1].step if q.views else -1
    return q.correct or any(
        row.view == view and row.kind in VIEWS and row.step < last for row in q.rows
    )


def _let_go(
    history: History, p: IncarnationTrace, q: IncarnationTrace, view: Row, message: Row
) -> bool:
    """Whether q, without the message, was let go on from p's view, or before it had that one, and
    p went on without q."""
    nexts, holdings = history.derived(NextViews), history.derived(Holdings)
    earlier = _up_to(history, view.view)
    last = next((row for row in reversed(q.views) if row.view in earlier), None)
    here = nexts.after(q, last) if last is not None else None
    there = nexts.after(p, view)
    if last is None or here is None or there is None or not tells(here, PARTED):
        return False
    apart = p.key not in (here.members or ()) and q.key not in (there.members or ())
    return apart and holdings.has_receipts and holdings.lacks(q.key, last.view, message)


def _up_to(history: History, view: str) -> set[str]:
    """A regular view, and those that some life has before it."""
    found: set[str] = set()
    for trace in history.lives.values():
        names = [row.view for row in trace.views]
        if view in names:
            found.update(names[: names.index(view) + 1])
    return found


def progress(history: History) -> Iterator[Finding]:
    """After all faults have healed, the group makes progress.

    - Every probe (a send row with the detail `probe`) of a life that is alive is delivered by every
      life that is alive and inside, unless it was before that life's time (see `agreement`).
    - When there are such probes, who is alive is inside.
    - Someone is alive; unless the last life of every node crashed, or some life vanished, or nobody
      was ever inside, or some life left cleanly and none that was inside stopped with another cause
      than `stopped`; or the world says in a `fault` row that nobody is to go on (`apart`).
    - The world did not wait for it in vain: it has told so in a `stuck` row, whose words are the
      detail.
    - Who left cleanly is not in the others' view for ever: `left, and is in view V a minute later`.
      Its last view is V, and nobody has one after V. The other has V too, and delivered there the
      last message of its own that it delivered; it sent that more than a minute after the leave.
      That is at the leave's time plus what the other's clock was ahead at most: at its first view
      with the leaver, over the leaver's first row; at its last delivery of a message of the leaver,
      over the send.
    """
    traces = history.lives.values()
    alive = [trace for trace in traces if trace.end == ALIVE]
    probes = [row for trace in alive for row in trace.sends if row.detail == PROBE]
    for trace in alive:
        if probes and not trace.inside:
            yield Finding(trace.key, "", "", "alive but in no view, though probes were sent")
        if not trace.inside:
            continue
        for row in probes:
            message, sender = message_of(row), sender_of(row)
            cuts = trace.cuts.get(sender, ())
            spared = any(cut.after < number_of(row) <= cut.upto for cut in cuts)
            if not spared and message not in trace.delivered:
                yield Finding(trace.key, message, sender, "probe not delivered")
    ends = {trace.end for trace in traces}
    left_alone = not {trace.cause for trace in traces if trace.inside} - {"", STOPPED}
    last = {trace.node: trace for trace in sorted(traces, key=lambda trace: trace.incarnation)}
    killed = all(trace.end == CRASHED for trace in last.values())
    apart = any(
        row.kind == "fault" and row.detail == APART for trace in traces for row in trace.rows
    )
    excused = killed or apart or VANISHED in ends or (DEPARTED in ends and left_alone)
    if not alive and not excused and any(trace.inside for trace in traces):
        yield Finding("", "", "", "nobody is alive at the end")
    for trace in traces:
        for row in trace.rows:
            if row.kind == "stuck":
                yield Finding("", "", "", row.detail or "stuck")
    yield from still_there(history)
