"""`unisono cat`: standard input to the group, the group to standard output."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import unisono
from unisono.cli import INTERRUPTED, OK, PIPE_CLOSED, STOPPED, refuse
from unisono.cli.printing import printer
from unisono.cli.stdio import StdinReader, StdoutWriter
from unisono.core import GO_ON
from unisono.errors import Misuse, Stopped, UnisonoError
from unisono.group import Group
from unisono.model import Message, View
from unisono.net.stream import Item, Rejoined

LAST_WORDS_S = 5.0
"""So long may what was heard while leaving take to be printed."""
SETTLE_VIEWS_MAX = 20


def cat(
    group: str | None,
    options: Mapping[str, Any],
    expect: int | None,
    linger_s: float,
    settle_s: float,
    as_json: bool,
) -> int:
    if group is None and "config" not in options:
        raise Misuse("no group is named: write unisono cat GROUP, or --config FILE")
    logging.basicConfig(format="unisono: %(message)s")
    return asyncio.run(Cat(group, options, expect, linger_s, settle_s, as_json).run())


class Cat:
    """One member whose application is a pair of pipes."""

    def __init__(
        self,
        group: str | None,
        options: Mapping[str, Any],
        expect: int | None,
        linger_s: float,
        settle_s: float,
        as_json: bool,
    ) -> None:
        self._joining = unisono.join(group, **options)
        self._expect = expect
        self._linger_s = linger_s
        self._settle_s = settle_s
        self._changed = asyncio.Event()
        """A view came."""
        self._render = printer(as_json)
        self._mouth = StdoutWriter()
        self._moved = asyncio.Event()
        self._asked = asyncio.Event()
        """Somebody wants us to go."""
        self._joined = False
        self._delivered_count = 0
        self._said = self._heard_own = 0
        """Our last message, and the last of ours that came back, by number in this life."""

    async def run(self) -> int:
        self._code = OK
        self._main = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        try:
            async with self._joining as group:
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGUSR1, self._go_on, group)
                return await self._converse(group)
        except asyncio.CancelledError:
            return self._code
        except BrokenPipeError:
            return PIPE_CLOSED

    def _signalled(self, number: int) -> None:
        """The first signal asks for a clean leave, the second ends at once."""
        self._code = INTERRUPTED if number == signal.SIGINT else OK
        if (self._asked.is_set() or not self._joined) and self._main is not None:
            self._main.cancel()
        self._asked.set()

    def _go_on(self, group: Group) -> None:
        """The operator's word that this part of a split group may go on."""
        try:
            group.request(GO_ON)
        except UnisonoError as error:
            logging.warning("%s", error)

    async def _converse(self, group: Group) -> int:
        self._joined = True
        hearing = asyncio.create_task(self._hear(group))
        saying = asyncio.create_task(self._say(group))
        ending = asyncio.create_task(self._enough(saying))
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait((hearing, ending, asked), return_when=asyncio.FIRST_COMPLETED)
            for first in (hearing, ending):
                if first.done():
                    first.result()
            await group.leave()
            await asyncio.wait((hearing,), timeout=LAST_WORDS_S)
            if hearing.done():
                hearing.result()  # so that output that could not be written is told
        except Stopped as stop:
            await self._mouth.say(self._render.stopped(stop.reason))
            return refuse(f"stopped: {stop.reason}", STOPPED)
        finally:
            tasks: tuple[asyncio.Task[Any], ...] = (hearing, saying, ending, asked)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._code

    async def _hear(self, group: Group) -> None:
        async for batch in group.batches():
            # In another thread: while a slow reader of ours makes this wait, the member goes on
            # answering, and the group's policy for slow readers decides.
            await self._mouth.say(b"".join(map(self._render.item, batch)))
            self._note(batch, group)
        self._moved.set()

    def _note(self, batch: Sequence[Item], group: Group) -> None:
        me = group.me
        for item in batch:
            if isinstance(item, Message):
                self._delivered_count += 1
                if item.sender == me:
                    self._heard_own = item.number
            elif isinstance(item, View):
                self._changed.set()
            elif isinstance(item, Rejoined):
                # What was said in the former life comes back there or never.
                self._said = self._heard_own = 0
        self._moved.set()

    async def _settled(self) -> None:
        """Those that start together find each other before anyone speaks, so that all hear all:
        who joins later does not hear what was said before. Bounded, should the group never rest."""
        for _ in range(SETTLE_VIEWS_MAX):
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), self._settle_s)
            except TimeoutError:
                return

    async def _say(self, group: Group) -> None:
        await self._settled()
        async for lines in StdinReader(group.config.message_bytes_max):
            self._said = await group.multicast_many(lines)

    async def _enough(self, saying: asyncio.Task[None]) -> None:
        """Until all was heard that should be, and the linger after it."""
        if self._expect is None:
            await saying
            while self._heard_own < self._said:
                await self._next_move()
        else:
            saying.add_done_callback(lambda _: self._moved.set())
            while self._delivered_count < self._expect:
                if saying.done():
                    saying.result()
                await self._next_move()
        await asyncio.sleep(self._linger_s)

    async def _next_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()
