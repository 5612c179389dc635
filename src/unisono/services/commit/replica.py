"""One member's part in the actions: its table, its participant, its votes. Runs in any world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from unisono.model import Member, Message, View
from unisono.services.commit.participant import Participant
from unisono.services.commit.table import Action, Begun, Committed, Decided, Limits, Step, Table
from unisono.services.commit.words import Vote, written


@dataclass(frozen=True, slots=True)
class Prepare:
    """Ask the participant, and say its vote."""

    action: Action


Duty: TypeAlias = Begun | Prepare | Decided


class Replica:
    """Hears the order, tells the participant of outcomes as they fall, and names what is to be
    prepared. The caller asks `prepare` of the participant and multicasts the vote."""

    def __init__(self, participant: Participant, limits: Limits | None = None) -> None:
        self.table = Table(limits)
        self.participant = participant
        self.me: Member | None = None
        self._is_new = True

    def live(self, me: Member) -> None:
        """A life begins: before anything is heard in it."""
        self.me = me

    def hear(self, message: Message) -> list[Duty]:
        return self._follow(self.table.hear(message))

    def see(self, view: View) -> list[Duty]:
        if self._is_new:
            self._is_new = False
            self.participant.begin(" ".join((view.id, *sorted(map(str, view.members)))))
        return self._follow(self.table.see(view))

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
        self._is_new = False
        me = self.me
        self.participant.restore(rest, self.table.last.get(me.name) if me else None)
        return [Prepare(action) for action in self.table.awaits(me)] if me else []

    def _follow(self, steps: list[Step]) -> list[Duty]:
        duties: list[Duty] = []
        for step in steps:
            duties.append(step)
            if isinstance(step, Begun):
                if self._is_ours(step.action):
                    duties.append(Prepare(step.action))
            elif isinstance(step.outcome, Committed):
                self.participant.commit(step.action)
            else:
                self.participant.abort(step.action, step.outcome.reason)
        return duties

    def _is_ours(self, action: Action) -> bool:
        entry, me = self.table.open.get(action.key), self.me
        return entry is not None and me is not None and entry.lives.get(me.name) == me.incarnation
