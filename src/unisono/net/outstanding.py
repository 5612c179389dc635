"""An incarnation's own messages that were not delivered back to it, and the last it delivered.

The next incarnation reports them in `Rejoined`. Bounded by the window.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from unisono.model import Member, Message
from unisono.parts.message_runs import MessageRuns, last_number

DELAYS_COUNT: Final = 512


class Outstanding:
    """Notified of what is sent and delivered."""

    def __init__(self) -> None:
        self.me: Member | None = None
        self._batches: deque[tuple[int, Sequence[bytes]]] = deque()
        """Messages sent together, with the number of the last of them."""
        self._sent = self.delivered_number = 0
        """Numbers of the last own message."""
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
        self._sent = self.delivered_number = 0

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
            self.delivered_number = max(self.delivered_number, last_number(messages, self.me))
            if self._timed is not None and self._timed[0] <= self.delivered_number:
                self.delays_s.append(time.monotonic() - self._timed[1])
                self._timed = None
            while self._batches and self._batches[0][0] <= self.delivered_number:
                self._batches.popleft()

    def lost(self) -> tuple[bytes, ...]:
        """Messages sent and not delivered, in order."""
        found = [message for _, messages in self._batches for message in messages]
        first = self._sent - len(found)
        return tuple(found[max(0, self.delivered_number - first) :])
