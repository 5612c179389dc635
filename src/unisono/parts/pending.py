"""Messages that were multicast and are not sent yet, those of one kind together."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from unisono.model import VARIED, PayloadBatch

MESSAGE_BYTES: Final = 32
"""What a message costs in the window, besides its payload."""
MEASURED_COUNT: Final = 512


class Pending(NamedTuple):
    """Messages of one service, and of one length or VARIED, multicast in a row."""

    messages: list[bytes]
    length: int
    service: int

    def fit(self, room: int, left: int, each: int = 0) -> int:
        """How many of them fit `room`, at most `left`. If there are several and their lengths
        differ, each costs `each` bytes more."""
        count = min(left, len(self.messages))
        if self.length == VARIED:
            several = self._several(room, count, each)
            return several or int(count > 0 and len(self.messages[0]) <= room)
        if self.length:
            return min(count, max(0, room) // self.length)
        return count if room >= 0 else 0

    def _several(self, room: int, count: int, each: int) -> int:
        """A room takes few of the many that may wait: they are measured some at a time."""
        taken = 0
        while taken < count and room >= 0:
            some = self.messages[taken : min(count, taken + MEASURED_COUNT)]
            ends = list(accumulate(map(len, some)))
            fit = bisect_right(range(len(ends)), room, key=lambda at: ends[at] + each * (at + 1))
            taken += fit
            if fit < len(ends):
                break
            room -= ends[-1] + each * fit
        return taken

    def nbytes(self, count: int) -> int:
        """The size of the first `count`."""
        if self.length == VARIED:
            return sum(map(len, self.messages[:count]))
        return count * self.length


def enqueue(queue: deque[Pending], messages: Sequence[bytes], service: int) -> int:
    """Append them; returns what they cost in the window. Nothing is done message by message."""
    batch = messages if isinstance(messages, PayloadBatch) else PayloadBatch(messages)
    if batch:
        last = queue[-1] if queue else None
        if last is not None and last.length == batch.length and last.service == service:
            last.messages.extend(batch)
        else:
            queue.append(Pending(list(batch), batch.length, service))
    return batch.nbytes + MESSAGE_BYTES * len(batch)
