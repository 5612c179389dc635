"""Making calls, as a member or through a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Final

from unisono.errors import Misuse, Stopped, UnisonoError
from unisono.group import Full, Group
from unisono.model import Buffer, Member, Resilient, Service, ServiceLevel, level_named
from unisono.services.calls.limits import RpcLimits
from unisono.services.calls.messages import CallHead, call_payload, probe_payload
from unisono.services.calls.result import Answers, CallInterrupted, CallResult, TooFewAnswers
from unisono.services.calls.table import PROBE_US, CallTable, OpenCall
from unisono.services.replies import DaemonReplies, ReplyPath, now_us

TIMEOUT_S: Final = 10.0
TIMEOUT_MAX_S: Final = 86_400.0


class RpcCaller:
    """Makes calls to one group. `connect` gives one to a process that is not a member."""

    def __init__(self, group_name: str, limits: RpcLimits) -> None:
        self._group_name = group_name
        self._limits = limits
        self._counts: Counter[str] = Counter()
        self._table = CallTable(secrets.randbits(64), limits, self._counts)
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._ended: str | None = None
        self._alarm: asyncio.TimerHandle | None = None

    async def call(
        self, payload: Buffer, answers: Answers = Answers.ALL, timeout: float = TIMEOUT_S
    ) -> CallResult:
        """Have every member execute it at the same place of the total order.

        Returns when as many have answered as asked for. `TooFewAnswers` when they did not within
        `timeout` seconds, or cannot any more; `CallInterrupted` when the caller is excluded
        meanwhile; `Full` when `calls_count_max` calls are under way. If cancelled, members may
        execute the call nevertheless.
        """
        check_call(payload, answers, timeout)
        payload = bytes(payload)
        if self._ended is not None:
            raise Stopped(self._ended)
        if self._table.full:
            count = self._limits.calls_count_max
            raise Full(f"{count} calls are under way (calls_count_max): await some of them first")
        future = asyncio.get_running_loop().create_future()
        call = self._table.begin(answers, self._known(), lambda: _set(future))
        self._futures[call.number] = future
        try:
            async with asyncio.timeout(timeout):
                replies = await self._replies()
                head = CallHead(
                    self._table.token,
                    max(1, int(timeout * 1000)),
                    self._limits.answer_bytes_max,
                    self._is_outside(),
                    replies.reply_to,
                    replies.reply_group,
                )
                await self._multicast(call_payload(head, call.number, payload))
                call.sent(now_us())
                if self._alarm is None:
                    self._alarm = asyncio.get_running_loop().call_later(
                        PROBE_US / 1e6, self._probe, head
                    )
                await future
            result = call.result()
        except TimeoutError:
            result = call.time_out(f"no answer within {timeout:g} s")
        finally:
            self._table.end(call)
            del self._futures[call.number]
        if not result.enough:
            raise TooFewAnswers(result, self._hint(call, result))
        return result

    def _probe(self, head: CallHead) -> None:
        """Members that joined around a call may have it in their state: they will not answer."""
        self._alarm = None
        if self._ended is not None or not self._table.open:
            return
        if numbers := self._table.due(now_us()):
            with contextlib.suppress(UnisonoError):
                self._multicast(probe_payload(head, numbers))
        self._alarm = asyncio.get_running_loop().call_later(PROBE_US / 1e6, self._probe, head)

    def counters(self) -> dict[str, int]:
        """Answers, failures and drops so far, by kind."""
        return dict(sorted(self._counts.items()))

    def _interrupt(self, reason: str) -> None:
        for number, future in self._futures.items():
            if not future.done():
                error = CallInterrupted(self._table.open[number].result(), reason)
                future.set_exception(error)
                future.exception()  # Seen, even if the call still waits to be sent.

    # -- of the kind of caller ------------------------------------------------------------------

    def _known(self) -> Iterable[Member]:
        return ()

    def _is_outside(self) -> bool:
        return True

    async def _replies(self) -> ReplyPath:
        raise NotImplementedError

    def _multicast(self, payload: bytes) -> Awaitable[int]:
        raise NotImplementedError

    def _hint(self, call: OpenCall, result: CallResult) -> str:
        if result.answers or result.members:
            return ""
        return f": is anyone in the group {self._group_name!r}?"


class _OutsideCaller(RpcCaller):
    def __init__(self, group_name: str, daemon: str, name: str, limits: RpcLimits) -> None:
        super().__init__(group_name, limits)
        self._path = DaemonReplies(daemon, name, self._sending, self._table, self._counts)
        self._level: ServiceLevel = Service.AGREED

    def _sending(self) -> tuple[Group, ServiceLevel]:
        if self._path.inbox is None:
            raise Stopped(self._ended or "not connected yet: enter connect() first")
        return self._path.inbox, self._level

    async def _replies(self) -> ReplyPath:
        return self._path

    def _multicast(self, payload: bytes) -> Awaitable[int]:
        group, level = self._sending()
        return group.multicast(payload, level, self._group_name)

    async def open(self) -> None:
        await self._path.open()
        self._level = ordered_level(self._sending()[0])

    async def close(self) -> None:
        self._ended = "the connection was closed"
        self._interrupt(self._ended)
        await self._path.close()


@contextlib.asynccontextmanager
async def connect(
    group: str, /, *, daemon: str, name: str = "", limits: RpcLimits | None = None
) -> AsyncIterator[RpcCaller]:
    """Call a group without being a member, through the daemon of this machine."""
    caller = _OutsideCaller(group, daemon, name, limits or RpcLimits())
    try:
        await caller.open()
        yield caller
    finally:
        await caller.close()


def check_call(payload: Buffer, answers: Answers, timeout: float) -> None:
    if not isinstance(payload, bytes | bytearray | memoryview):
        kind = type(payload).__name__
        raise Misuse(f"a call is bytes, not {kind}: encode it first, as text.encode()")
    if not isinstance(answers, Answers):
        raise Misuse(f"answers={answers!r}: give rpc.ONE, rpc.MAJORITY or rpc.ALL")
    if not 0 < timeout <= TIMEOUT_MAX_S:
        raise Misuse(f"timeout={timeout!r}: give seconds above 0, at most a day")


def ordered_level(group: Group) -> ServiceLevel:
    """The level of calls: the group's own if that is a total order, else agreed."""
    configured = group.config.service
    level: ServiceLevel = Service.AGREED
    if configured:
        named = level_named(configured)
        if isinstance(named, Resilient) or named is Service.SAFE:
            level = named
    try:
        group.multicast_many((), level)
    except Misuse as error:
        raise Misuse(f"calls need a total order: {error}") from None
    return level


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
