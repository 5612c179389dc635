"""The table of actions: a function of the group's messages in their order, so the same at all.

A request takes its place where it is delivered. It begins as soon as no earlier request that is
still open shares a participant with it; so competing requests run one after another, in the order,
and cannot wait for each other in a circle. Each participant votes by a message, and for one that
failed a survivor puts a notice into the order. The action commits at the last missing yes, and
aborts at the first no or notice, whichever stands first. [RNG, dynamic actions]

Views are not read here: a member that was cut off and came back with its memory has missed some,
but no message.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

from unisono.errors import Misuse
from unisono.model import Member, Message
from unisono.services.commit.messages import (
    BadCommitMessage,
    CommitRequest,
    Notice,
    Vote,
    packed,
    read,
    unpacked,
)

FORM: Final = 1
"""Of the state that is handed over."""


@dataclass(frozen=True, slots=True)
class ActionLimits:
    """The same for all members: who joins takes them over from the group."""

    open_count_max: int = 256
    """Actions that run or wait; a request beyond it is aborted at its place."""
    outcomes_count_max: int = 4096
    """Outcomes that are remembered; then the oldest is forgotten."""
    names_count_max: int = 1024
    """Participants whose last vote is remembered; then the one that voted longest ago is not."""


@dataclass(frozen=True, slots=True)
class Action:
    """What is to be done, by whom: all of it or nothing."""

    key: str
    operations: Mapping[str, bytes]
    by: str
    """The member that asked."""


@dataclass(frozen=True, slots=True)
class Committed:
    """It was done, by all."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """It was done by nobody."""

    reason: str


Outcome: TypeAlias = Committed | Aborted


@dataclass(frozen=True, slots=True)
class Requested:
    """It has its place, and runs or waits."""

    action: Action


@dataclass(frozen=True, slots=True)
class Begun:
    """It is the participants' turn to prepare and vote."""

    action: Action


@dataclass(frozen=True, slots=True)
class Decided:
    """The outcome stands, from this place of the order on."""

    action: Action
    outcome: Outcome


Step: TypeAlias = Requested | Begun | Decided


@dataclass(frozen=True, slots=True)
class Last:
    """What a name said yes to last, once it was decided."""

    key: str
    operation: bytes
    outcome: Outcome


@dataclass(slots=True)
class Open:
    """An action between its request and its outcome."""

    action: Action
    begun: bool = False
    yes: set[str] = field(default_factory=set)

    @property
    def awaited(self) -> list[str]:
        """Who has not voted."""
        return [name for name in self.action.operations if name not in self.yes]


class Table:
    """A member's copy. Give it every message, in the order of the stream."""

    def __init__(self, limits: ActionLimits | None = None) -> None:
        self.limits = limits or ActionLimits()
        self.counts: Counter[str] = Counter()
        """What was passed over, by reason, and what was decided. Of this copy; not handed over."""
        self.open: dict[str, Open] = {}
        """In the order of their requests."""
        self.outcomes: dict[str, Outcome] = {}
        """The last ones, oldest first."""
        self.last: dict[str, Last] = {}
        self.decided_count = 0
        """Since the group began."""
        self.origin = ""
        """The first request of the group, by its sender's life: no other group has the same."""

    # -- the order ------------------------------------------------------------------------------

    def hear(self, message: Message) -> list[Step]:
        """A message at its place: what begins and what is decided by it."""
        try:
            word = read(message.payload)
        except BadCommitMessage:
            self.counts["bad"] += 1
            return []
        if word is None:
            self.counts["foreign"] += 1
            return []
        if isinstance(word, CommitRequest):
            self.origin = self.origin or f"{message.sender}/{message.number}"
            return self._asked(word, message.sender)
        if isinstance(word, Vote):
            return self._voted(word, message.sender)
        return self._noticed(word)

    def _asked(self, ask: CommitRequest, sender: Member) -> list[Step]:
        if ask.key in self.open or ask.key in self.outcomes:
            self.counts["repeated"] += 1
            return []
        entry = Open(Action(ask.key, ask.operations, sender.name))
        if len(self.open) >= self.limits.open_count_max:
            return self._decide(entry, Aborted(f"{len(self.open)} actions are open already"))
        self.open[ask.key] = entry
        return [Requested(entry.action), *self._begin()]

    def _voted(self, vote: Vote, sender: Member) -> list[Step]:
        entry, name = self.open.get(vote.key), sender.name
        if entry is None:
            self.counts["late"] += 1
        elif not entry.begun or name not in entry.awaited:
            self.counts["stray"] += 1
        elif vote.objection:
            return self._decide(entry, Aborted(f"{name}: {vote.objection}")) + self._begin()
        else:
            entry.yes.add(name)
            if not entry.awaited:
                return self._decide(entry, Committed()) + self._begin()
        return []

    def _noticed(self, notice: Notice) -> list[Step]:
        """Who failed after its vote has voted; who failed before it will not."""
        entry = self.open.get(notice.key)
        if entry is None or notice.name not in entry.awaited:
            self.counts["late"] += 1
            return []
        return self._decide(entry, Aborted(f"{notice.name} {notice.reason}")) + self._begin()

    def _begin(self) -> list[Step]:
        """Begin what no earlier open request competes with."""
        taken: set[str] = set()
        steps: list[Step] = []
        for entry in self.open.values():
            if not entry.begun and taken.isdisjoint(entry.action.operations):
                entry.begun = True
                steps.append(Begun(entry.action))
            taken.update(entry.action.operations)
        return steps

    def _decide(self, entry: Open, outcome: Outcome) -> list[Step]:
        action = entry.action
        self.open.pop(action.key, None)
        self.decided_count += 1
        self.counts["committed" if isinstance(outcome, Committed) else "aborted"] += 1
        self.outcomes[action.key] = outcome
        if len(self.outcomes) > self.limits.outcomes_count_max:
            del self.outcomes[next(iter(self.outcomes))]
        for name, operation in action.operations.items():
            if name in entry.yes:
                self.last.pop(name, None)
                self.last[name] = Last(action.key, operation, outcome)
        while len(self.last) > self.limits.names_count_max:
            del self.last[next(iter(self.last))]
        return [Decided(action, outcome)]

    # -- handing over ---------------------------------------------------------------------------

    def awaits(self, name: str) -> list[Action]:
        """What has begun and awaits the vote of this name."""
        return [
            entry.action for entry in self.open.values() if entry.begun and name in entry.awaited
        ]

    def state(self) -> bytes:
        """All of it, as one line of JSON: equal for equal tables."""
        told = {
            "form": FORM,
            "limits": asdict(self.limits),
            "origin": self.origin,
            "decided": self.decided_count,
            "open": [_open_told(entry) for entry in self.open.values()],
            "outcomes": [[key, _told(outcome)] for key, outcome in self.outcomes.items()],
            "last": [
                [name, each.key, packed({name: each.operation})[name], _told(each.outcome)]
                for name, each in self.last.items()
            ],
        }
        return json.dumps(told, separators=(",", ":")).encode()

    def adopt(self, state: bytes) -> None:
        """Put the group's table in the place of ours."""
        try:
            told = json.loads(state)
            if told["form"] != FORM:
                raise ValueError(f"its form is {told['form']}, ours {FORM}")
            found = Table(ActionLimits(**told["limits"]))
            found.origin, found.decided_count = str(told["origin"]), int(told["decided"])
            found.open = {each["key"]: _open(each) for each in told["open"]}
            found.outcomes = {key: _outcome(each) for key, each in told["outcomes"]}
            found.last = {
                name: Last(key, unpacked({name: operation})[name], _outcome(each))
                for name, key, operation, each in told["last"]
            }
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Misuse(
                f"the state that was handed over is no table of actions: {error}"
            ) from None
        self.limits, self.origin = found.limits, found.origin
        self.decided_count = found.decided_count
        self.open, self.outcomes, self.last = found.open, found.outcomes, found.last


def _told(outcome: Outcome) -> str | None:
    """The reason of an abort, or nothing."""
    return outcome.reason if isinstance(outcome, Aborted) else None


def _outcome(told: str | None) -> Outcome:
    return Committed() if told is None else Aborted(told)


def _open_told(entry: Open) -> dict[str, Any]:
    action = entry.action
    return {
        "key": action.key,
        "do": packed(action.operations),
        "by": action.by,
        "begun": entry.begun,
        "yes": sorted(entry.yes),
    }


def _open(told: Mapping[str, Any]) -> Open:
    action = Action(told["key"], unpacked(told["do"]), told["by"])
    return Open(action, bool(told["begun"]), set(told["yes"]))
