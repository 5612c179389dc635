"""The packets of reformations [RMP §3]."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.fields import U16, U64, Bit, bounded
from unisono.model import Member
from unisono.parts.identity import key_of
from unisono.protocols.rmp.agreement import NewList, Ranges, ReformBallot, SyncPoint
from unisono.protocols.rmp.group_state import MinimumSize
from unisono.protocols.rmp.quorums import ViewMark, ViewQuorums

NUMBER_MAX: Final = 1 << 62
NAMED_MAX: Final = 65_536
"""Blocks that one packet may name."""
Number: TypeAlias = Annotated[int, bounded("Q", 0, NUMBER_MAX)]


class BallotFields(NamedTuple):
    round: Number
    site: U64


DECIDED: Final = BallotFields(0, 0)
"""Of a list that needs no more votes."""


def _are_few(blocks: tuple[tuple[int, Ranges], ...]) -> bool:
    """Whether these ranges name no more blocks than one packet may."""
    found = [each for _, ranges in blocks for each in ranges]
    named = sum(last - first + 1 for first, last in found)
    return named <= NAMED_MAX and all(0 < first <= last for first, last in found)


class NewListFields(NamedTuple):
    members: tuple[U64, ...]
    sync: Number
    leftovers: tuple[tuple[U64, tuple[tuple[Number, Number], ...]], ...]
    epoch: Number
    trid: U64
    primary: bool

    def is_valid(self) -> bool:
        return bool(self.members) and _are_few(self.leftovers)

    @staticmethod
    def of(new_list: NewList) -> NewListFields:
        return NewListFields(*new_list)

    def new_list(self) -> NewList:
        return NewList(*self)


class Fault(NamedTuple):
    """[RMP §3.1] Phase 1: the reform site reports a fault."""

    sender: U64
    round: Number
    member: Member
    """The reform site: answers go to its address."""

    def is_valid(self) -> bool:
        return key_of(self.member) == self.sender

    @property
    def ballot(self) -> ReformBallot:
        return ReformBallot(self.round, self.sender)

    def label(self) -> str:
        return f"fault {self.round}"


class Sync(NamedTuple):
    """The answer of a slave: its synchronization point."""

    sender: U64
    ballot: BallotFields
    held: Number
    views: tuple[tuple[Number, tuple[U64, ...]], ...]
    unordered: tuple[tuple[U64, tuple[tuple[Number, Number], ...]], ...]
    accepted: tuple[BallotFields, NewListFields] | None
    least: U16
    """[RMP-10] The minimum size, by the votes up to there."""
    needs_quorum: bool

    def is_valid(self) -> bool:
        return bool(self.views) and _are_few(self.unordered)

    def point(self) -> SyncPoint:
        views = tuple(ViewMark(t, frozenset(members)) for t, members in self.views)
        accepted = None
        if self.accepted is not None:
            accepted = ReformBallot(*self.accepted[0]), self.accepted[1].new_list()
        minimum = MinimumSize(self.least, self.needs_quorum)
        return SyncPoint(self.held, ViewQuorums(views), self.unordered, accepted, minimum)

    @staticmethod
    def of(sender: int, ballot: ReformBallot, point: SyncPoint) -> Sync:
        views = tuple((t, tuple(sorted(members))) for t, members in point.quorums.views)
        accepted = None
        if point.accepted is not None:
            accepted = BallotFields(*point.accepted[0]), NewListFields.of(point.accepted[1])
        fields = BallotFields(*ballot)
        return Sync(sender, fields, point.held, views, point.unordered, accepted, *point.minimum)

    def label(self) -> str:
        return f"sync {self.held}"


class Proposal(NamedTuple):
    """Phase 2: the new list. As COMMIT: it is decided."""

    sender: U64
    ballot: BallotFields
    new_list: NewListFields

    def is_valid(self) -> bool:
        return self.ballot == DECIDED or self.ballot.site == self.sender

    def label(self) -> str:
        return f"new-list of {len(self.new_list.members)} at {self.new_list.sync}"


class Accept(NamedTuple):
    sender: U64
    ballot: BallotFields

    def label(self) -> str:
        return "accept"


class Resume(NamedTuple):
    """[RMP-14] A false alarm: go on as before. As ABORT [RMP-13]: this attempt is over."""

    sender: U64
    ballot: BallotFields
    is_verdict: Bit = False
    """Too few answered for so long that its site has given the group up."""
    held: Number = 0
    """Of a false alarm: the last slot that any of those who answered, all members, holds."""

    def is_valid(self) -> bool:
        return self.ballot.site == self.sender

    def label(self) -> str:
        return ""
