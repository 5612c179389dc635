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
"""Of the state that is transferred."""


@dataclass(frozen=True, slots=True)
class ActionLimits:
    """The same for all members: joiners adopt those of the group."""

    open_count_max: int = 256
    """Open actions; a request beyond it is aborted."""
    outcomes_count_max: int = 4096
    """Outcomes retained; the oldest is forgotten."""
    names_count_max: int = 1024
    """Participants whose last vote is retained; the least recent is forgotten."""


@dataclass(frozen=True, slots=True)
class Action:
    """Operations by participant: all are executed, or none."""

    key: str
    operations: Mapping[str, bytes]
    by: str
    """The member that requested it."""


@dataclass(frozen=True, slots=True)
class Committed:
    """All operations are executed."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """No operation is executed."""

    reason: str


Outcome: TypeAlias = Committed | Aborted


@dataclass(frozen=True, slots=True)
class Requested:
    """It is in the order, and runs or waits."""

    action: Action


@dataclass(frozen=True, slots=True)
class Begun:
    """The participants prepare and vote."""

    action: Action


@dataclass(frozen=True, slots=True)
class Decided:
    """The outcome, from this position of the order on."""

    action: Action
    outcome: Outcome


Step: TypeAlias = Requested | Begun | Decided


@dataclass(frozen=True, slots=True)
class Last:
    """The last decided action that a participant voted yes on."""

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
        """Participants that have not voted."""
        return [name for name in self.action.operations if name not in self.yes]


class Table:
    """A member's copy. Give it every message, in the order of the stream."""

    def __init__(self, limits: ActionLimits | None = None) -> None:
        self.limits = limits or ActionLimits()
        self.counts: Counter[str] = Counter()
        """Messages ignored, by reason, and outcomes. Of this replica; not transferred."""
        self.open: dict[str, Open] = {}
        """In the order of their requests."""
        self.outcomes: dict[str, Outcome] = {}
        """The last ones, oldest first."""
        self.last: dict[str, Last] = {}
        self.decided_count = 0
        """Since the group began."""
        self.origin = ""
        """Sender and number of the group's first request: unique to the group."""

    # -- the order ------------------------------------------------------------------------------

    def deliver(self, message: Message) -> list[Step]:
        """The next message: what begins and what is decided by it."""
        try:
            found = read(message.payload)
        except BadCommitMessage:
            self.counts["bad"] += 1
            return []
        if found is None:
            self.counts["foreign"] += 1
            return []
        if isinstance(found, CommitRequest):
            self.origin = self.origin or f"{message.sender}/{message.number}"
            return self._requested(found, message.sender)
        if isinstance(found, Vote):
            return self._voted(found, message.sender)
        return self._noticed(found)

    def _requested(self, request: CommitRequest, sender: Member) -> list[Step]:
        if request.key in self.open or request.key in self.outcomes:
            self.counts["repeated"] += 1
            return []
        entry = Open(Action(request.key, request.operations, sender.name))
        if len(self.open) >= self.limits.open_count_max:
            return self._decide(entry, Aborted(f"{len(self.open)} actions are open already"))
        self.open[request.key] = entry
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
        """A vote before the notice counts."""
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

    # -- state transfer -------------------------------------------------------------------------

    def awaits(self, name: str) -> list[Action]:
        """Begun actions that await the vote of this participant."""
        return [
            entry.action for entry in self.open.values() if entry.begun and name in entry.awaited
        ]

    def state(self) -> bytes:
        """All of it, as one line of JSON: equal for equal tables."""
        fields = {
            "form": FORM,
            "limits": asdict(self.limits),
            "origin": self.origin,
            "decided": self.decided_count,
            "open": [_open_fields(entry) for entry in self.open.values()],
            "outcomes": [[key, _outcome_text(outcome)] for key, outcome in self.outcomes.items()],
            "last": [
                [name, each.key, packed({name: each.operation})[name], _outcome_text(each.outcome)]
                for name, each in self.last.items()
            ],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    def adopt(self, state: bytes) -> None:
        """Replace the table by the group's."""
        try:
            fields = json.loads(state)
            if fields["form"] != FORM:
                raise ValueError(f"its form is {fields['form']}, not {FORM}")
            found = Table(ActionLimits(**fields["limits"]))
            found.origin, found.decided_count = str(fields["origin"]), int(fields["decided"])
            found.open = {each["key"]: _open(each) for each in fields["open"]}
            found.outcomes = {key: _outcome(each) for key, each in fields["outcomes"]}
            found.last = {
                name: Last(key, unpacked({name: operation})[name], _outcome(each))
                for name, key, operation, each in fields["last"]
            }
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Misuse(f"the state transferred is no table of actions: {error}") from None
        self.limits, self.origin = found.limits, found.origin
        self.decided_count = found.decided_count
        self.open, self.outcomes, self.last = found.open, found.outcomes, found.last


def _outcome_text(outcome: Outcome) -> str | None:
    """The reason of an abort, or None."""
    return outcome.reason if isinstance(outcome, Aborted) else None


def _outcome(reason: str | None) -> Outcome:
    return Committed() if reason is None else Aborted(reason)


def _open_fields(entry: Open) -> dict[str, Any]:
    action = entry.action
    return {
        "key": action.key,
        "do": packed(action.operations),
        "by": action.by,
        "begun": entry.begun,
        "yes": sorted(entry.yes),
    }


def _open(fields: Mapping[str, Any]) -> Open:
    action = Action(fields["key"], unpacked(fields["do"]), fields["by"])
    return Open(action, bool(fields["begun"]), set(fields["yes"]))
