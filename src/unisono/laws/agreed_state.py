"""The laws of what members agree on beside messages: locks, and votes on the minimum size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from unisono.laws.succession import FOUNDED, tells
from unisono.laws.verdict import Finding
from unisono.model import SizeVote
from unisono.trace.history import History, IncarnationTrace
from unisono.trace.record import Row

GRANTED, RELEASED, VOTED, FAILED = "lock_granted", "lock_released", "size_changed", "failed"


class AgreedState(NamedTuple):
    """As of a view."""

    holders: Mapping[str, str] = {}
    """By lock."""
    votes: Mapping[str, str] = {}
    """By member that has voted."""

    def after(self, row: Row) -> AgreedState:
        holders, votes = dict(self.holders), dict(self.votes)
        for what, number, member in _numbered(row):
            if what == GRANTED:
                holders[number] = member
            elif what == RELEASED:
                holders.pop(number, None)
            elif what == VOTED:
                votes[member] = number
        members = set(row.members or ())
        return AgreedState(
            {lock: member for lock, member in holders.items() if member in members},
            {member: vote for member, vote in votes.items() if member in members},
        )


def _numbered(row: Row) -> Iterator[tuple[str, str, str]]:
    """The changes of one member that have a number: kind, number, member."""
    for change in row.changes or ():
        words = change.split(" ")
        if len(words) == 3 and words[0] in (GRANTED, RELEASED, VOTED):
            yield words[0], words[1], words[2]


def _states(history: History) -> dict[str, list[tuple[Row, AgreedState]]]:
    """By life, its views with the state before each. A life that comes later takes over the state
    of its first view from a life that had it; where there is none, it begins without locks and
    votes."""
    after: dict[str, AgreedState] = {}
    found: dict[str, list[tuple[Row, AgreedState]]] = {}
    waiting = {key: trace for key, trace in history.lives.items() if trace.views}
    while waiting:
        known = [key for key, trace in waiting.items() if _is_known(trace, after)]
        for key in known or list(waiting)[:1]:
            found[key] = _of_life(waiting.pop(key), after)
    return found


def _is_known(trace: IncarnationTrace, after: Mapping[str, AgreedState]) -> bool:
    return trace.views[0].view in after or tells(trace.views[0], FOUNDED)


def _of_life(
    trace: IncarnationTrace, after: dict[str, AgreedState]
) -> list[tuple[Row, AgreedState]]:
    state, found = AgreedState(), []
    for at, row in enumerate(trace.views):
        found.append((row, state))
        joined = at == 0 and row.view in after
        state = after[row.view] if joined else state.after(row)
        after.setdefault(row.view, state)
    return found


def one_lock_holder(history: History) -> Iterator[Finding]:
    """A lock has at most one holder at any point of the order.

    Each life reads its views in order; a life that comes later knows what the other lives with its
    first view knew. A lock is held from `lock_granted N A` until `lock_released N A`.
    - `view V: lock N granted, held by A`: it is granted to another member; A is the other.
    - `view V: lock N released, held by A`: by another member; A is the other.
    - `view V: lock N not released`: its holder, the other, is not in V, and V does not release it.
    - `view V: locks … here, … there`: the changes of locks in V differ from those at the smallest
      life that installed V; that is the other. First views of lives are not compared.
    """
    first: dict[str, tuple[str, str]] = {}
    for key, views in sorted(history.derived(_states).items()):
        for at, (row, state) in enumerate(views):
            if at or tells(row, FOUNDED):
                yield from _of_locks(key, row, state)
            if at == 0:
                continue
            locks = ", ".join(" ".join(each) for each in _numbered(row) if each[0] != VOTED)
            other, theirs = first.setdefault(row.view, (key, locks))
            if locks != theirs:
                detail = f"view {row.view}: locks {locks or 'unchanged'} here,"
                yield Finding(key, "", other, f"{detail} {theirs or 'unchanged'} there")


def _of_locks(key: str, row: Row, state: AgreedState) -> Iterator[Finding]:
    holders = dict(state.holders)
    for what, number, member in _numbered(row):
        holder = holders.get(number, member)
        if what == RELEASED:
            if holder != member:
                detail = f"view {row.view}: lock {number} released, held by {holder}"
                yield Finding(key, "", holder, detail)
            holders.pop(number, None)
        elif what == GRANTED:
            if holder != member:
                detail = f"view {row.view}: lock {number} granted, held by {holder}"
                yield Finding(key, "", holder, detail)
            holders[number] = member
    for number, holder in holders.items():
        if holder not in (row.members or ()):
            yield Finding(key, "", holder, f"view {row.view}: lock {number} not released")


def minimum_size(history: History) -> Iterator[Finding]:
    """A failure does not leave fewer members than voted for.

    A member's vote is that of its last `size_changed` in the views before; a life that comes later
    knows those that the other lives with its first view knew. Of a view V with the change `failed`,
    let N be the members of the view before that are in V. N is at least each number that a member
    of the view before has voted for; all of them for the vote `none_may_fail`; and a majority for
    `optimistic` and `pessimistic`: `view V keeps N of M members, fewer than K`. The voter is the
    other.
    """
    for key, views in sorted(history.derived(_states).items()):
        for (before, _), (row, state) in pairwise(views):
            if not tells(row, FAILED):
                continue
            members = set(before.members or ())
            kept = len(members & set(row.members or ()))
            for voter, vote in sorted(state.votes.items()):
                least = _least(vote, len(members))
                if kept < least:
                    detail = f"view {row.view} keeps {kept} of {len(members)} members"
                    yield Finding(key, "", voter, f"{detail}, fewer than {least}")


def _least(vote: str, size: int) -> int:
    if vote.isdecimal():
        return int(vote)
    if vote == str(SizeVote.NONE_MAY_FAIL):
        return size
    return size // 2 + 1 if vote in map(str, SizeVote) else 0
