"""One shared object as every member has it, and what it may use of its surroundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from unisono.services.objects.values import Value


class Rejected(Exception):
    """The operation is not possible, now or ever; it has changed nothing."""


class Ticket(NamedTuple):
    """One operation: whose it is, and its number there."""

    session: str
    number: int


class _Later:
    """The operation is answered at a later place."""


LATER: Final = _Later()


class Surroundings(Protocol):
    """What an object asks of the table that it is in."""

    place: int
    """Of the operation that is being applied. Places rise, also when the group is rebuilt."""
    now_ms: int
    """The group's own time, which its members advance in the order. It runs no faster than
    theirs, and stands while they cannot agree."""

    def answer(self, ticket: Ticket, result: Value) -> None:
        """The result of an operation that was to be answered later."""

    def claim(self, ticket: Ticket) -> None:
        """The session lives as long as its lease: let the object know when it ends."""

    def disclaim(self, ticket: Ticket) -> None: ...

    def changed(self, key: Value, value: Value) -> None:
        """For those that watch the object."""


class SharedState:
    """The methods that begin with `do_` are its operations."""

    KIND: ClassVar[str]

    def __init__(self, around: Surroundings) -> None:
        self.around = around

    def operation(self, name: str) -> Callable[..., Any]:
        found = getattr(self, f"do_{name}", None)
        if found is None:
            raise Rejected(f"a {self.KIND} has no operation {name!r}")
        return found  # type: ignore[no-any-return]

    def plain(self) -> Value:
        """For members that join."""
        raise NotImplementedError

    def restore(self, plain: Value) -> None:
        raise NotImplementedError

    def ended(self, session: str) -> None:
        """Nothing that this session held or waited for is its own any more."""

    @property
    def timed(self) -> bool:
        """Whether it waits for the group's time to go on."""
        return False

    def ticked(self) -> None:
        """The group's time went on."""
