"""What `join` gives: a group about to be joined."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unisono.group import Group


class Joining:
    """A group about to be joined: await it, or enter it."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def __await__(self) -> Generator[Any, None, Group]:
        return self._group._join().__await__()

    async def __aenter__(self) -> Group:
        return await self._group._join()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._group.leave()
