"""Where members meet: barriers, parties, and what is done once."""

from __future__ import annotations

from typing import Any

from unisono.services.objects.state import LATER, Rejected, SharedState, Surroundings, Ticket
from unisono.services.objects.values import Value


class BarrierState(SharedState):
    """Opens for all when so many have arrived, and is closed again."""

    KIND = "barrier"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.count = 0
        self.arrived: list[Ticket] = []

    def do_wait(self, ticket: Ticket, count: int) -> Any:
        """The place at which it opened, the same for all."""
        if type(count) is not int or count < 1:
            raise Rejected(f"a barrier for {count!r}: give a number of members from 1 on")
        if self.arrived and count != self.count:
            raise Rejected(f"the barrier is for {self.count}, not {count}: agree on a number")
        self.count = count
        if len(self.arrived) + 1 < count:
            self.arrived.append(ticket)
            self.around.claim(ticket)
            return LATER
        others, self.arrived = self.arrived, []
        for other in others:
            self.around.disclaim(other)
            self.around.answer(other, self.around.place)
        return self.around.place

    def do_release(self, ticket: Ticket, number: int) -> bool:
        """Go away again before it opens."""
        mine = Ticket(ticket.session, number)
        if mine not in self.arrived:
            return False
        self.arrived.remove(mine)
        self.around.disclaim(mine)
        return True

    def ended(self, session: str) -> None:
        self.arrived = [each for each in self.arrived if each.session != session]

    def plain(self) -> Value:
        return [self.count, self.arrived]

    def restore(self, plain: Value) -> None:
        self.count, arrived = plain
        self.arrived = [Ticket(*each) for each in arrived]


class PartyState(SharedState):
    """Who is here, and with what."""

    KIND = "party"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.present: dict[Ticket, Value] = {}

    def do_acquire(self, ticket: Ticket, value: Value) -> int:
        self.present[ticket] = value
        self.around.claim(ticket)
        self.around.changed(ticket.session, value)
        return self.around.place

    def do_release(self, ticket: Ticket, number: int) -> bool:
        mine = Ticket(ticket.session, number)
        if mine not in self.present:
            return False
        self.around.disclaim(mine)
        self._drop(mine)
        return True

    def do_present(self, ticket: Ticket) -> Value:
        return [[each.session, value] for each, value in self.present.items()]

    def ended(self, session: str) -> None:
        for ticket in [each for each in self.present if each.session == session]:
            self._drop(ticket)

    def _drop(self, ticket: Ticket) -> None:
        del self.present[ticket]
        self.around.changed(ticket.session, None)

    def plain(self) -> Value:
        return [[*ticket, value] for ticket, value in self.present.items()]

    def restore(self, plain: Value) -> None:
        self.present = {Ticket(a, b): value for a, b, value in plain}


class OnceState(SharedState):
    """Something that is done by one; all others get its result. If who does it dies, the next of
    those that wait does it."""

    KIND = "once"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.done = False
        self.value: Value = None
        self.waiting: list[Ticket] = []
        """The first of them does it."""

    def do_begin(self, ticket: Ticket) -> Any:
        """`[True, result]`, or `[False, token]` for the one that does it."""
        if self.done:
            return [True, self.value]
        self.waiting.append(ticket)
        self.around.claim(ticket)
        return LATER if len(self.waiting) > 1 else [False, self.around.place]

    def do_finish(self, ticket: Ticket, number: int, value: Value) -> bool:
        """Whether it was this one's to finish."""
        if not self.waiting or self.waiting[0] != Ticket(ticket.session, number):
            return False
        self.done, self.value = True, value
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            self.around.disclaim(each)
        for each in waiting[1:]:
            self.around.answer(each, [True, value])
        self.around.changed(None, value)
        return True

    def do_release(self, ticket: Ticket, number: int) -> bool:
        """It failed, or no longer waits."""
        mine = Ticket(ticket.session, number)
        if mine not in self.waiting:
            return False
        self.around.disclaim(mine)
        self._drop([mine])
        return True

    def ended(self, session: str) -> None:
        self._drop([each for each in self.waiting if each.session == session])

    def _drop(self, gone: list[Ticket]) -> None:
        first = self.waiting[:1]
        self.waiting = [each for each in self.waiting if each not in gone]
        if self.waiting and self.waiting[:1] != first:
            self.around.answer(self.waiting[0], [False, self.around.place])

    def plain(self) -> Value:
        return [self.done, self.value, self.waiting]

    def restore(self, plain: Value) -> None:
        self.done, self.value, waiting = plain
        self.waiting = [Ticket(*each) for each in waiting]
