"""What one life of a member has said and not heard back, and how far it has heard the order.

A life that is stopped leaves this to the next, so that the application is told what it missed and
what it said in vain. Bounded by the window: a core takes no more than that before it is ordered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from unisono.model import Member, Message
from unisono.parts.message_runs import MessageRuns


class Outstanding:
    """Told of what is said, and of what is delivered."""

    def __init__(self) -> None:
        self._me: Member | None = None
        self._said: deque[tuple[int, Sequence[bytes]]] = deque()
        """Messages said together, with the number of the last of them."""
        self._number = self._own = 0
        self.place: int | None = None
        """Of the last message heard, where messages have places."""

    def begin(self, me: Member) -> None:
        """A life begins; its first message will have the number 1."""
        self._me, self.place = me, None
        self._said.clear()
        self._number = self._own = 0

    def said(self, messages: Sequence[bytes]) -> None:
        self._number += len(messages)
        self._said.append((self._number, messages))

    def heard(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        if isinstance(messages, MessageRuns):
            self.place = messages.last_place()
        else:
            self.place = messages[-1].seq
        if self._said:
            self._own = max(self._own, self._last_own(messages))
            while self._said and self._said[0][0] <= self._own:
                self._said.popleft()

    def _last_own(self, messages: Sequence[Message]) -> int:
        if isinstance(messages, MessageRuns):
            return messages.last_number(self._me)
        own = (each.number for each in reversed(messages) if each.sender == self._me)
        return next(own, 0)

    def lost(self) -> tuple[bytes, ...]:
        """What was said and not heard back, in order."""
        found = [message for _, messages in self._said for message in messages]
        first = self._number - len(found)
        return tuple(found[max(0, self._own - first) :])
