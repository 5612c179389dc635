"""The site process: the one member of its machine in the ring, and the server of its clients."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import unisono
from unisono import config as configs
from unisono.client import frames
from unisono.client.frames import SLACK_BYTES, FrameKind, HelloFrame, WelcomeFrame
from unisono.client.listen_address import ListenAddress, listen_address
from unisono.client.lock_frames import AnswerFrame
from unisono.config import JoinOptions
from unisono.daemon import records
from unisono.daemon.effects import (
    AdoptState,
    AnswerClient,
    CaptureState,
    DeliverBundle,
    Disconnect,
    Effect,
    HoldBack,
    InstallView,
    Parted,
    Release,
    ReportPlace,
)
from unisono.daemon.intake import Intake
from unisono.daemon.listening import Listeners, check_free
from unisono.daemon.registry import Registry, RegistryLimits
from unisono.daemon.session import ClientSession, SessionLimits
from unisono.daemon.settings import control_level, given, ring_config, spec_of
from unisono.errors import BadPacket, Misuse, Stopped, UnisonoError
from unisono.group import Group
from unisono.model import Address, Buffer, Member, Message, View
from unisono.net.stream import Item, Rejoined, Stable, Unstable

NOBODY = Member("nobody", Address("0.0.0.0", 0), 0)
"""Before the ring has admitted us."""
BATCH_COUNT_MAX = 512
"""Records processed before the clients are written to."""
TURN_BYTES = 256 << 10
"""Bytes routed before the event loop serves the sockets."""
CLOSE_S = 5.0
WATCH_S = 0.25

log = logging.getLogger("unisono.daemon")


class Daemon:
    """A member of the ring that many local clients share. Enter it; `serve` until it ends."""

    def __init__(
        self,
        listen: str | Sequence[str],
        ring: str | None = None,
        *,
        config: str | Path | None = None,
        bounds: SessionLimits | None = None,
        limits: RegistryLimits | None = None,
        mode: int = 0o600,
        **options: Unpack[JoinOptions],
    ) -> None:
        """`listen` at these addresses; `ring` and `options` are what `unisono.join` takes."""
        self._config = ring_config(ring, config, options)
        self._spec = spec_of(self._config.protocol, self._config.options)
        self._control = control_level(self._spec)
        service = self._config.service
        self._default = (
            configs.check_service(configs.service_level(service), self._spec, ())
            if service
            else configs.default_service(self._spec)
        )
        self.bounds = bounds or SessionLimits()
        self.message_bytes_max = self._config.message_bytes_max
        self.counts: Counter[str] = Counter()
        self._queue_bytes = 0
        """Bytes in all QCMTs."""
        texts = [listen] if isinstance(listen, str) else listen
        self._listen_addresses = [listen_address(text) for text in texts]
        if not self._listen_addresses:
            raise Misuse("no listen address is given: write listen='unix:/path'")
        self._mode = mode
        self._limits = limits or RegistryLimits()
        self._registry = Registry(NOBODY, self._limits)
        self._listeners = Listeners(self.counts)
        self._numbers = itertools.count(1)
        self._sessions: dict[int, ClientSession] = {}
        self._dirty: dict[int, ClientSession] = {}
        self._reader: asyncio.Task[None] | None = None
        self._announcing: asyncio.Task[None] | None = None
        self._unannounced: Sequence[bytes] = ()
        self._blocked = ""
        self._watching: asyncio.Task[None] | None = None
        self._group: Group | None = None
        self._changed = asyncio.Event()

    # -- coming and going -----------------------------------------------------------------------

    async def __aenter__(self) -> Daemon:
        for address in self._listen_addresses:
            check_free(address)  # Fail before joining the ring.
        try:
            limit = self.message_bytes_max + SLACK_BYTES + records.HEAD_BYTES_MAX
            values = given(replace(self._config, message_bytes_max=limit))
            self._group = await unisono.join(
                values.pop("group"), **values, snapshot=self._snapshot, restore=self._restore
            )
            self._registry.identify(self._group.me)
            self._intake = Intake(self._group, self._control, self.message_bytes_max, self.counts)
            await self._listeners.open(
                self._listen_addresses, lambda: ClientSession(self), self._mode
            )
        except BaseException:
            await self.close("the daemon did not start")
            raise
        self._reader = asyncio.create_task(self._read())
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def serve(self) -> None:
        """Runs until the ring is lost for good, which raises `Stopped`."""
        assert self._reader is not None
        await asyncio.shield(self._reader)

    async def close(self, why: str = "the daemon was stopped") -> None:
        """Disconnect the clients and leave the ring. Idempotent."""
        self._listeners.close()
        for session in list(self._sessions.values()):
            session.cut(why)
        if self._reader is not None and self._reader is not asyncio.current_task():
            self._reader.cancel()
        for task in (self._announcing, self._watching):
            if task is not None:
                task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                if self._group is not None:
                    await self._group.leave()
                while self._sessions:
                    self._changed.clear()
                    await self._changed.wait()

    # -- inspection -----------------------------------------------------------------------------

    @property
    def ring(self) -> Group:
        if self._group is None:
            raise Stopped("the daemon has not started")
        return self._group

    @property
    def at(self) -> tuple[ListenAddress, ...]:
        """The listen addresses, with the ports that the system chose."""
        return self._listeners.at

    @property
    def registry(self) -> Registry:
        return self._registry

    def counters(self) -> dict[str, int]:
        """Those of the ring, the registry and the clients."""
        found = Counter(self.ring.counters())
        found.update(self.counts)
        found.update({f"registry.{name}": n for name, n in self._registry.counts.items()})
        found["clients"] = len(self._sessions)
        found["groups"] = len(self._registry.groups)
        found["queued.bytes"] = self._queue_bytes
        return dict(sorted(found.items()))

    # -- SessionHost ----------------------------------------------------------------------------

    def opened(self, session: ClientSession) -> int:
        if len(self._sessions) >= self.bounds.clients_count_max:
            self.counts["refused"] += 1
            raise Misuse(
                f"the daemon has {self.bounds.clients_count_max} clients, its limit"
                " clients_count_max: let one leave, or raise it"
            )
        number = next(self._numbers)
        self._sessions[number] = session
        return number

    def greeted(self, session: ClientSession, hello: HelloFrame) -> None:
        if not configs.NAME.fullmatch(hello.name):
            raise BadPacket("name")
        welcome = WelcomeFrame(
            self._registry.me.name,
            self._registry.me.address,
            self._spec.name,
            self._default,
            self._spec.resilient,
            self._spec.services,
            self.message_bytes_max,
        )
        session.put(frames.framed(welcome))
        if self._blocked:
            session.put(frames.blocked(self._blocked))
        session.flush()

    def queued(self, nbytes: int) -> None:
        self._queue_bytes += nbytes

    def closed(self, session: ClientSession) -> None:
        self._sessions.pop(session.number, None)
        self._dirty.pop(session.number, None)
        self._changed.set()

    async def pump(self, session: ClientSession) -> None:
        await self._intake.pump(session)

    # -- what the ring delivers -----------------------------------------------------------------

    async def _read(self) -> None:
        try:
            async for batch in self.ring.batches(BATCH_COUNT_MAX):
                queue_bytes = self.counts["delivered.bytes"]
                for item in batch:
                    self._deliver(item)
                    if self.counts["delivered.bytes"] - queue_bytes >= TURN_BYTES:
                        queue_bytes = self.counts["delivered.bytes"]
                        self._flush()
                        await asyncio.sleep(0)
                self._flush()
        except Stopped as stop:
            await self.close(f"the daemon lost the ring: {stop.reason}")
            raise

    def _deliver(self, item: Item) -> None:
        if isinstance(item, Message):
            for effect in self._registry.deliver(item.sender, item.payload):
                self._perform(effect)
        elif isinstance(item, View):
            self._announce(self._registry.ring(item))
        elif isinstance(item, Rejoined):
            self._registry = Registry(item.me, self._limits)
            for session in list(self._sessions.values()):
                session.cut(f"the daemon lost the ring and came back: {item.reason}; join again")
        elif isinstance(item, Stable | Unstable):
            kind = FrameKind.STABLE if isinstance(item, Stable) else FrameKind.UNSTABLE
            for message in item.messages:
                self._report(kind, message)

    async def _watch(self) -> None:
        """Report to the clients when the ring is blocked, as a minority is, and when it is not."""
        while True:
            if self.ring.blocked != self._blocked:
                self._blocked = self.ring.blocked
                for session in list(self._sessions.values()):
                    if session.hello is not None:
                        session.put(frames.blocked(self._blocked))
                        session.flush()
            await asyncio.sleep(WATCH_S)

    def _announce(self, found: Sequence[bytes]) -> None:
        """Multicast in a task of its own, since reading never waits. Records not sent before the
        next view are replaced by that view's."""
        self._unannounced = found
        if found and self._announcing is None:
            self._announcing = asyncio.create_task(self._multicast_announcements())

    async def _multicast_announcements(self) -> None:
        try:
            while found := self._unannounced:
                self._unannounced = ()
                await self.ring.multicast_many(found, self._control)
        except UnisonoError as error:
            log.warning("cannot report which daemons are gone: %s", error)
        finally:
            self._announcing = None

    def _perform(self, effect: Effect) -> None:
        match effect:
            case DeliverBundle(to, sender, number, seq, code, k, bundle, count):
                frame = frames.deliver(FrameKind.DELIVER, sender, number, seq, code, k, bundle)
                for number in to:
                    self._put(number, frame, count)
                self.counts["delivered"] += count * len(to)
                self.counts["delivered.bytes"] += len(frame)
            case ReportPlace(to, placed):
                self._put(to, frames.framed(placed))
            case InstallView(to, view, new):
                self._install(to, view, new)
            case CaptureState(giver, key):
                if session := self._sessions.get(giver):
                    session.requested_states.add(key)
                    self._put(giver, frames.frame(FrameKind.CAPTURE, key))
            case HoldBack(number):
                if session := self._sessions.get(number):
                    session.hold()
            case AdoptState(number, state):
                self._release(number, state)
            case Release(number):
                self._release(number, None)
            case Disconnect(number, reason):
                if session := self._sessions.get(number):
                    session.cut(reason)
            case AnswerClient(number, answer):
                self._put(number, frames.framed(AnswerFrame.of(answer)))
            case Parted(number):
                if session := self._sessions.get(number):
                    session.part()

    def _install(self, to: tuple[int, ...], view: View, new: tuple[int, ...]) -> None:
        """Clients that wait for their state get the whole view: those before it may be dropped."""
        change, whole = frames.view(view, whole=False), b""
        for number in to:
            session = self._sessions.get(number)
            if session is not None and (number in new or session.holds):
                whole = whole or frames.view(view, whole=True)
                self._put(number, whole)
            else:
                self._put(number, change)

    def _put(self, number: int, frame: bytes, count: int = 0) -> None:
        session = self._sessions.get(number)
        if session is not None:
            session.put(frame, count)
            self._dirty[number] = session

    def _release(self, number: int, state: Buffer | None) -> None:
        if session := self._sessions.get(number):
            session.release(state)
            self._dirty[number] = session

    def _report(self, kind: FrameKind, message: Message) -> None:
        """To the client that sent it: it is as resilient as requested, or never will be."""
        try:
            record = records.read(message.payload)
        except BadPacket:
            return
        session = (
            self._sessions.get(record.number)
            if isinstance(record, records.ClientMulticast)
            else None
        )
        if (
            session is None
            or session.hello is None
            or not isinstance(record, records.ClientMulticast)
        ):
            return
        me = Member(session.hello.name, self._registry.me.address, session.hello.incarnation)
        code, k = frames.level_code(record.submit.level)
        sender, bundle = frames.member_bytes(me), record.submit.bundle
        self._put(
            session.number,
            frames.deliver(kind, sender, record.before + 1, 0, code, k, bundle),
        )

    def _flush(self) -> None:
        for session in self._dirty.values():
            session.flush()
        self._dirty.clear()
        while self._queue_bytes > self.bounds.all_bytes_max:
            longest = max(self._sessions.values(), key=lambda session: session.queue_bytes)
            if not longest.queue_bytes:
                return
            longest.cut(
                f"the client has the longest queue, {longest.queue_bytes} bytes, and all queues"
                f" have {self._queue_bytes} (all_bytes_max={self.bounds.all_bytes_max})"
            )

    # -- snapshots for joining daemons ----------------------------------------------------------

    def _snapshot(self) -> bytes:
        return self._registry.snapshot()

    def _restore(self, state: bytes) -> None:
        before = self._registry
        try:
            self._registry = Registry.restored(before.me, state)
        except BadPacket:
            raise Stopped("the ring's state is malformed: run one version everywhere") from None
        for number in before.clients_of(before.me):
            if session := self._sessions.get(number):
                session.cut("the daemon was partitioned and took over the ring's state: join again")
