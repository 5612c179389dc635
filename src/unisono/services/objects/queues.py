"""Queues of items that are taken once, and topics."""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import Any, Final, NamedTuple

from unisono.services.objects.state import LATER, SharedState, Surroundings, Ticket
from unisono.services.objects.values import Value


class QueueItem(NamedTuple):
    id: int
    """The place at which it was put."""
    value: Value
    submitter: Ticket | None
    """Who waits for its result."""


_BY_ID: Final = attrgetter("id")


class QueueState(SharedState):
    """An item that was taken is the taker's until it is done; if the taker dies before that, it is
    at its old place in the queue again."""

    KIND = "queue"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.items: list[QueueItem] = []
        self.taken: dict[Ticket, QueueItem] = {}
        self.takers: list[Ticket] = []
        """They wait for an item."""

    def do_put(self, ticket: Ticket, value: Value) -> int:
        """The item's number."""
        return self._put(QueueItem(self.around.place, value, None))

    def do_submit(self, ticket: Ticket, value: Value) -> Any:
        """Answered with what its taker makes of it."""
        self._put(QueueItem(self.around.place, value, ticket))
        return LATER

    def do_pop(self, ticket: Ticket) -> Value:
        """Take an item that is done thereby; None if there is none."""
        if not self.items:
            return None
        item = self.items.pop(0)
        self.around.changed(item.id, None)
        return [item.id, item.value]

    def do_take(self, ticket: Ticket, waits: bool) -> Any:
        if self.items:
            return self._take(ticket)
        if not waits:
            return None
        self.takers.append(ticket)
        self.around.claim(ticket)
        return LATER

    def do_done(self, ticket: Ticket, number: int, result: Value) -> bool:
        """Whether the item that this session took by its operation of this number was its own."""
        mine = Ticket(ticket.session, number)
        item = self.taken.pop(mine, None)
        if item is None:
            return False
        self.around.disclaim(mine)
        if item.submitter is not None:
            self.around.answer(item.submitter, result)
        self.around.changed(item.id, None)
        return True

    def do_release(self, ticket: Ticket, number: int) -> bool:
        """Give it back, or no longer wait for one."""
        mine = Ticket(ticket.session, number)
        if mine in self.takers:
            self.takers.remove(mine)
        elif mine in self.taken:
            insort(self.items, self.taken.pop(mine), key=_BY_ID)
        else:
            return False
        self.around.disclaim(mine)
        self._serve()
        return True

    def do_size(self, ticket: Ticket) -> int:
        """Items that nobody has taken."""
        return len(self.items)

    def ended(self, session: str) -> None:
        self.takers = [each for each in self.takers if each.session != session]
        for ticket in [each for each in self.taken if each.session == session]:
            insort(self.items, self.taken.pop(ticket), key=_BY_ID)
        self._serve()

    def _put(self, item: QueueItem) -> int:
        self.items.append(item)
        self.around.changed(item.id, item.value)
        self._serve()
        return item.id

    def _take(self, ticket: Ticket) -> Value:
        item = self.taken[ticket] = self.items.pop(0)
        self.around.claim(ticket)
        return [item.id, item.value, self.around.place]

    def _serve(self) -> None:
        while self.items and self.takers:
            taker = self.takers.pop(0)
            self.around.answer(taker, self._take(taker))

    def plain(self) -> Value:
        taken = [[*ticket, *item] for ticket, item in self.taken.items()]
        return [self.items, taken, self.takers]

    def restore(self, plain: Value) -> None:
        items, taken, takers = plain
        self.items = [_item(*each) for each in items]
        self.taken = {Ticket(a, b): _item(*rest) for a, b, *rest in taken}
        self.takers = [Ticket(*each) for each in takers]


def _item(number: int, value: Value, submitter: list[Any] | None) -> QueueItem:
    return QueueItem(number, value, Ticket(*submitter) if submitter is not None else None)


class TopicState(SharedState):
    """What is published goes to those that watch; the last ones are kept for who comes later."""

    KIND = "topic"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.recent: list[list[Value]] = []

    def do_publish(self, ticket: Ticket, value: Value, retained: int) -> int:
        self.recent.append([self.around.place, value])
        del self.recent[: max(0, len(self.recent) - retained)]
        self.around.changed(None, value)
        return self.around.place

    def plain(self) -> Value:
        return self.recent

    def restore(self, plain: Value) -> None:
        self.recent = plain
