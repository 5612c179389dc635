"""All shared objects of one group, as one of its members has them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import unisono
from unisono.errors import LockLost, Misuse, Stopped, Undelivered, UnisonoError
from unisono.group import Full, Group, Handle
from unisono.model import Member, Message, Resilient, ServiceLevel, View
from unisono.services.objects.table import (
    Answered,
    ObjectChange,
    ObjectTable,
    Outcome,
    SessionEnded,
)
from unisono.services.objects.values import Value, encoded
from unisono.services.sharing.call import Loser, OperationUnderWay, SharedCall
from unisono.services.sharing.kinds import SharedKinds
from unisono.services.sharing.upkeep import Upkeep
from unisono.services.sharing.watching import Watching
from unisono.trace.operations import OperationLog

OUTSTANDING_COUNT_MAX: Final = 65_536
"""Operations of one member under way."""
MESSAGE_OPERATIONS_MAX: Final = 512
"""Operations that go into one message, but for a batch, which is never parted."""
UPKEEP_COUNT_MAX: Final = 64
"""While so many messages of ours are under way, none is added for upkeep."""
LEFT: Final = "left the group"

log = logging.getLogger("unisono.sharing")


class SharedObjects(SharedKinds):
    """The shared objects of a group; `join` gives it. Objects exist from their first operation on,
    by kind and name. The stream of the group belongs to this object."""

    def __init__(
        self,
        group: Group,
        table: ObjectTable,
        level: ServiceLevel,
        lease_s: float,
        operation_log: OperationLog | None,
    ) -> None:
        super().__init__(self, table, Watching())
        self.group = group
        """The group below. Its stream has one reader: this object."""
        self._level = level
        self._stability = _Stability() if isinstance(level, Resilient) else None
        self._log = operation_log
        self._me = str(group.me)
        """At this place of the stream."""
        self._members: tuple[Member, ...] = ()
        self._upkeep = Upkeep(table, lease_s, self._send, self._rank, self._lapsed)
        self._numbers = 0
        """Of operations."""
        self._messages = 0
        self._sent_s: dict[int, float] = {}
        """By message under way."""
        self._pending: dict[int, OperationUnderWay] = {}
        self._losers: dict[int, Loser] = {}
        """Who holds what, by the operation that got it."""
        self._outbox: deque[bytes] = deque()
        self._ended: str | None = None
        self._needs_state = False
        self._loop = asyncio.get_running_loop()
        self.begun = asyncio.Event()
        """The first view was read, and so is the state of those that were there before."""
        self._reading = self._loop.create_task(self._read())
        self._keeping = self._loop.create_task(self._upkeep.run(lambda: self._me))

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
        """For `SharedCall`."""
        submitted = self.submit(calls)
        try:
            return [await each.result for each in submitted]
        finally:
            for each in submitted:
                each.result.cancel()

    def submit(self, calls: Sequence[SharedCall[Any]]) -> list[OperationUnderWay]:
        """Of one turn of the event loop all operations go into few messages."""
        if self._ended is not None:
            raise Stopped(self._ended)
        if asyncio.get_running_loop() is not self._loop:
            raise Misuse("shared objects belong to the event loop that joined: call them there")
        if len(self._pending) + len(calls) > OUTSTANDING_COUNT_MAX:
            raise Full(f"{len(self._pending)} operations are under way: await some of them first")
        first = self._numbers + 1
        parts = [
            encoded([number, call.kind, call.name, call.method, *call.arguments])
            for number, call in enumerate(calls, first)
        ]
        now_s, submitted = time.monotonic(), []
        for number, call in enumerate(calls, first):
            each = OperationUnderWay(number, self._loop.create_future(), now_s)
            self._pending[number] = each
            submitted.append(each)
            if self._log is not None:
                what = (call.kind, call.name, call.method, call.arguments)
                self._log.invoked(self._me, number, what)
        self._numbers += len(calls)
        if parts:
            if not self._outbox:
                self._loop.call_soon(self._flush)
            self._outbox.append(b"," + b",".join(parts))
        return submitted

    def _flush(self) -> None:
        while self._outbox:
            count = min(len(self._outbox), MESSAGE_OPERATIONS_MAX)
            self._send("do", b"".join(self._outbox.popleft() for _ in range(count)))

    def _send(self, kind: str, rest: bytes) -> None:
        if self._ended is not None or (kind != "do" and len(self._sent_s) >= UPKEEP_COUNT_MAX):
            return
        self._messages += 1
        payload = b'["%s",%d%s]' % (kind.encode(), self._messages, rest)
        try:
            handle = self.group.multicast(payload, self._level)
        except UnisonoError as error:
            self._fail_pending(error)
            return
        now_s = self._sent_s[self._messages] = time.monotonic()
        self._upkeep.sent(now_s)
        if self._stability is not None:
            self._stability.sent(self._messages, handle)

    # -- what is held -----------------------------------------------------------------------------

    @property
    def lease_s(self) -> float:
        """How long a member that is silent keeps what it holds."""
        return self._upkeep.lease_s

    @property
    def is_leased(self) -> bool:
        return self._upkeep.is_leased

    def believe(self, number: int, holder: Loser) -> bool:
        """For what is held: it is told when it is lost."""
        claims = self._table.sessions.get(self._me)
        if not self.is_leased or claims is None or number not in claims.claims:
            if self._log is not None:
                self._log.never_held(self._me, number)
            return False
        self._losers[number] = holder
        return True

    def forget(self, number: int) -> None:
        """It was given up."""
        self._losers.pop(number, None)

    def _lapsed(self) -> None:
        """The others may end our session: it is over before they do."""
        self._lose("the group did not renew the lease in time")
        self._send("end", b"")

    def _lose(self, reason: str) -> None:
        since_us = self._upkeep.renounce()
        losers, self._losers = self._losers, {}
        for number, loser in losers.items():
            if self._log is not None:
                self._log.lost(self._me, number, since_us)
            loser.lose(reason)

    def _rank(self) -> int:
        """Among those that could do what one has to do; the others follow if it does not."""
        names = [str(member) for member in self._members]
        return names.index(self._me) if self._me in names else len(names)

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
        session, table = str(message.sender), self._table
        own = session == self._me
        outcomes = table.apply(session, message.payload)
        self._upkeep.heard(session)
        if own and (sent_s := self._sent_s.pop(table.message, None)) and self._stability is None:
            self._upkeep.confirmed(sent_s)
        for outcome in outcomes:
            if isinstance(outcome, Answered):
                if outcome.ticket.session == self._me:
                    self._answered(outcome, own)
            elif isinstance(outcome, ObjectChange):
                self._watching.changed(outcome)
            elif outcome.session == self._me:
                self._session_ended(outcome)
        if self._log is not None:
            self._log_placed(self._log, outcomes)
        if own and self._stability is not None:
            if not self._stability.applied(table.message, table.place, self._upkeep, sent_s):
                self._send("renew", b"")  # It is held when that is.

    def _log_placed(self, operation_log: OperationLog, outcomes: Sequence[Outcome]) -> None:
        table = self._table
        for ticket, call, place in table.applied:
            operation_log.placed(table.origin, place, *ticket, call)
        for outcome in outcomes:
            if isinstance(outcome, SessionEnded):
                session, claims, place = outcome
                operation_log.ended(table.origin, place, session, claims)

    def _answered(self, outcome: Answered, own: bool) -> None:
        number = outcome.ticket.number
        submitted = self._pending.pop(number, None)
        if submitted is None or submitted.result.done():
            return
        if outcome.rejected:
            submitted.result.set_exception(Misuse(outcome.rejected))
            submitted.result.exception()  # Retrieved, even if nobody waits any more.
            return
        if (operation_log := self._log) is not None:
            me, result = self._me, outcome.result

            def told(done: asyncio.Future[Value]) -> None:
                if not done.cancelled() and done.exception() is None:
                    operation_log.returned(me, number, result)

            submitted.result.add_done_callback(told)
        if self._stability is None:
            submitted.result.set_result(outcome.result)
            return
        self._stability.answered(outcome.place, submitted.result, outcome.result)
        if not own:
            self._send("renew", b"")

    def _session_ended(self, ended: SessionEnded) -> None:
        reason = "its session in the group has ended"
        self._lose(reason)
        for number in ended.claims:
            if (waiting := self._pending.pop(number, None)) and not waiting.result.done():
                waiting.result.set_exception(LockLost(number, reason))
                waiting.result.exception()

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
        self._sent_s.clear()
        self._lose(item.reason)
        self._fail_pending(
            Undelivered(f"{item.reason}; whether it has its place is not known here")
        )

    def restore(self, state: bytes) -> None:
        """For the group below."""
        self._table.restore(state)
        if self._log is not None:
            self._log.restored()
        self._needs_state = False
        self._watching.replaced(self._table.place)

    # -- its end ----------------------------------------------------------------------------------

    def _fail_pending(self, error: Exception) -> None:
        waiting = [each.result for each in self._pending.values()]
        if self._stability is not None:
            waiting += self._stability.withdrawn()
        self._pending.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # Retrieved, even if nobody waits any more.

    def _end(self, reason: str) -> None:
        if self._ended is None:
            self._ended = reason
            self.begun.set()
            self._lose(reason)
            self._fail_pending(Stopped(reason))
            self._watching.end(reason)
            self._keeping.cancel()

    async def leave(self) -> None:
        """Leave cleanly: what this member holds is released. Idempotent."""
        self._flush()
        if self._me in self._table.sessions:
            self._lose(LEFT)
            self._send("end", b"")
        await self.group.leave()
        self._end(LEFT)
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading


class _Stability:
    """Where a majority holds a message only some time after its delivery: no result is told, and
    no lease counts, before it holds what the result comes from."""

    def __init__(self) -> None:
        self._handles: dict[int, Handle] = {}
        """Of own messages that are not applied."""
        self._waiting: deque[tuple[int, asyncio.Future[Value], Value]] = deque()
        """Results, by place."""

    def sent(self, message: int, handle: Handle) -> None:
        self._handles[message] = handle

    def answered(self, place: int, future: asyncio.Future[Value], result: Value) -> None:
        self._waiting.append((place, future, result))

    def applied(self, message: int, place: int, upkeep: Upkeep, sent_s: float | None) -> bool:
        """An own message, at its place; all up to there is held where it is. False if that is not
        known of it, and somebody waits for it."""
        if (handle := self._handles.pop(message, None)) is None:
            return not self._waiting

        def held(done: asyncio.Future[tuple[Member, ...]]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is None and sent_s is not None:
                upkeep.confirmed(sent_s)
            while self._waiting and self._waiting[0][0] <= place:
                _, future, result = self._waiting.popleft()
                if future.done():
                    continue
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)

        handle.stable.add_done_callback(held)
        return True

    def withdrawn(self) -> list[asyncio.Future[Value]]:
        waiting, self._waiting = self._waiting, deque()
        self._handles.clear()
        return [future for _, future, _ in waiting]


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
