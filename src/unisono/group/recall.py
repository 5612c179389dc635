"""How members of a replayable group recall the past together.

A member that was away asks all; each answers with what it still has; the asker chooses one of them,
and that one sends it, all in messages of the group that its applications do not see.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from unisono import replay_history as words
from unisono.errors import Forgotten, Misuse, UnisonoError
from unisono.model import Member, Message, Service, ServiceLevel, View
from unisono.replay_history import (
    FILL_BYTES,
    Control,
    RecallChoice,
    RecallOffer,
    RecallPart,
    RecallRequest,
    ReplayHistory,
)

ANSWER_S: Final = 2.0
"""How long members are given to say what they have."""
SILENCE_S: Final = 10.0
"""A holder that sends nothing for so long is given up."""
ANSWERS_COUNT_MAX: Final = 64
"""Answers and fillings under way at one member; further asks are left to others, and counted."""
FILL_COUNT: Final = 512
"""Messages that are looked up at once."""
FIELDS_BYTES: Final = 64
"""At least what the fields of a recalled message take besides its payload and names."""
FILLS_WAITING_MAX: Final = 4096
"""Parts of the past that wait for the asker; more, and it has to ask again."""

log = logging.getLogger("unisono.group")


class Archive(Protocol):
    """A longer history than the group's own, as a log. Called in a thread of its own."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    def messages(self, first: int, last: int) -> list[Message]: ...


class _Ask:
    """One asking of ours: who has what, and what was told."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.had: dict[Member, RecallOffer] = {}
        self.told: asyncio.Queue[tuple[Message, ...]] = asyncio.Queue(FILLS_WAITING_MAX)
        self.holder: Member | None = None
        self.heard = asyncio.Event()


class Recalls:
    """What a member asks of the others' history, and answers from its own."""

    def __init__(
        self,
        history: ReplayHistory,
        send: Callable[[Sequence[bytes], ServiceLevel], Awaitable[int]],
        where: Callable[[], tuple[Member, View]],
        bytes_max: Callable[[], int],
    ) -> None:
        """`bytes_max` is the group's limit for a message of its applications."""
        self._history = history
        self._bytes_max = bytes_max
        self._send = send
        self._where = where
        self._asks: dict[int, _Ask] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._wanted: dict[Member, int] = {}
        """By asker, the ask that it waits for: who asks again has given up the one before."""
        self.archive: Archive | None = None
        self.refused_count = 0

    async def _tell(self, payload: bytes) -> None:
        await self._send((payload,), Service.AGREED)

    def _me(self) -> Member:
        return self._where()[0]

    def _view(self) -> View:
        return self._where()[1]

    # -- asking -------------------------------------------------------------------------------

    async def recall(self, first: int, last: int) -> AsyncIterator[list[Message]]:
        """What others have of these offsets, in order."""
        if not 1 <= first <= last:
            raise Misuse(f"places {first} to {last}: the first is 1, and not above the last")
        number = int.from_bytes(os.urandom(8), "big")
        ask = self._asks[number] = _Ask(first, last)
        try:
            await self._tell(words.ask(number, first, last))
            await self._answered(ask)
            found = self._best(ask)
            ask.holder = found.who
            await self._tell(words.want(number, str(found.who), found.first, found.last))
            at = found.first
            while at <= found.last:
                messages = await self._part(ask)
                if messages is None:
                    return
                fresh = [message for message in messages if (message.seq or 0) >= at]
                if fresh:
                    at = (fresh[-1].seq or 0) + 1
                    yield fresh
        finally:
            del self._asks[number]

    async def _answered(self, ask: _Ask) -> None:
        """Until someone has all of it, or all have answered, or it took too long."""
        try:
            async with asyncio.timeout(ANSWER_S):
                while not self._is_answered(ask):
                    ask.heard.clear()
                    await ask.heard.wait()
        except TimeoutError:
            pass

    def _is_answered(self, ask: _Ask) -> bool:
        if any(0 < had.first <= ask.first and had.last >= ask.last for had in ask.had.values()):
            return True
        others = set(self._view().members) - {self._me()}
        return others <= ask.had.keys()

    def _best(self, ask: _Ask) -> RecallOffer:
        """Of those that have something, who reaches back furthest, and on furthest."""
        having = [had for had in ask.had.values() if had.first]
        if not having:
            raise Forgotten(f"nobody has the places {ask.first} to {ask.last} any more")
        return min(having, key=lambda had: (had.first, -had.last, had.who))

    async def _part(self, ask: _Ask) -> tuple[Message, ...] | None:
        """The next part; nothing when its holder is gone or silent."""
        waited_s = 0.0
        while waited_s < SILENCE_S:
            try:
                return await asyncio.wait_for(ask.told.get(), 0.25)
            except TimeoutError:
                waited_s += 0.25
            if ask.holder not in self._view().members:
                return None
        return None

    # -- answering ----------------------------------------------------------------------------

    def hear(self, control: Control) -> None:
        """What members tell each other, at its place in the stream."""
        ask = self._asks.get(control.ask)
        if isinstance(control, RecallRequest):
            if control.who != self._me():
                self._start(self._answer(control))
        elif isinstance(control, RecallChoice):
            if control.holder == str(self._me()):
                self._wanted[control.who] = control.ask
                self._start(self._fill(control))
        elif ask is None:
            return
        elif isinstance(control, RecallOffer):
            ask.had[control.who] = control
            ask.heard.set()
        elif isinstance(control, RecallPart):
            try:
                ask.told.put_nowait(control.messages)
            except asyncio.QueueFull:
                ask.holder = None

    def _start(self, answer: Coroutine[Any, Any, None]) -> None:
        if len(self._answers) >= ANSWERS_COUNT_MAX:
            self.refused_count += 1
            answer.close()
            return
        task = asyncio.get_running_loop().create_task(self._quietly(answer))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _quietly(self, answer: Awaitable[None]) -> None:
        """Who asked will ask again."""
        try:
            await answer
        except UnisonoError as error:
            log.info("a recall was not answered: %s", error)

    async def _answer(self, asked: RecallRequest) -> None:
        _, first, last = self._source(asked.first)
        first, last = max(first, asked.first), min(last, asked.last)
        if not first or first > last:
            first = last = 0
        await self._tell(words.have(asked.ask, first, last))

    def _source(self, wanted: int) -> tuple[Archive, int, int]:
        """Our own history or the archive, whichever reaches the offset or nearer; its bounds."""
        own, archive = self._history, self.archive
        if archive is not None and not 0 < own.first <= wanted:
            first, last = archive.first, archive.last
            if first and (not own.first or first < own.first):
                return archive, first, last
        first, last = own.first, own.last
        return own, first, last if first else 0

    async def _fill(self, wanted: RecallChoice) -> None:
        at = wanted.first
        while at <= wanted.last and self._is_awaited(wanted):
            source, _, _ = self._source(at)
            upto = min(wanted.last, at + FILL_COUNT - 1)
            if source is self._history:
                found = source.messages(at, upto)
            else:
                found = await asyncio.to_thread(source.messages, at, upto)
            if not found or found[0].seq != at:
                return  # forgotten meanwhile
            if max(len(message.payload) for message in found) > self._bytes_max():
                return  # archived when the group's limit was higher
            for part in _parts(found, min(FILL_BYTES, self._bytes_max())):
                if not self._is_awaited(wanted):
                    break
                await self._tell(words.fill(wanted.ask, part))
            at += len(found)

    def _is_awaited(self, wanted: RecallChoice) -> bool:
        """Whether who asked is there, and still asks that."""
        members = self._view().members
        self._wanted = {who: ask for who, ask in self._wanted.items() if who in members}
        return self._wanted.get(wanted.who) == wanted.ask

    def close(self) -> None:
        for task in self._answers:
            task.cancel()


def _parts(messages: list[Message], bytes_max: int) -> list[list[Message]]:
    """Cut so that each part, with its headers, fits one message of the group."""
    parts: list[list[Message]] = [[]]
    taken = 0
    for message in messages:
        sender = message.sender
        names = len(sender.name) + len(sender.address.host) + len(message.view)
        size = len(message.payload) + names + FIELDS_BYTES
        if parts[-1] and taken + size > bytes_max:
            parts.append([])
            taken = 0
        parts[-1].append(message)
        taken += size
    return parts
