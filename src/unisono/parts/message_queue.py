"""Messages of one member that wait to be sent, and as much of them as fits next. A large message
goes in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from unisono.model import VARIED, Buffer
from unisono.parts.pending import MESSAGE_BYTES, Pending, enqueue
from unisono.parts.turn import (
    COUNT_MAX,
    DIFFER,
    GOES_ON,
    LENGTH_BYTES,
    MORE,
    ROW_BYTES,
    SERVICE,
    MessageGroup,
)
from unisono.wire import numbers


class MessageQueue:
    """From `put` to `gather`."""

    def __init__(self) -> None:
        self.pending: deque[Pending] = deque()
        self.offset = 0
        """Bytes of the head that were sent in pieces."""
        self.nbytes = 0
        """What they cost in the window."""
        self.sent = 0
        """The number of the last message that left the queue. The head is the next."""

    def __len__(self) -> int:
        return len(self.pending)

    def put(self, messages: Sequence[bytes], service: int) -> None:
        self.nbytes += enqueue(self.pending, messages, service)

    def restart_head(self) -> None:
        """A large message that was sent in part begins anew."""
        self.offset = 0

    def change_head(self, service: int) -> None:
        """The head is of this service from now on."""
        self.pending[0] = self.pending[0]._replace(service=service)

    def gather(
        self, room: int, least: int, takes: Callable[[int], bool] | None = None
    ) -> tuple[list[MessageGroup], list[Buffer]]:
        """As much as fits the room, while `takes` accepts the service at the head. No piece of a
        message is begun in less than the least room."""
        groups: list[MessageGroup] = []
        pieces: list[Buffer] = []
        left = COUNT_MAX
        while self.pending and left:
            head, offset = self.pending[0], self.offset
            if takes is not None and not takes(head.service):
                break
            room -= ROW_BYTES
            mark = head.service & SERVICE
            if offset:
                rest = memoryview(head.messages[0])[offset:]
                fit = int(len(rest) <= room)
            else:
                fit = head.fit(room, left, LENGTH_BYTES) or int(not head.length and not groups)
            if fit:
                if offset:
                    groups.append(MessageGroup(1, len(rest), mark | GOES_ON))
                    pieces.append(rest)
                else:
                    groups.append(group_of(head, fit, mark, pieces))
                room -= groups[-1].nbytes
                left -= fit
                self.remove(fit)
            elif room < least:
                break
            else:
                groups.append(MessageGroup(1, room, mark | MORE | (GOES_ON if offset else 0)))
                pieces.append(memoryview(head.messages[0])[offset : offset + room])
                self.offset += room
                break
        return groups, pieces

    def remove(self, count: int) -> None:
        """This many messages at the head are sent."""
        head = self.pending[0]
        self.nbytes -= head.nbytes(count) + count * MESSAGE_BYTES
        del head.messages[:count]
        if not head.messages:
            self.pending.popleft()
        self.offset = 0
        self.sent += count


def group_of(pending: Pending, count: int, mark: int, pieces: list[Buffer]) -> MessageGroup:
    """The first of these, whose bytes are appended to the pieces."""
    messages = pending.messages[:count]
    if pending.length != VARIED or count == 1:
        pieces += messages
        return MessageGroup(count, len(messages[0]), mark)
    lengths = list(map(len, messages))
    pieces.append(numbers(lengths))
    pieces += messages
    return MessageGroup(count, sum(lengths), mark | DIFFER)
