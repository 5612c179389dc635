"""One operation on a shared object: sent when it is awaited, alone or in a batch."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

from unisono.services.objects.values import Value

T = TypeVar("T", covariant=True)


class Operator(Protocol):
    """Where operations go."""

    async def operate(self, calls: tuple[SharedCall[Any], ...]) -> list[Any]: ...


class SharedCall(Generic[T]):
    """`await` it for the result, once it has its place in the order; or give it to
    `SharedObjects.batch`. Each await is a new operation."""

    __slots__ = ("_operator", "arguments", "kind", "method", "name", "read")

    def __init__(
        self,
        operator: Operator,
        kind: str,
        name: str,
        method: str,
        arguments: tuple[Value, ...],
        read: Callable[[Value], T],
    ) -> None:
        self._operator = operator
        self.kind, self.name, self.method, self.arguments = kind, name, method, arguments
        self.read = read
        """The result as the caller gets it."""

    def __await__(self) -> Generator[Any, Any, T]:
        results = yield from self._operator.operate((self,)).__await__()
        return results[0]  # type: ignore[no-any-return]
