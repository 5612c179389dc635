"""From a group's sessions, one after the other, into its one stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unisono.core import Answer
from unisono.delivered_counts import DeliveredCounts
from unisono.errors import BadPacket
from unisono.group.locks import Locks
from unisono.group.pending_requests import PendingRequests
from unisono.group.rejoining import RejoinPolicy
from unisono.group.replay import Replay
from unisono.model import Member, Message, View
from unisono.net.handle import Handles, Placement
from unisono.net.stream import (
    AdoptMark,
    Blocked,
    CaptureMark,
    Entry,
    Shed,
    Stable,
    Stream,
    Unblocked,
    Unstable,
)


@dataclass(eq=False)
class DeliveryPath:
    """Takes the events of the current session. `Rejoined` and the group's state come before the
    first view of an incarnation."""

    _stream: Stream
    _counts: DeliveredCounts | None
    """With state."""
    _replay: Replay | None
    _rejoin_policy: RejoinPolicy
    _handles: Handles
    _requests: PendingRequests
    _locks: Locks
    _opened: Callable[[Member], None]
    _installed: Callable[[View], None]
    stepped: Callable[[], None]
    ended: Callable[[str | None], None]
    _fail: Callable[[str], None]

    def __post_init__(self) -> None:
        self._outstanding = self._rejoin_policy.outstanding
        self.delivered_count = 0
        self._me: Member | None = None
        self._adopted: AdoptMark | None = None
        """The group's state, held until the first view."""

    def opened(self, me: Member) -> None:
        self._me, self._adopted = me, None
        self._rejoin_policy.begin(me)
        if self._counts is not None:
            self._counts.begin()
        self._handles.begin(me)
        self._opened(me)

    def deliver(self, messages: Sequence[Message]) -> None:
        self.delivered_count += len(messages)
        self._outstanding.delivered(messages)
        if self._counts is not None:
            self._counts.deliver(messages)
        if self._replay is not None:
            messages = self._replay.received(messages)
            if not messages:
                return
        self._handles.deliver(messages)
        self._stream.extend(messages)

    def has_woken(self) -> bool:
        return self._stream.has_woken

    def put(self, entry: Entry) -> None:
        if isinstance(entry, Answer) and entry.key:
            self._requests.answered(entry)
            return
        if isinstance(entry, Stable):
            self._handles.stabilize(entry.messages, entry.holders)
        elif isinstance(entry, Unstable):
            self._handles.fail_stability(entry.messages, entry.cause)
        elif isinstance(entry, Blocked | Unblocked) and not self._rejoin_policy.inside:
            return  # Before its first view, the application waits for that.
        elif isinstance(entry, Shed):
            self._handles.shed()
            self._outstanding.shed()
        elif isinstance(entry, CaptureMark) and self._counts is not None:
            entry = _counting(entry, self._counts)
        if self._replay is None:
            self._stream.put(entry)
        elif (found := self._replay.entry(entry)) is not None:
            self._stream.put(found)

    def place(self, placed: Placement) -> None:
        self._handles.place(placed)

    def adopt(self, state: bytes) -> None:
        if self._counts is not None:
            try:
                state = self._counts.adopt(state)
            except BadPacket:
                self._fail("the group's state is malformed: its members are of another version")
                return
        if self._rejoin_policy.inside:
            self.put(AdoptMark(state))
        else:
            self._adopted = AdoptMark(state)

    def install(self, view: View) -> None:
        if not self._rejoin_policy.inside:
            assert self._me is not None, "a view before the session was opened"
            again = self._rejoin_policy.arrived(self._me, view, time.monotonic(), self._counts)
            if again is not None:
                self.put(again)
            if self._adopted is not None:
                self.put(self._adopted)
        if self._counts is not None:
            self._counts.install(view)
        self._locks.installed(view, self._me)
        self.put(view)
        if not view.transitional:
            self._installed(view)


def _counting(mark: CaptureMark, counts: DeliveredCounts) -> CaptureMark:
    """The counts of now; the application's state is captured when its reader reaches the mark."""
    now = counts.with_state(b"")
    return CaptureMark(mark.key, lambda key, state: mark.answer(key, now + state))
