"""What the application says, on its way to the core: gathered into batches, held back when full.

Messages said in one turn of the event loop reach the core together. When the core has no room, the
callers wait in line, first come first served; the line is bounded.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import add
from time import monotonic
from typing import Protocol

from unisono.errors import UnisonoError
from unisono.model import ServiceLevel
from unisono.net.handle import Handle, Handles
from unisono.net.outstanding import Outstanding

BATCH_BYTES = 256 << 10
"""So much is handed over at once, without waiting for the turn to end. Handing over has its price,
which larger batches share; much larger ones would keep the loop from what comes in."""
BATCH_COUNT = 2048
QUIET_S = 0.001
TAKE_COUNT = 4096
"""Of one who waits, so many are looked at in one go."""
LINE_COUNT_MAX = 4096


class Full(UnisonoError):
    """There is no room now: await `multicast`, or try again later."""


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
    messages: Sequence[bytes]
    groups: tuple[str, ...]
    handle: Handle
    at: int = 0


class SendBuffer:
    """Between the callers and the current session. Without a session, everybody waits."""

    def __init__(
        self, outstanding: Outstanding | None = None, handles: Handles | None = None
    ) -> None:
        self._outstanding = outstanding
        self._handles = handles
        self._session: Outlet | None = None
        self._room = 0
        self._number = 0
        self._gathered: list[tuple[ServiceLevel, tuple[str, ...], list[bytes]]] = []
        self._bytes = self._count = 0
        self._line: deque[_Caller] = deque()
        self._turn_end: asyncio.Handle | None = None
        self._said_s = 0.0
        self.unsent_count = 0
        """Messages that were gathered when their life ended."""

    def begin(self, session: Outlet) -> None:
        """A life begins. Its first message has the number 1."""
        self._session, self._number = session, 0
        self.stepped()

    @property
    def silent(self) -> bool:
        """Nothing was said in this life."""
        return self._number == 0

    def end(self, error: BaseException | None) -> None:
        """The life is over. With an error, for good: those in line are told."""
        self._session, self._room = None, 0
        self.unsent_count += self._count
        for *_, messages in self._gathered:
            self._note(messages)
        self._gathered.clear()
        self._bytes = self._count = 0
        if error is not None:
            while self._line:
                self._line.popleft().handle.refuse(error)

    def stepped(self) -> None:
        """The core did something: see what room there is, and let the line move."""
        if self._session is None or self._session.finished:
            return
        self._room = self._session.send_credit()
        while self._line and self._room > self._bytes:
            caller = self._line[0]
            number = self._take(caller)
            if caller.at == len(caller.messages):
                self._line.popleft()
                self._accept(caller.handle, number)

    def _take(self, caller: _Caller) -> int:
        """As many of the caller's messages as there is room for, and at least one."""
        start, room = caller.at, self._room - self._bytes
        some = caller.messages[start : start + TAKE_COUNT]
        octets = sum(map(len, some)) + len(some)
        if octets > room:
            # An empty message counts for something too, or there would be no end of them.
            sums = list(accumulate(map(add, map(len, some), repeat(1))))
            count = min(bisect_left(sums, room) + 1, len(some))
            some, octets = some[:count], sums[count - 1]
        caller.at += len(some)
        return self._gather(some, octets, caller.handle.service, caller.groups)

    def _gather(
        self,
        messages: Sequence[bytes],
        octets: int,
        service: ServiceLevel,
        groups: tuple[str, ...],
    ) -> int:
        last = self._gathered[-1] if self._gathered else None
        if last is not None and last[0] == service and last[1] == groups:
            last[2].extend(messages)
        else:
            self._gathered.append((service, groups, list(messages)))
        self._bytes += octets
        self._count += len(messages)
        self._number += len(messages)
        if self._turn_end is None:
            self._turn_end = asyncio.get_running_loop().call_soon(self.flush)
        return self._number

    def flush(self) -> None:
        """Hand over what was gathered."""
        if self._turn_end is not None:
            self._turn_end.cancel()
            self._turn_end = None
        gathered, self._gathered = self._gathered, []
        self._bytes = self._count = 0
        for service, groups, messages in gathered:
            self._note(messages)
            if self._session is None or self._session.finished:  # ended by what went before, maybe
                self.unsent_count += len(messages)
            else:
                self._session.submit(messages, service, groups)

    def _note(self, messages: Sequence[bytes]) -> None:
        if self._outstanding is not None:
            self._outstanding.sent(messages)

    # -- the callers ----------------------------------------------------------------------------

    def say_nowait(
        self,
        messages: Sequence[bytes],
        octets: int,
        service: ServiceLevel,
        groups: tuple[str, ...] = (),
    ) -> int:
        """The number of the last message; `Full` when even one has to wait."""
        if self._line or not self._fits(messages, octets):
            raise Full("the window is full: await multicast() instead, or try again later")
        number = self._gather(messages, octets + len(messages), service, groups)
        self._flush_if_due()
        return number

    def _flush_if_due(self) -> None:
        if self._bytes >= BATCH_BYTES or self._count >= BATCH_COUNT or self._is_quiet():
            self.flush()

    def _fits(self, messages: Sequence[bytes], octets: int) -> bool:
        """One message may go beyond what is left, or none larger could ever be sent."""
        room = self._room - self._bytes
        return room > 0 and (octets <= room or len(messages) == 1)

    def _is_quiet(self) -> bool:
        """Nothing was said for a while: what is said now does not wait for more."""
        before_s, self._said_s = self._said_s, monotonic()
        return self._said_s - before_s > QUIET_S

    def submit(
        self,
        messages: Sequence[bytes],
        octets: int,
        service: ServiceLevel,
        groups: tuple[str, ...] = (),
        own: bool = True,
    ) -> Handle:
        """Accepted at once, or in line; `Full` when the line is. `own`: they come back here."""
        handle = Handle(service, own)
        if self._line or not self._fits(messages, octets):
            self._line_up(_Caller(messages, groups, handle))
        else:
            number = self._gather(messages, octets + len(messages), service, groups)
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
            # What was not taken is not sent, and the next moves up.
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
