"""What the members agree on beside the messages: token list, locks, votes and scope.

Requests to change it travel in the total order. Every member applies the same ones in the same
order to the same state, so that each result is known everywhere without another packet. Each that
changes anything becomes a view event [RMP §2.1].
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from unisono.model import Change, ChangeKind, Member, SizeVote
from unisono.parts.locks import LockEvent, LockTable
from unisono.requests import AcquireLock, LimitScope, ReleaseLock, VoteSize

HOPS_FIRST = 1
"""The scope of a new group: one network."""


class Entry(NamedTuple):
    """A member, and its vote on the minimum size."""

    member: Member
    vote: int


class AddMember(NamedTuple):
    key: int
    entry: Entry


class RemoveMember(NamedTuple):
    key: int


class Summon(NamedTuple):
    """Changes nothing: what it orders makes the token go round, and so come to its source."""

    key: int


class RenewTrid(NamedTuple):
    """[RMP-16] Changes nothing but the identifier that the ring's packets carry."""

    trid: int


GroupRequest = AcquireLock | ReleaseLock | VoteSize | LimitScope
"""What an application may request."""


class MemberRequest(NamedTuple):
    """A request of the application at this site."""

    key: int
    what: GroupRequest


ChangeRequest = AddMember | RemoveMember | Summon | RenewTrid | MemberRequest


class MinimumSize(NamedTuple):
    """Of a part that may go on after a failure."""

    least: int = 0
    needs_quorum: bool = True
    """Without a quorum it may not, whatever its size."""


class Applied(NamedTuple):
    """What a request did."""

    state: GroupState
    changes: tuple[Change, ...] = ()
    locks: tuple[LockEvent[Member], ...] = ()
    denied: str = ""
    """Why it was denied."""


class GroupState(NamedTuple):
    """Immutable: a change makes another one."""

    entries: Mapping[int, Entry]
    """By key, in the order of the token list."""
    locks: LockTable[Member] = LockTable()
    hops: int = HOPS_FIRST

    def members(self) -> tuple[Member, ...]:
        return tuple(entry.member for entry in self.entries.values())

    def minimum(self) -> MinimumSize:
        """[RMP-10] After a failure: the largest vote. Majorities are of the current members."""
        count = len(self.entries)
        majority = count // 2 + 1
        sizes: dict[int, int] = {
            SizeVote.OPTIMISTIC: majority,
            SizeVote.PESSIMISTIC: majority,
            SizeVote.NONE_MAY_FAIL: count,
        }
        votes = {entry.vote for entry in self.entries.values()}
        least = max(sizes.get(vote, vote) for vote in votes)
        return MinimumSize(least, SizeVote.PESSIMISTIC in votes)

    def applied(self, request: ChangeRequest) -> Applied:
        """The state after it, and what happened: nothing for a request that has no effect."""
        match request:
            case AddMember(key, entry) if not self._has(key, entry.member.name):
                added = self._replace(entries={**self.entries, key: entry})
                return Applied(added, (Change(ChangeKind.JOINED, (entry.member,)),))
            case RemoveMember(key) if key in self.entries:
                return self._without((key,), ChangeKind.LEFT)
            case MemberRequest(key, what) if key in self.entries:
                return self._requested(key, what)
        return Applied(self)

    def _has(self, key: int, name: str) -> bool:
        """Whether this site is a member, or another of its name: two of one name may have been
        admitted before either was in the order."""
        return key in self.entries or any(e.member.name == name for e in self.entries.values())

    def _requested(self, key: int, what: GroupRequest) -> Applied:
        entry = self.entries[key]
        if isinstance(what, VoteSize):
            if what.minimum > len(self.entries):
                text = f"a vote for {what.minimum} in a group of {len(self.entries)}: vote for less"
                return Applied(self, denied=text)
            voted = {**self.entries, key: entry._replace(vote=what.minimum)}
            change = Change(ChangeKind.SIZE_CHANGED, (entry.member,), number=what.minimum)
            return Applied(self._replace(entries=voted), (change,))
        if isinstance(what, LimitScope):
            if what.hops == self.hops:
                return Applied(self)
            change = Change(ChangeKind.SCOPE_CHANGED, number=what.hops)
            return Applied(self._replace(hops=what.hops), (change,))
        locks, events = self.locks.applied(entry.member, what)
        return Applied(self._replace(locks=locks), _lock_changes(events), events)

    def reformed(self, keys: tuple[int, ...]) -> Applied:
        """After a reformation: only those stay, in this order; locks of the lost are released."""
        lost = tuple(key for key in self.entries if key not in keys)
        state, changes, events, _ = self._without(lost, ChangeKind.FAILED)
        state = state._replace(entries={key: state.entries[key] for key in keys})
        return Applied(state, (*changes, Change(ChangeKind.RECOVERED)), events)

    def _without(self, keys: Collection[int], what: ChangeKind) -> Applied:
        gone = tuple(self.entries[key].member for key in keys)
        locks, events = self.locks.without(gone)
        changes = (Change(what, gone),) if gone else ()
        entries = {key: entry for key, entry in self.entries.items() if key not in keys}
        state = self._replace(entries=entries, locks=locks)
        return Applied(state, (*changes, *_lock_changes(events)), events)


def _lock_changes(events: Collection[LockEvent[Member]]) -> tuple[Change, ...]:
    return tuple(Change(what, (member,), number=number) for what, number, member in events)
