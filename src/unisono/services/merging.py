"""State on merge: components that went on apart reconcile their states when they meet.

Every component is represented once, and all members adopt the same result at the same place of the
order. The pure part is in `services/merge`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, Unpack

import unisono
from unisono.errors import Misuse, Stopped
from unisono.group import Group
from unisono.model import Buffer, Member, Message, View
from unisono.services.calling import ordered_level
from unisono.services.merge.exchange import ComponentState
from unisono.services.merge.messages import APPLICATION
from unisono.services.merge.reconciler import (
    Compute,
    Duty,
    MergeLimits,
    Reconciled,
    Reconciler,
    SendMergeMessage,
    Unreconciled,
)

__all__ = [
    "ComponentState",
    "MergeGroup",
    "MergeLimits",
    "Reconciled",
    "Unreconciled",
    "join",
]

FORMAT: Final = "merge/1"
"""The join option of such a group, so that no other member takes a state for a message."""
WITHIN_S: Final = 10.0

log = logging.getLogger("unisono.merging")

Item: TypeAlias = Message | View | Reconciled | Unreconciled | unisono.Rejoined


@dataclass(frozen=True, slots=True)
class _Hooks:
    snapshot: Callable[[], bytes]
    restore: Callable[[bytes], None]
    reconcile: Callable[[tuple[ComponentState, ...]], bytes]


class MergeGroup:
    """A group whose components reconcile; `join` gives one. Iterate it: `Reconciled` and
    `Unreconciled` come at their place among messages and views."""

    def __init__(self, group: Group, reconciler: Reconciler, hooks: _Hooks, within_s: float):
        self.group = group
        """The group without reconciliation. Its stream has one reader: this object."""
        self._level = ordered_level(group)
        self._reconciler = reconciler
        self._hooks = hooks
        self._within_s = within_s
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._sending = asyncio.create_task(self._send_outgoing())
        self._computing: set[asyncio.Task[None]] = set()
        self._timed: tuple[str, int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stream = self._items()

    @property
    def me(self) -> Member:
        return self.group.me

    @property
    def members(self) -> tuple[Member, ...]:
        """Of the last view installed; the stream may not have come to it yet."""
        return self.group.members

    @property
    def apart(self) -> bool:
        """Whether members of the view have another state, at this place of the stream."""
        return self._reconciler.apart

    def multicast(self, payload: Buffer) -> unisono.Handle:
        """Multicast a message in the total order; await the handle for its number."""
        return self.group.multicast(APPLICATION + bytes(payload), self._level)

    def again(self) -> None:
        """After `Unreconciled`: try once more in this view."""
        self._do(self._reconciler.again())

    async def leave(self) -> None:
        """Leave cleanly; then the stream ends. Idempotent."""
        await self.group.leave()
        self._close()

    def __aiter__(self) -> AsyncIterator[Item]:
        return self._stream

    async def __anext__(self) -> Item:
        return await anext(self._stream)

    async def _items(self) -> AsyncIterator[Item]:
        async for item in self.group:
            found: list[Duty] = []
            if isinstance(item, Message):
                found = self._do(self._reconciler.deliver(item))
            elif isinstance(item, View):
                found = self._do(self._reconciler.install(item))
            elif isinstance(item, unisono.Rejoined):
                self._renew(item.me)
                yield item
            self._time()
            for each in found:
                assert not isinstance(each, SendMergeMessage | Compute)
                yield each

    def _renew(self, me: Member) -> None:
        """A new incarnation: what the last one had to send is dropped."""
        self._reconciler.start(me)
        while not self._outgoing.empty():
            self._outgoing.get_nowait()

    def _do(self, duties: list[Duty]) -> list[Duty]:
        """Do what is ours; the rest is the application's."""
        rest: list[Duty] = []
        for duty in duties:
            if isinstance(duty, SendMergeMessage):
                self._outgoing.put_nowait(duty.payload)
            elif isinstance(duty, Compute):
                task = asyncio.create_task(self._compute(duty))
                self._computing.add(task)
                task.add_done_callback(self._computing.discard)
            else:
                rest.append(duty)
        return rest

    async def _compute(self, duty: Compute) -> None:
        """In a thread, so that the stream goes on however long it takes."""
        result: bytes | Exception
        try:
            result = await asyncio.to_thread(self._hooks.reconcile, duty.states)
            if not isinstance(result, bytes):
                result = TypeError(f"it returned {type(result).__name__}, not bytes")
        except Exception as error:
            log.exception("the states of %d components were not reconciled", len(duty.states))
            result = error
        self._do(self._reconciler.computed(duty.key, result))

    def _time(self) -> None:
        """Each reconciliation has its time."""
        key = self._reconciler.under_way
        if key == self._timed:
            return
        self._timed = key
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if key is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._within_s, self._expire, key)

    def _expire(self, key: tuple[str, int]) -> None:
        self._do(self._reconciler.expire(key))

    async def _send_outgoing(self) -> None:
        """Waits for the group's window in place of the reader."""
        with contextlib.suppress(Stopped):
            while True:
                await self.group.multicast(await self._outgoing.get(), self._level)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._sending, *self._computing):
            task.cancel()


@contextlib.asynccontextmanager
async def join(
    group: str | None = None,
    /,
    *,
    snapshot: Callable[[], bytes],
    restore: Callable[[bytes], None],
    reconcile: Callable[[tuple[ComponentState, ...]], bytes],
    within_s: float = WITHIN_S,
    limits: MergeLimits | None = None,
    config: str | Path | None = None,
    **options: Unpack[unisono.JoinOptions],
) -> AsyncIterator[MergeGroup]:
    """Join as `unisono.join` does. `reconcile` makes one state of those of the components, in a
    thread of its own; it must be a function of its argument alone."""
    if not 0 < within_s <= 86_400:
        raise Misuse(f"within_s={within_s!r}: give seconds above 0, at most a day")
    hooks = _Hooks(snapshot, restore, reconcile)
    reconciler = Reconciler(hooks, limits)
    given = options.get("format")
    options["format"] = f"{FORMAT}:{given}" if given else FORMAT
    joining = unisono.join(
        group, config=config, snapshot=reconciler.state, restore=reconciler.adopt, **options
    )
    async with joining as joined:
        if joined.config.slow == "shed":
            raise Misuse("slow='shed' drops messages at one member: use 'block' or 'leave'")
        reconciler.start(joined.me)
        merging = MergeGroup(joined, reconciler, hooks, within_s)
        try:
            yield merging
        finally:
            await merging.leave()
