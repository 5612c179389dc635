"""How members of a replayable group recall past messages.

A member that was away multicasts a request; each member answers with the offsets it still has; the
requester chooses one of them, which sends the messages. Applications do not see these exchanges.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from unisono.errors import Forgotten, Misuse, UnisonoError
from unisono.model import Member, Message, Service, ServiceLevel, View
from unisono.replay_history import (
    PART_BYTES,
    Control,
    PastMessage,
    RecallChoice,
    RecallOffer,
    RecallPart,
    RecallRequest,
    ReplayHistory,
    control,
)

ANSWER_S: Final = 2.0
"""How long members may take to answer a request."""
SILENCE_S: Final = 10.0
"""A holder that sends nothing for this long is given up."""
ANSWERS_COUNT_MAX: Final = 64
"""Answers under way at one member; further requests are left to others, and counted."""
LOOKUP_COUNT: Final = 512
"""Messages looked up at once."""
FIELDS_BYTES: Final = 64
"""An upper bound of the fields of a recalled message besides its payload and names."""
PARTS_WAITING_MAX: Final = 4096
"""Parts that wait for the requester; beyond, it has to request again."""

log = logging.getLogger("unisono.group")


class Archive(Protocol):
    """A longer history than the group's own, such as a log. Called in a thread."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    def messages(self, first: int, last: int) -> list[Message]: ...


class _Recall:
    """A recall of ours: the offers, and the parts received."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.offers: dict[Member, RecallOffer] = {}
        self.parts: asyncio.Queue[tuple[Message, ...]] = asyncio.Queue(PARTS_WAITING_MAX)
        self.holder: Member | None = None
        self.answered = asyncio.Event()


class Recalls:
    """Requests from the others' histories, and answers from our own."""

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
        self._recalls: dict[int, _Recall] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._awaited: dict[Member, int] = {}
        """By requester, its latest recall: it has given up earlier ones."""
        self.archive: Archive | None = None
        self.refused_count = 0

    async def _multicast(self, payload: bytes) -> None:
        await self._send((payload,), Service.AGREED)

    def _me(self) -> Member:
        return self._where()[0]

    def _view(self) -> View:
        return self._where()[1]

    # -- requesting ---------------------------------------------------------------------------

    async def recall(self, first: int, last: int) -> AsyncIterator[list[Message]]:
        """What others have of these offsets, in order."""
        if not 1 <= first <= last:
            raise Misuse(f"offsets {first} to {last}: begin at 1 or above, and end not before")
        number = int.from_bytes(os.urandom(8), "big")
        recall = self._recalls[number] = _Recall(first, last)
        try:
            await self._multicast(control(RecallRequest(number, self._me(), first, last)))
            await self._answered(recall)
            found = self._best(recall)
            recall.holder = found.member
            holder, first, last = str(found.member), found.first, found.last
            await self._multicast(control(RecallChoice(number, self._me(), holder, first, last)))
            at = found.first
            while at <= found.last:
                messages = await self._part(recall)
                if messages is None:
                    return
                fresh = [message for message in messages if (message.seq or 0) >= at]
                if fresh:
                    at = (fresh[-1].seq or 0) + 1
                    yield fresh
        finally:
            del self._recalls[number]

    async def _answered(self, recall: _Recall) -> None:
        """Wait until a member offers all of it, all have answered, or ANSWER_S is over."""
        try:
            async with asyncio.timeout(ANSWER_S):
                while not self._is_answered(recall):
                    recall.answered.clear()
                    await recall.answered.wait()
        except TimeoutError:
            pass

    def _is_answered(self, recall: _Recall) -> bool:
        if any(
            0 < offer.first <= recall.first and offer.last >= recall.last
            for offer in recall.offers.values()
        ):
            return True
        others = set(self._view().members) - {self._me()}
        return others <= recall.offers.keys()

    def _best(self, recall: _Recall) -> RecallOffer:
        """The offer that begins first; of several, the longest."""
        able = [offer for offer in recall.offers.values() if offer.first]
        if not able:
            raise Forgotten(f"no member has the offsets {recall.first} to {recall.last} any more")
        return min(able, key=lambda offer: (offer.first, -offer.last, offer.member))

    async def _part(self, recall: _Recall) -> tuple[Message, ...] | None:
        """The next part; None if its holder is gone or silent."""
        waited_s = 0.0
        while waited_s < SILENCE_S:
            try:
                return await asyncio.wait_for(recall.parts.get(), 0.25)
            except TimeoutError:
                waited_s += 0.25
            if recall.holder not in self._view().members:
                return None
        return None

    # -- answering ----------------------------------------------------------------------------

    def deliver(self, event: Control) -> None:
        """A message of a recall, in its order in the stream."""
        recall = self._recalls.get(event.recall_id)
        if isinstance(event, RecallRequest):
            if event.member != self._me():
                self._start(self._answer(event))
        elif isinstance(event, RecallChoice):
            if event.holder == str(self._me()):
                self._awaited[event.member] = event.recall_id
                self._start(self._fill(event))
        elif recall is None:
            return
        elif isinstance(event, RecallOffer):
            recall.offers[event.member] = event
            recall.answered.set()
        elif isinstance(event, RecallPart):
            try:
                recall.parts.put_nowait(tuple(past.message() for past in event.messages))
            except asyncio.QueueFull:
                recall.holder = None

    def _start(self, answer: Coroutine[Any, Any, None]) -> None:
        if len(self._answers) >= ANSWERS_COUNT_MAX:
            self.refused_count += 1
            answer.close()
            return
        task = asyncio.get_running_loop().create_task(self._quietly(answer))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _quietly(self, answer: Awaitable[None]) -> None:
        """The requester will request again."""
        try:
            await answer
        except UnisonoError as error:
            log.info("a recall was not answered: %s", error)

    async def _answer(self, request: RecallRequest) -> None:
        _, first, last = self._source(request.first)
        first, last = max(first, request.first), min(last, request.last)
        if not first or first > last:
            first = last = 0
        await self._multicast(control(RecallOffer(request.recall_id, self._me(), first, last)))

    def _source(self, offset: int) -> tuple[Archive, int, int]:
        """Our own history or the archive, whichever begins at or nearer to the offset; its
        bounds."""
        own, archive = self._history, self.archive
        if archive is not None and not 0 < own.first <= offset:
            first, last = archive.first, archive.last
            if first and (not own.first or first < own.first):
                return archive, first, last
        first, last = own.first, own.last
        return own, first, last if first else 0

    async def _fill(self, choice: RecallChoice) -> None:
        at = choice.first
        while at <= choice.last and self._is_awaited(choice):
            source, _, _ = self._source(at)
            upto = min(choice.last, at + LOOKUP_COUNT - 1)
            if source is self._history:
                found = source.messages(at, upto)
            else:
                found = await asyncio.to_thread(source.messages, at, upto)
            if not found or found[0].seq != at:
                return  # forgotten meanwhile
            if max(len(message.payload) for message in found) > self._bytes_max():
                return  # archived when the group's limit was higher
            for part in _parts(found, min(PART_BYTES, self._bytes_max())):
                if not self._is_awaited(choice):
                    break
                past = tuple(map(PastMessage.of, part))
                await self._multicast(control(RecallPart(choice.recall_id, self._me(), past)))
            at += len(found)

    def _is_awaited(self, choice: RecallChoice) -> bool:
        """Whether the requester is in the view and still waits for this recall."""
        members = self._view().members
        self._awaited = {m: recall_id for m, recall_id in self._awaited.items() if m in members}
        return self._awaited.get(choice.member) == choice.recall_id

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
