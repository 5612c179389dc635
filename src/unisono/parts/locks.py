"""A group's locks as replicated state: every member applies the same requests in the total order.

Beyond RMP, whose locks are granted or denied: a request may wait. It is then granted in the order
of the requests, in the view of the release.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, NamedTuple, TypeVar

from unisono.core import Answer, Cause
from unisono.model import ChangeKind
from unisono.requests import AcquireLock, ReleaseLock

K = TypeVar("K")
"""Identifies a member."""


class LockEvent(NamedTuple, Generic[K]):
    """What became of a lock."""

    what: ChangeKind
    number: int
    member: K


class LockTable(NamedTuple, Generic[K]):
    """Immutable: a change makes another one."""

    queues: Mapping[int, tuple[K, ...]] = {}
    """By lock that is held, its holder and then the members that wait for it."""

    def holder(self, number: int) -> K | None:
        queue = self.queues.get(number)
        return queue[0] if queue else None

    def applied(
        self, member: K, request: AcquireLock | ReleaseLock
    ) -> tuple[LockTable[K], tuple[LockEvent[K], ...]]:
        """The table after it, and what happened: nothing if the request waits, is withdrawn or has
        no effect."""
        number = request.number
        queue = self.queues.get(number, ())
        if isinstance(request, ReleaseLock):
            return self._changed({number: _without(queue, (member,))})
        if member in queue:
            return self, ()
        if queue and not request.wait:
            return self, (LockEvent(ChangeKind.LOCK_DENIED, number, member),)
        return self._changed({number: (*queue, member)})

    def without(self, members: Collection[K]) -> tuple[LockTable[K], tuple[LockEvent[K], ...]]:
        """These members are gone: their locks are released, in the order of the numbers."""
        found = ((n, _without(self.queues[n], members)) for n in sorted(self.queues))
        return self._changed({n: queue for n, queue in found if queue != self.queues[n]})

    def _changed(
        self, queues: Mapping[int, tuple[K, ...]]
    ) -> tuple[LockTable[K], tuple[LockEvent[K], ...]]:
        events = []
        for number, queue in queues.items():
            before, after = self.queues.get(number, ())[:1], queue[:1]
            if before != after:
                events += [LockEvent(ChangeKind.LOCK_RELEASED, number, each) for each in before]
                events += [LockEvent(ChangeKind.LOCK_GRANTED, number, each) for each in after]
        held = {n: queue for n, queue in {**self.queues, **queues}.items() if queue}
        return self._replace(queues=held), tuple(events)


class LockAnswers(Generic[K]):
    """What a member is answered: at once or, for a request that waits, when the lock is granted."""

    def __init__(self, me: K) -> None:
        self._me = me
        self._waiting: dict[int, int] = {}
        """By lock, the key of the request that waits."""

    def to_own(
        self,
        request: AcquireLock | ReleaseLock,
        key: int,
        events: Collection[LockEvent[K]],
        table: LockTable[K],
    ) -> list[Answer]:
        """A request of this member was applied, with these events and this table as a result."""
        number, mine = request.number, {e.what for e in events if e.member == self._me}
        if isinstance(request, ReleaseLock):
            waiting = self._waiting.pop(number, None)
            if waiting is not None:
                withdrawn = Answer(AcquireLock.NAME, Cause.REFUSED, "withdrawn", waiting)
                return [withdrawn, Answer(request.NAME, key=key)]
            if ChangeKind.LOCK_RELEASED in mine:
                return [Answer(request.NAME, key=key)]
            text = f"this member does not hold lock {number}"
            return [Answer(request.NAME, Cause.REFUSED, text, key)]
        if ChangeKind.LOCK_GRANTED in mine:
            return [Answer(request.NAME, key=key)]
        if not mine and table.holder(number) != self._me and number not in self._waiting:
            self._waiting[number] = key
            return []
        text = f"lock {number} is held by {table.holder(number)}"
        return [Answer(request.NAME, Cause.REFUSED, text, key)]

    def to_waiting(self, events: Collection[LockEvent[K]]) -> list[Answer]:
        """Others released locks, with these events."""
        granted = [
            number
            for what, number, member in events
            if what is ChangeKind.LOCK_GRANTED and member == self._me
        ]
        return [
            Answer(AcquireLock.NAME, key=self._waiting.pop(n))
            for n in granted
            if n in self._waiting
        ]


def _without(queue: tuple[K, ...], members: Collection[K]) -> tuple[K, ...]:
    return tuple(each for each in queue if each not in members)
