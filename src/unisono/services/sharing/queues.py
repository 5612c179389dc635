"""Shared queues, work queues, topics, and what is done once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from unisono.errors import LockLost, Misuse, Stopped
from unisono.services.objects.queues import QueueState, TopicState
from unisono.services.objects.table import ObjectTable
from unisono.services.objects.values import Value
from unisono.services.sharing.call import Operator, SharedCall
from unisono.services.sharing.claims import SharedClaim
from unisono.services.sharing.collections import SharedObject
from unisono.services.sharing.watching import Watching


class SharedItem(SharedClaim):
    """An item that was taken: `async with queue.take() as item:` is done with it at the end of the
    block, and gives it back if the block raises. If its taker dies, it is in the queue again."""

    KIND = "queue"

    def __init__(
        self, operator: Operator, table: ObjectTable, watching: Watching, name: str
    ) -> None:
        super().__init__(operator, table, watching, name)
        self.id = 0
        """Its number, the same for whoever takes it."""
        self.value: Value = None
        """What was put."""
        self.result: Value = None
        """Set it in the block: what the submitter gets."""

    async def done(self, result: Value = None) -> None:
        """It is done, and in no queue any more. `LockLost` if it was given to another meanwhile."""
        if self._submitted is None or not self._granted:
            raise Misuse("this item is not taken: take it first, and be done with it once")
        number = self._submitted.number
        self._submitted, self._granted, self._task = None, False, None
        self._operator.forget(number)
        if not await self._call("done", number, result):
            raise LockLost(f"{self!r} item {self.id}", "it is another's now")

    def _request(self, waits: bool) -> SharedCall[Value]:
        return self._call("take", waits)

    def _token_of(self, result: Value) -> int:
        self.id, self.value, token = result
        return int(token)

    async def _give_back(self, error: BaseException | None) -> None:
        if error is not None or self.lost.is_set():
            await super()._give_back(error)
        else:
            await self.done(self.result)


class SharedQueue(SharedObject):
    """A queue, first in first out, of items that are taken exactly once."""

    KIND = "queue"

    @property
    def _state(self) -> QueueState:
        found = self._table.look(self.KIND, self.name)
        assert isinstance(found, QueueState)
        return found

    def put(self, value: Value) -> SharedCall[int]:
        """The item's number."""
        return self._call("put", value)

    def submit(self, value: Value) -> SharedCall[Value]:
        """Put it, and wait for what its taker makes of it."""
        return self._call("submit", value)

    def pop(self) -> SharedCall[list[Value] | None]:
        """`[number, value]`, done at the same place: it is lost if we fail before we have handled
        it. None of an empty queue."""
        return self._call("pop")

    def take(self) -> SharedItem:
        """`async with queue.take() as item:` waits for one, and has it until it is done."""
        return SharedItem(self._operator, self._table, self._watching, self.name)

    async def work(self, do: Callable[[Value], Awaitable[Value]]) -> None:
        """Take items and do them, one after another, until cancelled; the results go to those that
        submitted them. An item that was lost meanwhile is another's."""
        while True:
            with contextlib.suppress(LockLost):
                async with self.take() as item:
                    item.result = await do(item.value)

    def size(self) -> SharedCall[int]:
        """Items that nobody has taken, as of now: linearizable."""
        return self._call("size")

    def __len__(self) -> int:
        """Items that nobody has taken, of this member's copy."""
        return len(self._state.items)

    @property
    def taken(self) -> int:
        """Items that are taken and not done, of this member's copy."""
        return len(self._state.taken)


class Published(NamedTuple):
    """On a topic."""

    place: int
    value: Value


class SharedTopic(SharedObject):
    """Values for all that subscribe, in one order. The last `retained` are kept."""

    KIND = "topic"

    def __init__(
        self, operator: Operator, table: ObjectTable, watching: Watching, name: str, retained: int
    ) -> None:
        super().__init__(operator, table, watching, name)
        if type(retained) is not int or retained < 0:
            raise Misuse(f"retained={retained!r}: give a number of values from 0 on")
        self._retained = retained

    def publish(self, value: Value) -> SharedCall[int]:
        """Its place in the order."""
        return self._call("publish", value, self._retained)

    def recent(self) -> list[Published]:
        """Those that are kept, of this member's copy, the oldest first."""
        found = self._table.look(self.KIND, self.name)
        assert isinstance(found, TopicState)
        return [Published(place, value) for place, value in found.recent]

    async def subscribe(self, since: int | None = None) -> AsyncIterator[Published]:
        """What is published from now on, or after this place as far as it is kept."""
        watcher, last = self._watching.watch(self.KIND, self.name), since or 0
        try:
            for each in self.recent() if since is not None else ():
                if each.place > last:
                    last = each.place
                    yield each
            async for change in watcher:
                kept = self.recent() if change.replaced else ()
                for each in kept or (Published(change.place, change.value),):
                    if each.place > last and not (change.replaced and not kept):
                        last = each.place
                        yield each
        finally:
            watcher.close()


class SharedOnce(SharedObject):
    """Something that one member does, and all others get the result of."""

    KIND = "once"

    async def run(self, do: Callable[[], Awaitable[Value]]) -> Value:
        """The result: of `do` if it is ours to do, else of who did it. If that one dies or fails,
        the next does it. A member that lost its turn amid `do` waits for the other's result."""
        while True:
            (submitted,) = self._operator.submit((self._call("begin"),))
            number = submitted.number
            try:
                is_done, value = await submitted.result
                if is_done:
                    return value
                result = await do()
                if await self._call("finish", number, result):
                    return result
            except LockLost:
                continue
            except Stopped:
                raise
            except BaseException:
                with contextlib.suppress(Stopped):
                    self._operator.submit((self._call("release", number),))
                raise
