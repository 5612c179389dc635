"""Messages to one member and questions, for threads: the names of `unisono.services.direct`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias, Unpack

from unisono.config import JoinOptions
from unisono.model import Buffer, Member, Message, ServiceLevel
from unisono.net.stream import Item
from unisono.services import direct
from unisono.services.direct import Unicast
from unisono.sync.service import Facade, SyncIterator, SyncService, waits

__all__ = ["SyncDirectGroup", "SyncQuestion", "Unicast", "join"]


class SyncQuestion(Facade[direct.Question]):
    """What another member asked this one alone; it waits for `answer`."""

    @property
    def message(self) -> Message:
        """The question."""
        return self.inner.message

    answer = waits(direct.Question.answer)


SyncDirectItem: TypeAlias = Item | Unicast | SyncQuestion


class SyncDirectGroup(SyncService[direct.DirectGroup]):
    """A group with messages to single members, for any thread; one of them iterates it, and `ask`
    waits for an answer only while it does."""

    def __init__(
        self, context: AbstractAsyncContextManager[direct.DirectGroup], timeout_s: float | None
    ) -> None:
        super().__init__(context, timeout_s)
        self._stream: SyncIterator[SyncDirectItem] = SyncIterator(self, self._items())

    async def _items(self) -> AsyncIterator[SyncDirectItem]:
        async for item in self.service:
            yield SyncQuestion(self, item) if isinstance(item, direct.Question) else item

    @property
    def me(self) -> Member:
        """This incarnation, as the others see it."""
        return self.service.me

    @property
    def members(self) -> tuple[Member, ...]:
        """Of the last view installed; the stream may not have come to it yet."""
        return self.service.members

    def _sent(self, send: Callable[[], Awaitable[int]]) -> int:
        async def run() -> int:
            return await send()

        return self.call(run())

    def multicast(self, payload: Buffer, service: ServiceLevel | str | None = None) -> int:
        """To all; its number, once it is accepted."""
        return self._sent(lambda: self.service.multicast(payload, service))

    def send(
        self, to: Member | str, payload: Buffer, service: ServiceLevel | str | None = None
    ) -> int:
        """To this member alone, or to the one of this name; its number, once it is accepted."""
        return self._sent(lambda: self.service.send(to, payload, service))

    def ask(
        self,
        to: Member | str,
        payload: Buffer,
        timeout: float | None = direct.ASK_S,
        service: ServiceLevel | str | None = None,
    ) -> bytes:
        """What this member answers. `Unanswered` when it is gone, `TimeoutError` after `timeout`
        seconds."""
        return self.call(self.service.ask(to, payload, timeout, service))

    def __iter__(self) -> SyncIterator[SyncDirectItem]:
        return self._stream

    def next(self, timeout: float | None = None) -> SyncDirectItem:
        """The next item; `StopIteration` at the end, `TimeoutError` after `timeout` seconds."""
        return self._stream.next(timeout)


def join(
    group: str | None = None,
    /,
    *,
    config: str | Path | None = None,
    snapshot: Callable[[], bytes] | None = None,
    restore: Callable[[bytes], None] | None = None,
    timeout_s: float | None = None,
    **options: Unpack[JoinOptions],
) -> SyncDirectGroup:
    """Join as `unisono.services.direct.join` does: `with unisono.sync.direct.join("shop") as
    group`."""
    joining = direct.join(group, config=config, snapshot=snapshot, restore=restore, **options)
    return SyncDirectGroup(joining, timeout_s)
