"""A group for threads: the same names as `unisono.Group`, and every wait blocks the caller."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimedOut
from typing import Any, Final, TypeVar

from unisono.errors import LockLost, Misuse, Stopped, TooLarge
from unisono.group import Full, Group, Handle, Lock, Stats, StreamBatch
from unisono.model import Buffer, Member, Message, ServiceLevel, SizeVote, View
from unisono.net.send_buffer import plain_bytes
from unisono.net.stream import Item
from unisono.requests import GroupCommand
from unisono.sync import background as backgrounds
from unisono.sync.background import Background

T = TypeVar("T")

OUTBOX_COUNT_MAX: Final = 1024
"""Calls of `multicast` and `multicast_many` on their way to the group's thread; more wait."""
STATE_CHANGES_WAIT_S: Final = 0.1
"""A thread that waits for room looks this often whether the group still lives."""


class SyncHandle:
    """A message that was multicast from a thread; of several, the last.

    `result()` waits until it is accepted and returns its number. `delivered` and `stable` are
    futures of `concurrent.futures`, as of `unisono.Handle`.
    """

    __slots__ = ("_error", "_group", "_inner", "_messages", "_service", "_to")

    def __init__(
        self,
        group: SyncGroup,
        messages: Sequence[bytes],
        service: ServiceLevel | str | None,
        to: str | Sequence[str] | None,
    ) -> None:
        self._group = group
        self._messages, self._service, self._to = messages, service, to
        self._inner: Handle | None = None
        self._error: Exception | None = None

    def result(self, timeout: float | None = None) -> int:
        """Its number, once it is accepted; `TimeoutError` after `timeout` seconds."""
        return self._group._call(self._accepted(), timeout)

    @property
    def delivered(self) -> Future[Message]:
        """The message as it is delivered to this member."""
        return self._group._submit(self._delivered())

    @property
    def stable(self) -> Future[tuple[Member, ...]]:
        """The known holders, once it is as resilient as its service requires."""
        return self._group._submit(self._stable())

    async def _sent(self) -> Handle:
        while self._inner is None:
            if self._error is not None:
                raise self._error
            await self._group._progress()
        return self._inner

    async def _accepted(self) -> int:
        return await (await self._sent())

    async def _delivered(self) -> Message:
        return await (await self._sent()).delivered

    async def _stable(self) -> tuple[Member, ...]:
        return await (await self._sent()).stable

    async def _send(self, group: Group) -> None:
        """In the group's thread. Waits while the window is full."""
        try:
            inner = group.multicast_many(self._messages, self._service, self._to)
            self._inner, self._messages = inner, ()
            if not inner.number:
                await inner
        except Exception as error:
            self._error = error


class SyncLock:
    """One of the group's 256 locks, for threads: `with group.lock(7):`."""

    def __init__(self, group: SyncGroup, inner: Lock) -> None:
        self._group = group
        self._inner = inner
        self.number = inner.number

    @property
    def held(self) -> bool:
        """Whether this process holds it."""
        return self._inner.held

    @property
    def lost(self) -> bool:
        """Whether it was lost since it was acquired."""
        return self._inner.lost.is_set()

    @property
    def view(self) -> View | None:
        """The view of the last grant: its sequence number is a fencing token."""
        return self._inner.view

    def acquire(self, timeout: float | None = None) -> None:
        """Wait for the lock; `TimeoutError` after `timeout` seconds."""
        self._group._call(self._inner.acquire(timeout))

    def try_acquire(self) -> bool:
        """Acquire it if it is free."""
        return self._group._call(self._inner.try_acquire())

    def release(self) -> None:
        """Release it, after all that was multicast and accepted before."""
        self._group._run(self._inner.release)

    def __enter__(self) -> SyncLock:
        self.acquire()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        lost = self.lost
        self.release()
        if lost and kind is None:
            raise LockLost(self.number, "while it was held; see the log")


class SyncGroup:
    """A group that this process has joined, for any of its threads.

    Iterate it, in one thread, for messages, views and notices. `snapshot` and `restore` are called
    in the group's own thread, while the reader waits for the next item.
    """

    def __init__(self, group: Group, background: Background) -> None:
        self.config = group.config
        self._group = group
        self._background = background
        self._outbox: deque[SyncHandle] = deque()
        self._sending = False
        self._sender: asyncio.Task[None] | None = None
        self._moved: asyncio.Future[None] | None = None
        self._room = threading.Event()
        self._batches: AsyncIterator[StreamBatch] = group.batches()
        self._next: Future[StreamBatch | None] | None = None
        self._read: Iterator[Item] = iter(())
        self._rest: deque[StreamBatch] = deque()
        """What nobody had read when the group was left."""
        self._reader = threading.Lock()
        self._known: set[object] = set()
        """Services that the protocol offers."""
        self._left = False

    # -- inspection -----------------------------------------------------------------------------

    @property
    def protocol(self) -> str:
        return self._group.protocol

    @property
    def me(self) -> Member:
        """This incarnation, as the others see it."""
        return self._group.me

    @property
    def view(self) -> View:
        """The last view installed; the stream may not have come to it yet."""
        return self._group.view

    @property
    def members(self) -> tuple[Member, ...]:
        return self._group.members

    @property
    def stopped(self) -> str | None:
        """Why this process is no longer in the group; None while it is."""
        return self._group.stopped

    @property
    def blocked(self) -> str:
        """Why the group makes no progress, as in a minority; empty while it does."""
        return self._group.blocked

    def counters(self) -> dict[str, int]:
        """Totals over all incarnations: packets by kind, drops by reason."""
        return self._run(self._group.counters)

    def stats(self) -> Stats:
        """Messages, delays and queue depths, for a program's own monitoring."""
        return self._run(self._group.stats)

    # -- sending --------------------------------------------------------------------------------

    def multicast(
        self,
        payload: Buffer,
        service: ServiceLevel | str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> SyncHandle:
        """Multicast to the group. It blocks while too many calls wait for the window."""
        return self.multicast_many((payload,), service, to)

    def multicast_many(
        self,
        payloads: Iterable[Buffer],
        service: ServiceLevel | str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> SyncHandle:
        """Multicast them in this order; the handle is the last one's. The fastest way to send."""
        handle = SyncHandle(self, self._checked(payloads, service), service, to)
        while len(self._outbox) >= OUTBOX_COUNT_MAX:
            self._room.clear()
            self._check()
            if len(self._outbox) >= OUTBOX_COUNT_MAX:
                self._room.wait(STATE_CHANGES_WAIT_S)
        self._put(handle)
        return handle

    def multicast_nowait(
        self,
        payload: Buffer,
        service: ServiceLevel | str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> SyncHandle:
        """Multicast it, or raise `Full` where `multicast` would block. Takes no lock: for signal
        handlers too, with a service that was used before."""
        if len(self._outbox) >= OUTBOX_COUNT_MAX:
            raise Full("too many calls wait for the window: multicast() instead, or try later")
        handle = SyncHandle(self, self._checked((payload,), service), service, to)
        self._put(handle)
        return handle

    def _checked(
        self, payloads: Iterable[Buffer], service: ServiceLevel | str | None
    ) -> list[bytes]:
        """What is wrong with a call is raised by it, and not from a handle nobody looks at."""
        self._check()
        if service not in self._known:
            self._run(lambda: self._group.multicast_many((), service))
            self._known.add(service)
        messages = list(map(plain_bytes, payloads))
        limit = self.config.message_bytes_max
        if messages and max(map(len, messages)) > limit:
            raise TooLarge(f"a message is over message_bytes_max={limit}: split it, or raise it")
        return messages

    def _check(self) -> None:
        self._background.check()
        if self._left or self._group.stopped is not None:
            reason = self._group.stopped or "left the group"
            raise Stopped(f"{reason}: join again to send")

    def _put(self, handle: SyncHandle) -> None:
        self._outbox.append(handle)
        if not self._sending:
            self._sending = True
            self._background.loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self._sender is None or self._sender.done():
            self._sender = self._background.loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        outbox = self._outbox
        while True:
            while outbox:
                await outbox[0]._send(self._group)
                outbox.popleft()
                if 2 * len(outbox) < OUTBOX_COUNT_MAX:
                    self._room.set()
            if self._moved is not None and not self._moved.done():
                self._moved.set_result(None)
            self._sending = False
            if not outbox:  # One that came before the flag fell is ours.
                return
            self._sending = True

    async def _progress(self) -> None:
        """The outbox is empty, once more."""
        if self._moved is None or self._moved.done():
            self._moved = self._background.loop.create_future()
        if self._outbox:
            await asyncio.shield(self._moved)
        else:
            await asyncio.sleep(0)

    # -- requests -------------------------------------------------------------------------------

    def request(self, what: GroupCommand | str, /, **arguments: int) -> None:
        """Request what only some protocols offer. An `Answer` follows in the stream."""
        self._run(lambda: self._group.request(what, **arguments))

    def lock(self, number: int) -> SyncLock:
        """One of the group's locks. Read the group in another thread than the one that acquires."""
        return SyncLock(self, self._run(lambda: self._group.lock(number)))

    def vote(self, minimum: int | SizeVote | str) -> None:
        """Vote on the size below which the group must not go on after a failure."""
        self._call(self._group.vote(minimum))

    # -- receiving ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        """The next item of the stream."""
        found = next(self._read, None) or self.next()
        if found is None:
            raise StopIteration
        return found

    def next(self, timeout: float | None = None) -> Item | None:
        """The next item; None once the group is left. `TimeoutError` after `timeout` seconds."""
        if not self._reader.acquire(blocking=False):
            raise Misuse("another thread reads this group: iterate it in one thread only")
        try:
            while True:
                for item in self._read:
                    return item
                batch = self._fetch(timeout)
                if batch is None:
                    return None
                self._read = iter(batch)
        finally:
            self._reader.release()

    def batches(self) -> Iterator[StreamBatch]:
        """The same stream in batches of all that waits: the fastest way to read."""
        while True:
            with self._reader:
                batch = self._fetch(None)
            if batch is None:
                return
            yield batch

    def _fetch(self, timeout: float | None) -> StreamBatch | None:
        """What was fetched when the waiting ended early is kept for the next time."""
        self._background.check()
        if self._next is None:
            if self._left:
                return self._rest.popleft() if self._rest else None
            self._next = self._submit(anext(self._batches, None))
        try:
            batch = self._next.result(timeout)
        except TimedOut:
            raise TimeoutError(f"nothing came within {timeout:g} s") from None
        except KeyboardInterrupt:
            raise
        except BaseException:
            self._next = None
            raise
        self._next = None
        return batch if batch is not None or not self._rest else self._rest.popleft()

    # -- leaving --------------------------------------------------------------------------------

    def leave(self) -> None:
        """Leave cleanly, within `leave_s`; what was multicast before is sent. Idempotent. A reader
        in another thread gets what is left, and then the end."""
        if self._left:
            return
        self._background.check()
        self._left = True
        backgrounds._open.discard(self)
        try:
            self._background.call(self._leave())
        finally:
            self._room.set()
            if (awaited := self._next) is not None:
                awaited.exception()  # It ends, as the stream has.
            backgrounds.release(self._background)

    async def _leave(self) -> None:
        if self._outbox:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._progress(), self.config.leave_s)
        await self._group.leave()
        with contextlib.suppress(Stopped):
            async for batch in self._group.batches():
                self._rest.append(batch)

    def __enter__(self) -> SyncGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    # -- the thread -----------------------------------------------------------------------------

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return self._background.submit(coroutine)

    def _call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        return self._background.call(coroutine, timeout)

    def _run(self, what: Callable[[], T]) -> T:
        async def run() -> T:
            return what()

        return self._call(run())
