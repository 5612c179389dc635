"""What an application may request of the group beside multicasts, as values.

A request that changes the group travels in the total order and becomes a view. An argument that no
group could accept is a `Misuse` when the value is made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from unisono.errors import Misuse
from unisono.model import LOCKS, SizeVote

HOPS_MAX: Final = 255
SIZE_MAX: Final = 32_767
"""The largest number of members that a vote may name."""


class GroupCommand:
    """Base of all requests: a frozen dataclass whose fields are integers, named by `NAME`."""

    __slots__ = ()

    NAME: ClassVar[str]

    def __str__(self) -> str:
        """`lock number=7 wait=1`, which `command_of` reads."""
        each: Any = self
        values = [f"{field.name}={getattr(each, field.name):d}" for field in fields(each)]
        return " ".join((self.NAME, *values))


@dataclass(frozen=True, slots=True)
class GoOn(GroupCommand):
    """An operator lets a minority of the group continue."""

    NAME: ClassVar[str] = "go_on"


@dataclass(frozen=True, slots=True)
class AcquireLock(GroupCommand):
    """Granted when the lock is free. Otherwise denied or, with `wait`, granted in the order of the
    requests once it is released."""

    NAME: ClassVar[str] = "lock"

    number: int
    wait: bool = False

    def __post_init__(self) -> None:
        _check_lock(self.number)


@dataclass(frozen=True, slots=True)
class ReleaseLock(GroupCommand):
    """Releases a lock that this member holds, or withdraws its waiting request."""

    NAME: ClassVar[str] = "release"

    number: int

    def __post_init__(self) -> None:
        _check_lock(self.number)


@dataclass(frozen=True, slots=True)
class VoteSize(GroupCommand):
    """This member's vote on the minimum size. The largest vote of all members holds."""

    NAME: ClassVar[str] = "vote"

    minimum: int
    """A number of members, or a `SizeVote`."""

    def __post_init__(self) -> None:
        is_size = _is_int(self.minimum) and 0 < self.minimum <= SIZE_MAX
        if is_size or (_is_int(self.minimum) and self.minimum in tuple(SizeVote)):
            return
        raise Misuse(
            f"minimum={self.minimum!r} is no vote: give a number of members from 1 to {SIZE_MAX},"
            f" or {', '.join(map(str, SizeVote))}"
        )


@dataclass(frozen=True, slots=True)
class LimitScope(GroupCommand):
    """Multicasts of the group cross at most this many routers: its TTL."""

    NAME: ClassVar[str] = "scope"

    hops: int

    def __post_init__(self) -> None:
        if not _is_int(self.hops) or not 0 <= self.hops <= HOPS_MAX:
            raise Misuse(f"hops={self.hops!r}: a scope has 0 (this host) to {HOPS_MAX} routers")


def command_of(
    text: str, kinds: Collection[type[GroupCommand]], taker: str = "this"
) -> GroupCommand:
    """`lock number=7 wait=1` as a value of one of these kinds."""
    name, *given = text.split(" ")
    arguments = {}
    for each in given:
        key, _, value = each.partition("=")
        try:
            arguments[key] = int(value)
        except ValueError:
            raise Misuse(f"{text!r}: write each argument as name=number") from None
    return command_named(name, arguments, kinds, taker)


def command_named(
    name: str, arguments: Mapping[str, Any], kinds: Collection[type[GroupCommand]], taker: str
) -> GroupCommand:
    """The request of this name with these arguments."""
    kind = {each.NAME: each for each in kinds}.get(name)
    if kind is None:
        raise not_taken(name, kinds, taker)
    try:
        return kind(**arguments)
    except TypeError:
        names = ", ".join(field.name for field in fields(kind)) or "no arguments"  # type: ignore[arg-type]
        given = ", ".join(arguments) or "none"
        raise Misuse(f"request {name!r} takes {names}; given: {given}") from None


def not_taken(
    name: str, kinds: Collection[type[GroupCommand]], taker: str, instead: Collection[str] = ()
) -> Misuse:
    """The error for a request that the protocol `taker` does not take; `instead` does."""
    known = ", ".join(each.NAME for each in kinds) or "none"
    hint = f": join with {' or '.join(instead)}" if instead else ""
    return Misuse(f"{taker} takes no request {name!r}, but {known}{hint}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_lock(number: int) -> None:
    if not _is_int(number) or not 0 <= number < LOCKS:
        raise Misuse(f"lock {number!r}: a group's locks are numbered 0 to {LOCKS - 1}")


def size_vote(minimum: int | SizeVote | str) -> int | SizeVote:
    """What a vote names: a number of members, or a `SizeVote`, also by name."""
    if isinstance(minimum, str):
        if minimum.upper() not in SizeVote.__members__:
            names = ", ".join(map(str, SizeVote))
            raise Misuse(f"no vote {minimum!r}: give a number of members, or {names}")
        return SizeVote[minimum.upper()]
    if minimum in tuple(SizeVote) and not isinstance(minimum, SizeVote):
        raise Misuse(f"minimum={minimum}: write SizeVote.{SizeVote(minimum).name} if you mean that")
    return minimum
