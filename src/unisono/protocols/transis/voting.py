"""Which component may operate, as the members see it: all, that of a static majority, or by dynamic
voting on what the second stage of a change exchanges anyway [TRA-18].

With dynamic voting, what each member remembers is in its `Agree`. Once all of a set are known, all
draw the same conclusion. A member records the attempt before it says that it has recovered; the
configuration is installed, which forms the component, once all have said so. So voting costs no
message of its own, and the view says at once whether it is the primary one.

Who has no durable storage, or lost it, has no vote: it is in the primary component if the others
are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

from unisono.core import Checkpoint, Effect
from unisono.model import Change, ChangeKind, Member
from unisono.protocols.transis.packets import NO_VOTE, KnownPrimary, VoterMemory
from unisono.protocols.transis.primary import (
    PrimaryMemory,
    PrimaryReport,
    PrimarySession,
    PrimaryVoting,
    Step,
    Tell,
    write_memory,
)
from unisono.wire import tag_of

SECONDARY: Final = (
    "not in the primary component: messages wait until a majority of the last one, with their"
    " stable= files, is together"
)


class StaticMajority:
    """The component with more than half of all processes; without a count, every one operates."""

    waits: Final = "not in the primary component: messages wait until a majority is together"

    def __init__(self, process_count: int) -> None:
        self._process_count = process_count
        self.may_operate = not process_count

    def restore(self, records: Iterable[bytes]) -> None:
        """There is nothing to remember, nor to tell."""

    def report(self) -> VoterMemory:
        return NO_VOTE

    def vote(self, told: object, out: list[Effect]) -> None:
        """The number of members decides."""

    def shown(self, out: list[Effect]) -> None:
        """There is nothing to record."""

    def enter(self, members: Iterable[Member]) -> tuple[Change, ...]:
        """A view with these begins. What it says about it."""
        if not self._process_count:
            return ()
        names = {member.name for member in members}
        self.may_operate = 2 * len(names) > self._process_count
        return (Change(ChangeKind.PRIMARY if self.may_operate else ChangeKind.SECONDARY),)


class DynamicMajority:
    """The component with a majority of the last primary one; at first, of all processes."""

    waits: Final = SECONDARY

    def __init__(self, name: str, process_count: int, is_durable: bool) -> None:
        self._is_durable = is_durable
        self._new_voting = partial(PrimaryVoting, _voter(name), process_count)
        self._voting = self._new_voting()
        self._attempt: PrimarySession | None = None
        """What the members of the set at hand attempt to form."""
        self._is_recorded = True
        self.may_operate = False

    def restore(self, records: Iterable[bytes]) -> None:
        self._voting.restore(records)

    def report(self) -> VoterMemory:
        """What this member tells of what it remembers."""
        return _written(self._voting.memory) if self._is_durable else NO_VOTE

    def vote(self, told: Mapping[Member, VoterMemory], out: list[Effect]) -> None:
        """All that will be together have told this."""
        latest = {member.name: memory for member, memory in sorted(told.items(), key=_age)}
        voters = {_voter(name): _read(memory) for name, memory in latest.items() if memory.votes}
        steps: list[Step] = []
        if not self._is_durable:
            self._voting = self._new_voting()  # It follows what the others decide.
        self._voting.begin(voters)
        for name, memory in voters.items():
            steps += self._voting.take(name, PrimaryReport(False, memory))
        attempts = [step.report.memory.attempts[-1] for step in steps if isinstance(step, Tell)]
        self._attempt = attempts[0] if attempts else None
        if self._is_durable and self._attempt is not None:
            out.append(self._record())

    def enter(self, members: Iterable[Member]) -> tuple[Change, ...]:
        """A view of those that voted begins: all of them have recorded the attempt."""
        attempt, self._attempt = self._attempt, None
        self.may_operate = attempt is not None
        if attempt is None:
            return (Change(ChangeKind.SECONDARY),)
        for name in attempt.names:
            self._voting.take(name, PrimaryReport(True, PrimaryMemory(attempt.number)))
        self._is_recorded = not self._is_durable
        return (Change(ChangeKind.PRIMARY, number=attempt.number),)

    def shown(self, out: list[Effect]) -> None:
        """The application has been told: what a record calls formed, some application knows."""
        if not self._is_recorded:
            self._is_recorded = True
            out.append(self._record())

    def _record(self) -> Effect:
        return Checkpoint(write_memory(self._voting.memory))


PrimaryLayer: TypeAlias = StaticMajority | DynamicMajority


def _age(entry: tuple[Member, VoterMemory]) -> int:
    return entry[0].incarnation


def _voter(name: str) -> str:
    """As packets name it."""
    return f"{tag_of(name):016x}"


def _written(memory: PrimaryMemory) -> VoterMemory:
    formed = () if memory.formed is None else (memory.formed,)
    sessions = (*formed, *memory.attempts)
    names = sorted({name for session in sessions for name in session.names})
    known = tuple(
        KnownPrimary(number, sum(1 << names.index(name) for name in those))
        for number, those in sessions
    )
    return VoterMemory(
        True, bool(formed), memory.highest, tuple(int(name, 16) for name in names), known
    )


def _read(told: VoterMemory) -> PrimaryMemory:
    names = [f"{name:016x}" for name in told.names]
    sessions = tuple(
        PrimarySession(number, tuple(name for at, name in enumerate(names) if members >> at & 1))
        for number, members in told.sessions
    )
    if told.has_formed and sessions:
        return PrimaryMemory(told.highest, sessions[0], sessions[1:])
    return PrimaryMemory(told.highest, None, sessions)
