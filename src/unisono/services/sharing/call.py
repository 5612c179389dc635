"""One operation on a shared object: sent when it is awaited, alone or in a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from unisono.services.objects.values import Value

T = TypeVar("T", covariant=True)


class OperationUnderWay(NamedTuple):
    """An operation under way."""

    number: int
    result: asyncio.Future[Value]
    sent_s: float


class Operator(Protocol):
    """Where operations go."""

    async def operate(self, calls: tuple[SharedCall[Any], ...]) -> list[Any]: ...

    def submit(self, calls: Sequence[SharedCall[Any]]) -> list[OperationUnderWay]: ...

    def believe(self, number: int, holder: Loser) -> bool:
        """From now on tell it if what this operation got is lost; False if it is already."""

    def forget(self, number: int) -> None:
        """It was given up."""

    @property
    def lease_s(self) -> float: ...

    @property
    def is_leased(self) -> bool:
        """Whether this member may believe that it holds what it was granted."""


class Loser(Protocol):
    def lose(self, reason: str) -> None:
        """Another member may have it from now on."""


class SharedCall(Generic[T]):
    """`await` it for the result, once it has its place in the order; or give it to
    `SharedObjects.batch`. Each await is a new operation."""

    __slots__ = ("_operator", "arguments", "kind", "method", "name")

    def __init__(
        self,
        operator: Operator,
        kind: str,
        name: str,
        method: str,
        arguments: tuple[Value, ...],
    ) -> None:
        self._operator = operator
        self.kind, self.name, self.method, self.arguments = kind, name, method, arguments

    def __await__(self) -> Generator[Any, Any, T]:
        results = yield from self._operator.operate((self,)).__await__()
        return results[0]  # type: ignore[no-any-return]
