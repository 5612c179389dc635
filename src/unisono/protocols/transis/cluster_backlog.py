"""What waits for the application of one member of a group that spans clusters."""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

from unisono.core import Adopt, Capture, Deliver, Depart, Effect, Fail, Install

BACKLOG_BYTES: Final = 1 << 20
"""If so much waits for the application, the cluster takes no more."""
MESSAGE_BYTES: Final = 32

Shown: TypeAlias = Deliver | Install | Adopt | Capture


class ApplicationBacklog:
    """What waits for the application of one member."""

    def __init__(self) -> None:
        self._waiting: deque[Shown] = deque()
        self.nbytes = 0
        self.congested = False
        self._awaits_state = False
        self._verdict: Fail | Depart | None = None

    def put(self, effect: Shown) -> None:
        self._waiting.append(effect)
        if isinstance(effect, Deliver):
            self.nbytes += sum(len(each.payload) + MESSAGE_BYTES for each in effect.messages)

    def hold_back(self, on: bool) -> None:
        self.congested = on

    def await_state(self, on: bool) -> None:
        self._awaits_state = on

    def adopt(self, state: bytes) -> None:
        """The state comes before the view that it is of."""
        self._awaits_state = False
        self._waiting.appendleft(Adopt(state))

    def end(self, verdict: Fail | Depart) -> None:
        """Nothing more comes. One that departs waits for its application."""
        self._verdict = verdict
        self._awaits_state = False

    def clear(self) -> None:
        self._waiting.clear()
        self.nbytes = 0

    def show(self, out: list[Effect]) -> None:
        if not (self.congested or self._awaits_state):
            out += self._waiting
            self.clear()
        if isinstance(self._verdict, Fail) or (self._verdict is not None and not self._waiting):
            out.append(self._verdict)
            self._verdict = None
