"""The application's one ordered stream: bounded, with a stated policy for a slow reader.

Messages, views and notices stand in it in the order of the effects. So do marks: places where the
application's state is to be captured or replaced, acted on when the reader reaches them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Literal, TypeAlias

from unisono.errors import Misuse, Stopped
from unisono.model import Member, Message, View

TURN_S = 0.005
"""A reader that is always given something lets the loop turn after so long."""

Slow: TypeAlias = Literal["block", "shed", "leave"]
SLOW: tuple[Slow, ...] = ("block", "shed", "leave")


@dataclass(frozen=True, slots=True)
class Shed:
    """So many messages were dropped at this place because the reader was slow."""

    count: int


@dataclass(frozen=True, slots=True)
class Stable:
    """These messages, our own, are as resilient as was asked."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Rejoined:
    """The former life ended for this reason; from here on we are `me`. The next view follows."""

    reason: str
    me: Member


Item: TypeAlias = Message | View | Shed | Stable | Rejoined


@dataclass(frozen=True, slots=True)
class CaptureMark:
    key: Hashable
    answer: Callable[[Hashable, bytes], None]
    """Of the life that asked: a later life has not asked."""


@dataclass(frozen=True, slots=True)
class AdoptMark:
    state: bytes


Entry: TypeAlias = Item | CaptureMark | AdoptMark


class Stream:
    """A queue with one writer, the driver, and one reader, the application."""

    def __init__(
        self,
        slow: Slow,
        queue_count_max: int,
        queue_octets_max: int,
        congested: Callable[[bool], None],
        overflowed: Callable[[str], None],
        snapshot: Callable[[], bytes] | None = None,
        restore: Callable[[bytes], None] | None = None,
    ) -> None:
        self._slow = slow
        self._count_max = queue_count_max
        self._octets_max = queue_octets_max
        self._congested = congested
        self._overflowed = overflowed
        self._snapshot = snapshot
        self._restore = restore
        self._queue: deque[Entry] = deque()
        self._octets = 0
        """Of the messages that wait."""
        self._turn_s = 0.0
        """When the loop last had its turn, as far as the reader let it."""
        self._is_congested = False
        self._reader: asyncio.Future[None] | None = None
        self._end: Stopped | StopAsyncIteration | None = None
        self.shed_count = 0

    def __len__(self) -> int:
        return len(self._queue)

    # -- the writer -----------------------------------------------------------------------------

    def put(self, *entries: Entry) -> None:
        self.extend(entries)

    def extend(self, entries: Sequence[Entry]) -> None:
        if self._end is not None:
            return
        self._queue.extend(entries)
        self._octets += octets_of(entries)
        if len(self._queue) >= self._count_max or self._octets >= self._octets_max:
            self._at_bound()
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _at_bound(self) -> None:
        if self._slow == "block":
            if not self._is_congested:
                self._is_congested = True
                self._congested(True)
        elif self._is_over():
            if self._slow == "shed":
                self._shed()
            if self._is_over():  # policy `leave`, or nothing left to shed
                self._overflowed(
                    f"the reader is too slow: {len(self._queue)} events with {self._octets} bytes"
                    f" wait (queue_count_max={self._count_max},"
                    f" queue_octets_max={self._octets_max}, slow={self._slow!r})"
                )

    def _is_over(self, kept: int = 0) -> bool:
        """Beyond the bounds. One message alone may be larger than all that may wait."""
        count = len(self._queue) + kept
        return count > self._count_max or (self._octets > self._octets_max and count > 1)

    def _shed(self) -> None:
        """Drop the oldest messages; a notice stands where they stood. All else stays."""
        kept: list[Entry] = []
        queue = self._queue
        while queue and self._is_over(len(kept)):
            entry = queue.popleft()
            if isinstance(entry, Message):
                self.shed_count += 1
                self._octets -= len(entry.payload)
                entry = Shed(1)
            if isinstance(entry, Shed) and kept and isinstance(kept[-1], Shed):
                kept[-1] = Shed(kept[-1].count + entry.count)
            else:
                kept.append(entry)
        queue.extendleft(reversed(kept))

    def renew(self) -> None:
        """A new life begins with an application that is not congested, or is told so again."""
        self._is_congested = False
        full = len(self._queue) >= self._count_max or self._octets >= self._octets_max
        if self._slow == "block" and full:
            self._at_bound()

    def end(self, reason: str | None) -> None:
        """Nothing comes after what is queued: a clean end, or `Stopped` with the reason."""
        if self._end is None:
            self._end = StopAsyncIteration() if reason is None else Stopped(reason)
            if self._reader is not None and not self._reader.done():
                self._reader.set_result(None)

    # -- the reader -----------------------------------------------------------------------------

    async def next(self) -> Item:
        if monotonic() - self._turn_s > TURN_S:
            await self._let_turn()
        while True:
            while self._queue:
                entry = self._queue.popleft()
                if isinstance(entry, Message):
                    self._octets -= len(entry.payload)
                self._relieved()
                if not isinstance(entry, CaptureMark | AdoptMark):
                    return entry
                self._act_on(entry)
            await self._wait()

    async def _let_turn(self) -> None:
        """A reader that finds something each time never waits, so the loop would never have its
        turn: the member would fall silent, and be held for failed while it reads."""
        await asyncio.sleep(0)
        self._turn_s = monotonic()

    async def next_batch(self, count_max: int) -> list[Item]:
        """All that waits, up to a mark."""
        if monotonic() - self._turn_s > TURN_S:
            await self._let_turn()
        while True:
            batch: list[Item] = []
            queue = self._queue
            while queue and len(batch) < count_max:
                entry = queue.popleft()
                if isinstance(entry, CaptureMark | AdoptMark):
                    if batch:
                        queue.appendleft(entry)
                        break
                    self._act_on(entry)
                    continue
                batch.append(entry)
            self._octets -= octets_of(batch)
            self._relieved()
            if batch:
                return batch
            await self._wait()

    def _relieved(self) -> None:
        if not self._is_congested or 2 * len(self._queue) > self._count_max:
            return
        if 2 * self._octets <= self._octets_max or not self._queue:
            self._is_congested = False
            self._congested(False)

    def _act_on(self, mark: CaptureMark | AdoptMark) -> None:
        """The reader asked for more, so it is done with all that stood before the mark."""
        if isinstance(mark, AdoptMark):
            if self._restore is not None:
                self._restore(mark.state)
        elif self._snapshot is not None:
            state = self._snapshot()
            if not isinstance(state, bytes | bytearray | memoryview):
                raise Misuse(f"snapshot= returned {type(state).__name__}: it must return bytes")
            mark.answer(mark.key, bytes(state))

    async def _wait(self) -> None:
        if self._queue:
            return
        if self._end is not None:
            if isinstance(self._end, Stopped):
                raise Stopped(self._end.reason)
            raise StopAsyncIteration
        if self._reader is not None:
            raise Misuse("the group's stream already has a reader: iterate it in one place only")
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None
            self._turn_s = monotonic()


def octets_of(entries: Sequence[Entry]) -> int:
    """How much the messages among them carry."""
    return sum(len(entry.payload) for entry in entries if isinstance(entry, Message))
