"""Replicated objects: a plain class whose marked methods are updates of a replicated log."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, Unpack

import unisono
from unisono.errors import BadPacket, Misuse, StorageFailed
from unisono.services.replica_handles import Milestone, UpdateHandle
from unisono.services.replicating import QueryKind, ReplicatedLog, replicate
from unisono.services.replication.values import decode_value, encode_value

__all__ = ["MethodCall", "ReplicatedObject", "replicate_object", "replicated"]

_MARK: Final = "__unisono_replicated__"
C = TypeVar("C", bound=Callable[..., Any])
S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


def replicated(method: C) -> C:
    """Mark a method as an update: `replicate_object` calls it at all replicas, in one order. What
    it does follows from its arguments and the object alone."""
    setattr(method, _MARK, True)
    return method


class MethodCall(Generic[T]):
    """A call on its way. `await` it for what the method returned here."""

    def __init__(self, handle: UpdateHandle) -> None:
        self._handle = handle

    def __await__(self) -> Generator[Any, None, T]:
        result = yield from self._handle.result.__await__()
        return decode_value(result)  # type: ignore[no-any-return]

    @property
    def red(self) -> Milestone[int]:
        """Logged here."""
        return self._handle.red

    @property
    def green(self) -> Milestone[int]:
        """Ordered for ever; its position."""
        return self._handle.green

    @property
    def stable(self) -> Milestone[int]:
        """Logged at all members."""
        return self._handle.stable


class ReplicatedObject(Generic[S]):
    """One replica of an object; `replicate_object` gives one."""

    def __init__(self, state: S, log: ReplicatedLog) -> None:
        self._state = state
        self._log = log

    @property
    def state(self) -> S:
        """The object here, as of the updates that are green here: for reading only."""
        return self._state

    @property
    def log(self) -> ReplicatedLog:
        """The order of the updates: members, positions, what waits."""
        return self._log

    def update(
        self, method: Callable[Concatenate[S, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> MethodCall[T]:
        """Call a marked method at all replicas: `await bank.update(Bank.pay, "ann", 5)` returns
        what it returned here, or raises what it raised."""
        name = _checked_name(self._state, method)
        encoded = encode_value([name, list(args), kwargs], f"a call of {name}()")
        return MethodCall(self._log.append(encoded))

    async def query(self, ask: Callable[[S], T], kind: QueryKind = "weak") -> T:
        """What this function returns of the object: `weak`, `dirty` or `strict`, as for the log."""
        return await self._log.query(lambda machine: ask(machine.target), kind)


class ObjectMachine:
    """The object as a state machine."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self._keeps = callable(getattr(target, "snapshot", None))
        if self._keeps is not callable(getattr(target, "restore", None)):
            raise Misuse(f"{_named(target)} has one of snapshot and restore: give it both")
        methods = (getattr(type(target), name, None) for name in dir(type(target)))
        if not any(getattr(each, _MARK, False) for each in methods):
            raise Misuse(f"{_named(target)} has no update: mark methods with @unisono.replicated")
        self.snapshot()

    def apply(self, update: bytes, position: int) -> bytes:
        name, args, kwargs = decode_value(update)
        method = getattr(type(self.target), name, None)
        if method is None or not getattr(method, _MARK, False):
            raise StorageFailed(
                f"update {position} calls {name}(), which {_named(self.target)} does not have as an"
                " update here: run the same program at all replicas, then start this one again"
            )
        return encode_value(method(self.target, *args, **kwargs), f"the result of {name}()")

    def named(self, update: bytes) -> str:
        try:
            return f"{_named(self.target)}.{decode_value(update)[0]}()"
        except BadPacket:
            return "no method"

    def snapshot(self) -> bytes:
        if self._keeps:
            return bytes(self.target.snapshot())
        return encode_value(vars(self.target), _named(self.target))

    def restore(self, state: bytes) -> None:
        if self._keeps:
            self.target.restore(state)
            return
        vars(self.target).clear()
        vars(self.target).update(decode_value(state))


def _named(target: object) -> str:
    return type(target).__name__


def _checked_name(target: object, method: Callable[..., Any]) -> str:
    name: str = getattr(method, "__name__", repr(method))
    if getattr(type(target), name, None) is not method:
        raise Misuse(f"{name} is not a method of {_named(target)}: write {_named(target)}.{name}")
    if not getattr(method, _MARK, False):
        raise Misuse(f"{_named(target)}.{name} is no update: mark it with @unisono.replicated")
    return name


@contextlib.asynccontextmanager
async def replicate_object(
    target: S,
    group: str,
    /,
    *,
    members: Sequence[str],
    path: str | Path,
    check_every: int | None = None,
    config: str | Path | None = None,
    **options: Unpack[unisono.JoinOptions],
) -> AsyncIterator[ReplicatedObject[S]]:
    """A replica of an object: `async with unisono.replicate_object(Bank(), "bank", name="a",
    members=["a", "b", "c"], path="bank-a") as bank`.

    Its attributes are plain values, or its class has `snapshot` and `restore`. The rest is as for
    `replicate`.
    """
    replicating = replicate(
        group,
        members=members,
        path=path,
        machine=ObjectMachine(target),
        check_every=check_every,
        config=config,
        **options,
    )
    async with replicating as log:
        yield ReplicatedObject(target, log)
