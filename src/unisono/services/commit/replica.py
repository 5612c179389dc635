"""One member's part in the actions: its table, its participant, its votes. Runs in any world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from unisono.model import Member, Message, View
from unisono.services.commit.messages import Notice, Vote, written
from unisono.services.commit.participant import Participant
from unisono.services.commit.table import (
    Action,
    ActionLimits,
    Begun,
    Committed,
    Decided,
    Requested,
    Step,
    Table,
)


@dataclass(frozen=True, slots=True)
class Prepare:
    """Ask the participant, and say its vote."""

    action: Action


@dataclass(frozen=True, slots=True)
class Say:
    """Multicast this."""

    payload: bytes


Duty: TypeAlias = Requested | Begun | Decided | Prepare | Say


class Replica:
    """Hears the order, tells the participant of outcomes as they fall, and names what is to be
    prepared and said. The caller asks `prepare` of the participant and multicasts the vote."""

    def __init__(self, participant: Participant, limits: ActionLimits | None = None) -> None:
        self.table = Table(limits)
        self.participant = participant
        self.me: Member | None = None
        self._names: frozenset[str] | None = None
        """Of the view, where it is ours to say who is gone."""
        self._noticed: set[tuple[str, str]] = set()
        """What this life has said of open actions: its own words reach the order."""

    def live(self, me: Member) -> None:
        """A life begins: before anything is heard in it."""
        self.me = me
        self._names = None
        self._noticed.clear()

    def hear(self, message: Message) -> list[Duty]:
        before, steps = self.table.origin, self.table.hear(message)
        if self.table.origin != before:
            self.participant.begin(self.table.origin)
        return self._follow(steps)

    def see(self, view: View) -> list[Duty]:
        """A view decides nothing: who it shows gone is put into the order, where all find it."""
        # One says it; if that one fails too, a view without it follows, and another does.
        speaks = self.me == min(view.members)
        self._names = frozenset(member.name for member in view.members) if speaks else None
        actions = [entry.action for entry in self.table.open.values()]
        return [said for each in actions for said in self._notices(each, "failed before its vote")]

    def _notices(self, action: Action, reason: str) -> list[Say]:
        names = self._names
        entry = self.table.open.get(action.key)
        if names is None or entry is None:
            return []
        gone = {(action.key, name) for name in entry.awaited if name not in names}
        new = sorted(gone - self._noticed)
        self._noticed |= gone
        return [Say(written(Notice(key, name, reason))) for key, name in new]

    def vote(self, key: str, objection: str) -> bytes:
        """Our vote, to be multicast."""
        return written(Vote(key, objection))

    def state(self) -> bytes:
        """The table, a line end, and what the participant adds."""
        return self.table.state() + b"\n" + bytes(self.participant.snapshot())

    def adopt(self, state: bytes) -> list[Duty]:
        """Take over the group's state, and learn what a former life of our name has missed."""
        table, _, rest = state.partition(b"\n")
        self.table.adopt(table)
        me = self.me
        self.participant.restore(rest, self.table.last.get(me.name) if me else None)
        return [Prepare(action) for action in self.table.awaits(me.name)] if me else []

    def _follow(self, steps: list[Step]) -> list[Duty]:
        duties: list[Duty] = []
        for step in steps:
            duties.append(step)
            if isinstance(step, Requested):
                duties += self._notices(step.action, "is not in the group")
            elif isinstance(step, Begun):
                if self.me is not None and self.me.name in step.action.operations:
                    duties.append(Prepare(step.action))
            else:
                self._decided(step)
        return duties

    def _decided(self, step: Decided) -> None:
        action, outcome = step.action, step.outcome
        self._noticed.difference_update((action.key, name) for name in action.operations)
        if isinstance(outcome, Committed):
            self.participant.commit(action)
        else:
            self.participant.abort(action, outcome.reason)
