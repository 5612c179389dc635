"""On the way to the application: messages and views in their order, held back while it is full."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from unisono.core import (
    Answer,
    Capture,
    Cause,
    Deliver,
    Effect,
    FailStability,
    Install,
    Reach,
    Stabilize,
)
from unisono.model import Member, View
from unisono.parts.message_runs import MessageRun, MessageRuns


class OrderedDelivery:
    """Gathers what follows from a step, and lets it go when the application can take it."""

    # Deviates [RMP §2.1 views]: a view is shown once its slot cannot be lost any more, and what
    # follows waits behind it. The paper's site shows a change that nobody else may ever hear of.

    def __init__(self) -> None:
        self._waiting: deque[
            MessageRun | View | Stabilize | FailStability | Capture | Answer | Reach
        ] = deque()
        self._slots: deque[int] = deque()
        """Of the views that wait, in their order."""
        self.congested = False
        self.joining = False
        """The application's state is on its way: nothing may come before it."""
        self.closed = False
        """This member has left: what follows is not for it."""
        self.is_inside = False
        """The application has been shown a view."""
        self._consumed = 0
        self.view = ""
        self.place = 0
        """In the total order, of the last ordered message."""

    def messages(self, found: Sequence[MessageRun], ordered: bool) -> list[MessageRun]:
        """They are delivered in the view of now; ordered ones have sequence numbers."""
        if self.closed:
            return []
        placed: list[MessageRun] = []
        for run in found:
            seq = self.place + 1 if ordered else None
            placed.append(run._replace(view=self.view, seq=seq))
            if ordered:
                self.place += run.times
        self._waiting += placed
        return placed

    def start(self, place: int, with_state: bool) -> None:
        """Behind this place; with a state that is to come first."""
        self.place, self.joining = place, with_state

    def congest(self, on: bool) -> None:
        self.congested = on

    def state_came(self) -> None:
        self.joining = False

    def close(self) -> None:
        self.closed = True

    def install(self, view: View, slot: int) -> None:
        if self.closed:
            return
        self.view = view.id
        self._waiting.append(view)
        self._slots.append(slot)

    def slots(self) -> tuple[int, ...]:
        """Of the views that are not shown yet."""
        return tuple(self._slots)

    def stabilize(self, messages: MessageRuns, holders: tuple[Member, ...]) -> None:
        if self.closed:
            return
        self._waiting.append(Stabilize(messages, holders))

    def fail_stability(self, messages: MessageRuns, cause: Cause) -> None:
        if not self.closed:
            self._waiting.append(FailStability(messages, cause))

    def follow(self, effect: Capture | Answer | Reach) -> None:
        """An effect that has its place behind what is delivered so far."""
        self._waiting.append(effect)

    def flush(self, decided: int, out: list[Effect]) -> None:
        """`decided`: slots up to this one stay in the order."""
        if self.congested or self.joining:
            return
        waiting, slots = self._waiting, self._slots
        while waiting:
            runs: list[MessageRun] = []
            while waiting and isinstance(found := waiting[0], MessageRun):
                runs.append(found)
                waiting.popleft()
            if runs:
                out.append(Deliver(MessageRuns(runs)))
            if waiting:
                if isinstance(waiting[0], View) and slots[0] > decided:
                    return
                other = waiting.popleft()
                if isinstance(other, View):
                    slots.popleft()
                    self.is_inside = True
                    out.append(Install(other))
                elif not isinstance(other, MessageRun):
                    out.append(other)

    def consumed(self, held: int) -> int:
        """The slot up to which the application has taken everything, or takes it at the end of this
        step."""
        if not self._waiting or not (self.congested or self.joining):
            self._consumed = held
        return self._consumed
