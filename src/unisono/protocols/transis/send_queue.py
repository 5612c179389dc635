"""Messages of this member that wait to be sent, and the payload of its next vertex: a burst is one
vertex with a run of messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from unisono.core import CoreConfig
from unisono.model import VARIED, Buffer, Service, ServiceLevel
from unisono.parts.pending import MESSAGE_BYTES, Pending, enqueue
from unisono.parts.turn import (
    COUNT_MAX,
    DIFFER,
    GOES_ON,
    LENGTH_BYTES,
    MORE,
    ROW_BYTES,
    RUN_BYTES,
    MessageGroup,
    OriginRun,
    write_runs,
)
from unisono.wire import numbers

SERVICES: Final = tuple(Service)


def class_of(service: int) -> Service:
    """What a message waits for: all that is weaker than agreed is delivered as causal."""
    return SERVICES[max(service, Service.CAUSAL)]


class SendQueue:
    """From the application to the vertices."""

    def __init__(self, config: CoreConfig, key: int, mixes: bool) -> None:
        self._key = key
        self._mixes = mixes
        self._window_bytes = config.window_bytes_max
        self._queue: deque[Pending] = deque()
        self._offset = 0
        """Bytes of the head that earlier vertices have."""
        self.queue_bytes = 0
        self.sent = 0
        """The last message that is wholly in a vertex."""
        self._flight: deque[tuple[int, int]] = deque()
        """Vertices that some member is not known to hold, each with the cost of its messages."""
        self._flight_bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    def send_credit(self) -> int:
        return max(0, self._window_bytes - self.queue_bytes - self._flight_bytes)

    def put(self, messages: Sequence[bytes], service: ServiceLevel) -> None:
        level = int(service) if isinstance(service, Service) else int(Service.AGREED)
        self.queue_bytes += enqueue(self._queue, messages, level)

    def flights(self) -> int:
        """Vertices with messages of ours that some member is not known to hold."""
        return len(self._flight)

    def acknowledged(self, upto: int) -> None:
        """All members are known to hold our vertices up to this one."""
        while self._flight and self._flight[0][0] <= upto:
            self._flight_bytes -= self._flight.popleft()[1]

    def new_configuration(self) -> None:
        """All hold what was sent. A large message that was sent in part begins anew."""
        self._offset = 0
        self._flight.clear()
        self._flight_bytes = 0

    def gather(self, index: int, nbytes: int, piece_bytes: int) -> bytes:
        """The payload of our vertex of this index: as much of the queue as fits; of one class,
        unless all have to wait for the token in any case."""
        kind = class_of(self._queue[0].service)
        first, before = self.sent + 1, self.queue_bytes
        groups: list[MessageGroup] = []
        pieces: list[Buffer] = []
        room, left = nbytes - 2 - RUN_BYTES, COUNT_MAX
        while self._queue and left:
            if not self._mixes and class_of(self._queue[0].service) is not kind:
                break
            room -= ROW_BYTES
            head, offset = self._queue[0], self._offset
            if offset:
                rest = memoryview(head.messages[0])[offset:]
                fit = int(len(rest) <= room)
            else:
                fit = head.fit(room, left, LENGTH_BYTES) or int(not head.length and not groups)
            if fit:
                if offset:
                    groups.append(MessageGroup(1, len(rest), head.service | GOES_ON))
                    pieces.append(rest)
                else:
                    groups.append(_group(head, fit, pieces))
                room -= groups[-1].nbytes
                left -= fit
                self._take_heads(fit)
            elif groups and room < piece_bytes // 4:
                break
            else:
                groups.append(
                    MessageGroup(1, room, head.service | MORE | (GOES_ON if offset else 0))
                )
                pieces.append(memoryview(head.messages[0])[offset : offset + room])
                self._offset += room
                break
        self._flight.append((index, before - self.queue_bytes))
        self._flight_bytes += before - self.queue_bytes
        return write_runs([OriginRun(self._key, first, groups, pieces)])

    def _take_heads(self, count: int) -> None:
        head = self._queue[0]
        self.queue_bytes -= head.nbytes(count) + count * MESSAGE_BYTES
        del head.messages[:count]
        if not head.messages:
            self._queue.popleft()
        self._offset = 0
        self.sent += count


def _group(queued: Pending, count: int, pieces: list[Buffer]) -> MessageGroup:
    """The first of these, whose bytes are appended to the pieces."""
    messages = queued.messages[:count]
    if queued.length != VARIED or count == 1:
        pieces += messages
        return MessageGroup(count, len(messages[0]), queued.service)
    lengths = list(map(len, messages))
    pieces.append(numbers(lengths))
    pieces += messages
    return MessageGroup(count, sum(lengths), queued.service | DIFFER)
