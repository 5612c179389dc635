"""The application's one ordered stream: bounded, with a stated policy for a slow reader.

Messages, views and notices are in the order of the core's effects. So are marks: points at which
the application's state is captured or replaced when the reader reaches them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, overload

from unisono.core import Answer, Cause
from unisono.errors import Misuse, Stopped
from unisono.model import Member, Message, View
from unisono.net.message_chunk import MessageChunk
from unisono.parts.message_runs import MessageRuns

FEW = 8
"""Entries that a reader has at once: further packets wait for it."""
TURN_S = 0.005
"""A reader that never waits yields to the event loop after this time."""

Slow: TypeAlias = Literal["block", "shed", "leave"]
SLOW: tuple[Slow, ...] = ("block", "shed", "leave")


@dataclass(frozen=True, slots=True)
class Shed:
    """Messages were dropped here because the reader was slow."""

    count: int


@dataclass(frozen=True, slots=True)
class Stable:
    """These messages are as resilient as requested."""

    messages: Sequence[Message]
    holders: tuple[Member, ...] = ()
    """Members known to hold them, where the protocol reports it."""


@dataclass(frozen=True, slots=True)
class Unstable:
    """These messages will not be as resilient as requested: too few of the members that can hold
    them are left."""

    messages: Sequence[Message]
    cause: Cause


@dataclass(frozen=True, slots=True)
class Rejoined:
    """The former incarnation ended; from here on we are `me`. The state, if one is transferred, and
    the next view follow."""

    reason: str
    """Why the former incarnation ended."""
    me: Member
    cause: Cause = Cause.STOPPED
    """The reason as a value."""
    missed: range | None = None
    """The sequence numbers not delivered here, between the last message of the former incarnation
    and the next view; None if unknown: there are no sequence numbers, or it is another order."""
    lost: tuple[bytes, ...] = ()
    """Own messages of the former incarnation that were not delivered here, and may be sent again.
    Some may have been ordered after all. What was delivered here and to no other member, as weaker
    messages than safe ones may be, is not among them: `undone` has it, if there is a state."""
    unsaid: tuple[bytes, ...] | None = None
    """Those of `lost` that are not in the state that follows, and never will be: sent again now,
    each is delivered once. None if unknown: there is no state, or the group has forgotten us."""
    undone: tuple[tuple[Member, range], ...] = ()
    """By former incarnation, the numbers of own messages that were delivered here and are not in
    the state that follows. Empty without one."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """From here on the group makes no progress, for this reason, as in a minority."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    """It makes progress again."""


Item: TypeAlias = (
    Message | View | Shed | Stable | Unstable | Answer | Rejoined | Blocked | Unblocked
)


def progress_notice(reason: str) -> Blocked | Unblocked:
    return Blocked(reason) if reason else Unblocked()


@dataclass(frozen=True, slots=True)
class CaptureMark:
    key: Hashable
    answer: Callable[[Hashable, bytes], None]
    """Of the incarnation that requested it."""


@dataclass(frozen=True, slots=True)
class AdoptMark:
    state: bytes


@dataclass(frozen=True, slots=True)
class ReachedMark:
    reached: Callable[[], None]


Mark: TypeAlias = CaptureMark | AdoptMark | ReachedMark
Entry: TypeAlias = Item | Mark


class StreamBatch(Sequence[Item]):
    """All that waited in the stream, in order.

    `Message` objects are created on access; `payloads()` avoids that at a fraction of the cost.
    """

    __slots__ = ("_count", "_items", "_parts")

    def __init__(self) -> None:
        self._parts: list[Sequence[Item]] = []
        self._items: list[Item] | None = None
        self._count = 0

    def add(self, part: Sequence[Item]) -> None:
        self._parts.append(part)
        self._count += len(part)

    def payloads(self) -> list[bytes]:
        """The payloads of its messages, in order."""
        if len(self._parts) == 1 and isinstance(self._parts[0], MessageRuns):
            return self._parts[0].payloads()
        found: list[bytes] = []
        for part in self._parts:
            if isinstance(part, MessageRuns):
                found += part.payloads()
            else:
                found += [item.payload for item in part if isinstance(item, Message)]
        return found

    def notices(self) -> list[Item]:
        """All items but messages: views above all."""
        return [
            item
            for part in self._parts
            if not isinstance(part, MessageRuns)
            for item in part
            if not isinstance(item, Message)
        ]

    def _all(self) -> list[Item]:
        if self._items is None:
            self._items = [item for part in self._parts for item in part]
        return self._items

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Item]:
        return iter(self._all())

    @overload
    def __getitem__(self, at: int) -> Item: ...

    @overload
    def __getitem__(self, at: slice) -> list[Item]: ...

    def __getitem__(self, at: int | slice) -> Item | list[Item]:
        return self._all()[at]

    def __repr__(self) -> str:
        return f"Batch({self._all()!r})"


@dataclass(eq=False)
class Stream:
    """A queue with one writer, the driver, and one reader, the application."""

    _slow: Slow
    _count_max: int
    _bytes_max: int
    _congested: Callable[[bool], None]
    _overflowed: Callable[[str], None]
    _snapshot: Callable[[], bytes] | None = None
    _restore: Callable[[bytes], None] | None = None

    def __post_init__(self) -> None:
        self._queue: deque[Entry | MessageChunk] = deque()
        self._count = 0
        self._bytes = 0
        """Of the messages that wait."""
        self._turn_s = 0.0
        """When the reader last yielded to the event loop."""
        self.is_congested = False
        """The reader is slow, and the senders are held back."""
        self._reader: asyncio.Future[None] | None = None
        self.has_woken = False
        """The reader was woken by a few entries, and has not had its turn: nothing waits for more
        of them."""
        self.reading_task: asyncio.Task[Any] | None = None
        """The task that reads it, as far as it is known."""
        self._end: Stopped | StopAsyncIteration | None = None
        self.shed_count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    # -- the writer -----------------------------------------------------------------------------

    def put(self, *entries: Entry) -> None:
        self.extend(entries)

    def extend(self, entries: Sequence[Entry]) -> None:
        if self._end is not None:
            return
        if isinstance(entries, MessageRuns):
            if not entries:
                return
            self._queue.append(MessageChunk(entries))
            self._count += len(entries)
            self._bytes += entries.nbytes
        elif entries and all(issubclass(kind, Message) for kind in set(map(type, entries))):
            # Messages that come together are stored as one chunk.
            self._add(MessageChunk(list(entries)))  # type: ignore[arg-type]
        else:
            for entry in entries:
                self._add(MessageChunk([entry]) if isinstance(entry, Message) else entry)
        if self._count >= self._count_max or self._bytes >= self._bytes_max:
            self._at_bound()
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
            self.has_woken = self._count <= FEW

    def _add(self, entry: Entry | MessageChunk) -> None:
        self._queue.append(entry)
        if isinstance(entry, MessageChunk):
            self._count += len(entry)
            self._bytes += entry.nbytes
        else:
            self._count += 1

    def _at_bound(self) -> None:
        if self._slow == "block":
            if not self.is_congested:
                self.is_congested = True
                self._congested(True)
        elif self._is_over():
            if self._slow == "shed":
                self._shed()
            if self._is_over():  # Policy `leave`, or nothing left to shed.
                self._overflowed(
                    f"the reader is too slow: {self._count} events with {self._bytes} bytes"
                    f" wait (queue_count_max={self._count_max},"
                    f" queue_bytes_max={self._bytes_max}, slow={self._slow!r})"
                )

    def _is_over(self, kept: int = 0) -> bool:
        """Beyond the bounds. A single message may be larger than they are."""
        count = self._count + kept
        return count > self._count_max or (self._bytes > self._bytes_max and count > 1)

    def _shed(self) -> None:
        """Drop the oldest messages, with a notice in their stead. All else stays."""
        kept: list[Entry] = []
        while self._queue and self._is_over(len(kept)):
            entry = self._pop()
            if isinstance(entry, Message):
                self.shed_count += 1
                entry = Shed(1)
            if isinstance(entry, Shed) and kept and isinstance(kept[-1], Shed):
                kept[-1] = Shed(kept[-1].count + entry.count)
            else:
                kept.append(entry)
        self._queue.extendleft(reversed(kept))
        self._count += len(kept)

    def _pop(self) -> Entry:
        """The first that waits."""
        head = self._queue[0]
        self._count -= 1
        if not isinstance(head, MessageChunk):
            self._queue.popleft()
            return head
        message = head.next()
        self._bytes -= len(message.payload)
        if not head:
            self._queue.popleft()
        return message

    def _pop_many(self, head: MessageChunk, count_max: int) -> Sequence[Message]:
        """Messages of the first chunk, at most `count_max`."""
        nbytes = head.nbytes
        taken = head.take(count_max)
        self._count -= len(taken)
        self._bytes -= nbytes - head.nbytes
        if not head:
            self._queue.popleft()
        return taken

    def renew(self) -> None:
        """A new incarnation begins uncongested, or is notified again."""
        self.is_congested = False
        full = self._count >= self._count_max or self._bytes >= self._bytes_max
        if self._slow == "block" and full:
            self._at_bound()

    def end(self, reason: str | None) -> None:
        """Nothing follows what is queued: a clean end, or `Stopped` with the reason."""
        if self._end is None:
            self._end = StopAsyncIteration() if reason is None else Stopped(reason)
            if self._reader is not None and not self._reader.done():
                self._reader.set_result(None)

    # -- the reader -----------------------------------------------------------------------------

    async def next(self) -> Item:
        if time.monotonic() - self._turn_s > TURN_S:
            await self._let_turn()
        while True:
            while self._queue:
                entry = self._pop()
                if self.is_congested:
                    self._relieved()
                if type(entry) is Message or not isinstance(entry, Mark):
                    return entry
                self._act_on(entry)
            await self._wait()

    async def _let_turn(self) -> None:
        """A reader that always finds something never waits, so the event loop would starve, and the
        member would be suspected while it reads."""
        self.reading_task = asyncio.current_task()
        await asyncio.sleep(0)
        self._turn_s = time.monotonic()

    async def next_batch(self, count_max: int) -> StreamBatch:
        """All that waits, up to a mark."""
        if count_max < 1:
            raise Misuse(f"count_max={count_max}: give at least 1")
        if time.monotonic() - self._turn_s > TURN_S:
            await self._let_turn()
        while True:
            batch, left = StreamBatch(), count_max
            while self._queue and left > 0:
                head = self._queue[0]
                if isinstance(head, MessageChunk):
                    taken = self._pop_many(head, left)
                    batch.add(taken)
                    left -= len(taken)
                elif not isinstance(head, Mark):
                    self._pop()
                    batch.add((head,))
                    left -= 1
                elif batch:
                    break
                else:
                    self._pop()
                    self._act_on(head)
            self._relieved()
            if batch:
                return batch
            await self._wait()

    def _relieved(self) -> None:
        if not self.is_congested or 2 * self._count > self._count_max:
            return
        if 2 * self._bytes <= self._bytes_max or not self._queue:
            self.is_congested = False
            self._congested(False)

    def _act_on(self, mark: Mark) -> None:
        """The reader requested more, so it has processed all before the mark."""
        if isinstance(mark, ReachedMark):
            mark.reached()
        elif isinstance(mark, AdoptMark):
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
        self.reading_task = asyncio.current_task()
        try:
            await self._reader
        finally:
            self._reader, self.has_woken = None, False
            self._turn_s = time.monotonic()
