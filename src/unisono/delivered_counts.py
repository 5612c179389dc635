"""How many messages of each incarnation a group has delivered. Its state carries that along, so
that one that comes back learns which of its former messages the group will never deliver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.fields import FLAG, U32_COUNT, U64, Rest, table
from unisono.layout import decode, encode, field_of
from unisono.model import Member, Message, View
from unisono.parts.message_runs import note_last_numbers

GONE_COUNT_MAX: Final = 64
"""Incarnations that are no longer members, and are still known."""

DeliveredCount: TypeAlias = tuple[Member, U64]
"""A sender, and the number of its last message."""


class CountedState(NamedTuple):
    """A group's state, as it is handed to a member that joins."""

    counts: Annotated[tuple[DeliveredCount, ...], table(field_of(DeliveredCount), U32_COUNT)]
    forgot: Annotated[bool, FLAG]
    """There were senders of which the group knows no more."""
    state: Rest
    """Of the application."""


class DeliveredCounts:
    """What the application's state has of each sender. It lasts longer than an incarnation, until
    the state is replaced by another."""

    def __init__(self) -> None:
        self._last: dict[Member, int] = {}
        self._replaced: dict[Member, int] = {}
        """Of the state that this incarnation gave up for the group's."""
        self._forgot = self._adopted = False

    def begin(self) -> None:
        """A new incarnation."""
        self._adopted, self._replaced = False, {}

    def of(self, sender: Member, first: View) -> int | None:
        """What the group has of it that this incarnation joined, by its first view. None if that is
        not known: the group has forgotten it, or was founded by several, each with a state of its
        own."""
        if not self._adopted and len(first.members) > 1:
            return None
        return self._last.get(sender, None if self._forgot else 0)

    def undone(self, name: str) -> tuple[tuple[Member, range], ...]:
        """The numbers of this process's messages that its state had and the group's has not."""
        last, known = self._last, not self._forgot
        return tuple(
            (member, range(last.get(member, 0) + 1, number + 1))
            for member, number in self._replaced.items()
            if member.name == name and (known or member in last) and last.get(member, 0) < number
        )

    def deliver(self, messages: Sequence[Message]) -> None:
        note_last_numbers(messages, self._last)

    def install(self, view: View) -> None:
        for member in view.members:
            self._last.setdefault(member, 0)
        gone = [member for member in self._last if member not in view.members]
        for member in gone[: max(0, len(gone) - GONE_COUNT_MAX)]:
            del self._last[member]
            self._forgot = True

    def with_state(self, state: bytes) -> bytes:
        return encode(CountedState(tuple(self._last.items()), self._forgot, state))

    def adopt(self, counted: bytes) -> bytes:
        """The application's state; `BadPacket` if it is none."""
        found = decode(CountedState, counted)
        self._replaced = self._last
        self._last, self._forgot, self._adopted = dict(found.counts), found.forgot, True
        return bytes(found.state)
