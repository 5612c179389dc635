"""Messages to one member, and questions that it answers, in the same stream as the multicasts.

    async with direct.join("shop", name="ann") as group:
        await group.send("bob", b"for you alone")
        price = await group.ask("bob", b"how much?")

All members order them, and only the addressee reads them: what one member sends is first in, first
out, whomever it is for. Read the group in another task than the one that asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, Unpack

import unisono
from unisono.errors import BadPacket, Misuse, Stopped, Undelivered, UnisonoError
from unisono.fields import U8, U64, Rest
from unisono.group import Group, Handle, Stable, Unstable
from unisono.layout import decode, encode
from unisono.model import Buffer, Member, Message, ServiceLevel, View
from unisono.net.stream import Item

__all__ = ["DirectGroup", "Question", "Unanswered", "Unicast", "join"]

FORMAT: Final = "direct/1"
"""The join option of such a group, so that no other member takes its headers for messages."""
ASK_S: Final = 10.0
ASKED_COUNT_MAX: Final = 65_536


class DirectKind(IntEnum):
    MULTICAST, UNICAST, QUESTION, ANSWER = range(4)


class DirectFields(NamedTuple):
    """The header of a message, and what it carries."""

    kind: U8
    to: str
    """The addressee's name; empty for all."""
    incarnation: U64
    number: U64
    """Of the question, by its asker's count."""
    payload: Rest


_PLAIN: Final = encode(DirectFields(DirectKind.MULTICAST, "", 0, 0, b""))


class Unanswered(UnisonoError):
    """No answer comes any more: the member that was asked is no longer in the group."""

    def __init__(self, member: Member) -> None:
        super().__init__(f"{member} was asked and is no longer in the group: ask another")
        self.member = member


@dataclass(frozen=True, slots=True)
class Unicast:
    """A message to this member alone."""

    message: Message


@dataclass(frozen=True, slots=True)
class Question:
    """What another member asked this one alone; it waits for `answer`."""

    message: Message
    _answer: Callable[[bytes], Handle]

    def answer(self, payload: Buffer) -> Handle:
        """Once; the asker gets it at its place in the stream."""
        return self._answer(bytes(payload))


DirectItem: TypeAlias = Item | Unicast | Question


class _Asked(NamedTuple):
    member: Member
    answer: asyncio.Future[bytes]


class DirectGroup:
    """A group with messages to single members; `join` gives one. Iterate it, in one place."""

    def __init__(self, group: Group) -> None:
        self.group = group
        """The group below. Its stream has one reader: this object."""
        self._me = group.me
        self._members: tuple[Member, ...] = ()
        """These two as at this place of the stream."""
        self._asked: dict[int, _Asked] = {}
        self._count = 0
        self._stream = self._items()

    @property
    def me(self) -> Member:
        return self.group.me

    @property
    def members(self) -> tuple[Member, ...]:
        """Of the last view installed; the stream may not have come to it yet."""
        return self.group.members

    def multicast(self, payload: Buffer, service: ServiceLevel | str | None = None) -> Handle:
        """As `Group.multicast`."""
        return self.group.multicast(_PLAIN + bytes(payload), service)

    def send(
        self, to: Member | str, payload: Buffer, service: ServiceLevel | str | None = None
    ) -> Handle:
        """To this member alone, or to the one of this name. `handle.delivered` says that it has its
        place in the order, not that the member has read it. `Misuse` if it is not in the group."""
        return self._submit(DirectKind.UNICAST, self._member(to), 0, payload, service)

    async def ask(
        self,
        to: Member | str,
        payload: Buffer,
        timeout: float | None = ASK_S,
        service: ServiceLevel | str | None = None,
    ) -> bytes:
        """What this member answers. `Unanswered` when it is gone, `TimeoutError` after `timeout`
        seconds, `Undelivered` if we were excluded meanwhile."""
        member = self._member(to)
        if len(self._asked) >= ASKED_COUNT_MAX:
            raise unisono.Full(f"{ASKED_COUNT_MAX} questions wait for their answers: ask fewer")
        self._count += 1
        number = self._count
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = _Asked(member, answer)
        try:
            async with asyncio.timeout(timeout):
                await self._submit(DirectKind.QUESTION, member, number, payload, service)
                return await answer
        finally:
            del self._asked[number]

    def _member(self, to: Member | str) -> Member:
        for member in self.group.members:
            if to in (member, member.name):
                return member
        known = ", ".join(member.name for member in self.group.members)
        raise Misuse(f"{to} is not in the group, which has {known}: wait for the view that has it")

    def _submit(
        self,
        kind: DirectKind,
        to: Member,
        number: int,
        payload: Buffer,
        service: ServiceLevel | str | None = None,
    ) -> Handle:
        fields = DirectFields(kind, to.name, to.incarnation, number, bytes(payload))
        return self.group.multicast(encode(fields), service)

    # -- the stream -------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[DirectItem]:
        return self._stream

    async def __anext__(self) -> DirectItem:
        return await anext(self._stream)

    async def _items(self) -> AsyncIterator[DirectItem]:
        try:
            async for item in self.group:
                if isinstance(item, Message):
                    if (found := self._delivered(item)) is not None:
                        yield found
                elif isinstance(item, Stable | Unstable):
                    yield replace(item, messages=tuple(map(_stripped, item.messages)))
                elif isinstance(item, unisono.Rejoined):
                    self._me = item.me
                    self._fail(Undelivered(item.reason))
                    yield replace(item, lost=tuple(map(_payload, item.lost)))
                else:
                    if isinstance(item, View) and not item.transitional:
                        self._installed(item)
                    yield item
        finally:
            self._fail(Stopped(self.group.stopped or "left the group"))

    def _delivered(self, message: Message) -> DirectItem | None:
        """What this member reads of it."""
        try:
            kind, name, incarnation, number, payload = decode(DirectFields, message.payload)
        except BadPacket:
            return None  # Of a broken member.
        message = message._replace(payload=bytes(payload))
        if kind == DirectKind.MULTICAST:
            return message
        if (name, incarnation) != (self._me.name, self._me.incarnation):
            return None
        if kind == DirectKind.QUESTION:
            return Question(message, self._answer_to(message.sender, number))
        if kind == DirectKind.UNICAST:
            return Unicast(message)
        asked = self._asked.get(number)
        if asked is not None and asked.member == message.sender and not asked.answer.done():
            asked.answer.set_result(bytes(payload))
        return None

    def _answer_to(self, asker: Member, number: int) -> Callable[[bytes], Handle]:
        answered = False

        def answer(payload: bytes) -> Handle:
            nonlocal answered
            if answered:
                raise Misuse("this question is answered already: answer once")
            answered = True
            return self._submit(DirectKind.ANSWER, asker, number, payload)

        return answer

    def _installed(self, view: View) -> None:
        """Answers of those that are gone came before this view, or never come. One that is not in
        it may be in a later one, which the group has installed and the stream has not."""
        gone = set(self._members).difference(view.members)
        self._members = view.members
        for member, answer in self._asked.values():
            if member in gone and not answer.done():
                answer.set_exception(Unanswered(member))

    def _fail(self, error: Exception) -> None:
        for _, answer in self._asked.values():
            if not answer.done():
                answer.set_exception(error)

    async def leave(self) -> None:
        """Leave cleanly; then the stream ends. Idempotent."""
        await self.group.leave()
        self._fail(Stopped("left the group"))


def _payload(payload: bytes) -> bytes:
    return bytes(decode(DirectFields, payload).payload)


def _stripped(message: Message) -> Message:
    return message._replace(payload=_payload(message.payload))


@contextlib.asynccontextmanager
async def join(
    group: str | None = None,
    /,
    *,
    config: str | Path | None = None,
    snapshot: Callable[[], bytes] | None = None,
    restore: Callable[[bytes], None] | None = None,
    **options: Unpack[unisono.JoinOptions],
) -> AsyncIterator[DirectGroup]:
    """Join as `unisono.join` does, as a member or through a daemon."""
    given = options.get("format")
    options["format"] = f"{FORMAT}:{given}" if given else FORMAT
    async with unisono.join(
        group, config=config, snapshot=snapshot, restore=restore, **options
    ) as joined:
        direct = DirectGroup(joined)
        try:
            yield direct
        finally:
            await direct.leave()
