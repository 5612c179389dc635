"""Batches the application's messages for the session, with back-pressure.

Messages sent in one turn of the event loop reach the session together. Without send credit, callers
wait in a bounded FIFO queue.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import add
from typing import Protocol

from unisono.errors import Misuse, UnisonoError
from unisono.model import PayloadBatch, ServiceLevel
from unisono.net.handle import Handle, Handles
from unisono.net.outstanding import Outstanding

BATCH_BYTES = 256 << 10
"""A batch of this size is submitted before the turn ends. Larger batches share the cost of a
submission; much larger ones would delay receiving."""
BATCH_COUNT = 2048
QUIET_S = 0.001
TAKE_COUNT = 4096
"""Messages of one waiting caller that are processed at once."""
LINE_COUNT_MAX = 4096


class Full(UnisonoError):
    """The window is full: await `multicast`, or try again later."""


class Outlet(Protocol):
    """What the send buffer needs of a session."""

    @property
    def finished(self) -> bool: ...

    def send_credit(self) -> int: ...

    def submit(
        self, messages: Sequence[bytes], service: ServiceLevel, groups: tuple[str, ...]
    ) -> None: ...


@dataclass(slots=True, eq=False)
class _Caller:
    messages: PayloadBatch
    groups: tuple[str, ...]
    handle: Handle
    at: int = 0


class SendBuffer:
    """Between the callers and the current session. Without a session, callers wait."""

    def __init__(
        self, outstanding: Outstanding | None = None, handles: Handles | None = None
    ) -> None:
        self._outstanding = outstanding
        self._handles = handles
        self._session: Outlet | None = None
        self._credit = 0
        self._number = 0
        self._gathered: list[tuple[ServiceLevel, tuple[str, ...], PayloadBatch]] = []
        self._bytes = self._count = 0
        self._line: deque[_Caller] = deque()
        self._turn_end: asyncio.Handle | None = None
        self._sent_s = 0.0
        self._awaited: set[Handle] = set()
        """Handles with a future that is not settled."""
        self.unsent_count = 0
        """Messages not submitted when their incarnation ended."""

    def begin(self, session: Outlet) -> None:
        """An incarnation begins. Its first message has the number 1."""
        self._session, self._number = session, 0
        self.stepped()

    @property
    def silent(self) -> bool:
        """This incarnation sent nothing."""
        return self._number == 0

    def end(self, error: BaseException | None) -> None:
        """The incarnation is over. An error means for good: waiting callers get it."""
        self._session, self._credit = None, 0
        self.unsent_count += self._count
        for *_, messages in self._gathered:
            self._note(messages)
        self._gathered.clear()
        self._bytes = self._count = 0
        if error is not None:
            while self._line:
                self._line.popleft().handle.refuse(error)

    def stepped(self) -> None:
        """The session's credit may have changed: accept from waiting callers."""
        if self._session is None or self._session.finished:
            return
        self._credit = self._session.send_credit()
        while self._line and self._credit > self._bytes:
            caller = self._line[0]
            number = self._take(caller)
            if caller.at == len(caller.messages):
                self._line.popleft()
                self._accept(caller.handle, number)

    def _take(self, caller: _Caller) -> int:
        """As many of the caller's messages as the credit allows, and at least one."""
        some, start, credit = caller.messages, caller.at, self._credit - self._bytes
        if start or len(some) > TAKE_COUNT:
            some = PayloadBatch(some[start : start + TAKE_COUNT])
        if _cost(some) > credit:
            sums = list(accumulate(map(add, map(len, some), repeat(1))))
            some = PayloadBatch(some[: bisect_left(sums, credit) + 1])
        caller.at += len(some)
        self._flush_soon()
        return self._gather(some, caller.handle.service, caller.groups)

    def _gather(
        self, messages: PayloadBatch, service: ServiceLevel, groups: tuple[str, ...]
    ) -> int:
        self._bytes += _cost(messages)
        self._count += len(messages)
        self._number += len(messages)
        if (batch := self._batch(service, groups)) is not None:
            batch.add(messages)
        else:
            self._gathered.append((service, groups, messages))
        return self._number

    def _gather_one(self, message: bytes, service: ServiceLevel) -> int:
        self._bytes += len(message) + 1
        self._count += 1
        self._number += 1
        if (batch := self._batch(service, ())) is not None:
            batch.add_one(message)
        else:
            self._gathered.append((service, (), PayloadBatch((message,))))
        return self._number

    def _batch(self, service: ServiceLevel, groups: tuple[str, ...]) -> PayloadBatch | None:
        """The last that was gathered, if what comes next may join it."""
        if self._gathered:
            last_service, last_groups, batch = self._gathered[-1]
            if last_service == service and last_groups == groups:
                return batch
        return None

    def _flush_soon(self) -> None:
        if self._turn_end is None:
            self._turn_end = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Submit the batch."""
        if self._turn_end is not None:
            self._turn_end.cancel()
            self._turn_end = None
        gathered, self._gathered = self._gathered, []
        self._bytes = self._count = 0
        self._sent_s = time.monotonic()
        for service, groups, messages in gathered:
            self._note(messages)
            if (
                self._session is None or self._session.finished
            ):  # An earlier batch may have ended it.
                self.unsent_count += len(messages)
            else:
                self._session.submit(messages, service, groups)

    def _note(self, messages: Sequence[bytes]) -> None:
        if self._outstanding is not None:
            self._outstanding.sent(messages)

    # -- the callers ----------------------------------------------------------------------------

    def submit_nowait(
        self, messages: PayloadBatch, service: ServiceLevel, groups: tuple[str, ...] = ()
    ) -> int:
        """Returns the number of the last message; `Full` if any would have to wait."""
        if self._line or not self._fits(messages):
            raise Full("the window is full: await multicast() instead, or try again later")
        number = self._gather(messages, service, groups)
        self._flush_if_due()
        return number

    def _flush_if_due(self) -> None:
        """After a pause, a message does not wait for others."""
        if self._bytes >= BATCH_BYTES or self._count >= BATCH_COUNT:
            self.flush()
        elif self._turn_end is None:
            if time.monotonic() - self._sent_s > QUIET_S:
                self.flush()
            else:
                self._flush_soon()

    def _fits(self, messages: PayloadBatch) -> bool:
        """A single message may exceed the credit, or a large one could never be sent."""
        credit = self._credit - self._bytes
        return credit > 0 and (messages.nbytes <= credit or len(messages) == 1)

    def submit_one(self, message: bytes, service: ServiceLevel) -> Handle:
        """A message to this group alone: what most programs send, one by one."""
        if self._line or self._credit <= self._bytes:
            return self.submit(PayloadBatch((message,)), service)
        handle = Handle(service, True, self._awaited)
        self._accept(handle, self._gather_one(message, service))
        self._flush_if_due()
        if not self._count:
            handle.flushed = True
        return handle

    def submit(
        self,
        messages: PayloadBatch,
        service: ServiceLevel,
        groups: tuple[str, ...] = (),
        own: bool = True,
    ) -> Handle:
        """Accept at once or queue; `Full` if the queue is. `own`: they are delivered here too. The
        buffer owns the batch from now on."""
        handle = Handle(service, own, self._awaited)
        if self._line or not self._fits(messages):
            self._line_up(_Caller(messages, groups, handle))
        else:
            number = self._gather(messages, service, groups)
            self._accept(handle, number)  # First: a session may deliver them while they are sent.
            self._flush_if_due()
            handle.flushed = not self._count
        return handle

    def _accept(self, handle: Handle, number: int) -> None:
        handle.accept(number)
        if self._handles is not None:
            self._handles.add(handle)

    def _line_up(self, caller: _Caller) -> None:
        if len(self._line) >= LINE_COUNT_MAX:
            raise Full(f"{LINE_COUNT_MAX} callers already wait to multicast: send fewer at a time")

        def withdraw() -> None:
            # What was not accepted is not sent.
            if caller in self._line:
                self._line.remove(caller)
                caller.handle.withdraw()
                self.stepped()

        caller.handle.wait_in_line(withdraw)
        self._line.append(caller)
        self.stepped()

    @property
    def waiting_count(self) -> int:
        return len(self._line)


def _cost(messages: PayloadBatch) -> int:
    """An empty message counts for something too, or there would be no end of them."""
    return messages.nbytes + len(messages)


def plain_bytes(payload: object) -> bytes:
    if not isinstance(payload, bytes | bytearray | memoryview):
        kind = type(payload).__name__
        raise Misuse(f"a message is bytes, not {kind}: encode it first, as text.encode()")
    return bytes(payload)
