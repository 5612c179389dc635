"""The background thread with the event loop of all groups of a process.

The first group starts it, the last one to leave stops it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from unisono.errors import Misuse

T = TypeVar("T")

STOP_S: Final = 5.0
"""How long the end of the thread is waited for."""


class Background:
    """A daemon thread that runs an event loop while anyone uses it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.forked = False
        """This process is a child: the thread stayed in its parent."""
        self._users = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="unisono", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        with contextlib.suppress(Exception):
            self.loop.run_until_complete(self._wind_up())
        self.loop.close()

    async def _wind_up(self) -> None:
        """What was interrupted, as a join by Ctrl-C, ends before the loop does."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_S)
        await self.loop.shutdown_asyncgens()

    def check(self) -> None:
        """`Misuse` where a call could only hang."""
        if self.forked:
            raise Misuse(
                "this process was forked after the group was joined, and a child has no thread to"
                " run it: join in the child, as in the post-fork hook of a WSGI server"
            )
        if threading.get_ident() == self._thread.ident:
            raise Misuse(
                "called in the group's own thread, as from snapshot= or restore=, which would wait"
                " for itself: return first, and call from a thread of the program"
            )

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run it there and wait. Ctrl-C ends the waiting and cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            self.check()
        except Misuse:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def use(self) -> None:
        self._users += 1

    def release(self) -> bool:
        """One user less; whether it was the last."""
        self._users -= 1
        return self._users == 0

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.get_ident() != self._thread.ident:
            self._thread.join(STOP_S)


_current: Background | None = None
_lock = threading.Lock()


def acquire() -> Background:
    """The running one, or a new one."""
    global _current
    with _lock:
        if _current is None:
            _current = Background()
        _current.use()
        return _current


def release(background: Background) -> None:
    global _current
    if background.forked:
        return
    with _lock:
        last = background.release()
        if last and _current is background:
            _current = None
    if last:
        background.stop()


def _forked() -> None:
    """In the child: the thread did not come along, nor is its lock to be trusted."""
    global _current, _lock
    if _current is not None:
        _current.forked = True
    _current, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)
_open: set[Any] = set()
"""Groups that were not left yet."""


@atexit.register
def _leave_all() -> None:
    for group in list(_open):
        with contextlib.suppress(Exception):
            group.leave()
