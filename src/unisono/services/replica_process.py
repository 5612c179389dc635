"""One replica at work: performs the engine's effects, on the disk and in the group."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from zlib import crc32

import unisono
from unisono.core import Fail, Persist, Warn
from unisono.errors import Denied, Diverged, Misuse, Refused, Stopped, StorageFailed, UnisonoError
from unisono.group import Group, Joining
from unisono.model import Message, Service, View
from unisono.services.replica_digests import StateDigests
from unisono.services.replica_file import ReplicaFile
from unisono.services.replica_handles import UpdateHandle, UpdateHandles
from unisono.services.replication.component import pieces_of
from unisono.services.replication.effects import (
    AdoptCheckpoint,
    CompareDigest,
    Interrupted,
    Ordered,
    Post,
    PrimaryChanged,
    RegularView,
    SendCheckpoint,
    SendGreens,
    StableUpTo,
    TellSoon,
    TransitionalView,
)
from unisono.services.replication.engine import ReplicaEngine
from unisono.services.replication.pieces import checkpoint_pieces
from unisono.services.replication.records import (
    CheckpointRecord,
    GreensMessage,
    KeptRecord,
    LogCheckpoint,
    RedRecord,
    Update,
    UpdateKind,
    VotingRecord,
    message_bytes,
    record_bytes,
)
from unisono.services.replication.recovery import greens_of
from unisono.state_machine import StateMachine

CHECKPOINT_BYTES: Final = 8 << 20
"""A replica with a state machine makes a checkpoint when its log has grown by so much."""
RETAIN_BYTES: Final = 64 << 20
"""Green updates that a checkpoint keeps for members that lack them; beyond, they are handed the
state."""
TELL_S: Final = 0.02
"""So long a replica waits with telling what it has logged: an update of its own tells it, too."""
SLOW_DISK_S: Final = 30.0
"""A disk that takes longer for one write has failed."""
READ_COUNT: Final = 256
"""Updates that are read from the log at a time."""
RETRY_S: Final = 0.1
RETRY_MAX_S: Final = 5.0

log = logging.getLogger("unisono.replication")


class ReplicaProcess:
    """Drives the engine of one replica. What it does to the log, its owner reads here."""

    def __init__(
        self,
        file: ReplicaFile,
        engine: ReplicaEngine,
        machine: StateMachine | None,
        digests: StateDigests,
    ) -> None:
        self.file = file
        self.engine = engine
        self.machine = machine
        self._digests = digests
        self.handles = UpdateHandles()
        self._deposits: list[tuple[UpdateKind, bytes, UpdateHandle]] = []
        self._effects: deque[Any] = deque()
        self._posts: deque[Any] = deque()
        self._work, self._mail, self.change = asyncio.Event(), asyncio.Event(), asyncio.Event()
        """There are effects; messages to send; something has changed, once each."""
        self.applied = self.stable = 0
        self.primary: tuple[str, ...] = ()
        self.blocked = "not connected yet"
        self.ended: UnisonoError | None = None
        self.has_left = self._is_sending = False
        self._group: Group | None = None
        self._telling: asyncio.TimerHandle | None = None
        self.counts: Counter[str] = Counter()
        self._recover()
        self._compact_bytes = max(CHECKPOINT_BYTES, 2 * file.nbytes)
        """With so many bytes the log gets a checkpoint: it has doubled, so that all checkpoints
        together write about what the updates do, however large the state is."""

    def _recover(self) -> None:
        self.engine.restore(self.file.records())
        for each in greens_of(self.file.records()):
            if isinstance(each, LogCheckpoint):
                self._restore(each)
            else:
                self._apply(each)
        assert self.applied == self.engine.order.green, "the log and the order differ"

    # -- deposits ---------------------------------------------------------------------------------

    def deposit(self, kind: UpdateKind, content: bytes, handle: UpdateHandle) -> None:
        self.handles.nbytes += handle.nbytes
        self._deposits.append((kind, content, handle))
        self._work.set()

    def _submit(self) -> None:
        """All that were deposited meanwhile, as one record and one message."""
        deposits, self._deposits = self._deposits, []
        while deposits:
            kind = deposits[0][0]
            count = next((n for n, each in enumerate(deposits) if each[0] is not kind), None)
            alike, deposits = deposits[:count], deposits[count:] if count else []
            made, effects = self.engine.submit([content for _, content, _ in alike], kind)
            for update, (_, _, handle) in zip(made, alike, strict=True):
                self.handles.add(update.number, handle)
            self._effects.append(effects[0])
            self._effects.append([handle for _, _, handle in alike])
            self._effects.extend(effects[1:])

    async def checkpoint(self) -> None:
        self._compact_bytes = 0
        self._work.set()
        while self._compact_bytes == 0 and self.ended is None:
            await self.change.wait()

    def _compact(self) -> None:
        """The file is replaced by a checkpoint, what others lack before it, and what is red."""
        assert self.machine is not None and not self._effects
        engine, file = self.engine, self.file
        position = engine.order.green
        kept: list[Update] = []
        nbytes, first = 0, min(self.stable, position)
        for at in range(position, max(first, file.base), -1):
            update = file.greens(at, at)[0]
            nbytes += len(update.content) + 64
            if nbytes > RETAIN_BYTES:
                break
            kept.append(update)
        kept.reverse()
        checkpoint = engine.checkpoint(self.snapshot())
        reds = [*engine.order.reds(), *engine.submissions.outstanding()]
        file.replace(
            [
                *(record_bytes(KeptRecord(each)) for each in pieces_of(kept)),
                record_bytes(CheckpointRecord(checkpoint)),
                record_bytes(VotingRecord(engine.choice.state)),
                *(record_bytes(RedRecord(each)) for each in pieces_of(reds)),
            ]
        )
        engine.order.forget_before(file.base)
        self._compact_bytes = max(CHECKPOINT_BYTES, 2 * file.nbytes)
        self.counts["checkpoints"] += 1
        self._changed()

    # -- effects ----------------------------------------------------------------------------------

    def do(self, effects: Sequence[Any]) -> None:
        self._effects.extend(effects)
        self._work.set()

    async def _perform(self) -> None:
        """Effects in their order; all records that wait are written at once."""
        try:
            while self.ended is None:
                await self._work.wait()
                self._work.clear()
                while self._deposits or self._effects:
                    self._submit()
                    effects = list(self._effects)
                    self._effects.clear()
                    await self._commit([e.record for e in effects if isinstance(e, Persist)])
                    before = self.applied
                    for effect in effects:
                        self._perform_one(effect)
                    if self.applied > before:
                        self._changed()
                        self.do(self.engine.wrote(self.applied))
                is_large = self.file.nbytes > self._compact_bytes
                if self.machine is not None and is_large and not self._is_sending:
                    self._compact()
        except (StorageFailed, unisono.Forgotten, Diverged, Misuse) as error:
            self.end(error)

    async def _commit(self, records: list[bytes]) -> None:
        if not records:
            return
        if self.file.is_simulated:
            places = self.file.write(records)
        else:
            places = await self._write(records)
        self.file.index(places, records)
        self.counts["commits"] += 1
        self.counts["records"] += len(records)

    async def _write(self, records: list[bytes]) -> list[int]:
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(None, self.file.write, records)
        done, _ = await asyncio.wait([writing], timeout=SLOW_DISK_S)
        if not done:
            raise StorageFailed(
                f"{self.file.path}: the disk took more than {SLOW_DISK_S:g} s for one write: check"
                " it, then start this replica again"
            )
        return writing.result()

    def _perform_one(self, effect: Any) -> None:
        match effect:
            case Persist():
                pass
            case list():
                for handle in effect:
                    handle.red.reach(handle.number)
            case Post() | SendGreens():
                self._posts.append(effect)
                self._is_sending = True
                self._mail.set()
            case Ordered():
                assert effect.first == self.applied + 1, "the order and the machine differ"
                for update in effect.updates:
                    result = self._apply(update)
                    self._compare(update)
                    if update.submitter == self.engine.name:
                        self.handles.order(update.number, self.applied, result)
            case AdoptCheckpoint():
                self._restore(effect.checkpoint)
                cuts = dict(effect.checkpoint.cuts)
                self.handles.adopt(cuts.get(self.engine.name, 0), self.applied)
            case SendCheckpoint():
                self._send_checkpoint(effect.component)
            case StableUpTo():
                self.stable = effect.position
                self.handles.stabilize(effect.position)
                self._changed()
            case TellSoon():
                if self._telling is None:
                    self._telling = asyncio.get_running_loop().call_later(TELL_S, self._tell)
            case PrimaryChanged():
                self.primary = effect.names
                self._changed()
            case CompareDigest():
                self._digests.compare(effect.sender, effect.told)
            case Warn():
                self.blocked = effect.text
            case Fail():
                self.end(Denied(effect.reason))
            case _:
                raise AssertionError(f"unknown effect {effect!r}")

    def _apply(self, update: Update) -> bytes | Exception:
        self.applied += 1
        if self.machine is None or update.kind is not UpdateKind.APPLICATION:
            return b""
        try:
            return as_bytes(self.machine.apply(update.content, self.applied), "apply")
        except StorageFailed:
            raise
        except Exception as error:  # Alike at all members: the submitter is told.
            return error

    def snapshot(self) -> bytes:
        assert self.machine is not None
        return as_bytes(self.machine.snapshot(), "snapshot")

    def _compare(self, update: Update) -> None:
        if update.kind is UpdateKind.APPLICATION:
            told = self._digests.applied(update.content, self.applied)
            if told is not None:
                self._posts.append(Post(message_bytes(told)))
                self._mail.set()

    def _restore(self, checkpoint: LogCheckpoint) -> None:
        if self.machine is None:
            raise StorageFailed(
                "this replica is so far behind that the others send their state instead of updates:"
                " give it a state machine, as they have"
            )
        self.machine.restore(checkpoint.state)
        self.applied = checkpoint.position

    def _send_checkpoint(self, component: str) -> None:
        if self.machine is not None and component == self.engine.component.here:
            checkpoint = self.engine.checkpoint(self.snapshot())
            for piece in checkpoint_pieces(component, checkpoint):
                self._posts.append(Post(message_bytes(piece)))
            self._mail.set()

    def _tell(self) -> None:
        self._telling = None
        self.do(self.engine.tell())

    def _changed(self) -> None:
        self.change.set()
        self.change = asyncio.Event()

    # -- the group --------------------------------------------------------------------------------

    async def _read(self, group: Group) -> None:
        """Until the group ends."""
        self._group = group
        engine = self.engine
        async for item in group:
            if isinstance(item, Message):
                self.do(engine.deliver(item.sender.name, bytes(item.payload)))
            elif isinstance(item, View):
                if item.transitional:
                    self.do(engine.install(TransitionalView()))
                    continue
                self._posts.clear()  # They are of the view before: the exchange replaces them.
                names = tuple(sorted(member.name for member in item.members))
                lives = crc32(" ".join(map(str, item.members)).encode())
                self.do(engine.install(RegularView(f"{item.id}-{lives:08x}", names)))
            elif isinstance(item, unisono.Rejoined):
                self._interrupt(item.reason)

    def _interrupt(self, reason: str) -> None:
        self.primary, self.blocked = (), f"out of the group: {reason}"
        self.do(self.engine.install(Interrupted()))

    async def _send(self) -> None:
        """Waits for the group's window in place of the others."""
        while True:
            await self._mail.wait()
            self._mail.clear()
            while self._posts:
                effect = self._posts.popleft()
                group = self._group
                if group is None or group.stopped:
                    continue
                for payload in self._payloads(effect):
                    with contextlib.suppress(UnisonoError):  # Lost with the view that it is of.
                        await group.multicast(payload, Service.SAFE)
            self._is_sending = False

    def _payloads(self, effect: Post | SendGreens) -> Iterator[bytes]:
        if isinstance(effect, Post):
            yield effect.payload
            return
        first = effect.first
        while first <= effect.last and effect.component == self.engine.component.here:
            last = min(first + READ_COUNT - 1, effect.last)
            for piece in pieces_of(self.file.greens(first, last)):
                yield message_bytes(GreensMessage(effect.component, first, piece))
                first += len(piece)

    def end(self, error: UnisonoError) -> None:
        if self.ended is None:
            self.ended = error
            self.primary, self.blocked = (), str(error)
            if not self.has_left:
                log.warning("%s: %s", self.engine.name, error)
        for _, _, handle in self._deposits:
            handle.fail(self.ended)
        self.handles.fail(self.ended)
        self._changed()
        self._work.set()

    # -- life -------------------------------------------------------------------------------------

    async def live(self, joining: Callable[[], Joining]) -> None:
        """Until the replica has ended."""
        try:
            async with asyncio.TaskGroup() as tasks:
                others = [
                    tasks.create_task(self._send()),
                    tasks.create_task(self._connect(joining)),
                ]
                await self._perform()
                for each in others:
                    each.cancel()
        except* Exception as errors:
            # This replica may now differ from the others, so it takes no further part.
            log.exception("the replica failed")
            self.end(UnisonoError(f"the replica failed: {errors.exceptions[0]!r}"))

    async def _connect(self, joining: Callable[[], Joining]) -> None:
        """In the group, again and again: a replica is a member whoever is connected."""
        pause_s = RETRY_S
        while self.ended is None:
            try:
                async with joining() as group:
                    await group.multicast_many((), Service.SAFE)  # Or it is Misuse.
                    pause_s = RETRY_S
                    await self._read(group)
                    reason = "left the group"
            except (Refused, Misuse) as error:
                self.end(error)
                return
            except Stopped as stop:
                reason = stop.reason
            self._interrupt(reason)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def leave(self) -> None:
        self.has_left = True
        self.end(Stopped("this replica has left"))
        if self._group is not None:
            await self._group.leave()

    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self.file.close()


def as_bytes(returned: object, method: str) -> bytes:
    if not isinstance(returned, bytes | bytearray | memoryview):
        raise Misuse(
            f"{method}() of the state machine returned {type(returned).__name__}: return bytes"
        )
    return bytes(returned)
