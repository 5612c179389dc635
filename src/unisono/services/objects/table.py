"""All shared objects of a group, and the sessions that hold or wait for something in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.services.objects import kinds
from unisono.services.objects.state import LATER, Rejected, SharedState, Ticket
from unisono.services.objects.values import Value, decoded, encoded

TICK_MS_MAX: Final = 60_000
"""The group's time goes on by so much at once, at most."""


class Answered(NamedTuple):
    """The result of an operation, or why it was not possible."""

    ticket: Ticket
    result: Value
    place: int
    rejected: str = ""


class ObjectChange(NamedTuple):
    """For those that watch."""

    kind: str
    name: str
    key: Value
    value: Value
    place: int


class SessionEnded(NamedTuple):
    """All that this session had and waited for is free."""

    session: str
    claims: frozenset[int]
    """The numbers of its operations by which it held it."""
    place: int


class AppliedOperation(NamedTuple):
    """For histories."""

    ticket: Ticket
    call: tuple[str, str, str, tuple[Value, ...]]
    """Kind and name of the object, method, arguments."""
    place: int


Outcome = Answered | ObjectChange | SessionEnded


@dataclass(slots=True)
class _Session:
    message: int = 0
    """The number of its last message."""
    claims: set[int] = field(default_factory=set)
    """Numbers of the operations by which it holds, or waits for, something."""


class ObjectTable:
    """The same messages in the same order give the same table, and the same outcomes."""

    def __init__(self) -> None:
        self.place = 0
        self.now_ms = 0
        self.counts: Counter[str] = Counter()
        self.sessions: dict[str, _Session] = {}
        self._objects: dict[tuple[str, str], SharedState] = {}
        self._current: tuple[str, str] = ("", "")
        self._outcomes: list[Outcome] = []
        self.origin = ""
        """Who sent the first message: another group of the same name has other objects."""
        self.applied: list[AppliedOperation] = []
        """Operations of the last message that were possible."""
        self.message = 0
        """Its number; of each session they rise."""

    def object(self, kind: str, name: str) -> SharedState:
        """It exists from its first operation on."""
        found = self._objects.get((kind, name))
        if found is None:
            made = kinds.KINDS.get(kind)
            if made is None:
                raise Rejected(f"there is no kind of object named {kind!r}")
            found = self._objects[kind, name] = made(self)
        return found

    def look(self, kind: str, name: str) -> SharedState:
        """For reading only."""
        return self._objects.get((kind, name)) or kinds.KINDS[kind](self)

    @property
    def timed(self) -> bool:
        """Whether somebody has to advance the group's time."""
        return any(each.timed for each in self._objects.values())

    # -- messages ---------------------------------------------------------------------------------

    def apply(self, session: str, payload: bytes) -> list[Outcome]:
        """A message, at its place in the order."""
        self._outcomes, self.applied, self.message = [], [], 0
        self.origin = self.origin or session
        self.place += 1
        try:
            kind, self.message, *rest = decoded(payload)
            if kind == "do":
                for number, *operation in rest:
                    self._operate(Ticket(session, number), *operation)
            elif kind == "tick":
                self._tick(*rest)
            elif kind == "end":
                self._end(session)
            elif kind == "expire":
                self._expire(*rest)
            elif kind != "renew":
                self.counts["drop.foreign"] += 1
        except (BadPacket, TypeError, ValueError):
            self.counts["drop.bad"] += 1
        if (found := self.sessions.get(session)) is not None:
            found.message = self.message
        return self._outcomes

    def _operate(
        self, ticket: Ticket, kind: str, name: str, method: str, *arguments: Value
    ) -> None:
        self.place += 1
        self._current = (kind, name)
        try:
            result = self.object(kind, name).operation(method)(ticket, *arguments)
        except Rejected as error:
            self._outcomes.append(Answered(ticket, None, self.place, str(error)))
        except (TypeError, ValueError, LookupError, ArithmeticError) as error:
            text = f"{method}{arguments!r} is not possible on a {kind}: {error}"
            self._outcomes.append(Answered(ticket, None, self.place, text))
        else:
            self.applied.append(
                AppliedOperation(ticket, (kind, name, method, arguments), self.place)
            )
            if result is not LATER:
                self._outcomes.append(Answered(ticket, result, self.place))

    def _tick(self, since_ms: int, until_ms: int) -> None:
        """Of two that advance the same time, the second has no effect."""
        if since_ms != self.now_ms or not 0 < until_ms - since_ms <= TICK_MS_MAX:
            return
        self.now_ms = until_ms
        for found in self._each():
            if found.timed:
                found.ticked()

    def _expire(self, session: str, message: int) -> None:
        """Unless there is a later message of it."""
        found = self.sessions.get(session)
        if found is not None and found.message == message:
            self._end(session)

    def _end(self, session: str) -> None:
        gone = self.sessions.pop(session, None)
        if gone is None:
            return
        for found in self._each():
            found.ended(session)
        self._outcomes.append(SessionEnded(session, frozenset(gone.claims), self.place))

    def _each(self) -> Iterator[SharedState]:
        for key, found in sorted(self._objects.items()):
            self._current = key
            yield found

    # -- Surroundings -----------------------------------------------------------------------------

    def answer(self, ticket: Ticket, result: Value) -> None:
        self._outcomes.append(Answered(ticket, result, self.place))

    def claim(self, ticket: Ticket) -> None:
        self.sessions.setdefault(ticket.session, _Session()).claims.add(ticket.number)

    def disclaim(self, ticket: Ticket) -> None:
        if (found := self.sessions.get(ticket.session)) is not None:
            found.claims.discard(ticket.number)
            if not found.claims:
                del self.sessions[ticket.session]

    def changed(self, key: Value, value: Value) -> None:
        self._outcomes.append(ObjectChange(*self._current, key, value, self.place))

    # -- state ------------------------------------------------------------------------------------

    def state(self) -> bytes:
        sessions = [[name, s.message, sorted(s.claims)] for name, s in self.sessions.items()]
        objects = [[*key, found.plain()] for key, found in self._objects.items()]
        return encoded([self.origin, self.place, self.now_ms, sessions, objects])

    def restore(self, state: bytes) -> None:
        self.origin, self.place, self.now_ms, sessions, objects = decoded(state)
        self.sessions = {name: _Session(count, set(claims)) for name, count, claims in sessions}
        self._objects = {}
        for kind, name, plain in objects:
            self.object(kind, name).restore(plain)
