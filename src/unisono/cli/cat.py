"""`unisono cat`: standard input to the group, the group to standard output."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import unisono
from unisono.cli import BLOCKED, INTERRUPTED, OK, PIPE_CLOSED, STOPPED, refuse
from unisono.cli.printing import printer
from unisono.cli.serving import request_go_on
from unisono.cli.stdio import StdinReader, StdoutWriter
from unisono.errors import Misuse, Stopped
from unisono.group import Group
from unisono.model import Message, View
from unisono.net.stream import Blocked, Item, Rejoined, Unblocked

LAST_OUTPUT_S = 5.0
"""How long printing may take after the member has left."""
SETTLE_VIEWS_MAX = 20


class CatOptions(NamedTuple):
    """What `cat` does beside being a member."""

    expect: int | None = None
    linger_s: float = 1.0
    settle_s: float = 1.0
    patience_s: float | None = None
    """How long the group may be blocked."""
    as_json: bool = False
    form: str | None = None
    listen: bool = False
    """Send nothing, and stay."""
    go_on: bool = False
    """Continue without a majority whenever the group is blocked."""


def cat(group: str | None, options: Mapping[str, Any], own: CatOptions) -> int:
    if group is None and "config" not in options:
        raise Misuse("no group is named: write unisono cat GROUP, or --config FILE")
    logging.basicConfig(format="unisono: %(message)s")
    return asyncio.run(Cat(group, options, own).run())


class Cat:
    """A member whose application is a pair of pipes."""

    def __init__(self, group: str | None, options: Mapping[str, Any], own: CatOptions) -> None:
        self._render = printer(own.as_json, own.form)
        self._joining = unisono.join(group, **options)
        self._own = own
        self._view_came = asyncio.Event()
        self._output = StdoutWriter()
        self._progress = asyncio.Event()
        self._leave_requested = asyncio.Event()
        self._joined = False
        self._delivered_count = 0
        self._last_sent = self._last_own_delivered = 0
        """By number, in this incarnation."""
        self._giving_up: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        self._code = OK
        self._main = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        try:
            async with self._joining as group:
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGUSR1, request_go_on, group)
                return await self._run_member(group)
        except asyncio.CancelledError:
            return self._code
        except BrokenPipeError:
            return PIPE_CLOSED

    def _signalled(self, number: int) -> None:
        """The first signal leaves cleanly, the second ends at once."""
        self._code = INTERRUPTED if number == signal.SIGINT else OK
        if (self._leave_requested.is_set() or not self._joined) and self._main is not None:
            self._main.cancel()
        self._leave_requested.set()

    async def _run_member(self, group: Group) -> int:
        self._joined = True
        reading = asyncio.create_task(self._read(group))
        sending = asyncio.create_task(self._send(group))
        ending = asyncio.create_task(self._enough(sending))
        if group.blocked:
            self._blocked(group)
        requested = asyncio.create_task(self._leave_requested.wait())
        try:
            await asyncio.wait((reading, ending, requested), return_when=asyncio.FIRST_COMPLETED)
            for first in (reading, ending):
                if first.done():
                    first.result()
            await group.leave()
            await asyncio.wait((reading,), timeout=LAST_OUTPUT_S)
            if reading.done():
                reading.result()  # raises if output could not be written
        except Stopped as stop:
            await self._output.write(self._render.stopped(stop.reason))
            return refuse(f"stopped: {stop.reason}", STOPPED)
        finally:
            tasks: tuple[asyncio.Task[Any], ...] = (reading, sending, ending, requested)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._code

    async def _read(self, group: Group) -> None:
        async for batch in group.batches():
            # Written by a thread: while our reader is slow the member stays responsive, and the
            # group's policy for slow readers decides.
            await self._output.write(b"".join(map(self._render.item, batch)))
            self._count(batch, group)
        self._progress.set()

    def _count(self, batch: Sequence[Item], group: Group) -> None:
        me = group.me
        for item in batch:
            if isinstance(item, Message):
                self._delivered_count += 1
                if item.sender == me:
                    self._last_own_delivered = item.number
            elif isinstance(item, View):
                self._view_came.set()
            elif isinstance(item, Blocked):
                self._blocked(group)
            elif isinstance(item, Unblocked) and self._giving_up is not None:
                self._giving_up.cancel()
            elif isinstance(item, Rejoined):
                # Messages of the former incarnation are delivered in it or never.
                self._last_sent = self._last_own_delivered = 0
        self._progress.set()

    def _blocked(self, group: Group) -> None:
        if self._own.go_on:
            request_go_on(group)
        if self._own.patience_s is not None:
            if self._giving_up is not None:
                self._giving_up.cancel()
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(self._own.patience_s, self._give_up, group)

    def _give_up(self, group: Group) -> None:
        if reason := group.blocked:
            self._code = refuse(f"gave up after {self._own.patience_s:g} s: {reason}", BLOCKED)
            self._leave_requested.set()

    async def _settled(self) -> None:
        """Members that start together find each other before any sends, since a later joiner
        misses what was sent before. Bounded, in case views never stop coming."""
        for _ in range(SETTLE_VIEWS_MAX):
            self._view_came.clear()
            try:
                await asyncio.wait_for(self._view_came.wait(), self._own.settle_s)
            except TimeoutError:
                return

    async def _send(self, group: Group) -> None:
        if self._own.listen:
            return
        await self._settled()
        async for lines in StdinReader(group.config.message_bytes_max):
            self._last_sent = await group.multicast_many(lines)

    async def _enough(self, sending: asyncio.Task[None]) -> None:
        """Wait until all expected messages are delivered, then linger."""
        expect = self._own.expect
        if expect is None:
            await (asyncio.Event().wait() if self._own.listen else sending)
            while self._last_own_delivered < self._last_sent:
                await self._wait_for_progress()
        else:
            sending.add_done_callback(lambda _: self._progress.set())
            while self._delivered_count < expect:
                if sending.done():
                    sending.result()
                await self._wait_for_progress()
        await asyncio.sleep(self._own.linger_s)

    async def _wait_for_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()
