"""What a submitter awaits of its updates: red, green, stable, and the result."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from typing import Any, Generic, TypeVar

from unisono.errors import Forgotten

T = TypeVar("T")


class Milestone(Generic[T]):
    """Reached once, or never. Its future is made when it is first awaited: most are not."""

    __slots__ = ("_error", "_future", "_value", "is_reached")

    def __init__(self) -> None:
        self.is_reached = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._future: asyncio.Future[None] | None = None

    def reach(self, value: T) -> None:
        if not self.is_reached and self._error is None:
            self.is_reached, self._value = True, value
            self._wake()

    def fail(self, error: Exception) -> None:
        if not self.is_reached and self._error is None:
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def __await__(self) -> Generator[Any, None, T]:
        while not self.is_reached and self._error is None:
            if self._future is None:
                self._future = asyncio.get_running_loop().create_future()
            yield from asyncio.shield(self._future).__await__()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class UpdateHandle:
    """One update of this replica. `await handle`: it is logged here, and will not be lost."""

    __slots__ = ("green", "nbytes", "number", "red", "result", "stable")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.number = 0
        """Among the updates of this replica, once it is logged."""
        self.red: Milestone[int] = Milestone()
        """Logged here; its number."""
        self.green: Milestone[int] = Milestone()
        """Ordered for ever, and logged here so; its position."""
        self.stable: Milestone[int] = Milestone()
        """Logged at all members, and acted upon where they acknowledge; its position."""
        self.result: Milestone[bytes] = Milestone()
        """What the state machine returned for it here, or the exception that it raised."""

    def __await__(self) -> Generator[Any, None, int]:
        return self.red.__await__()

    def fail(self, error: Exception) -> None:
        for milestone in (self.red, self.green, self.stable, self.result):
            milestone.fail(error)


class UpdateHandles:
    """Those of one replica that are not stable yet."""

    def __init__(self) -> None:
        self._open: dict[int, UpdateHandle] = {}
        self._green: deque[tuple[int, UpdateHandle]] = deque()
        self.nbytes = 0
        """Of updates that are not green."""

    def add(self, number: int, handle: UpdateHandle) -> None:
        handle.number = number
        self._open[number] = handle

    def order(self, number: int, position: int, result: bytes | Exception) -> None:
        """The update with this number is green."""
        handle = self._open.pop(number, None)
        if handle is None:
            return
        self.nbytes -= handle.nbytes
        handle.red.reach(number)
        handle.green.reach(position)
        if isinstance(result, Exception):
            handle.result.fail(result)
        else:
            handle.result.reach(result)
        self._green.append((position, handle))

    def adopt(self, number: int, position: int) -> None:
        """Those up to this number are green, somewhere up to this position."""
        for each in [each for each in self._open if each <= number]:
            handle = self._open.pop(each)
            self.nbytes -= handle.nbytes
            handle.red.reach(each)
            handle.fail(
                Forgotten(
                    f"update {each} is green, at a position up to {position}: the others made a"
                    " checkpoint of it while this replica was away"
                )
            )

    def stabilize(self, position: int) -> None:
        while self._green and self._green[0][0] <= position:
            at, handle = self._green.popleft()
            handle.stable.reach(at)

    def fail(self, error: Exception) -> None:
        for handle in (*self._open.values(), *(each for _, each in self._green)):
            handle.fail(error)
        self._open.clear()
        self._green.clear()
