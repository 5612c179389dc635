"""How a reformation is decided: one decree an epoch, without packets, timers or clocks.

[RMP §3.1] calls the procedure a two-phase commit. A commit alone leaves its slaves in doubt when
the reform site fails between the phases, and an aborted attempt might have been completed by
somebody. Here an attempt has a ballot, and the two phases are those of Paxos:

1. A slave *promises* a ballot: it stops ordering in this epoch, ignores lesser ballots, and answers
   with what it holds and with the new list that it accepted last.
2. The reform site proposes a new list: the one accepted under the highest ballot that was reported
   to it, else its own. A slave *accepts* once it holds everything up to the synchronization point.

A new list is decided when a quorum has accepted it. So at most one is decided in an epoch;
whoever decides, a quorum holds everything up to its synchronization point; and that is not before
any message that was resilient to a majority, since a quorum had passed the token after it before
it promised anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from unisono.core import Cause
from unisono.protocols.rmp.group_state import MinimumSize
from unisono.protocols.rmp.ordering import AHEAD_MAX
from unisono.protocols.rmp.quorums import ViewQuorums

Ranges = tuple[tuple[int, int], ...]
"""Rising, disjoint, both ends inclusive."""


class ReformBallot(NamedTuple):
    """An attempt to reform. Higher wins."""

    round: int
    site: int


ROUNDS_AHEAD_MAX: Final = 1 << 16
"""Attempts that a site may have missed."""
NO_BALLOT: Final = ReformBallot(0, 0)


class NewList(NamedTuple):
    """What a reformation decides."""

    members: tuple[int, ...]
    """The token list of the next epoch, in order; its first has the token."""
    sync: int
    """[RMP §3.1] The synchronization point: everything up to this timestamp is in the order."""
    leftovers: tuple[tuple[int, Ranges], ...]
    """By source that is lost, its blocks that were not ordered and that a survivor holds: they
    follow the synchronization point, in this order."""
    epoch: int
    """Of the next ring, which rises by one with each."""
    # Deviates [RMP §3.3 TRID]: 63 random bits, unique without a clock. The paper's has an address
    # and a timer of 12 hours.
    trid: int
    """Its identifier: no two rings have the same."""
    primary: bool
    """A quorum decided. False: the part goes on by a vote for a smaller size."""


class SyncPoint(NamedTuple):
    """What a site answers in phase 1."""

    held: int
    """It holds everything up to this timestamp."""
    quorums: ViewQuorums
    """The views that it knows, up to that timestamp."""
    unordered: tuple[tuple[int, Ranges], ...] = ()
    """By source, the blocks that it holds and that are not in the order."""
    accepted: tuple[ReformBallot, NewList] | None = None
    minimum: MinimumSize = MinimumSize()
    """By the votes up to that timestamp."""


@dataclass(slots=True)
class Slave:
    """A site's part in the reformations of one epoch."""

    # Deviates [RMP §3.1 phases]: a ballot orders attempts, and what a slave accepted is proposed
    # again. The paper's slaves keep nothing of an attempt that was aborted.

    promised: ReformBallot = NO_BALLOT
    accepted: tuple[ReformBallot, NewList] | None = None

    def may_promise(self, ballot: ReformBallot) -> bool:
        """Whether none is higher, and it is not so high that none could be."""
        return self.promised <= ballot <= (self.promised.round + ROUNDS_AHEAD_MAX, ballot.site)

    def promise(self, ballot: ReformBallot) -> bool:
        """Whether the ballot is the highest so far, or that one again."""
        if ballot < self.promised:
            return False
        self.promised = ballot
        return True

    def has_accepted(self, new_list: NewList) -> bool:
        return self.accepted is not None and self.accepted[1] == new_list

    def accept(self, ballot: ReformBallot, new_list: NewList, held: int) -> bool:
        """Whether it is accepted: not before everything up to the synchronization point is here."""
        if ballot < self.promised or held < new_list.sync:
            return False
        self.promised = ballot
        self.accepted = (ballot, new_list)
        return True


@dataclass(slots=True)
class Attempt:
    """What a reform site gathers under its ballot."""

    ballot: ReformBallot
    answers: dict[int, SyncPoint] = field(default_factory=dict)
    proposal: NewList | None = None
    confirmed: set[int] = field(default_factory=set)

    def believes(self, point: SyncPoint) -> bool:
        """Whether a site may answer that: it cannot know other views than we, or be far ahead."""
        mine = self.answers[self.ballot.site]
        if point.held > mine.held + AHEAD_MAX or not mine.quorums.agrees_with(
            point.quorums, mine.held
        ):
            return False
        return point.accepted is None or point.accepted[0] < self.ballot

    def gather(self, site: int, point: SyncPoint) -> None:
        self.answers[site] = point

    def confirm(self, site: int) -> None:
        self.confirmed.add(site)

    def held(self) -> int:
        """The last slot up to which one of those who answered holds all."""
        return max(answer.held for answer in self.answers.values())

    def quorums(self) -> ViewQuorums:
        """What those who answered know together."""
        known = [answer.quorums for answer in self.answers.values()]
        merged = known[0]
        for other in known[1:]:
            merged = merged.merged(other)
        return merged

    def missing(self) -> frozenset[int]:
        """Members that have not answered."""
        return self.quorums().members - self.answers.keys()

    def everyone_answered(self) -> bool:
        """[RMP-14] Nobody is missing: a false alarm."""
        return bool(self.answers) and not self.missing()

    def has_quorum(self) -> bool:
        return bool(self.answers) and self.quorums().has_majority(self.answers.keys())

    def minimum(self) -> MinimumSize:
        """At the synchronization point: the reform site itself may have missed the last votes."""
        return max(self.answers.values(), key=lambda answer: answer.held).minimum

    def propose(self, epoch: int, trid: int, order: Iterable[int]) -> NewList | Cause:
        """The new list, or why there is none. `order` is the token list."""
        primary = self.has_quorum()
        reported = [a.accepted for a in self.answers.values() if a.accepted is not None]
        accepted = [each for each in reported if each[1].primary]  # Other lists bind nobody.
        if primary and accepted:
            self.proposal = max(accepted, key=_ballot_of)[1]
            return self.proposal
        new_list = self._new_list(epoch, trid, order, primary)
        least, needs_quorum = self.minimum()
        if len(new_list.members) < least or (needs_quorum and not primary):
            return Cause.TOO_FEW
        self.proposal = new_list
        return new_list

    def _new_list(self, epoch: int, trid: int, order: Iterable[int], primary: bool) -> NewList:
        sync = self.held()
        before = self.quorums().members
        members = tuple(site for site in order if site in before and site in self.answers)
        lost = self._leftovers(before - set(members))
        return NewList(members, sync, lost, epoch, trid, primary)

    def _leftovers(self, lost: Set[int]) -> tuple[tuple[int, Ranges], ...]:
        held: dict[int, list[tuple[int, int]]] = {}
        for answer in self.answers.values():
            for source, ranges in answer.unordered:
                if source in lost:
                    held.setdefault(source, []).extend(ranges)
        return tuple((source, united(held[source])) for source in sorted(held))

    def everyone_confirmed(self) -> bool:
        """[RMP-11] All on the list have, and with them those who may decide."""
        proposal = self.proposal
        if proposal is None or not self.confirmed.issuperset(proposal.members):
            return False
        return not proposal.primary or self.quorum_confirmed()

    def quorum_confirmed(self) -> bool:
        """It is decided, though somebody on the list may be silent."""
        # Deviates [RMP §3.1 confirmation]: the paper aborts. A list that was taken over may name
        # sites that are lost, and never be confirmed by all; the next reformation removes them.
        proposal = self.proposal
        return (
            proposal is not None
            and proposal.primary
            and self.quorums().has_majority(self.confirmed)
        )


def _ballot_of(accepted: tuple[ReformBallot, NewList]) -> ReformBallot:
    return accepted[0]


def united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same numbers in rising, disjoint ranges."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)
