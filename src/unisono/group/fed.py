"""A fed group: its stream goes through the chronicle, and its members recall the past together.

Who was away asks all; each answers what it still has; the asker names one of them, and that one
tells it, all in messages of the group that its applications do not see.
"""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Sequence,
)
from typing import Any, Final, Protocol

from unisono import chronicle as words
from unisono.chronicle import (
    FILL_OCTETS,
    HEADER_OCTETS_MAX,
    Asked,
    Chronicle,
    Control,
    Filled,
    Had,
    Rows,
    Wanted,
    is_ordered,
)
from unisono.core import Offer
from unisono.errors import Forgotten, Misuse, UnisonoError
from unisono.model import Buffer, Member, Message, Service, ServiceLevel, View
from unisono.net.stream import AdoptMark, CaptureMark, Entry, Rejoined, Stable, Stream

ANSWER_S: Final = 2.0
"""How long members are given to say what they have."""
SILENCE_S: Final = 10.0
"""Who tells nothing for so long is not waited for."""
ANSWERS_COUNT_MAX: Final = 64
"""Answers and fillings under way at one member; further asks are left to others, and counted."""
FILL_COUNT: Final = 512
"""Messages that are looked up at once."""
FILLS_WAITING_MAX: Final = 4096
"""Parts of the past that wait for who asked; more, and it has to ask again."""

__all__ = ["HEADER_OCTETS_MAX", "Archive", "Fed", "Feeding", "check_ordered"]

log = logging.getLogger("unisono.group")


def check_ordered(level: ServiceLevel, protocol: str) -> None:
    """A place is the same for all only where the order is."""
    if not is_ordered(level):
        name = level.name.lower() if isinstance(level, Service) else str(level)
        raise Misuse(
            f"a fed group has one order for all: {protocol} with service={name} has not;"
            " use ring or mtp, with agreed or safe"
        )


class Archive(Protocol):
    """A longer memory than the chronicle's, as a log. Called in a thread of its own."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    def messages(self, first: int, last: int) -> list[Message]: ...


class Fed:
    """All that a fed group has more than others."""

    def __init__(
        self,
        retain_octets: int,
        speak: Callable[[Sequence[bytes], ServiceLevel], Awaitable[int]],
        where: Callable[[], tuple[Member, View]],
    ) -> None:
        self.chronicle = Chronicle(retain_octets)
        self.recalls = Recalls(self.chronicle, speak, where)
        self.sealed = words.plain

    def stream(self, *told: Any) -> Stream:
        """The group's stream, as `Stream(*told)` but through the chronicle."""
        return FedStream(self.chronicle, self.recalls.hear, *told)

    def bare(self, payloads: Iterable[bytes]) -> tuple[bytes, ...]:
        """Of what was said, what the application said itself, as it said it: rows are said again by
        their sink, and questions by who asks."""
        return tuple(text for each in payloads if (text := words.plainly(each)) is not None)

    def counts(self) -> dict[str, int]:
        return {
            "fed.repeated": self.chronicle.repeated_count,
            "fed.forgotten_writers": self.chronicle.forgotten_count,
            "drop.fed_malformed": self.chronicle.malformed_count,
            "drop.recall": self.recalls.refused_count,
        }


class Feeding(ABC):
    """What the hold on a fed group offers more."""

    _fed: Fed | None = None
    _offer: Offer

    @abstractmethod
    def _checked(self, payload: Buffer) -> bytes: ...

    @abstractmethod
    async def _speak(
        self, payloads: Sequence[bytes], service: ServiceLevel | str | None = None
    ) -> int: ...

    async def multicast_rows(
        self,
        query: str,
        partition: int,
        epoch: int,
        first_row: int,
        payloads: Iterable[Buffer],
        service: ServiceLevel | str | None = None,
    ) -> int:
        """Say a sink's rows, numbered from `first_row` on. Every member drops, at the same place,
        those that this partition of the query has said before, in this epoch or a later one. They
        are safe where the protocol has that: who said them may forget them once they are heard."""
        self._told()
        given = list(map(bytes, payloads))
        for payload in given:
            self._checked(payload)
        messages = words.rows(Rows(query, partition, epoch), first_row, given)
        if service is None and Service.SAFE in self._offer.services:
            service = Service.SAFE
        return await self._speak(messages, service) if messages else 0

    def rows_heard(self, query: str, partition: int) -> tuple[int, int] | None:
        """The last epoch and row of a sink's partition that the group has ordered, as far as it
        is known here: what a sink needs to know before it forgets them."""
        return self._told().chronicle.heard(query, partition)

    @property
    def place(self) -> int:
        """Of the last ordered message; the stream may not have come to it yet."""
        return self._told().chronicle.place

    def recall(self, first: int, last: int) -> AsyncIterator[list[Message]]:
        """Messages with these places that others still have, in order: for a member that was
        away. Read the stream meanwhile. It begins later than `first` when nobody has the beginning
        any more, and may end before `last`: then ask again. `Forgotten` when nobody has any."""
        return self._told().recalls.recall(first, last)

    @property
    def life(self) -> str:
        """Names this life of the group: the places of its messages count from its founding."""
        return self._told().chronicle.life

    @property
    def archive(self) -> Archive | None:
        """A longer memory than the group's own, to answer others' recalls from."""
        return self._told().recalls.archive

    @archive.setter
    def archive(self, archive: Archive | None) -> None:
        self._told().recalls.archive = archive

    def _told(self) -> Fed:
        if self._fed is None:
            raise Misuse("only a fed group has places: join it with fed=True, as all its members")
        return self._fed


class FedStream(Stream):
    """The application's stream, as the chronicle tells it."""

    def __init__(
        self, chronicle: Chronicle, control: Callable[[Control], None], *stream: Any
    ) -> None:
        super().__init__(*stream)
        self._chronicle = chronicle
        self._control = control

    def extend(self, entries: Sequence[Entry]) -> None:
        told: list[Entry] = []
        hear = self._chronicle.hear
        for entry in entries:
            if isinstance(entry, Message):
                heard = hear(entry)
                if type(heard) is Message:
                    told.append(heard)
                elif heard is not None:
                    self._control(heard)  # type: ignore[arg-type]
            else:
                self._tell(entry, told)
        if told:
            super().extend(told)

    def _tell(self, entry: Entry, told: list[Entry]) -> None:
        if isinstance(entry, View):
            told.append(self._chronicle.see(entry))
        elif isinstance(entry, Stable):
            told.append(Stable(tuple(map(words.bare, entry.messages)), entry.holders))
        elif isinstance(entry, CaptureMark):
            self._capture(entry, told)
        elif isinstance(entry, AdoptMark):
            self._adopt(entry.state, told)
        else:
            if isinstance(entry, Rejoined):
                self._chronicle.begin()
            told.append(entry)

    def _capture(self, mark: CaptureMark, told: list[Entry]) -> None:
        """The chronicle's part is taken here, the application's when its reader comes to it."""
        state = self._chronicle.state()
        front = len(state).to_bytes(4, "big") + state

        def answer(key: Hashable, own: bytes) -> None:
            mark.answer(key, front + own)

        if self._snapshot is None:
            answer(mark.key, b"")
        else:
            told.append(CaptureMark(mark.key, answer))

    def _adopt(self, state: bytes, told: list[Entry]) -> None:
        end = 4 + int.from_bytes(state[:4], "big")
        try:
            self._chronicle.adopt(state[4:end])
        except Misuse as error:
            self._overflowed(str(error))
            return
        if self._restore is not None:
            told.append(AdoptMark(state[end:]))


class _Ask:
    """One asking of ours: who has what, and what was told."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.had: dict[Member, Had] = {}
        self.told: asyncio.Queue[tuple[Message, ...]] = asyncio.Queue(FILLS_WAITING_MAX)
        self.holder: Member | None = None
        self.heard = asyncio.Event()


class Recalls:
    """What a member asks of the others' memories, and answers from its own."""

    def __init__(
        self,
        chronicle: Chronicle,
        speak: Callable[[Sequence[bytes], ServiceLevel], Awaitable[int]],
        where: Callable[[], tuple[Member, View]],
    ) -> None:
        self._chronicle = chronicle
        self._speak = speak
        self._where = where
        self._asks: dict[int, _Ask] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._wanted: dict[Member, int] = {}
        """By asker, the ask that it waits for: who asks again has given up the one before."""
        self.archive: Archive | None = None
        self.refused_count = 0

    async def _say(self, payload: bytes) -> None:
        await self._speak((payload,), Service.AGREED)

    def _me(self) -> Member:
        return self._where()[0]

    def _view(self) -> View:
        return self._where()[1]

    # -- asking -------------------------------------------------------------------------------

    async def recall(self, first: int, last: int) -> AsyncIterator[list[Message]]:
        """What others have of these places, in order."""
        if not 1 <= first <= last:
            raise Misuse(f"places {first} to {last}: the first is 1, and not above the last")
        number = int.from_bytes(os.urandom(8), "big")
        ask = self._asks[number] = _Ask(first, last)
        try:
            await self._say(words.ask(number, first, last))
            await self._answered(ask)
            found = self._best(ask)
            ask.holder = found.who
            await self._say(words.want(number, str(found.who), found.first, found.last))
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

    def _best(self, ask: _Ask) -> Had:
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
        if isinstance(control, Asked):
            if control.who != self._me():
                self._start(self._answer(control))
        elif isinstance(control, Wanted):
            if control.holder == str(self._me()):
                self._wanted[control.who] = control.ask
                self._start(self._fill(control))
        elif ask is None:
            return
        elif isinstance(control, Had):
            ask.had[control.who] = control
            ask.heard.set()
        elif isinstance(control, Filled):
            try:
                ask.told.put_nowait(control.messages)
            except asyncio.QueueFull:
                ask.holder = None

    def _start(self, answer: Any) -> None:
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

    async def _answer(self, asked: Asked) -> None:
        _, first, last = self._memory(asked.first)
        first, last = max(first, asked.first), min(last, asked.last)
        if not first or first > last:
            first = last = 0
        await self._say(words.have(asked.ask, first, last))

    def _memory(self, wanted: int) -> tuple[Archive, int, int]:
        """Which of our memories has the place, or comes nearest; with what it holds."""
        own, archive = self._chronicle, self.archive
        if archive is not None and not 0 < own.first <= wanted:
            first, last = archive.first, archive.last
            if first and (not own.first or first < own.first):
                return archive, first, last
        first, last = own.first, own.last
        return own, first, last if first else 0

    async def _fill(self, wanted: Wanted) -> None:
        at = wanted.first
        while at <= wanted.last and self._is_awaited(wanted):
            memory, _, _ = self._memory(at)
            upto = min(wanted.last, at + FILL_COUNT - 1)
            if memory is self._chronicle:
                found = memory.messages(at, upto)
            else:
                found = await asyncio.to_thread(memory.messages, at, upto)
            if not found or found[0].seq != at:
                return  # forgotten meanwhile
            for part in _parts(found):
                if not self._is_awaited(wanted):
                    break
                await self._say(words.fill(wanted.ask, part))
            at += len(found)

    def _is_awaited(self, wanted: Wanted) -> bool:
        """Whether who asked is there, and still asks that."""
        members = self._view().members
        self._wanted = {who: ask for who, ask in self._wanted.items() if who in members}
        return self._wanted.get(wanted.who) == wanted.ask

    def close(self) -> None:
        for task in self._answers:
            task.cancel()


def _parts(messages: list[Message]) -> list[list[Message]]:
    """Cut so that each part is one message of the group, of moderate size where it can be."""
    parts: list[list[Message]] = [[]]
    octets = 0
    for message in messages:
        size = len(message.payload) + 100
        if parts[-1] and octets + size > FILL_OCTETS:
            parts.append([])
            octets = 0
        parts[-1].append(message)
        octets += size
    return parts
