"""Messages that wait in the application's stream, as they were delivered together."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from unisono.model import Message
from unisono.parts.message_runs import MessageRuns

_PAYLOAD = itemgetter(Message._fields.index("payload"))


class MessageChunk:
    """Messages delivered together, of which the first may have been read."""

    __slots__ = ("at", "messages", "nbytes")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.at = 0
        self.nbytes = size_of(messages)
        """Of those not read yet."""

    def __len__(self) -> int:
        return len(self.messages) - self.at

    def next(self) -> Message:
        if type(self.messages) is not list:  # All at once: one by one they cost three times that.
            self.messages = list(self.messages)
        message = self.messages[self.at]
        self.at += 1
        self.nbytes -= len(message.payload)
        return message

    def take(self, count_max: int) -> Sequence[Message]:
        """The next messages."""
        taken: Sequence[Message]
        if not self.at and len(self.messages) <= count_max:
            taken, self.messages = self.messages, ()
        elif not self.at and isinstance(self.messages, MessageRuns):
            taken, self.messages = self.messages.parted(count_max)
        else:
            taken = self.messages[self.at : self.at + count_max]
            self.at += len(taken)
        self.nbytes -= size_of(taken)
        return taken


def size_of(messages: Sequence[Message]) -> int:
    """The size of their payloads."""
    if isinstance(messages, MessageRuns):
        return messages.nbytes
    return sum(map(len, map(_PAYLOAD, messages)))
