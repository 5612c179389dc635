"""Handles of sent messages: await that one is accepted, delivered here, or stable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import ref

from unisono.core import Cause
from unisono.errors import ClosedGroup, Misuse, NotResilient, Undelivered, UnisonoError
from unisono.model import Member, Message, Resilient, Service, ServiceLevel
from unisono.parts.message_runs import last_number, unread

T = TypeVar("T")


class Handle(Coroutine[Any, Any, int]):
    """A message that was multicast; of several, the last.

    It is sent whether or not it is awaited. `await handle` waits until it is accepted, as long as
    the window is full, and returns its number. `await handle.delivered` waits until it is delivered
    to this member and returns the message, with its sequence number as `seq`. `await handle.stable`
    waits until it is as resilient as its service requires, and returns the members that are known
    to hold it, where the protocol reports them. `await handle.ordered` waits until its groups
    deliver it, this one's or others, and returns its sequence number. All raise `Undelivered` if
    this member stops first; `stable` raises `NotResilient` if too few members are left that can
    hold the message, and `ordered` raises `ClosedGroup` if a group refused it.
    If all tasks that await the handle itself are cancelled before it is accepted, it is
    withdrawn.
    """

    number = 0
    """0: not accepted yet."""
    flushed = False
    """It was sent at once, in a batch: awaiting it yields to the event loop once."""
    # Most handles are never looked at: they have these from the class.
    _accepted: asyncio.Future[int] | None = None
    _withdraw: Callable[[], None] | None = None
    _running: Generator[Any, Any, int] | None = None
    _waiters = 0
    _read: Callable[[], Message] | None = None
    """Makes the message, once it is delivered: few senders look at it."""
    _holders: tuple[Member, ...] | None = None
    _place: tuple[int | None] | None = None
    """Its sequence number, once it is known what became of it."""
    _failure: UnisonoError | None = None
    _delivered: asyncio.Future[Message] | None = None
    _stable: asyncio.Future[tuple[Member, ...]] | None = None
    _ordered: asyncio.Future[int | None] | None = None

    def __init__(
        self, service: ServiceLevel, own: bool = True, awaited: set[Handle] | None = None
    ) -> None:
        self.service = service
        self.own = own
        """It is addressed to the group through which it was sent, and so is delivered here."""
        self._awaited = awaited
        """Of its group: those with a future that is not settled."""

    # -- for the sender ---------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, int]:
        if self._accepted is not None:
            self._waiters += 1
            try:
                yield from asyncio.shield(self._accepted).__await__()
            finally:
                self._waiters -= 1
                self._withdraw_if_unwanted()
        elif self.flushed:
            self.flushed = False
            yield None
        return self.number

    def _withdraw_if_unwanted(self) -> None:
        """Called when a task that awaits the handle ends."""
        if self._withdraw is not None and not self._waiters:
            self._withdraw()

    # A coroutine too, so that `create_task(group.multicast(...))` works.

    def send(self, value: Any) -> Any:
        if self._running is None:
            self._running = self.__await__()
        try:
            return self._running.send(value)
        except BaseException:
            self._running = None  # Done: another task starts over.
            raise

    def throw(self, *error: Any) -> Any:
        running, self._running = self._running or self.__await__(), None
        try:
            found = running.throw(*error)
        except BaseException:
            self._withdraw_if_unwanted()  # Also when a task is cancelled before its first step.
            raise
        self._running = running
        return found

    def close(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    @property
    def delivered(self) -> asyncio.Future[Message]:
        """The message as it is delivered to this member."""
        self._check_own()
        if self._delivered is None or self._delivered.cancelled():  # As by a waiter's time-out.
            message = self._read() if self._read is not None else None
            self._delivered = self._kept(_future(message, self._failure))
        return self._delivered

    @property
    def stable(self) -> asyncio.Future[tuple[Member, ...]]:
        """The known holders, once the message is as resilient as its service requires."""
        self._check_own()
        if not reports_stability(self.service):
            assert isinstance(self.service, Service)
            raise Misuse(
                f"no protocol reports when a message of service {self.service.name.lower()} is"
                " stable: multicast it as safe or resilient(k), where the protocol offers that"
            )
        if self._stable is None or self._stable.cancelled():
            self._stable = self._kept(_future(self._holders, self._failure))
        return self._stable

    @property
    def ordered(self) -> asyncio.Future[int | None]:
        """The sequence number at which its groups deliver it; None where they have no total
        order."""
        if self._ordered is None or self._ordered.cancelled():
            place = (self._read().seq,) if self._read is not None else self._place
            self._ordered = self._kept(asyncio.get_running_loop().create_future())
            _settle(self._ordered, place, self._failure)
        return self._ordered

    def _kept(self, future: asyncio.Future[T]) -> asyncio.Future[T]:
        """Until it is settled the group keeps the handle: nobody else may have the future, but
        whoever has to be told, as a callback or a task that only waits for it."""
        if not future.done():
            future.add_done_callback(self._settled)
            if self._awaited is not None:
                self._awaited.add(self)
        return future

    def _settled(self, future: asyncio.Future[Any]) -> None:
        if self._awaited is not None and all(each.done() for each in self._futures()):
            self._awaited.discard(self)

    def _futures(self) -> list[asyncio.Future[Any]]:
        """Those that somebody has looked at."""
        futures = self._delivered, self._stable, self._ordered
        return [each for each in futures if each is not None]

    def _check_own(self) -> None:
        if not self.own:
            raise Misuse(
                "the message is not delivered here, as it is for other groups or empty: await the"
                " handle itself, or add this group to to="
            )

    # -- for the send buffer and the session ------------------------------------------------------

    def wait_in_line(self, withdraw: Callable[[], None]) -> None:
        self._accepted = asyncio.get_running_loop().create_future()
        self._withdraw = withdraw

    def withdraw(self) -> None:
        """It was not accepted, and is not sent."""
        self.refuse(Undelivered("withdrawn: cancelled before it was accepted"))

    def accept(self, number: int) -> None:
        self.number, self._withdraw = number, None
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_result(number)

    def refuse(self, error: BaseException) -> None:
        """It will never be accepted."""
        self._withdraw = None
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_exception(error)
            self._accepted.exception()  # Retrieved, even if not awaited.
        self.fail(str(error))

    def deliver(self, read: Callable[[], Message]) -> None:
        self._read = read
        if self._delivered is not None and not self._delivered.done():
            self._delivered.set_result(read())
        if self._ordered is not None:
            _settle(self._ordered, (read().seq,), None)

    def take_place(self, seq: int | None, refused: Sequence[str]) -> None:
        """Other groups deliver it at this sequence number, but those that refused it."""
        if refused:
            self._fail(ClosedGroup(refused))
        else:
            self._place = (seq,)
            if self._ordered is not None:
                _settle(self._ordered, self._place, None)

    def stabilize(self, holders: tuple[Member, ...]) -> None:
        self._holders = holders
        if self._stable is not None and not self._stable.done():
            self._stable.set_result(holders)

    def fail(self, reason: str) -> None:
        self._fail(Undelivered(reason))

    def fail_stability(self, cause: Cause) -> None:
        """It is delivered."""
        self._fail(NotResilient(f"too few members are left that can hold it: {cause.value}"))

    def _fail(self, failure: UnisonoError) -> None:
        self._failure = failure
        for future in self._futures():
            _settle(future, None, failure)


WeakHandle: TypeAlias = "ref[Handle]"


def _future(value: T | None, error: UnisonoError | None) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    _settle(future, None if value is None else (value,), error)
    return future


def _settle(future: asyncio.Future[T], value: tuple[T] | None, error: UnisonoError | None) -> None:
    """Nothing happens while there is neither, or if it is settled."""
    if future.done():
        return
    if value is not None:
        future.set_result(value[0])
    elif error is not None:
        future.set_exception(error)
        future.exception()  # Retrieved, even if not awaited.


def reports_stability(service: ServiceLevel) -> bool:
    """Whether a sender is notified when a message of this service is resilient enough."""
    return isinstance(service, Resilient) or service is Service.SAFE


class Placement(NamedTuple):
    """What became of messages to other groups, numbered from `number` on."""

    number: int
    messages: int
    seq: int | None
    """Of the first; None where they have no total order."""
    refused: tuple[str, ...]
    """Groups that are closed to their sender."""


class Handles:
    """The handles of one incarnation whose messages are accepted, by number, as long as somebody
    keeps them, or waits for a future of theirs: most are forgotten as soon as they are awaited, and
    cost no more."""

    def __init__(self) -> None:
        self._me: Member | None = None
        self._undelivered: dict[int, WeakHandle] = {}
        """Ascending. Bounded by the window."""
        self._unstable: dict[int, WeakHandle] = {}
        """As they were delivered: those of weaker levels may have overtaken others."""
        self._elsewhere: dict[int, WeakHandle] = {}
        """Of messages to other groups, whose place is not known yet."""
        self._shed = False

    def begin(self, me: Member) -> None:
        self._me, self._shed = me, False

    def add(self, handle: Handle) -> None:
        (self._undelivered if handle.own else self._elsewhere)[handle.number] = ref(handle)

    def deliver(self, messages: Sequence[Message]) -> None:
        """Called for every delivery, so it returns at once if no handle waits."""
        if not self._undelivered:
            return
        last = last_number(messages, self._me)
        waiting = _kept_handles(self._undelivered, last)
        for number, read in unread(messages, self._me, waiting) if waiting else ():
            handle = waiting.pop(number)
            del self._undelivered[number]
            handle.deliver(read)
            if isinstance(handle.service, Resilient):
                self._unstable[number] = ref(handle)
            elif handle.service is Service.SAFE:  # It is delivered when it is safe.
                handle.stabilize(())
        if self._shed and last:
            self._fail_shed(waiting, last)

    def shed(self) -> None:
        """Messages were dropped on their way here, perhaps our own."""
        self._shed = True

    def _fail_shed(self, waiting: Mapping[int, Handle], last: int) -> None:
        """Own messages are delivered in order: those before the last one were dropped."""
        for number, handle in waiting.items():
            if number < last:
                del self._undelivered[number]
                handle.fail("shed: dropped because the reader was slow")
        self._shed = False

    def stabilize(self, messages: Sequence[Message], holders: tuple[Member, ...]) -> None:
        for handle in self._told(messages):
            handle.stabilize(holders)

    def fail_stability(self, messages: Sequence[Message], cause: Cause) -> None:
        for handle in self._told(messages):
            handle.fail_stability(cause)

    def _told(self, messages: Sequence[Message]) -> list[Handle]:
        """The handles of these messages, which are no longer unstable."""
        found = unread(messages, self._me, self._unstable) if self._unstable else ()
        told = [self._unstable.pop(number)() for number, _ in found]
        return [handle for handle in told if handle is not None]

    def place(self, placed: Placement) -> None:
        for number in range(placed.number, placed.number + placed.messages):
            found = self._elsewhere.pop(number, None)
            if found is None and placed.refused:
                found = self._undelivered.pop(number, None)
            if found is not None and (handle := found()) is not None:
                seq = placed.seq and placed.seq + number - placed.number
                handle.take_place(seq, placed.refused)

    def fail(self, reason: str) -> None:
        """The incarnation is over: the fate of its messages is unknown here."""
        for handles in (self._undelivered, self._unstable, self._elsewhere):
            for found in handles.values():
                if (handle := found()) is not None:
                    handle.fail(reason)
            handles.clear()


def _kept_handles(handles: dict[int, WeakHandle], last: int) -> dict[int, Handle]:
    """Of handles in ascending order, those up to this number that somebody keeps; the others are
    dropped."""
    kept: dict[int, Handle] = {}
    dropped = []
    for number, found in handles.items():
        if number > last:
            break
        if (handle := found()) is None:
            dropped.append(number)
        else:
            kept[number] = handle
    for number in dropped:
        del handles[number]
    return kept
