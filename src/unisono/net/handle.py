"""What a sender may wait for: that its message is accepted, delivered here, and stable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

from unisono.errors import Misuse, Undelivered
from unisono.model import Member, Message, Resilient, Service, ServiceLevel
from unisono.parts.message_runs import MessageRuns

T = TypeVar("T")


class Handle(Coroutine[Any, Any, int]):
    """A message that was multicast, or several: then it stands for the last of them.

    It is under way whether or not anyone waits. `await handle` waits until it is accepted, which
    takes as long as the window is full, and returns its number. `await handle.delivered` waits
    until it is delivered to this member and returns the message, with its place in the order as
    `seq`. `await handle.stable` waits until it is as resilient as its service asks for, and returns
    the members that are known to hold it. Both raise `Undelivered` when this member stops first.
    """

    __slots__ = (
        "_accepted",
        "_delivered",
        "_holders",
        "_message",
        "_running",
        "_stable",
        "_undelivered",
        "_withdraw",
        "flushed",
        "number",
        "own",
        "service",
    )

    def __init__(self, service: ServiceLevel, own: bool = True) -> None:
        self.service = service
        self.own = own
        """It is for the group through which it was sent, and so comes back."""
        self.number = 0
        """0: not accepted yet."""
        self.flushed = False
        """It left at once, in a batch: whoever waits lets the event loop turn."""
        self._accepted: asyncio.Future[int] | None = None
        self._withdraw: Callable[[], None] | None = None
        self._running: Generator[Any, Any, int] | None = None
        self._message: Message | None = None
        self._holders: tuple[Member, ...] | None = None
        self._undelivered: Undelivered | None = None
        self._delivered: asyncio.Future[Message] | None = None
        self._stable: asyncio.Future[tuple[Member, ...]] | None = None

    # -- what the sender waits for ----------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, int]:
        if self._accepted is not None:
            try:
                yield from self._accepted.__await__()
            except asyncio.CancelledError:
                if self._withdraw is not None and not self.number:
                    self._withdraw()
                raise
        elif self.flushed:
            self.flushed = False
            yield None
        return self.number

    # A coroutine too, so that `create_task(group.multicast(...))` works.

    def send(self, value: Any) -> Any:
        if self._running is None:
            self._running = self.__await__()
        return self._running.send(value)

    def throw(self, *error: Any) -> Any:
        if self._running is None:
            self._running = self.__await__()
        return self._running.throw(*error)

    def close(self) -> None:
        if self._running is not None:
            self._running.close()

    @property
    def delivered(self) -> asyncio.Future[Message]:
        self._check_own()
        if self._delivered is None or self._delivered.cancelled():  # As by a waiter's time-out.
            self._delivered = _future(self._message, self._undelivered)
        return self._delivered

    @property
    def stable(self) -> asyncio.Future[tuple[Member, ...]]:
        self._check_own()
        if not reports_stability(self.service):
            assert isinstance(self.service, Service)
            raise Misuse(
                f"no protocol reports when a message of service {self.service.name.lower()} is"
                " stable: multicast it as safe or resilient(k), where the protocol offers that"
            )
        if self._stable is None or self._stable.cancelled():
            self._stable = _future(self._holders, self._undelivered)
        return self._stable

    def _check_own(self) -> None:
        if not self.own:
            raise Misuse(
                "nothing of it is delivered here, as it is for other groups or empty: await the"
                " handle alone, or name this group in to= as well"
            )

    # -- what becomes of it -----------------------------------------------------------------------

    def wait_in_line(self, withdraw: Callable[[], None]) -> None:
        self._accepted = asyncio.get_running_loop().create_future()
        self._withdraw = withdraw

    @property
    def is_abandoned(self) -> bool:
        """Whoever waited for it to be accepted was cancelled."""
        return self._accepted is not None and self._accepted.cancelled()

    def accept(self, number: int) -> None:
        self.number = number
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_result(number)

    def refuse(self, error: BaseException) -> None:
        """It will never be accepted."""
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_exception(error)
            self._accepted.exception()  # Seen, even if nobody waits.
        self.fail(str(error))

    def deliver(self, message: Message) -> None:
        self._message = message
        if self._delivered is not None and not self._delivered.done():
            self._delivered.set_result(message)

    def stabilize(self, holders: tuple[Member, ...]) -> None:
        self._holders = holders
        if self._stable is not None and not self._stable.done():
            self._stable.set_result(holders)

    def fail(self, reason: str) -> None:
        self._undelivered = Undelivered(reason)
        futures: tuple[asyncio.Future[Any] | None, ...] = (self._delivered, self._stable)
        for future in futures:
            if future is not None and not future.done():
                future.set_exception(self._undelivered)
                future.exception()  # Seen, even if nobody waits.


def _future(value: T | None, error: Undelivered | None) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    if value is not None:
        future.set_result(value)
    elif error is not None:
        future.set_exception(error)
        future.exception()
    return future


def reports_stability(service: ServiceLevel) -> bool:
    """Whether a sender learns when a message of this service is held by as many as it asks for."""
    return isinstance(service, Resilient) or service is Service.SAFE


class Handles:
    """The handles of one incarnation whose messages are accepted, by number."""

    def __init__(self) -> None:
        self._me: Member | None = None
        self._undelivered: dict[int, Handle] = {}
        """Bounded by the window: a session takes no more than that before it is delivered."""
        self._unstable: dict[int, Handle] = {}
        self._members: tuple[Member, ...] = ()

    def begin(self, me: Member) -> None:
        self._me = me

    def install(self, members: tuple[Member, ...]) -> None:
        self._members = members

    def add(self, handle: Handle) -> None:
        if handle.own:
            self._undelivered[handle.number] = handle

    def deliver(self, messages: Sequence[Message]) -> None:
        """Called for everything that is delivered, so it looks closer only while it expects
        something."""
        if not self._undelivered:
            return
        if isinstance(messages, MessageRuns):
            found = messages.of(self._me, self._undelivered)
        else:
            found = [m for m in messages if m.sender == self._me and m.number in self._undelivered]
        for message in found:
            handle = self._undelivered.pop(message.number)
            handle.deliver(message)
            if isinstance(handle.service, Resilient):
                self._unstable[message.number] = handle
            elif handle.service is Service.SAFE:  # Delivered when all members of the view have it.
                handle.stabilize(self._members)

    def stabilize(self, messages: Sequence[Message], holders: tuple[Member, ...]) -> None:
        for message in messages:
            if message.sender == self._me and message.number in self._unstable:
                self._unstable.pop(message.number).stabilize(holders)

    def fail(self, reason: str) -> None:
        """The incarnation is over: what becomes of its messages is not seen here."""
        for handle in (*self._undelivered.values(), *self._unstable.values()):
            handle.fail(reason)
        self._undelivered.clear()
        self._unstable.clear()
