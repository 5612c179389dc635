"""Services for threads: whatever is joined with `async with`, entered in the background thread."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as TimedOut
from contextlib import AbstractAsyncContextManager
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from unisono.errors import Misuse, Stopped, UnisonoError
from unisono.sync import background as backgrounds

T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")

LEFT: Final = "left the group: join again"


class _Held(Generic[T]):
    """What is to be awaited. If that never happens, as after a cancellation, no warning tells of
    it: who called has been told."""

    __slots__ = ("awaitable",)

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self.awaitable = awaitable

    def close(self) -> None:
        if inspect.iscoroutine(self.awaitable):
            self.awaitable.close()

    __del__ = close


class SyncService(Generic[S]):
    """A service that is open, for any thread; `unisono.sync.open` gives it.

        with unisono.sync.open(rpc.join("prices", name="ann")) as opened:
            result = opened.call(opened.service.call(b"ACME"))

    Calls raise `TimeoutError` after `timeout_s` seconds, if one is given; an operation that is
    under way then may happen nevertheless. Joining and leaving take as long as they take.
    """

    def __init__(
        self, context: AbstractAsyncContextManager[S], timeout_s: float | None = None
    ) -> None:
        self.timeout_s = timeout_s
        self._context = context
        self.is_open = True
        self._gate = threading.Lock()
        """What is submitted comes there before the leaving does."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._background = backgrounds.acquire()
        try:
            self.service: S = self._background.call(self._entered())
            """As the event loop has it: touch it only through `call`, `submit` and `run`."""
        except BaseException:
            backgrounds.release(self._background)
            raise
        backgrounds._open.add(self)

    async def _entered(self) -> S:
        return await self._context.__aenter__()

    def call(self, awaitable: Awaitable[T], timeout: float | None = None) -> T:
        """Await it there, and wait for the result."""
        limit_s = self.timeout_s if timeout is None else timeout
        future = self.submit(awaitable)
        try:
            future.exception(limit_s)
        except TimedOut:
            if future.cancel():  # Not done at the last moment.
                raise TimeoutError(f"not done within {limit_s:g} s") from None
        except CancelledError:
            raise Stopped(LEFT) from None
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def submit(self, awaitable: Awaitable[T]) -> Future[T]:
        """Await it there; a future of `concurrent.futures` has the result. It is cancelled when the
        service is left."""
        held = _Held(awaitable)
        try:
            self.check()  # A child may have the gate as it was, closed for good.
            with self._gate:
                if self.is_open:
                    return self._background.submit(self._awaited(held))
            raise Stopped(LEFT)
        except UnisonoError:
            held.close()
            raise

    async def _awaited(self, held: _Held[T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await held.awaitable
        finally:
            self._tasks.discard(task)

    def check(self) -> None:
        """`Misuse` where a call could only hang: in a child, and in the group's own thread."""
        self._background.check()

    def run(self, function: Callable[[], T]) -> T:
        """Call it there: while it runs, nothing is delivered."""

        async def run() -> T:
            return function()

        return self.call(run())

    def leave(self) -> None:
        """Leave cleanly. Idempotent."""
        self.check()
        with self._gate:
            if not self.is_open:
                return
            self.is_open = False
        backgrounds._open.discard(self)
        try:
            self._background.call(self._left())
        finally:
            backgrounds.release(self._background)

    async def _left(self) -> None:
        try:
            await self._context.__aexit__(None, None, None)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class SyncIterator(Iterator[T]):
    """What an asynchronous iterator yields, for one thread at a time. It ends when the service is
    left."""

    def __init__(self, service: SyncService[Any], source: AsyncIterator[T]) -> None:
        self._service = service
        self._source = source
        self._next: Future[tuple[T, ...]] | None = None
        """It is kept when the waiting for it ends early."""
        self._reader = threading.Lock()
        self._is_closed = False
        self._fetching: asyncio.Task[Any] | None = None

    async def _fetched(self) -> tuple[T, ...]:
        self._fetching = asyncio.current_task()
        try:
            return (await anext(self._source),)
        except StopAsyncIteration:
            return ()

    def __next__(self) -> T:
        return self.next()

    def next(self, timeout: float | None = None) -> T:
        """The next one, `StopIteration` at the end, `TimeoutError` after `timeout` seconds."""
        if not self._reader.acquire(blocking=False):
            raise Misuse("another thread reads this: iterate it in one thread only")
        try:
            found = self._awaited(timeout)
        except (Stopped, CancelledError):
            if self._service.is_open and not self._is_closed:
                raise
            found = ()
        finally:
            self._reader.release()
        if not found:
            raise StopIteration
        return found[0]

    def _awaited(self, timeout: float | None) -> tuple[T, ...]:
        self._service.check()
        if self._next is None:
            self._next = self._service.submit(self._fetched())
        future = self._next
        try:
            future.exception(timeout)
        except TimedOut:
            raise TimeoutError(f"nothing came within {timeout:g} s") from None
        except CancelledError:
            self._next = None
            raise
        self._next = None  # Not before: what came at the last moment is there the next time.
        return future.result()

    def close(self) -> None:
        """No more of it, also for a thread that waits for the next one."""
        self._service.check()
        self._is_closed = True
        if self._service.is_open:
            self._service.call(self._closed())

    async def _closed(self) -> None:
        if self._fetching is not None and not self._fetching.done():
            self._fetching.cancel()
            await asyncio.wait((self._fetching,))
        source = self._source
        close = getattr(source, "aclose", None) or getattr(source, "close", None)
        if close is not None and inspect.isawaitable(closing := close()):
            await closing


class Facade(Generic[S]):
    """One object of a service, for threads: its methods by the same names, and each waits."""

    def __init__(self, service: SyncService[Any], inner: S) -> None:
        self._service = service
        self.inner = inner
        """As the event loop has it: its operations are for `batch` and `submit`."""

    def __repr__(self) -> str:
        return repr(self.inner)


def waits(method: Callable[Concatenate[S, P], Awaitable[T]]) -> Callable[Concatenate[Any, P], T]:
    """The method of a facade that waits for this one's result."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def run() -> T:
            return await method(self.inner, *args, **kwargs)

        service: SyncService[Any] = self._service
        return service.call(run())

    return call


def looks(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The method of a facade that runs this one between two deliveries."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        service: SyncService[Any] = self._service
        return service.run(lambda: method(self.inner, *args, **kwargs))

    return call


def iterates(
    method: Callable[Concatenate[S, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], SyncIterator[T]]:
    """The method of a facade that gives what this one yields."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> SyncIterator[T]:
        source = self._service.run(lambda: method(self.inner, *args, **kwargs))
        return SyncIterator(self._service, source)

    return call
