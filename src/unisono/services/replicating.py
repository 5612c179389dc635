"""A replicated log: updates that are logged and ordered at all members of a replication group, and
outlive every one of them. The pure part is in `services/replication`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar, Unpack
from zlib import crc32

import unisono
from unisono.errors import Denied, Diverged, Misuse, TooLarge
from unisono.group import Full, Joining
from unisono.model import Buffer
from unisono.net.stable import Disk
from unisono.services.replica_digests import StateDigests
from unisono.services.replica_file import ReplicaFile
from unisono.services.replica_handles import UpdateHandle
from unisono.services.replica_process import READ_COUNT, ReplicaProcess
from unisono.services.replication.engine import ReplicaEngine
from unisono.services.replication.records import UpdateKind
from unisono.state_machine import StateMachine

__all__ = ["LogEntry", "ReplicatedLog", "UpdateHandle", "replicate"]

FORMAT: Final = "replication/1"
"""The join option of such a group, so that no other member takes its messages for its own."""
UPDATE_BYTES_MAX: Final = 1 << 20
OUTSTANDING_BYTES_MAX: Final = 64 << 20
JOIN_S: Final = 86_400.0
"""A replica waits for the others as long as it takes."""

QueryKind: TypeAlias = Literal["weak", "dirty", "strict"]
T = TypeVar("T")
log = logging.getLogger("unisono.replication")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A green update."""

    position: int
    update: bytes
    submitter: str


class ReplicatedLog:
    """One replica; `replicate` gives one. Iterate it for the green order."""

    def __init__(self, process: ReplicaProcess, outstanding_bytes_max: int) -> None:
        self._process = process
        self._bytes_max = outstanding_bytes_max

    # -- inspection -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._process.engine.name

    @property
    def members(self) -> tuple[str, ...]:
        """Of the replication group, connected or not, as the green order has it."""
        return self._process.engine.order.members

    @property
    def primary(self) -> tuple[str, ...]:
        """The members of the primary component, which orders updates; empty if this replica is not
        in it."""
        return self._process.primary

    @property
    def position(self) -> int:
        """The last green position here."""
        return self._process.applied

    @property
    def stable_position(self) -> int:
        """All members have logged the order up to here: its updates are white."""
        return self._process.stable

    @property
    def blocked(self) -> str:
        """Why no update becomes green; empty while they do."""
        return self._process.blocked

    @property
    def stopped(self) -> str | None:
        """Why this replica takes no part any more; None while it does."""
        return str(self._process.ended) if self._process.ended is not None else None

    async def ended(self) -> None:
        """Returns when this replica takes no part any more; `stopped` says why."""
        while self._process.ended is None:
            await self._process.change.wait()

    def counters(self) -> dict[str, int]:
        """Commits of the log, records in them, checkpoints, and messages ignored, by reason."""
        dropped = {f"drop.{key}": count for key, count in self._process.engine.dropped.items()}
        return dict(sorted({**self._process.counts, **dropped}.items()))

    # -- updates ----------------------------------------------------------------------------------

    def append(self, update: Buffer) -> UpdateHandle:
        """Deposit an update, connected or not. `await` the handle: it is logged here, and is
        ordered as soon as a primary component can; then `await handle.green`, `handle.stable`.

        `Full` when `outstanding_bytes_max` bytes are not ordered.
        """
        if not isinstance(update, bytes | bytearray | memoryview):
            raise Misuse(f"an update is bytes, not {type(update).__name__}: encode it first")
        return self._deposit(UpdateKind.APPLICATION, bytes(update))

    def _deposit(self, kind: UpdateKind, content: bytes) -> UpdateHandle:
        if self._process.ended is not None:
            raise self._process.ended
        if len(content) > UPDATE_BYTES_MAX:
            raise TooLarge(
                f"the update has {len(content)} bytes, over the limit of"
                f" {UPDATE_BYTES_MAX}: split it"
            )
        if self.name not in self.members:
            raise Denied(f"{self.name!r} is not a member yet: let a member call add({self.name!r})")
        nbytes = len(content) + 64
        if self._process.handles.nbytes + nbytes > self._bytes_max:
            raise Full(
                f"{self._process.handles.nbytes} bytes of updates are not ordered"
                " (outstanding_bytes_max): await some of them first"
                + (f"; {self.blocked}" if self.blocked else "")
            )
        handle = UpdateHandle(nbytes)
        self._process.deposit(kind, content, handle)
        return handle

    def acknowledge(self, position: int) -> None:
        """With `explicit=True`: this replica has acted upon the updates up to this position."""
        if not 0 <= position <= self._process.applied:
            raise Misuse(
                f"position {position} is not delivered here: the last is {self._process.applied}"
            )
        self._process.do(self._process.engine.acknowledge(position))

    # -- the green order --------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[LogEntry]:
        return self.entries()

    async def entries(self, after: int | None = None) -> AsyncIterator[LogEntry]:
        """The green updates after this position, by default all that the log has; then those that
        follow. `Forgotten` if the log begins later."""
        position = self._process.file.base if after is None else after
        while True:
            while position < self._process.applied:
                last = min(position + READ_COUNT, self._process.applied)
                for update in self._process.file.greens(position + 1, last):
                    position += 1
                    if update.kind is UpdateKind.APPLICATION:
                        yield LogEntry(position, update.content, update.submitter)
            if self._process.has_left:
                return
            if self._process.ended is not None:
                raise self._process.ended
            await self._process.change.wait()

    async def query(self, ask: Callable[[Any], T], kind: QueryKind = "weak") -> T:
        """What this function returns of the state machine: `weak`, at once, as of the updates that
        are green here; `dirty`, with those on top that are not ordered yet; `strict`, after all
        that was green anywhere before the call. Call it for reading only."""
        machine = self._process.machine
        if machine is None:
            raise Misuse("a query needs a state: replicate(machine=...)")
        if kind == "weak":
            return ask(machine)
        if kind == "strict":
            await self._deposit(UpdateKind.MARK, b"").green
            return ask(machine)
        if kind != "dirty":
            raise Misuse(f"no query {kind!r}: ask weak, dirty or strict")
        state, position = machine.snapshot(), self._process.applied
        try:
            for update in (
                *self._process.engine.order.reds(),
                *self._process.engine.submissions.outstanding(),
            ):
                position += 1
                if update.kind is UpdateKind.APPLICATION:
                    with contextlib.suppress(Exception):  # It fails alike when it is green.
                        machine.apply(update.content, position)
            return ask(machine)
        finally:
            machine.restore(state)

    # -- the replication group --------------------------------------------------------------------

    async def add(self, name: str) -> int:
        """Add a member to the group. A replica of this name that is connected is brought up to date
        before the others count on it. Returns the position of the change."""
        if not name or name in self.members:
            raise Misuse(f"{name!r} is a member already: give the name of a new one")
        return await self._deposit(UpdateKind.ADD, name.encode()).green

    async def remove(self, name: str, lost: bool = False) -> int:
        """Take a member out; it may be shut down when this returns. With `lost=True` the others
        stop waiting for what it alone may know: only if it never returns. Returns the position of
        the change."""
        if name not in self.members:
            raise Misuse(f"{name!r} is not a member: there are {', '.join(self.members)}")
        if lost and name in self._process.engine.component.names:
            raise Misuse(f"{name!r} is connected: remove it without lost=True")
        if len(self.members) == 1:
            raise Misuse(f"{name!r} is the last member: nothing would be left")
        handle = self._deposit(UpdateKind.REMOVE, name.encode())
        await handle.red
        if lost:
            log.warning(
                "%s is taken out as lost: updates that it alone has logged are lost, also those"
                " that it reported as green and no other member here has; it must not return with"
                " this log",
                name,
            )
            self._process.do(self._process.engine.forget(name))
        position = await handle.green
        while self.stopped is None and (name in self.primary or not self.primary):
            await self._process.change.wait()
        return position

    # -- checkpoints ------------------------------------------------------------------------------

    def snapshot(self) -> tuple[int, bytes]:
        """A position, and the state of the machine there."""
        if self._process.machine is None:
            raise Misuse("a snapshot needs a state: replicate(machine=...)")
        return self._process.applied, self._process.snapshot()

    async def checkpoint(self) -> int:
        """Put the state into the log in place of the updates that all members have, and return its
        position. It happens by itself when the log has grown."""
        self.snapshot()
        await self._process.checkpoint()
        if self._process.ended is not None:
            raise self._process.ended
        return self._process.engine.order.green


@contextlib.asynccontextmanager
async def replicate(
    group: str,
    /,
    *,
    members: Sequence[str],
    path: str | Path,
    machine: StateMachine | None = None,
    explicit: bool = False,
    check_every: int | None = None,
    outstanding_bytes_max: int = OUTSTANDING_BYTES_MAX,
    disk: Disk | None = None,
    config: str | Path | None = None,
    **options: Unpack[unisono.JoinOptions],
) -> AsyncIterator[ReplicatedLog]:
    """A replica of a group: `async with unisono.replicate("orders", name="a",
    members=["a", "b", "c"], path="orders-a", protocol="transis") as log`.

    `members` are those with which the group began, the same at all; `add` and `remove` change them.
    A `name` that is not among them waits until it is added. `path` is the replica's own directory.
    With `explicit=True` stability means acted upon: `acknowledge` says so. With `check_every=n` the
    states after every n-th update are compared, and `Diverged` names what made them differ; a
    simulated program compares all, unless told otherwise. `options` are those of
    `join`; the protocol needs safe messages. It returns at once, connected or not.
    """
    name = options.get("name", "")
    _check(name, members, machine, outstanding_bytes_max)
    founders = tuple(sorted(members))
    file = ReplicaFile(path, group, name, founders, disk)
    try:
        engine = ReplicaEngine(name, file.identity.instance, founders, explicit)
        every = int(file.is_simulated) if check_every is None else check_every
        process = ReplicaProcess(file, engine, machine, StateDigests(name, machine, every))
    except BaseException:
        file.close()
        raise
    identity = crc32(" ".join((group, *founders)).encode())
    given = options.get("format")
    options["format"] = f"{FORMAT}:{identity:08x}" + (f":{given}" if given else "")
    options.setdefault("join_s", JOIN_S)

    def joining() -> Joining:
        return unisono.join(group, config=config, **options)

    try:
        joining()  # Its options are checked before anything else happens.
        living = asyncio.create_task(process.live(joining))
        try:
            yield ReplicatedLog(process, outstanding_bytes_max)
        finally:
            await process.leave()
            await living
        if isinstance(process.ended, Diverged):
            raise process.ended
    finally:
        process.close()


def _check(name: str, members: Sequence[str], machine: object, outstanding_bytes_max: int) -> None:
    if not name:
        raise Misuse("a replica needs a name of its own: give name=, the same at each start")
    if isinstance(members, str) or not members or len(set(members)) < len(members):
        raise Misuse(f"members={members!r}: give the names of the replicas, each once")
    if not all(isinstance(each, str) and each for each in members):
        raise Misuse(f"members={members!r}: names are texts that are not empty")
    if machine is not None:
        needed = ("apply", "snapshot", "restore")
        if lacking := [each for each in needed if not callable(getattr(machine, each, None))]:
            raise Misuse(
                f"machine={type(machine).__name__} has no {', '.join(lacking)}: see StateMachine"
            )
    if outstanding_bytes_max < UPDATE_BYTES_MAX:
        raise Misuse(f"outstanding_bytes_max is at least {UPDATE_BYTES_MAX}")
