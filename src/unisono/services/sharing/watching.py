"""Who watches which objects here, and what has changed for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from unisono.errors import Stopped
from unisono.group import Full
from unisono.services.objects.table import ObjectChange
from unisono.services.objects.values import Value

WATCH_COUNT_MAX: Final = 16_384
"""Changes that wait for one watcher."""


@dataclass(frozen=True, slots=True)
class Changed:
    """One change of a shared object, in the order of the changes."""

    key: Value
    """What of the object; None for the whole."""
    value: Value
    """Its new value; None if it is gone."""
    place: int
    replaced: bool = False
    """This member was away: whatever changed meanwhile is not listed, read the object again."""


class Watcher(AsyncIterator[Changed]):
    """Iterate it: the changes from its making on."""

    def __init__(self, watching: Watching, kind: str, name: str, key: Value) -> None:
        self._key = key
        self._queue: asyncio.Queue[Changed | Exception] = asyncio.Queue()
        self._over: Exception | None = None
        self._where = (kind, name)
        self._watching = watching

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> Changed:
        if self._over is not None and self._queue.empty():
            raise self._over
        found = await self._queue.get()
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        """No more of it."""
        self.end(StopAsyncIteration())
        self._watching.remove(self._where, self)

    def put(self, change: Changed) -> None:
        if self._key is not None and not change.replaced and change.key != self._key:
            return
        if self._queue.qsize() >= WATCH_COUNT_MAX:
            self.end(Full(f"a watcher has not read {WATCH_COUNT_MAX} changes: read faster, anew"))
            self._watching.remove(self._where, self)
            return
        self._queue.put_nowait(change)

    def end(self, error: Exception) -> None:
        if self._over is None:
            self._over = error
            self._queue.put_nowait(error)


class Watching:
    """All watchers of this member."""

    def __init__(self) -> None:
        self._watchers: dict[tuple[str, str], list[Watcher]] = {}
        self._ended: str | None = None

    def watch(self, kind: str, name: str, key: Value = None) -> Watcher:
        if self._ended is not None:
            raise Stopped(self._ended)
        watcher = Watcher(self, kind, name, key)
        self._watchers.setdefault((kind, name), []).append(watcher)
        return watcher

    def remove(self, where: tuple[str, str], watcher: Watcher) -> None:
        """Idempotent."""
        self._watchers[where] = [each for each in self._watchers.get(where, ()) if each != watcher]

    def changed(self, change: ObjectChange) -> None:
        for watcher in self._watchers.get((change.kind, change.name), ()):
            watcher.put(Changed(change.key, change.value, change.place))

    def replaced(self, place: int) -> None:
        for watchers in list(self._watchers.values()):
            for watcher in watchers:
                watcher.put(Changed(None, None, place, replaced=True))

    def end(self, reason: str) -> None:
        self._ended = reason
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.end(Stopped(reason))
