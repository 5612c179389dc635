"""What one member holds for a time: locks, permits, leadership, presence."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from unisono.errors import LockLost, Misuse, NotHeld, Stopped
from unisono.services.objects.table import ObjectTable
from unisono.services.objects.values import Value
from unisono.services.sharing.call import OperationUnderWay, Operator, SharedCall
from unisono.services.sharing.collections import SharedObject
from unisono.services.sharing.watching import Watcher, Watching


class SharedClaim(SharedObject):
    """Held from `acquire` to `release`, or until it is lost. Each object is one claim: tasks of a
    process that want it apart take one each."""

    def __init__(
        self, operator: Operator, table: ObjectTable, watching: Watching, name: str
    ) -> None:
        super().__init__(operator, table, watching, name)
        self.lost = asyncio.Event()
        """Set when it is lost, until it is acquired again; before another member has it."""
        self._submitted: OperationUnderWay | None = None
        """The operation by which it is held or awaited."""
        self._granted = False
        self._reason = ""
        self._token = 0
        self._task: asyncio.Task[Any] | None = None
        """Runs the block of `async with`."""
        self._cancelled = False

    @property
    def held(self) -> bool:
        """Whether this process holds it now, by its own clock: not beyond its lease."""
        return self._granted and not self.lost.is_set() and self._operator.is_leased

    @property
    def granted(self) -> bool:
        """Whether there is something to release: also when it is lost."""
        return self._granted

    @property
    def token(self) -> int:
        """Of the last grant. It rises from holder to holder: a resource outside the group refuses
        one below the highest that it has seen."""
        return self._token

    async def acquire(self, timeout: float | None = None) -> int:
        """Wait for it, `TimeoutError` after `timeout` seconds; the token. If cancelled, the request
        is withdrawn or what it got released."""
        async with asyncio.timeout(timeout):
            result = await self._acquire(self._request(waits=True))
        assert result is not None
        return self._token

    async def try_acquire(self) -> int | None:
        """The token if it is free; otherwise None."""
        return self._token if await self._acquire(self._request(waits=False)) is not None else None

    def release(self) -> asyncio.Future[Value]:
        """Give it up, at a place after the operations that were done before; it has happened when
        the result is there. `NotHeld` if it is not held here; a lost one is just forgotten."""
        if self._submitted is None or not self._granted:
            raise NotHeld(f"{self!r} is not held here: acquire it first, and release it once")
        number = self._submitted.number
        self._submitted, self._granted, self._task = None, False, None
        return self._give_up(number)

    def _request(self, waits: bool) -> SharedCall[Value]:
        raise NotImplementedError

    async def _acquire(self, request: SharedCall[Value]) -> Value:
        if self._submitted is not None:
            raise Misuse(f"{self!r} is held or awaited by this object: take another for each task")
        (submitted,) = self._operator.submit((request,))
        self._submitted = submitted
        try:
            result = await submitted.result
        except asyncio.CancelledError:
            self._submitted = None
            self._give_up(submitted.number)
            raise
        except LockLost as lost:
            self._submitted = None
            raise LockLost(repr(self), lost.reason) from None
        except BaseException:
            self._submitted = None
            raise
        if result is None:
            self._submitted = None
            return None
        self.lost.clear()
        self._token = self._token_of(result)
        if not self._operator.believe(submitted.number, self):
            self._submitted = None
            self._give_up(submitted.number)
            raise LockLost(repr(self), "the lease was over before it came here")
        self._granted = True
        return result

    def _token_of(self, result: Value) -> int:
        return int(result)

    def _give_up(self, number: int) -> asyncio.Future[Value]:
        self._operator.forget(number)
        try:
            (submitted,) = self._operator.submit((self._call("release", number),))
        except Stopped:  # Then everything is released.
            done: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
            done.set_result(False)
            return done
        return submitted.result

    def lose(self, reason: str) -> None:
        """For the member: it is no longer counted as the holder."""
        self._reason = reason
        self.lost.set()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            self._cancelled = True

    async def __aenter__(self) -> Self:
        await self.acquire()
        self._entered()
        return self

    def _entered(self) -> None:
        self._task, self._cancelled = asyncio.current_task(), False

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task = asyncio.current_task()
        if task is None or self._task is not task:
            return  # The block released it.
        cancelled = self._cancelled and task.uncancel() == 0
        lost_alone = cancelled and kind is asyncio.CancelledError
        await self.end_block(None if lost_alone else error)

    async def end_block(self, error: BaseException | None) -> None:
        """Of a block in which it was held: given up, and `LockLost` if it was lost meanwhile and
        the block did not fail."""
        lost = self.lost.is_set()
        await self._give_back(error)
        if lost and error is None:
            raise LockLost(repr(self), self._reason) from None

    async def _give_back(self, error: BaseException | None) -> None:
        """Released it is when that has its place, or the lease is over."""
        await asyncio.wait((self.release(),), timeout=self._operator.lease_s)


class SharedLock(SharedClaim):
    """A lock: `async with objects.lock("till") as lock:`, with a fencing token."""

    KIND = "lock"

    def _request(self, waits: bool) -> SharedCall[Value]:
        return self._call("acquire", 1, 1, waits)

    def holders(self) -> SharedCall[list[list[Value]]]:
        """`[member, token]` of each holder, as of now: linearizable."""
        return self._call("holders")

    def watch(self) -> Watcher:
        """Changes: members as keys, their token as value, None when they hold it no more."""
        return self._watching.watch(self.KIND, self.name)


class SharedSemaphore(SharedLock):
    """At most `count` hold it, the same number at all members."""

    KIND = "semaphore"

    def __init__(
        self, operator: Operator, table: ObjectTable, watching: Watching, name: str, count: int
    ) -> None:
        super().__init__(operator, table, watching, name)
        self._count = count

    def _request(self, waits: bool) -> SharedCall[Value]:
        return self._call("acquire", self._count, 1, waits)


READERS_MAX = 1 << 20


class SharedReadWriteLock(SharedLock):
    """Held by any number of readers, or by one writer: `objects.read_lock("r")`,
    `objects.write_lock("r")`. Who asks first gets it first."""

    KIND = "rwlock"

    def __init__(
        self, operator: Operator, table: ObjectTable, watching: Watching, name: str, writes: bool
    ) -> None:
        super().__init__(operator, table, watching, name)
        self._weight = READERS_MAX if writes else 1

    def _request(self, waits: bool) -> SharedCall[Value]:
        return self._call("acquire", READERS_MAX, self._weight, waits)


class SharedElection(SharedLock):
    """A leader: who holds it. `async with objects.election("chief") as term:` leads for the block;
    the token is the term."""

    KIND = "election"

    async def leader(self) -> str | None:
        """The member that leads, as of now: linearizable."""
        found = await self.holders()
        return str(found[0][0]) if found else None


class SharedParty(SharedClaim):
    """Who is here: `async with objects.party("workers", "gpu"):` is for the block."""

    KIND = "party"

    def __init__(
        self, operator: Operator, table: ObjectTable, watching: Watching, name: str, value: Value
    ) -> None:
        super().__init__(operator, table, watching, name)
        self._value = value

    def _request(self, waits: bool) -> SharedCall[Value]:
        return self._call("acquire", self._value)

    def read(self) -> SharedCall[list[list[Value]]]:
        """`[member, value]` of those that are here, as of now: linearizable."""
        return self._call("present")

    def watch(self) -> Watcher:
        """Changes: members as keys, None when they are gone."""
        return self._watching.watch(self.KIND, self.name)


class SharedBarrier(SharedClaim):
    """Opens for all when `count` members wait at it, and is closed again."""

    KIND = "barrier"

    def __init__(
        self, operator: Operator, table: ObjectTable, watching: Watching, name: str, count: int
    ) -> None:
        super().__init__(operator, table, watching, name)
        self._count = count

    async def wait(self, timeout: float | None = None) -> int:
        """Until it opens: a number that is the same for all, and rises. `LockLost` if this member
        was given up as dead while it waited."""
        (submitted,) = self._operator.submit((self._call("wait", self._count),))
        try:
            async with asyncio.timeout(timeout):
                return int(await submitted.result)
        except asyncio.CancelledError:
            self._give_up(submitted.number)
            raise
        except TimeoutError:
            self._give_up(submitted.number)
            raise
