"""On the way to the application: messages, views and requests for the state, in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from unisono.core import Capture, Deliver, Effect, Install
from unisono.model import Member, View
from unisono.parts.message_runs import MessageRun, MessageRuns

BACKLOG_BYTES: Final = 4 << 20
"""If so much waits for the application, no more is taken, which stops the senders."""
MESSAGE_BYTES: Final = 32
"""What a message costs beside its payload."""


class ApplicationQueue:
    """What waits for the application of one member."""

    def __init__(self) -> None:
        self._waiting: deque[MessageRun | View | Capture] = deque()
        self._nbytes = 0
        self.congested = False
        self.awaits_state = False
        """The application's state is on its way: nothing may come before it."""
        self._is_apart = False
        """What is here may turn out to be no part of the one history."""
        self.shown: tuple[Member, ...] = ()
        """The members of the last view, shown or waiting; none before the first."""

    def hold_back(self, on: bool) -> None:
        self.congested = on

    def stand_apart(self, on: bool) -> None:
        self._is_apart = on

    def drop_apart(self) -> bool:
        """The member leaves, and will not know whose history goes on; whether messages are lost."""
        if not self._is_apart:
            return False
        lost = any(isinstance(item, MessageRun) for item in self._waiting)
        self._waiting.clear()
        self._nbytes = 0
        return lost

    def append(self, runs: Sequence[MessageRun]) -> None:
        self._waiting += runs
        self._nbytes += sum([run.size + run.times * MESSAGE_BYTES for run in runs])

    def install(self, view: View) -> None:
        if not view.transitional:
            self.shown = view.members
        self._waiting.append(view)

    def capture(self, key: int) -> None:
        """The application's state as of here is wanted."""
        self._waiting.append(Capture(key))

    def await_state(self, on: bool) -> None:
        self.awaits_state = on

    def start_anew(self) -> None:
        """Nothing was shown yet, and a later state will come."""
        self._waiting.clear()
        self._nbytes = 0
        self.shown = ()
        self.awaits_state = False

    def is_full(self) -> bool:
        return self._nbytes > BACKLOG_BYTES

    def is_empty(self) -> bool:
        return not self._waiting

    def marks(self) -> dict[Member, int]:
        """By sender, the last message that waits; it may be gone."""
        runs = (item for item in self._waiting if isinstance(item, MessageRun))
        return {run.sender: run.number + run.times - 1 for run in runs}

    def deliver(self, out: list[Effect]) -> None:
        if not self._waiting or self.congested or self.awaits_state or self._is_apart:
            return
        runs: list[MessageRun] = []
        for item in self._waiting:
            if isinstance(item, MessageRun):
                runs.append(item)
                continue
            if runs:
                out.append(Deliver(MessageRuns(runs)))
                runs = []
            out.append(Install(item) if isinstance(item, View) else item)
        if runs:
            out.append(Deliver(MessageRuns(runs)))
        self._waiting.clear()
        self._nbytes = 0
