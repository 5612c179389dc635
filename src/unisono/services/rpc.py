"""Multi-RPC: call all members of a group at one place of its total order [RMP-20].

    async with rpc.join("prices", name="ann") as group:

        @group.answer
        def quote(call: rpc.Call) -> bytes:
            return book[call.payload]

        serving = asyncio.create_task(group.serve())
        result = await group.call(b"ACME", answers=rpc.MAJORITY, timeout=2.0)

Members execute a call when their reader of the stream comes to it, and answer the caller alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, Unpack

import unisono
from unisono.errors import BadPacket, Misuse, Stopped
from unisono.group import Group, Handle, Lock
from unisono.model import (
    Buffer,
    Member,
    Message,
    ServiceLevel,
    SizeVote,
    View,
)
from unisono.services.calling import TIMEOUT_S, RpcCaller, connect, ordered_level
from unisono.services.calls.answering import Answering
from unisono.services.calls.limits import RpcLimits
from unisono.services.calls.messages import (
    MARK,
    AnswerRecord,
    CallHead,
    CallMessage,
    ProbeMessage,
    escaped,
    plain,
    unescaped,
)
from unisono.services.calls.result import (
    Answers,
    CallFailure,
    CallInterrupted,
    CallResult,
    Reason,
    TooFewAnswers,
)
from unisono.services.calls.table import OpenCall
from unisono.services.replies import DaemonReplies, DatagramReplies, ReplyPath, now_us

__all__ = [
    "ALL",
    "MAJORITY",
    "ONE",
    "Answers",
    "Call",
    "CallFailure",
    "CallInterrupted",
    "CallResult",
    "Reason",
    "RpcCaller",
    "RpcGroup",
    "RpcLimits",
    "TooFewAnswers",
    "connect",
    "join",
]

ONE: Final = Answers.ONE
MAJORITY: Final = Answers.MAJORITY
ALL: Final = Answers.ALL
FORMAT: Final = "rpc/1"
"""The join option of such a group, so that no other member takes calls for messages."""

log = logging.getLogger("unisono.rpc")


@dataclass(frozen=True, slots=True)
class Call:
    """A call, as the handler gets it."""

    payload: bytes
    caller: Member
    seq: int | None
    """Its sequence number in the total order, if the protocol has one."""


Item: TypeAlias = (
    Message
    | View
    | unisono.Shed
    | unisono.Stable
    | unisono.Unstable
    | unisono.Answer
    | unisono.Rejoined
    | unisono.Blocked
    | unisono.Unblocked
)
Handler: TypeAlias = Callable[[Call], Buffer | Awaitable[Buffer]]
H = TypeVar("H", bound=Handler)


class RpcGroup(RpcCaller):
    """A group whose members answer calls; `join` gives one.

    Iterate it for messages, views and notices; calls do not appear. The reader of the stream
    executes them, each at its place, so a member answers only while it is iterated or `serve`s.
    """

    def __init__(self, group: Group, limits: RpcLimits | None = None) -> None:
        limits = limits or RpcLimits()
        super().__init__(group.config.group, limits)
        self.group = group
        """The group without calls. Its stream has one reader: this object."""
        self._level = ordered_level(group)
        self._answering = Answering(limits, self._counts)
        self._handler: Handler | None = None
        self._executing: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[object] | None = None
        self._sending_turn = asyncio.Lock()
        self._me = group.me
        """At this place of the stream."""
        self._path: ReplyPath
        if group.config.daemon:
            self._path = DaemonReplies(
                group.config.daemon,
                group.me.name,
                lambda: (group, self._level),
                self._table,
                self._counts,
            )
        else:
            self._path = DatagramReplies(
                lambda: group.me.address.host, self._table, limits, self._counts
            )

    # -- answering --------------------------------------------------------------------------------

    def answer(self, handler: H) -> H:
        """Let this function answer calls: it gets a `Call` and returns bytes.

        A plain function is executed at the call's place in the stream. A coroutine function is
        started there; the stream goes on, and it is cancelled when the caller's time is over.
        """
        if not callable(handler):
            raise Misuse("the handler of calls must be a function: write @group.answer above one")
        if self._handler is not None:
            raise Misuse("the group has a handler of calls: let that one decide by the payload")
        self._handler = handler
        return handler

    async def serve(self) -> None:
        """Answer calls until the group ends, and drop everything else in the stream."""
        async for _ in self:
            pass

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        self._reader = asyncio.current_task()
        while True:
            try:
                item = await anext(self.group)
            except Stopped as stop:
                self._end(stop.reason)
                raise
            except StopAsyncIteration:
                self._end("left the group")
                raise
            if isinstance(item, Message):
                if not item.payload.startswith(MARK):
                    return item
                if (found := self._receive(item)) is not None:
                    return found
                continue
            if isinstance(item, View) and not item.transitional:
                self._install(item)
            elif isinstance(item, unisono.Stable | unisono.Unstable):
                item = replace(item, messages=tuple(_without_calls(item.messages)))
                if not item.messages:
                    continue
            elif isinstance(item, unisono.Rejoined):
                self._me = item.me
                self._cancel_handlers()
                self._interrupt(item.reason)
                lost = (plain(payload) for payload in item.lost)
                item = replace(item, lost=tuple(each for each in lost if each is not None))
            return item

    def _install(self, view: View) -> None:
        self._table.install(view)
        for call, record, expires_us in self._answering.install(view, self._me, now_us()):
            self._path.post(call.head, self._me, record, expires_us)

    def _receive(self, message: Message) -> Message | None:
        """A message of the application that had to be escaped; or execute a call."""
        try:
            found = unescaped(message.payload)
        except BadPacket as error:
            self._counts[f"drop.{error.reason}"] += 1
            return None
        if isinstance(found, bytes):
            return message._replace(payload=found)
        reply_to = found.head.reply_to
        if reply_to is not None and reply_to.host != message.sender.address.host:
            self._counts["drop.reply_to"] += 1  # Members would flood a host that made no call.
            return None
        if isinstance(found, ProbeMessage):
            for record in self._answering.missing(found):
                self._post(found.head, record)
        elif self._answering.deliver(found, now_us()):
            if found.head.token == self._table.token:
                self._table.deliver(found.number, self._answering.members)
            self._execute(found, message)
        return None

    def _execute(self, call: CallMessage, message: Message) -> None:
        members = self._answering.members
        if self._handler is None:
            self._reply(call, members, CallFailure(Reason.NO_HANDLER, "it has no @group.answer"))
            return
        try:
            found = self._handler(Call(bytes(call.payload), message.sender, message.seq))
        except Exception as error:
            self._reply(call, members, raised(error))
            return
        if not inspect.isawaitable(found):
            self._reply(call, members, checked(found))
            return
        if len(self._executing) >= self._limits.executing_count_max:
            text = f"{len(self._executing)} handlers are under way (executing_count_max)"
            self._reply(call, members, CallFailure(Reason.BUSY, text))
            if inspect.iscoroutine(found):
                found.close()
            return
        task = asyncio.get_running_loop().create_task(self._await(call, members, found))
        self._executing.add(task)
        task.add_done_callback(self._executing.discard)

    async def _await(
        self, call: CallMessage, members: tuple[Member, ...], found: Awaitable[Buffer]
    ) -> None:
        """Beyond its time no caller waits for the answer."""
        outcome: Buffer | CallFailure
        try:
            async with asyncio.timeout(call.head.timeout_ms / 1000) as limit:
                outcome = checked(await found)
        except TimeoutError as error:
            if limit.expired():
                self._counts["handlers.expired"] += 1
                return
            outcome = raised(error)
        except asyncio.CancelledError as error:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            outcome = raised(error)  # Something that the handler awaited was cancelled.
        except Exception as error:
            outcome = raised(error)
        self._reply(call, members, outcome)

    def _reply(
        self, call: CallMessage, members: tuple[Member, ...], outcome: Buffer | CallFailure
    ) -> None:
        records = self._answering.records(call, outcome, members)
        if call.head.token == self._table.token:
            self._table.take(self._me, records)
            return
        for record in records:
            self._post(call.head, record)

    def _post(self, head: CallHead, record: AnswerRecord) -> None:
        self._path.post(head, self._me, record, now_us() + head.timeout_ms * 1000)

    def _end(self, reason: str) -> None:
        self._ended = reason
        self._cancel_handlers()
        self._interrupt(reason)

    def _cancel_handlers(self) -> None:
        """Their incarnation is over: it has no answers to give."""
        for task in self._executing:
            task.cancel()

    # -- calling ----------------------------------------------------------------------------------

    async def call(
        self, payload: Buffer, answers: Answers = ALL, timeout: float = TIMEOUT_S
    ) -> CallResult:
        if self._reader is asyncio.current_task():
            await asyncio.sleep(0)  # Another task may be about to take over.
            if self._reader is asyncio.current_task():
                raise Misuse(
                    "call() in the task that reads the stream would wait for itself, since that"
                    " task executes calls: run it, or serve(), in a task of its own"
                )
        return await super().call(payload, answers, timeout)

    call.__doc__ = RpcCaller.call.__doc__

    def _known(self) -> Iterable[Member]:
        return self.group.members

    def _is_outside(self) -> bool:
        return False

    async def _replies(self) -> ReplyPath:
        async with self._sending_turn:  # Members execute calls in the order of their numbers only.
            await self._path.open()
        return self._path

    def _multicast(self, payload: bytes) -> Awaitable[int]:
        return self.group.multicast(payload, self._level)

    def _hint(self, call: OpenCall, result: CallResult) -> str:
        if call.members is not None:
            return ""
        why = self.group.blocked or "does a task read the group, or serve() it?"
        return f": the call was not delivered here: {why}"

    # -- as a group -------------------------------------------------------------------------------

    @property
    def me(self) -> Member:
        """This incarnation, as the others see it."""
        return self.group.me

    @property
    def view(self) -> View:
        """The last view installed; the stream may not have come to it yet."""
        return self.group.view

    @property
    def members(self) -> tuple[Member, ...]:
        return self.group.members

    @property
    def stopped(self) -> str | None:
        """Why this process is no longer in the group; None while it is."""
        return self.group.stopped

    def multicast(self, payload: Buffer, service: ServiceLevel | str | None = None) -> Handle:
        """Multicast a message of the application, as `Group.multicast` does."""
        return self.group.multicast(_escaped(payload), service)

    def multicast_many(
        self, payloads: Iterable[Buffer], service: ServiceLevel | str | None = None
    ) -> Handle:
        """Multicast them in this order, as `Group.multicast_many` does."""
        return self.group.multicast_many(map(_escaped, payloads), service)

    def request(self, what: unisono.GroupCommand | str, /, **arguments: int) -> None:
        """As `Group.request`."""
        self.group.request(what, **arguments)

    def lock(self, number: int) -> Lock:
        """One of the group's locks: `async with group.lock(7):`."""
        return self.group.lock(number)

    async def vote(self, minimum: int | SizeVote | str) -> None:
        """As `Group.vote`."""
        await self.group.vote(minimum)

    async def scope(self, hops: int) -> None:
        """As `Group.scope`."""
        await self.group.scope(hops)

    async def leave(self) -> None:
        """Leave cleanly; then the stream ends. Idempotent."""
        try:
            await self._path.drain()
        finally:
            self._end("left the group")
            try:
                await self.group.leave()
            finally:
                await self._path.close()


@contextlib.asynccontextmanager
async def join(
    group: str | None = None,
    /,
    *,
    config: str | Path | None = None,
    snapshot: Callable[[], bytes] | None = None,
    restore: Callable[[bytes], None] | None = None,
    limits: RpcLimits | None = None,
    **options: Unpack[unisono.JoinOptions],
) -> AsyncIterator[RpcGroup]:
    """Join as `unisono.join` does. Members that join otherwise are refused."""
    given = options.get("format")
    options["format"] = f"{FORMAT}:{given}" if given else FORMAT
    joining = unisono.join(group, config=config, snapshot=snapshot, restore=restore, **options)
    async with joining as joined:
        if joined.config.slow == "shed":
            raise Misuse("slow='shed' drops calls unanswered: use 'block' or 'leave'")
        calling = RpcGroup(joined, limits)
        try:
            yield calling
        finally:
            await calling.leave()


def checked(found: object) -> bytes | CallFailure:
    if isinstance(found, bytes | bytearray | memoryview):
        return bytes(found)  # The handler may change its buffer before the answer is sent.
    text = f"the handler returned {type(found).__name__}: it must return bytes"
    return CallFailure(Reason.RAISED, text)


def raised(error: BaseException) -> CallFailure:
    log.warning("the handler of calls raised", exc_info=error)
    return CallFailure(Reason.RAISED, f"{type(error).__name__}: {error}")


def _escaped(payload: Buffer) -> Buffer:
    return escaped(payload) if isinstance(payload, bytes | bytearray | memoryview) else payload


def _without_calls(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        if (payload := plain(message.payload)) is not None:
            yield message._replace(payload=payload)
