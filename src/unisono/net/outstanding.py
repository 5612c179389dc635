"""An incarnation's own messages that were not delivered back to it, and the last it delivered.

The next incarnation reports them in `Rejoined`. Bounded by the window.
"""

from __future__ import annotations

import time
from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import Final

from unisono.model import Member, Message
from unisono.parts.message_runs import MessageRuns, own_numbers

DELAYS_COUNT: Final = 512


class Outstanding:
    """Notified of what is sent and delivered."""

    def __init__(self) -> None:
        self.me: Member | None = None
        self._batches: deque[tuple[int, Sequence[bytes]]] = deque()
        """Messages sent together, with the number of the last of them."""
        self._sent = self._whole = 0
        """The number of the last own message, and of the last delivered with all before it."""
        self._ahead: list[range] = []
        """Numbers beyond that were delivered: a weaker message overtakes a stronger one."""
        self._shed = False
        self.sent_count = 0
        """Of all incarnations."""
        self.delays_s: deque[float] = deque(maxlen=DELAYS_COUNT)
        """From submission to delivery here, of one message at a time."""
        self._timed: tuple[int, float] | None = None
        """The message whose delay is measured, and when it was submitted."""
        self.seq: int | None = None
        """The sequence number of the last message delivered, in a total order."""

    def begin(self, me: Member) -> None:
        """An incarnation begins; its first message has the number 1."""
        self.me, self.seq = me, None
        self._batches.clear()
        self._timed = None
        self._ahead.clear()
        self._sent = self._whole = 0
        self._shed = False

    def sent(self, messages: Sequence[bytes]) -> None:
        self._sent += len(messages)
        self.sent_count += len(messages)
        if self._timed is None:
            self._timed = self._sent, time.monotonic()
        self._batches.append((self._sent, messages))

    def delivered(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        if isinstance(messages, MessageRuns):
            self.seq = messages.last_seq()
        else:
            self.seq = messages[-1].seq
        if self._batches:
            for numbers in own_numbers(messages, self.me):
                self._note(numbers)
            if self._timed is not None and self._timed[0] <= self._whole:
                self.delays_s.append(time.monotonic() - self._timed[1])
                self._timed = None
            while self._batches and self._batches[0][0] <= self._whole:
                self._batches.popleft()

    def _note(self, numbers: range) -> None:
        if self._shed:  # What is missing before it was dropped on its way here.
            self._shed, self._whole = False, max(self._whole, numbers.start - 1)
        if numbers.start > self._whole + 1:
            insort(self._ahead, numbers, key=lambda each: each.start)
            return
        self._whole = max(self._whole, numbers.stop - 1)
        while self._ahead and self._ahead[0].start <= self._whole + 1:
            self._whole = max(self._whole, self._ahead.pop(0).stop - 1)

    def shed(self) -> None:
        """Messages were dropped on their way here, perhaps own ones: those count as delivered."""
        self._shed = True

    def undelivered(self) -> tuple[tuple[int, bytes], ...]:
        """Messages sent and not delivered, by number."""
        return tuple(
            (number, message)
            for last, messages in self._batches
            for number, message in enumerate(messages, last - len(messages) + 1)
            if number > self._whole and not any(number in each for each in self._ahead)
        )
