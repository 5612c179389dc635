"""All shared objects of one group, as one of its members has them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import unisono
from unisono.errors import Misuse, Stopped, Undelivered, UnisonoError
from unisono.group import Full, Group, Handle
from unisono.model import Member, Message, Resilient, ServiceLevel, View
from unisono.services.objects.table import Answered, ObjectChange, ObjectTable, Operated
from unisono.services.objects.values import Value, encoded
from unisono.services.sharing.call import SharedCall
from unisono.services.sharing.collections import SharedCounter, SharedDict
from unisono.services.sharing.watching import Watching

OUTSTANDING_COUNT_MAX: Final = 65_536
"""Operations of one member under way."""
MESSAGE_OPERATIONS_MAX: Final = 512
"""Operations that go into one message, but for a batch, which is never parted."""
LEFT: Final = "left the group"

log = logging.getLogger("unisono.sharing")


class OperationRecorder(Protocol):
    """Writes down what is called, what is applied and what is returned, for a verdict."""

    def invoked(self, session: str, number: int, call: SharedCall[Any]) -> None: ...

    def placed(self, origin: str, operated: Operated) -> None: ...

    def returned(self, session: str, number: int, result: Value) -> None: ...


class _Pending(NamedTuple):
    future: asyncio.Future[Value]
    sent_s: float


class SharedObjects:
    """The shared objects of a group; `join` gives it. Objects exist from their first operation on,
    by kind and name. The stream of the group belongs to this object."""

    def __init__(
        self,
        group: Group,
        table: ObjectTable,
        level: ServiceLevel,
        recorder: OperationRecorder | None,
    ) -> None:
        self.group = group
        """The group below. Its stream has one reader: this object."""
        self._table = table
        self._level = level
        self._recorder = recorder
        self._me = str(group.me)
        """At this place of the stream."""
        self._members: tuple[Member, ...] = ()
        self._numbers = 0
        self._pending: dict[int, _Pending] = {}
        self._outbox: deque[bytes] = deque()
        self._watching = Watching()
        self._uncovered: deque[tuple[int, asyncio.Future[Value], Value]] = deque()
        """Results, by place, that are not told before a majority holds what they come from."""
        self._handles: deque[Handle] = deque()
        """Of own messages that are not applied, in order; if stability is told apart."""
        self._ended: str | None = None
        self._needs_state = False
        self._loop = asyncio.get_running_loop()
        self.begun = asyncio.Event()
        """The first view was read, and so is the state of those that were there before."""
        self._reading = self._loop.create_task(self._read())

    # -- objects ----------------------------------------------------------------------------------

    def dict(self, name: str) -> SharedDict:
        """A dictionary with texts as keys."""
        return SharedDict(self, self._table, self._watching, name)

    def counter(self, name: str) -> SharedCounter:
        """A whole number."""
        return SharedCounter(self, self._table, self._watching, name)

    # -- inspection -------------------------------------------------------------------------------

    @property
    def me(self) -> Member:
        """This incarnation, as the others see it."""
        return self.group.me

    @property
    def members(self) -> tuple[Member, ...]:
        return self.group.members

    @property
    def place(self) -> int:
        """The place in the order up to which this member's copies are."""
        return self._table.place

    @property
    def stopped(self) -> str | None:
        """Why no operation is possible here any more; None while they are."""
        return self._ended

    @property
    def blocked(self) -> str:
        """Why operations wait, as in a minority; empty while they do not."""
        return self.group.blocked

    def counters(self) -> Mapping[str, int]:
        """Messages ignored, by reason."""
        return dict(sorted(self._table.counts.items()))

    async def ended(self) -> None:
        """Wait until no operation is possible here any more: returns after `leave`, raises
        `Stopped` otherwise, as when the group was founded again without the objects."""
        await asyncio.shield(self._reading)
        if self._ended != LEFT:
            raise Stopped(self._ended or "")

    # -- operations -------------------------------------------------------------------------------

    async def batch(self, *calls: SharedCall[Any]) -> list[Any]:
        """Several operations at one place of the order: nothing comes between them, and nobody
        sees only some of them. Their results, in this order."""
        return await self.operate(calls)

    async def sync(self) -> int:
        """Wait until this member has applied all that any member had completed before the call:
        local reads are then as new. The place."""
        await self.counter("").read()
        return self._table.place

    async def operate(self, calls: tuple[SharedCall[Any], ...]) -> list[Any]:
        futures = self.submit(calls)
        try:
            return [call.read(await future) for call, future in zip(calls, futures, strict=True)]
        finally:
            for future in futures:
                future.cancel()

    def submit(self, calls: Sequence[SharedCall[Any]]) -> list[asyncio.Future[Value]]:
        """Their results to come. Of one turn of the event loop all go into few messages."""
        if self._ended is not None:
            raise Stopped(self._ended)
        if asyncio.get_running_loop() is not self._loop:
            raise Misuse("shared objects belong to the event loop that joined: call them there")
        if len(self._pending) + len(calls) > OUTSTANDING_COUNT_MAX:
            raise Full(f"{len(self._pending)} operations are under way: await some of them first")
        parts, first = [], self._numbers + 1
        for number, call in enumerate(calls, first):
            parts.append(encoded([number, call.kind, call.name, call.method, *call.arguments])[1:])
        now_s = time.monotonic()
        futures: list[asyncio.Future[Value]] = []
        for number, call in enumerate(calls, first):
            future = self._loop.create_future()
            self._pending[number] = _Pending(future, now_s)
            futures.append(future)
            if self._recorder is not None:
                self._recorder.invoked(self._me, number, call)
        self._numbers += len(calls)
        if not self._outbox:
            self._loop.call_soon(self._flush)
        if parts:
            self._outbox.append(b",[".join(parts))
        return futures

    def _flush(self) -> None:
        while self._outbox:
            count = min(len(self._outbox), MESSAGE_OPERATIONS_MAX)
            parts = [self._outbox.popleft() for _ in range(count)]
            self._multicast(b'["do",[' + b",[".join(parts) + b"]")

    def _multicast(self, payload: bytes) -> None:
        try:
            handle = self.group.multicast(payload, self._level)
        except UnisonoError as error:
            self._fail_pending(error)
            return
        if isinstance(self._level, Resilient):
            self._handles.append(handle)

    # -- the stream -------------------------------------------------------------------------------

    async def _read(self) -> None:
        reason = LEFT
        try:
            async for batch in self.group.batches():
                for item in batch:
                    if isinstance(item, Message):
                        self._deliver(item)
                    elif isinstance(item, View):
                        self._install(item)
                    elif isinstance(item, unisono.Rejoined):
                        self._renew(item)
                if self._ended is not None:
                    return
        except Stopped as stop:
            reason = stop.reason
        except Exception as error:
            log.exception("the shared objects failed, so this member leaves")
            reason = f"the shared objects failed: {error!r}"
            self._loop.create_task(self.group.leave())
        self._end(reason)

    def _deliver(self, message: Message) -> None:
        session = str(message.sender)
        own = session == self._me
        for outcome in self._table.apply(session, message.payload):
            if isinstance(outcome, Answered):
                if outcome.ticket.session == self._me:
                    self._answered(outcome, own)
            elif isinstance(outcome, ObjectChange):
                self._watching.changed(outcome)
        if self._recorder is not None:
            for operated in self._table.operated:
                self._recorder.placed(self._table.origin, operated)
        if own:
            self._cover(message.number)

    def _answered(self, outcome: Answered, own: bool) -> None:
        pending = self._pending.pop(outcome.ticket.number, None)
        if pending is None or pending.future.done():
            return
        if outcome.rejected:
            pending.future.set_exception(Misuse(outcome.rejected))
            return
        number = outcome.ticket.number
        if self._recorder is not None:
            recorder, me, result = self._recorder, self._me, outcome.result

            def told(done: asyncio.Future[Value]) -> None:
                if not done.cancelled() and done.exception() is None:
                    recorder.returned(me, number, result)

            pending.future.add_done_callback(told)
        if not isinstance(self._level, Resilient):
            pending.future.set_result(outcome.result)
            return
        self._uncovered.append((outcome.place, pending.future, outcome.result))
        if not own:
            self._multicast(b'["renew"]')

    def _cover(self, number: int) -> None:
        """Of a protocol where a majority holds a message only some time after its delivery."""
        place = self._table.place
        while self._handles:
            handle = self._handles.popleft()
            stable = handle.stable
            if handle.number == number and not (stable.done() and stable.exception()):
                stable.add_done_callback(lambda done: self._covered(place, done))
                return

    def _covered(self, place: int, done: asyncio.Future[tuple[Member, ...]]) -> None:
        error = None if done.cancelled() else done.exception()
        while self._uncovered and self._uncovered[0][0] <= place:
            _, future, result = self._uncovered.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    def _install(self, view: View) -> None:
        if view.transitional:
            return
        self._members = view.members
        self.begun.set()
        if self._needs_state:
            text = "the group was founded again, without the objects that this member knew"
            log.error("%s: %s", self.group.me, text)
            self._end(f"{text}: join anew")
            self._loop.create_task(self.group.leave())

    def _renew(self, item: unisono.Rejoined) -> None:
        """A new incarnation, which is handed the state."""
        self._needs_state = True
        self._me = str(item.me)
        self._fail_pending(
            Undelivered(f"{item.reason}; whether it has its place is not known here")
        )

    def restore(self, state: bytes) -> None:
        self._table.restore(state)
        self._needs_state = False
        self._watching.replaced(self._table.place)

    # -- its end ----------------------------------------------------------------------------------

    def _fail_pending(self, error: Exception) -> None:
        waiting = [each.future for each in self._pending.values()]
        waiting += [future for _, future, _ in self._uncovered]
        self._pending.clear()
        self._uncovered.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # Retrieved, even if nobody waits any more.

    def _end(self, reason: str) -> None:
        if self._ended is None:
            self._ended = reason
            self.begun.set()
            self._fail_pending(Stopped(reason))
            self._watching.end(reason)

    async def leave(self) -> None:
        """Leave cleanly. Idempotent."""
        self._flush()
        await self.group.leave()
        self._end(LEFT)
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading


def level_of(group: Group) -> ServiceLevel:
    """The level at which what one member has applied is not lost with it. `Misuse` if the group
    has no one order."""
    if not group.one_order:
        raise Misuse(
            f"shared objects need one order of the whole group, which {group.protocol} does not"
            " have as it was joined: take a protocol or an option that lets one part go on"
        )
    levels: tuple[ServiceLevel, ...] = (unisono.SAFE, Resilient(Resilient.MAJORITY))
    for level in levels:
        with contextlib.suppress(Misuse):
            group.multicast_many((), level)
            return level
    return unisono.AGREED
