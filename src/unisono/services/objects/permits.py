"""Permits that are held until they are released, or their holder's session ends: locks, read/write
locks, semaphores, elections."""

from __future__ import annotations

from typing import Any, NamedTuple

from unisono.services.objects.state import LATER, Rejected, SharedState, Surroundings, Ticket
from unisono.services.objects.values import Value


class PermitGrant(NamedTuple):
    weight: int
    token: int
    """The place of the grant: it rises from holder to holder, whoever dies in between."""


class PermitsState(SharedState):
    """So many permits; who asks first is granted first."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.capacity = 1
        self.holders: dict[Ticket, PermitGrant] = {}
        self.waiting: dict[Ticket, int] = {}
        """In the order of their requests, how many each wants."""

    def do_acquire(self, ticket: Ticket, capacity: int, weight: int, waits: bool) -> Any:
        """The token; None if it is not free and the caller does not wait."""
        if type(capacity) is not int or type(weight) is not int or not 0 < weight <= capacity:
            raise Rejected(
                f"{weight} of {capacity} permits cannot be held: ask for 1 to {capacity}"
            )
        if capacity != self.capacity:
            if self.holders or self.waiting:
                raise Rejected(f"it has {self.capacity} permits, not {capacity}: agree on a number")
            self.capacity = capacity
        if self.waiting or self._held() + weight > self.capacity:
            if not waits:
                return None
            self.waiting[ticket] = weight
            self.around.claim(ticket)
            return LATER
        return self._grant(ticket, weight)

    def do_release(self, ticket: Ticket, number: int) -> bool:
        """What this session was granted by its operation of this number, or waits for."""
        mine = Ticket(ticket.session, number)
        if not self._drop(mine):
            return False
        self.around.disclaim(mine)
        self._grant_waiting()
        return True

    def do_holders(self, ticket: Ticket) -> Value:
        return [[holder.session, grant.token] for holder, grant in self.holders.items()]

    def ended(self, session: str) -> None:
        gone = [each for each in (*self.holders, *self.waiting) if each.session == session]
        for ticket in gone:
            self._drop(ticket)
        if gone:
            self._grant_waiting()

    def _held(self) -> int:
        return sum(grant.weight for grant in self.holders.values())

    def _drop(self, ticket: Ticket) -> bool:
        if ticket in self.holders:
            self.around.changed(ticket.session, None)
            del self.holders[ticket]
            return True
        return self.waiting.pop(ticket, None) is not None

    def _grant(self, ticket: Ticket, weight: int) -> int:
        self.holders[ticket] = PermitGrant(weight, self.around.place)
        self.around.claim(ticket)
        self.around.changed(ticket.session, self.around.place)
        return self.around.place

    def _grant_waiting(self) -> None:
        while self.waiting:
            ticket, weight = next(iter(self.waiting.items()))
            if self._held() + weight > self.capacity:
                return
            del self.waiting[ticket]
            self.around.answer(ticket, self._grant(ticket, weight))

    def plain(self) -> Value:
        holders = [[*ticket, *grant] for ticket, grant in self.holders.items()]
        return [self.capacity, holders, [[*each, weight] for each, weight in self.waiting.items()]]

    def restore(self, plain: Value) -> None:
        self.capacity, holders, waiting = plain
        self.holders = {Ticket(a, b): PermitGrant(weight, token) for a, b, weight, token in holders}
        self.waiting = {Ticket(a, b): weight for a, b, weight in waiting}


class LockState(PermitsState):
    KIND = "lock"


class ReadWriteLockState(PermitsState):
    KIND = "rwlock"


class SemaphoreState(PermitsState):
    KIND = "semaphore"


class ElectionState(PermitsState):
    KIND = "election"
