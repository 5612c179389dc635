"""What `join` and `connect` return: await it, or enter it as a context manager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from unisono.group.group import Group

T = TypeVar("T")


class Opening(Generic[T]):
    """Await it, or enter it."""

    def __init__(
        self, begin: Callable[[], Coroutine[Any, Any, T]], end: Callable[[], Awaitable[None]]
    ) -> None:
        self._begin = begin
        self._end = end

    def __await__(self) -> Generator[Any, None, T]:
        return self._begin().__await__()

    async def __aenter__(self) -> T:
        return await self._begin()

    async def __aexit__(self, *_: object) -> None:
        await self._end()


class Joining(Opening["Group"]):
    """A group about to be joined: await it, or enter it."""

    def __init__(self, group: Group) -> None:
        super().__init__(group._join, group.leave)
        self._group = group
