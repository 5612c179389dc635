"""The group's locks, as the tasks of one process use them."""

from __future__ import annotations

import asyncio

from unisono.core import Answer
from unisono.errors import LockLost, Misuse, NotHeld
from unisono.group.pending_requests import PendingRequests
from unisono.model import ChangeKind, Member, View
from unisono.requests import AcquireLock, ReleaseLock


class Lock:
    """One of the group's 256 locks. `async with group.lock(7):` holds it for the block.

    At most one member holds it at each sequence number of the total order; within a process, one
    task. It is granted in the order of the requests, once the group's reader has processed
    everything ordered before the grant: so read the group in another task than the one that
    acquires.

    A member that stops loses its locks. Then `lost` is set, the block of `async with` is cancelled,
    and `LockLost` is raised from it.
    """

    def __init__(self, number: int, requests: PendingRequests) -> None:
        self.number = number
        self.lost = asyncio.Event()
        """Set while the lock is lost, until it is released."""
        self.view: View | None = None
        """The view of the last grant to this process. Its sequence number is the same at all
        members: a token by which a resource outside the group can refuse an earlier holder."""
        self._requests = requests
        self._held = False
        self._local = asyncio.Lock()
        """Held by the task that holds or requests the lock."""
        self._reason = ""
        self._task: asyncio.Task[object] | None = None
        """Runs the block of `async with`."""
        self._cancelled = False

    @property
    def held(self) -> bool:
        """Whether this process holds it."""
        return self._held

    async def acquire(self, timeout: float | None = None) -> None:
        """Wait for the lock; `TimeoutError` after `timeout` seconds. If cancelled, the request is
        withdrawn or the lock released."""
        async with asyncio.timeout(timeout):
            await self._acquire(wait=True)

    async def try_acquire(self) -> bool:
        """Acquire it if it is free; otherwise False, without waiting for its release."""
        if self._local.locked():
            self._requests.check(AcquireLock(self.number))
            return False
        return await self._acquire(wait=False)

    async def _acquire(self, wait: bool) -> bool:
        command = AcquireLock(self.number, wait)
        self._requests.check(command)
        if self._requests.is_reading():
            await asyncio.sleep(0)  # Another task may be about to read.
        if self._requests.is_reading():
            raise Misuse(
                f"lock {self.number} is granted when the reader comes to the grant: acquire it in"
                " another task than the one that reads the group"
            )
        await self._local.acquire()
        try:
            granted = await self._request(command)
        except BaseException:
            self._local.release()
            raise
        if not granted:
            self._local.release()
        return granted

    async def _request(self, command: AcquireLock) -> bool:
        self._requests.check(command)  # again: it may have stopped while another task held the lock
        answer = self._requests.request(command, self._answered)
        try:
            granted = (await answer).cause is None
        except asyncio.CancelledError:
            # Ordered after the request, whatever became of it.
            self._held = False
            self._requests.send(ReleaseLock(self.number))
            raise
        if granted and not self._held:
            self.lost.clear()
            raise LockLost(self.number, self._reason)
        return granted

    def _answered(self, answer: Answer) -> None:
        self._held = answer.cause is None
        self.lost.clear()

    def release(self) -> None:
        """Release it, after all that was multicast and accepted before. `NotHeld` if this process
        does not hold it; a lost one is just forgotten."""
        if self._held:
            self._held = False
            self._requests.send(ReleaseLock(self.number))
        elif not self.lost.is_set():
            raise NotHeld(
                f"lock {self.number} is not held here: acquire it first, and release it once"
            )
        self._task = None
        self.lost.clear()
        self._local.release()

    def lose(self, reason: str) -> None:
        """The group no longer counts this process as the holder."""
        if not self._held:
            return
        self._held, self._reason = False, reason
        self.lost.set()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            self._cancelled = True

    async def __aenter__(self) -> Lock:
        await self.acquire()
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelled = False
        return self

    async def __aexit__(self, kind: object, error: object, _: object) -> None:
        task = asyncio.current_task()
        if task is None or self._task is not task:
            return  # the block released it
        lost, cancelled = self.lost.is_set(), self._cancelled and task.uncancel() == 0
        self.release()
        if lost and (error is None or (kind is asyncio.CancelledError and cancelled)):
            raise LockLost(self.number, self._reason) from None


class Locks:
    """The locks that this process has used, by number."""

    def __init__(self, requests: PendingRequests) -> None:
        self._requests = requests
        self._locks: dict[int, Lock] = {}

    def __getitem__(self, number: int) -> Lock:
        lock = self._locks.get(number)
        if lock is None:
            lock = Lock(number, self._requests)
            self._locks[number] = lock
        return lock

    def installed(self, view: View, me: Member | None) -> None:
        """A release that this process did not request is a loss."""
        for what, who, _, number in view.changes:
            if number not in self._locks or me not in who:
                continue
            if what is ChangeKind.LOCK_RELEASED:
                self._locks[number].lose("the group released it")
            elif what is ChangeKind.LOCK_GRANTED:
                self._locks[number].view = view

    def fail(self, reason: str) -> None:
        """The incarnation is over."""
        for lock in self._locks.values():
            lock.lose(reason)
