"""Shared objects for threads: the names of `unisono.services.sharing`, and each call waits.

with unisono.sync.sharing.join("shop", name="ann") as shop:
    stock = shop.dict("stock")
    stock.put("apples", 3)
    with shop.lock("till") as lock:
        charge(lock.token)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from unisono.config import JoinOptions
from unisono.errors import LockLost, Stopped, UnisonoError
from unisono.model import Member
from unisono.services import sharing
from unisono.services.objects.values import Value
from unisono.services.sharing.call import SharedCall
from unisono.services.sharing.claims import SharedClaim
from unisono.sync.service import Facade, SyncIterator, SyncService, iterates, looks, waits

__all__ = [
    "SyncBarrier",
    "SyncCache",
    "SyncClaim",
    "SyncCounter",
    "SyncDict",
    "SyncElection",
    "SyncItem",
    "SyncIterator",
    "SyncList",
    "SyncNumbers",
    "SyncObjects",
    "SyncOnce",
    "SyncParty",
    "SyncQueue",
    "SyncSet",
    "SyncSharedLock",
    "SyncTopic",
    "join",
]

T = TypeVar("T")
C = TypeVar("C", bound=SharedClaim)
L = TypeVar("L", bound=sharing.SharedLock)


async def _end_of(*tasks: asyncio.Task[Any] | None) -> None:
    for task in tasks:
        if task is not None and not task.done():
            await asyncio.wait((task,))


class SyncDict(Facade[sharing.SharedDict]):
    """A shared dictionary, for threads."""

    read = waits(sharing.SharedDict.read)
    read_all = waits(sharing.SharedDict.read_all)
    put = waits(sharing.SharedDict.put)
    update = waits(sharing.SharedDict.update)
    compare_and_set = waits(sharing.SharedDict.compare_and_set)
    remove = waits(sharing.SharedDict.remove)
    clear = waits(sharing.SharedDict.clear)
    get = looks(sharing.SharedDict.get)
    items = looks(sharing.SharedDict.items)
    watch = iterates(sharing.SharedDict.watch)
    __getitem__ = looks(sharing.SharedDict.__getitem__)
    __contains__ = looks(sharing.SharedDict.__contains__)
    __len__ = looks(sharing.SharedDict.__len__)
    __iter__ = looks(sharing.SharedDict.__iter__)


class SyncCounter(Facade[sharing.SharedCounter]):
    """A shared whole number, for threads."""

    read = waits(sharing.SharedCounter.read)
    add = waits(sharing.SharedCounter.add)
    set = waits(sharing.SharedCounter.set)
    compare_and_set = waits(sharing.SharedCounter.compare_and_set)
    watch = iterates(sharing.SharedCounter.watch)

    @property
    def value(self) -> int:
        """Of this member's copy: it may be behind."""
        return self._service.run(lambda: self.inner.value)


class SyncNumbers(Facade[sharing.SharedNumbers]):
    """Unique numbers, for threads."""

    next = waits(sharing.SharedNumbers.next)


class SyncSet(Facade[sharing.SharedSet]):
    """A shared set, for threads."""

    read = waits(sharing.SharedSet.read)
    read_all = waits(sharing.SharedSet.read_all)
    add = waits(sharing.SharedSet.add)
    discard = waits(sharing.SharedSet.discard)
    clear = waits(sharing.SharedSet.clear)
    watch = iterates(sharing.SharedSet.watch)
    __contains__ = looks(sharing.SharedSet.__contains__)
    __len__ = looks(sharing.SharedSet.__len__)
    __iter__ = looks(sharing.SharedSet.__iter__)


class SyncList(Facade[sharing.SharedList]):
    """A shared list, for threads."""

    read_all = waits(sharing.SharedList.read_all)
    append = waits(sharing.SharedList.append)
    insert = waits(sharing.SharedList.insert)
    set = waits(sharing.SharedList.set)
    pop = waits(sharing.SharedList.pop)
    remove = waits(sharing.SharedList.remove)
    watch = iterates(sharing.SharedList.watch)
    __getitem__ = looks(sharing.SharedList.__getitem__)
    __len__ = looks(sharing.SharedList.__len__)
    __iter__ = looks(sharing.SharedList.__iter__)


class SyncCache(Facade[sharing.SharedCache]):
    """A shared cache, for threads."""

    read = waits(sharing.SharedCache.read)
    put = waits(sharing.SharedCache.put)
    remove = waits(sharing.SharedCache.remove)
    get = looks(sharing.SharedCache.get)
    watch = iterates(sharing.SharedCache.watch)
    __contains__ = looks(sharing.SharedCache.__contains__)
    __len__ = looks(sharing.SharedCache.__len__)


class SyncClaim(Facade[C]):
    """What is held for a time, for threads: `with shop.lock("till") as lock:`. A thread cannot be
    cancelled: where it is lost meanwhile, the end of the block raises `LockLost`, and `held` tells
    before."""

    release = waits(SharedClaim.release)
    _giving_back: asyncio.Task[Any] | None = None

    def acquire(self, timeout: float | None = None) -> int:
        """Wait for it, `TimeoutError` after `timeout` seconds; the token."""
        return self._taken(lambda: self.inner.acquire(timeout))

    def try_acquire(self) -> int | None:
        """The token if it is free; otherwise None."""
        return self._taken(self.inner.try_acquire)

    def _taken(self, taking: Callable[[], Awaitable[T]]) -> T:
        """What is granted at the last moment, when the caller waits no more, is given back."""
        got: list[T] = []
        tasks: list[asyncio.Task[Any] | None] = []

        async def take() -> T:
            tasks.append(asyncio.current_task())
            await _end_of(self._giving_back)
            got.append(await taking())
            return got[0]

        async def give_back() -> None:
            tasks.append(self._giving_back)
            self._giving_back = asyncio.current_task()
            await _end_of(*tasks)
            if got and self.inner.granted:
                self.inner.release()

        try:
            return self._service.call(take())
        except BaseException:
            with contextlib.suppress(UnisonoError):
                self._service.submit(give_back())
            raise

    @property
    def held(self) -> bool:
        """Whether this process holds it now, by its own clock: not beyond its lease."""
        return self.inner.held

    @property
    def lost(self) -> bool:
        """Whether it was lost since it was acquired."""
        return self.inner.lost.is_set()

    @property
    def token(self) -> int:
        """Of the last grant. It rises from holder to holder: a fencing token."""
        return self.inner.token

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.inner.granted:  # The block may have released it.
            return
        with contextlib.suppress(*(() if error is None else (Stopped, TimeoutError))):
            self._service.call(self.inner.end_block(error))


class SyncSharedLock(SyncClaim[L]):
    """A shared lock, read or write lock or semaphore, for threads."""

    holders = waits(sharing.SharedLock.holders)
    watch = iterates(sharing.SharedLock.watch)


class SyncElection(SyncSharedLock[sharing.SharedElection]):
    """A leader, for threads: who is in the block of `with` leads."""

    leader = waits(sharing.SharedElection.leader)


class SyncParty(SyncClaim[sharing.SharedParty]):
    """Who is here, for threads."""

    read = waits(sharing.SharedParty.read)
    watch = iterates(sharing.SharedParty.watch)


class SyncBarrier(Facade[sharing.SharedBarrier]):
    """A barrier, for threads."""

    wait = waits(sharing.SharedBarrier.wait)


class SyncItem(SyncClaim[sharing.SharedItem]):
    """An item that was taken, for threads: `with queue.take() as item:`."""

    done = waits(sharing.SharedItem.done)

    @property
    def id(self) -> int:
        """Its number, the same for whoever takes it."""
        return self.inner.id

    @property
    def value(self) -> Value:
        """What was put."""
        return self.inner.value

    @property
    def result(self) -> Value:
        """Set it in the block: what the submitter gets."""
        return self.inner.result

    @result.setter
    def result(self, value: Value) -> None:
        self.inner.result = value


class SyncQueue(Facade[sharing.SharedQueue]):
    """A shared queue, for threads."""

    put = waits(sharing.SharedQueue.put)
    submit = waits(sharing.SharedQueue.submit)
    pop = waits(sharing.SharedQueue.pop)
    size = waits(sharing.SharedQueue.size)
    __len__ = looks(sharing.SharedQueue.__len__)

    @property
    def taken(self) -> int:
        """Items that are taken and not done, of this member's copy."""
        return self._service.run(lambda: self.inner.taken)

    def take(self) -> SyncItem:
        """`with queue.take() as item:` waits for one, and has it until it is done."""
        return SyncItem(self._service, self.inner.take())

    def work(self, do: Callable[[Value], Value]) -> None:
        """Take items and do them in this thread, one after another; the results go to those that
        submitted them. An item that was lost meanwhile is another's. It ends with `Stopped`."""
        while True:
            with contextlib.suppress(LockLost), self.take() as item:
                item.result = do(item.value)


class SyncTopic(Facade[sharing.SharedTopic]):
    """A topic, for threads."""

    publish = waits(sharing.SharedTopic.publish)
    recent = looks(sharing.SharedTopic.recent)
    subscribe = iterates(sharing.SharedTopic.subscribe)


class SyncOnce(Facade[sharing.SharedOnce]):
    """What one member does for all, for threads."""

    def run(self, do: Callable[[], Value]) -> Value:
        """The result: of `do`, called in a thread, if it is ours to do, else of who did it."""
        return self._service.call(self.inner.run(lambda: asyncio.to_thread(do)))


class SyncObjects(SyncService[sharing.SharedObjects]):
    """The shared objects of a group, for any of this process's threads; `join` gives it.

    Calls raise `TimeoutError` after `timeout_s` seconds, if one is given; an operation that is
    under way then may happen nevertheless."""

    # -- inspection -------------------------------------------------------------------------------

    @property
    def me(self) -> Member:
        """This incarnation, as the others see it."""
        return self.service.me

    @property
    def members(self) -> tuple[Member, ...]:
        """Of the last view installed."""
        return self.service.members

    @property
    def stopped(self) -> str | None:
        """Why no operation is possible here any more; None while they are."""
        return self.service.stopped

    @property
    def blocked(self) -> str:
        """Why operations wait, as in a minority; empty while they do not."""
        return self.service.blocked

    def counters(self) -> Mapping[str, int]:
        """Messages ignored, by reason."""
        return self.run(self.service.counters)

    # -- operations -------------------------------------------------------------------------------

    def batch(self, *operations: SharedCall[Any]) -> list[Any]:
        """Several operations at one place of the order, as of `stock.inner.put("apples", 3)`; their
        results, in this order."""
        return self.call(self.service.batch(*operations))

    def sync(self) -> int:
        """Wait until this member has applied all that any member had completed before the call."""
        return self.call(self.service.sync())

    # -- objects ----------------------------------------------------------------------------------

    def dict(self, name: str) -> SyncDict:
        """A dictionary with texts as keys."""
        return SyncDict(self, self.service.dict(name))

    def counter(self, name: str) -> SyncCounter:
        """A whole number."""
        return SyncCounter(self, self.service.counter(name))

    def numbers(self, name: str, block: int = 1) -> SyncNumbers:
        """Unique numbers: each member fetches so many at a time."""
        return SyncNumbers(self, self.service.numbers(name, block))

    def set(self, name: str) -> SyncSet:
        """A set of texts, whole numbers and bytes."""
        return SyncSet(self, self.service.set(name))

    def list(self, name: str) -> SyncList:
        """A list of values."""
        return SyncList(self, self.service.list(name))

    def cache(self, name: str, count_max: int = 65_536) -> SyncCache:
        """Entries with a time to live; beyond `count_max` the oldest go."""
        return SyncCache(self, self.service.cache(name, count_max))

    def lock(self, name: str) -> SyncSharedLock[sharing.SharedLock]:
        """One at a time."""
        return SyncSharedLock(self, self.service.lock(name))

    def read_lock(self, name: str) -> SyncSharedLock[sharing.SharedReadWriteLock]:
        """Together with other readers."""
        return SyncSharedLock(self, self.service.read_lock(name))

    def write_lock(self, name: str) -> SyncSharedLock[sharing.SharedReadWriteLock]:
        """Alone, also without readers."""
        return SyncSharedLock(self, self.service.write_lock(name))

    def semaphore(self, name: str, count: int) -> SyncSharedLock[sharing.SharedSemaphore]:
        """So many at a time."""
        return SyncSharedLock(self, self.service.semaphore(name, count))

    def election(self, name: str) -> SyncElection:
        """One leads, the others wait to."""
        return SyncElection(self, self.service.election(name))

    def party(self, name: str, value: Value = True) -> SyncParty:
        """Be here, with this value; or see who is."""
        return SyncParty(self, self.service.party(name, value))

    def barrier(self, name: str, count: int) -> SyncBarrier:
        """Wait for so many."""
        return SyncBarrier(self, self.service.barrier(name, count))

    def once(self, name: str) -> SyncOnce:
        """Done by one, for all."""
        return SyncOnce(self, self.service.once(name))

    def queue(self, name: str) -> SyncQueue:
        """A queue of items that are taken exactly once; of work, if they are submitted."""
        return SyncQueue(self, self.service.queue(name))

    def topic(self, name: str, retained: int = 0) -> SyncTopic:
        """Publish and subscribe; the last `retained` values are kept."""
        return SyncTopic(self, self.service.topic(name, retained))


def join(
    group: str | None = None,
    /,
    *,
    config: str | Path | None = None,
    lease_s: float = sharing.LEASE_S,
    timeout_s: float | None = None,
    **options: Unpack[JoinOptions],
) -> SyncObjects:
    """Join as `unisono.services.sharing.join` does: `with unisono.sync.sharing.join("shop") as
    shop`."""
    return SyncObjects(sharing.join(group, config=config, lease_s=lease_s, **options), timeout_s)
