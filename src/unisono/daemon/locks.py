"""The locks of lightweight groups. Pure: a part of the registry, the same at every daemon."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, NamedTuple, TypeAlias

from unisono.client.lock_frames import LockFrame
from unisono.core import Answer
from unisono.fields import U8, U16_COUNT, table
from unisono.layout import field_of
from unisono.model import Change, Member
from unisono.parts.locks import LockAnswers, LockEvent, LockTable


class LockQueue(NamedTuple):
    """A lock in a snapshot: its holder, and then the clients that wait for it."""

    group: str
    number: U8
    members: Annotated[tuple[Member, ...], table(field_of(Member), U16_COUNT)]


Changed: TypeAlias = tuple[tuple[Change, ...], list[tuple[Member, Answer]]]
"""What happened to locks, and the answers to clients of this daemon."""


class GroupLocks:
    """The locks of all groups."""

    def __init__(self, queues: Iterable[LockQueue] = ()) -> None:
        self._tables: dict[str, LockTable[Member]] = {}
        for group, number, members in queues:
            before = self._tables.get(group, LockTable())
            self._tables[group] = LockTable({**before.queues, number: members})
        self._own: dict[Member, LockAnswers[Member]] = {}
        """Clients of this daemon that have requested locks."""

    def queues(self) -> tuple[LockQueue, ...]:
        return tuple(
            LockQueue(group, number, members)
            for group, found in sorted(self._tables.items())
            for number, members in sorted(found.queues.items())
        )

    def request(self, group: str, member: Member, asked: LockFrame, own: bool) -> Changed:
        """`own`: the client is connected to this daemon."""
        command = asked.command()
        self._tables[group], events = self._table(group).applied(member, command)
        answers: list[tuple[Member, Answer]] = []
        if own:
            mine = self._own.setdefault(member, LockAnswers(member))
            found = mine.to_own(command, asked.key, events, self._tables[group])
            answers += ((member, answer) for answer in found)
        return _changes(events), [*answers, *self._granted(events)]

    def remove(self, group: str, members: Collection[Member]) -> Changed:
        """Clients are gone: their locks are released."""
        for member in members:
            self._own.pop(member, None)
        self._tables[group], events = self._table(group).without(members)
        if not self._tables[group].queues:
            del self._tables[group]
        return _changes(events), self._granted(events)

    def _table(self, group: str) -> LockTable[Member]:
        return self._tables.get(group, LockTable())

    def _granted(self, events: Collection[LockEvent[Member]]) -> list[tuple[Member, Answer]]:
        return [
            (member, answer)
            for member in {event.member for event in events if event.member in self._own}
            for answer in self._own[member].to_waiting(events)
        ]


def _changes(events: Iterable[LockEvent[Member]]) -> tuple[Change, ...]:
    return tuple(Change(what, (member,), number=number) for what, number, member in events)
