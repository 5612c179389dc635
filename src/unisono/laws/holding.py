"""The laws of receipt: what each incarnation held, by the receipts of the trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from unisono.laws.cuts import delivered_before
from unisono.laws.succession import NextViews
from unisono.laws.verdict import Finding
from unisono.trace.checks import VIEWS
from unisono.trace.history import (
    ALIVE,
    CRASHED,
    VANISHED,
    History,
    IncarnationTrace,
    message_of,
    number_of,
    sender_of,
)
from unisono.trace.record import Row

MAJORITY, ALL = "majority", "all"
ENDS = ("view", "leave", "crash")
"""Rows before which an incarnation writes its receipts."""


class Holdings:
    """What each incarnation held, by its receipts."""

    def __init__(self, history: History) -> None:
        self._lives = history.lives
        self.marks: dict[str, dict[str, dict[str, int]]] = {}
        """By incarnation, view and sender: up to which number all was held when the view ended."""
        self.has_receipts = False
        """Whether the history has receipts at all."""
        for key, trace in self._lives.items():
            self.marks[key] = self._of(trace)

    def _of(self, trace: IncarnationTrace) -> dict[str, dict[str, int]]:
        ended: dict[str, dict[str, int]] = {}
        view, marks = "", dict[str, int]()
        for row in trace.rows:
            if row.kind == "receipt":
                self.has_receipts = True
                marks[sender_of(row)] = number_of(row)
            elif row.kind in ENDS:
                if view:
                    ended.setdefault(view, marks)
                view, marks = (row.view if row.kind == "view" else ""), {}
        return ended

    def lacks(self, key: str, view: str, message: Row) -> bool:
        """Whether it is known that a life did not have the message when the view ended for it:
        it tells what it held then, and never delivered it. What it does not owe it need not have.
        """
        trace = self._lives.get(key)
        if trace is None or view not in self.marks[key] or message_of(message) in trace.delivered:
            return False
        sender, number = sender_of(message), number_of(message)
        return trace.owes(sender, number) and self.marks[key][view].get(sender, 0) < number

    def never_had(self, key: str, message: Row) -> bool:
        """Whether it is known that a life never had it: it tells what it held in all its views. One
        without a view tells nothing."""
        trace = self._lives.get(key)
        if trace is None or not trace.views or message_of(message) in trace.delivered:
            return False
        if {row.view for row in trace.views} != self.marks[key].keys():
            return False
        sender, number = sender_of(message), number_of(message)
        return all(marks.get(sender, 0) < number for marks in self.marks[key].values())


def receipts(history: History) -> Iterator[Finding]:
    """A receipt covers no more than was sent, and no less than was delivered.

    Let a life q end a view with a row E (its next view, `leave` or `crash`), and N be the number of
    its last receipt for a sender s between the row that ended a view before and E.
    - `N held, M sent`: s has rows, did not vanish, and M is the largest number that it sent, below
      N.
    - `N held, M delivered`: q delivered the message M of s before E, and M is above N.
    Named are q, the message N of s, and s; of several M the largest counts. A receipt may be below
    an earlier one: what was here of a sender that failed is discarded where not all have it.
    """
    heard = {key: list(delivered_before(trace.rows, ENDS)) for key, trace in history.lives.items()}
    last = {
        key: max(map(number_of, trace.sends), default=0) for key, trace in history.lives.items()
    }
    return false_receipts(history, heard, last)


def false_receipts(
    history: History, heard: Mapping[str, Sequence[Mapping[str, int]]], last: Mapping[str, int]
) -> Iterator[Finding]:
    """The law, from these facts about messages: per incarnation and row that ends a view, the
    largest number of each sender delivered before; per incarnation, the largest number sent."""
    for key, trace in history.lives.items():
        marks: dict[str, int] = {}
        at_ends = iter(heard[key])
        for row in trace.rows:
            if row.kind == "receipt":
                marks[sender_of(row)] = number_of(row)
            elif row.kind in ENDS:
                had = next(at_ends)
                for sender, number in marks.items():
                    source = history.lives.get(sender)
                    known = source is not None and source.end != VANISHED
                    message, sent = f"{sender}:{number}", last.get(sender, 0)
                    if known and sent < number:
                        yield Finding(key, message, sender, f"{number} held, {sent} sent")
                    if had.get(sender, 0) > number:
                        detail = f"{number} held, {had[sender]} delivered"
                        yield Finding(key, message, sender, detail)
                marks = {}


def received(history: History) -> Iterator[Finding]:
    """A safe message is delivered only once every member of the view has received it.

    Asked only of a history that has receipts. Let any life p deliver a safe message m while its
    last view before, regular or transitional, is t, and its last regular view v. Let W be the view
    that p has right after v; if it has none, and is not alive, the one that the smallest life that
    has one has right after v. Without any nothing is asked, unless p crashed, later by its own
    clock than it delivered m: what is left of a view is delivered in the step that ends it. Let q
    be another member of t, and of W, if there is one: who is gone from that may lack what those who
    stay deliver in the end. If q tells what it held when v ended for it (it has a view,
    `leave` or `crash` row after its first installation of v), owes m (see `agreement`) and never
    delivered it, then it has a receipt in v for m's sender with at least m's number: else `not
    received in view v`. Named are q, m, and the smallest such p.
    """
    holdings = history.derived(Holdings)
    if not holdings.has_receipts:
        return
    seen: set[tuple[str, str]] = set()
    nexts = history.derived(NextViews)
    for p, trace in history.lives.items():
        crashed_us = crash_us(trace)
        regular: Row | None = None
        members: set[str] = set()
        alone = False
        for row in trace.rows:
            if row.kind in VIEWS:
                members = set(row.members or ())
                regular = row if row.kind == "view" else regular
                to = nexts.after(trace, regular) if regular is not None else None
                members &= set(to.members or ()) if to is not None else members
                alone = to is None and trace.end != ALIVE
            elif row.kind == "deliver" and row.service == "safe" and regular is not None:
                if alone and row.t_us >= crashed_us:
                    continue
                message = message_of(row)
                for q in members:
                    other = history.lives.get(q)
                    if q == p or other is None or message in other.delivered:
                        continue
                    key = (q, message)
                    if key not in seen and holdings.lacks(q, regular.view, row):
                        seen.add(key)
                        yield Finding(*key, p, f"not received in view {regular.view}")


def crash_us(trace: IncarnationTrace) -> int:
    """When it crashed, by its own clock; before all time when it did not."""
    crash = next((row for row in trace.rows if row.kind == "crash"), None)
    return crash.t_us if crash is not None and trace.end == CRASHED else -1


def stable(history: History) -> Iterator[Finding]:
    """A stable message is held by as many members as required, and its holders deliver it.

    Of a `stable` row of life p about message m in its last regular view v:
    - `X does not hold it`: X is named as a holder (`members`), has views, tells what it held in all
      of them, has no receipt for m's sender with at least m's number, and never delivered m.
    - `held by N of K`: m's service asks for K (a majority of v is more than half of its members,
      all is all of them that were in every view of p since it delivered m: one that was removed and
      admitted again holds a state, not m), and fewer holders are named; not asked where none is
      named.
    - `X was in no view`: X is named as a holder, and no view of p has it.
    - `never sent`: m's sender has rows, did not vanish, and has no send row of m.
    - `a holder lost it`: a named holder is correct, owes m (see `agreement`), and did not deliver
      it.
    Named are p, m and the holder; for `held by N of K` and `never sent` the other is empty.
    """
    holdings = history.derived(Holdings)
    sent = {message_of(row) for trace in history.lives.values() for row in trace.sends}
    for key, trace in history.lives.items():
        view: Row | None = None
        there: dict[str, set[str]] = {}
        for row in trace.rows:
            if row.kind == "view":
                view = row
                for stayed in there.values():
                    stayed.intersection_update(row.members or ())
            if row.kind == "deliver" and view is not None:
                there.setdefault(message_of(row), set(view.members or ()))
            if row.kind != "stable" or view is None or not row.members:
                continue
            message = message_of(row)
            members = set(view.members or ())
            wanted = _wanted(row.service or "", members, there.get(message, members))
            if len(row.members) < wanted:
                detail = f"held by {len(row.members)} of {wanted}"
                yield Finding(key, message, "", detail)
            source = history.lives.get(sender_of(row))
            if source is not None and source.end != VANISHED and message not in sent:
                yield Finding(key, message, "", "never sent")
            for holder in row.members:
                if holder not in trace.known:
                    yield Finding(key, message, holder, f"{holder} was in no view")
                if holdings.has_receipts and holdings.never_had(holder, row):
                    detail = f"{holder} does not hold it"
                    yield Finding(key, message, holder, detail)
                other = history.lives.get(holder)
                if other is None or not other.correct or message in other.delivered:
                    continue
                if other.owes(sender_of(row), number_of(row)):
                    detail = "a holder lost it"
                    yield Finding(key, message, holder, detail)


def _wanted(service: str, members: set[str], there: set[str]) -> int:
    """How many holders a service asks for in a view of these, of a message since whose delivery
    those were there."""
    if not service.startswith("resilient("):
        return 0
    k = service[len("resilient(") : -1]
    counts = {MAJORITY: len(members) // 2 + 1, ALL: len(members & there)}
    return counts.get(k) or int(k if k.isdigit() else 0)
