"""One member's replica: its table, its participant, its votes. Runs in any world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from unisono.model import Member, Message, View
from unisono.services.commit.messages import Notice, Vote, encoded
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
    """Ask the participant, and multicast its vote."""

    action: Action


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Multicast this."""

    payload: bytes


Duty: TypeAlias = Requested | Begun | Decided | Prepare | SendMessage


class Replica:
    """Takes messages and views in order, reports outcomes to the participant, and returns what the
    caller has to do: call the participant's `prepare`, and multicast."""

    def __init__(self, participant: Participant, limits: ActionLimits | None = None) -> None:
        self.table = Table(limits)
        self.participant = participant
        self.me: Member | None = None
        self._names: frozenset[str] | None = None
        """Of the view, if this member reports those that are gone."""
        self._noticed: set[tuple[str, str]] = set()
        """Notices of open actions that this incarnation has sent."""

    def start(self, me: Member) -> None:
        """An incarnation begins; nothing was delivered in it."""
        self.me = me
        self._names = None
        self._noticed.clear()

    def deliver(self, message: Message) -> list[Duty]:
        before, steps = self.table.origin, self.table.deliver(message)
        if self.table.origin != before:
            self.participant.begin(self.table.origin)
        return self._follow(steps)

    def install(self, view: View) -> list[Duty]:
        """A view decides nothing: notices of members that are gone go into the total order."""
        # One sends it; if that one fails too, a view without it follows, and another does.
        reports = self.me == min(view.members)
        self._names = frozenset(member.name for member in view.members) if reports else None
        actions = [entry.action for entry in self.table.open.values()]
        return [
            notice for each in actions for notice in self._notices(each, "failed before its vote")
        ]

    def _notices(self, action: Action, reason: str) -> list[SendMessage]:
        names = self._names
        entry = self.table.open.get(action.key)
        if names is None or entry is None:
            return []
        gone = {(action.key, name) for name in entry.awaited if name not in names}
        new = sorted(gone - self._noticed)
        self._noticed |= gone
        return [SendMessage(encoded(Notice(key, name, reason))) for key, name in new]

    def vote(self, key: str, objection: str) -> bytes:
        """This member's vote, to be multicast."""
        return encoded(Vote(key, objection))

    def state(self) -> bytes:
        """The table, a line feed, and the participant's snapshot."""
        return self.table.state() + b"\n" + bytes(self.participant.snapshot())

    def adopt(self, state: bytes) -> list[Duty]:
        """Adopt the group's state, with the outcomes that an earlier incarnation has missed."""
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
