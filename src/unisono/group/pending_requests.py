"""Requests of this process whose answers it awaits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from unisono.core import Answer, Request
from unisono.errors import Stopped
from unisono.net.stream import ReachedMark, Stream
from unisono.requests import GroupCommand


class PendingRequests:
    """Numbers requests and hands each answer to its caller, over all incarnations."""

    def __init__(
        self,
        check: Callable[[GroupCommand], None],
        send: Callable[[Request], None],
        stream: Stream,
    ) -> None:
        self.check = check
        """Raises why a request cannot be made now."""
        self._send = send
        self._stream = stream
        self._keys = itertools.count(1)
        self._waiting: dict[int, _Caller] = {}

    def request(
        self, command: GroupCommand, reached: Callable[[Answer], None] | None = None
    ) -> asyncio.Future[Answer]:
        """The answer to come. With `reached` it comes when the stream's reader is done with all
        that was before it; `reached` is called first."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        key = next(self._keys)
        self._waiting[key] = (future, reached)
        future.add_done_callback(lambda _: self._waiting.pop(key, None))
        self._send(Request(command, key))
        return future

    def send(self, command: GroupCommand) -> None:
        """A request whose answer is of no interest."""
        self._send(Request(command, next(self._keys)))

    def is_reading(self) -> bool:
        """Whether the current task is the one that reads the group."""
        return self._stream.reading_task is asyncio.current_task()

    def answered(self, answer: Answer) -> None:
        future, reached = self._waiting.get(answer.key, (None, None))
        if future is None:
            return
        if reached is None:
            self._settle(answer)
        else:
            self._stream.put(ReachedMark(partial(self._settle, answer)))

    def _settle(self, answer: Answer) -> None:
        future, reached = self._waiting.pop(answer.key, (None, None))
        if future is not None and not future.done():
            if reached is not None:
                reached(answer)
            future.set_result(answer)

    def fail(self, reason: str) -> None:
        """The incarnation is over: no answer will come."""
        waiting, self._waiting = self._waiting, {}
        for future, _ in waiting.values():
            if not future.done():
                future.set_exception(Stopped(reason))


_Caller = tuple[asyncio.Future[Answer], Callable[[Answer], None] | None]
