"""A group as the application holds it: multicast to it, and iterate over its one ordered stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final

from unisono.config import Config
from unisono.errors import Misuse, Stopped, TooLarge
from unisono.group.incarnations import Incarnations
from unisono.group.levels import Levels
from unisono.group.recall import Archive
from unisono.group.rejoining import RejoinPolicy
from unisono.group.replay import Replay
from unisono.group.session import SessionFactory
from unisono.model import Buffer, Member, Message, Service, ServiceLevel, View
from unisono.net.handle import Handle, Handles
from unisono.net.send_buffer import SendBuffer
from unisono.net.stream import Item, Stream, StreamBatch
from unisono.replay_history import HEADER_BYTES_MAX, SinkRows

BATCH_COUNT_MAX: Final = 4096


class Group:
    """A group that this process has joined, as a member or through its machine's daemon.

    Iterate it, in one place, for messages, views and notices.
    """

    def __init__(
        self,
        config: Config,
        sessions: SessionFactory,
        snapshot: Callable[[], bytes] | None = None,
        restore: Callable[[bytes], None] | None = None,
    ) -> None:
        self.config = config
        self._sessions = sessions
        self._bytes_max = config.message_bytes_max
        """Of a payload."""
        self._levels = Levels(sessions, config.service, config.fed)
        rejoin_policy = RejoinPolicy(sessions.name, config.rejoin, sessions.founds)
        handles = Handles()
        self._send_buffer = SendBuffer(rejoin_policy.outstanding, handles)
        self._stream = Stream(
            config.slow,
            config.queue_count_max,
            config.queue_bytes_max,
            self._congested,
            self._overflowed,
            snapshot,
            restore,
        )
        self._replay: Replay | None = None
        if config.fed:
            self._replay = Replay(
                config.retain_bytes,
                snapshot is not None,
                self._send,
                lambda: (self.me, self.view),
                lambda: self._bytes_max,
                self._overflowed,
            )
        self._incarnations = Incarnations(
            sessions,
            config.join_s,
            config.leave_s,
            rejoin_policy,
            self._send_buffer,
            handles,
            self._stream,
            self._replay,
            self._opened,
        )

    # -- what is known --------------------------------------------------------------------------

    @property
    def protocol(self) -> str:
        return self._sessions.offer.name

    @property
    def me(self) -> Member:
        """This incarnation, as the others see it."""
        me = self._incarnations.me
        if me is None:
            raise Stopped(self.stopped or "not joined yet: await join() first")
        return me

    @property
    def view(self) -> View:
        """The last view installed; the stream may not have come to it yet."""
        view = self._incarnations.view
        if view is None:
            raise Stopped(self.stopped or "not joined yet: await join() first")
        return view

    @property
    def members(self) -> tuple[Member, ...]:
        return self.view.members

    @property
    def stopped(self) -> str | None:
        """Why this process is no longer in the group; None while it is."""
        return self._incarnations.ended

    @property
    def blocked(self) -> str:
        """Why there is no progress though we are in the group, as in a minority; empty while there
        is."""
        session = self._incarnations.session
        return session.warning if session is not None else ""

    def counters(self) -> dict[str, int]:
        """What happened so far, over all incarnations: packets by kind, drops by reason."""
        found = self._incarnations.counts()
        found["drop.unsent"] += self._send_buffer.unsent_count
        found["shed"] += self._stream.shed_count
        found["stream.waiting"] = len(self._stream)
        found["multicast.waiting"] = self._send_buffer.waiting_count
        if self._replay is not None:
            found.update(self._replay.counts())
        return dict(sorted(found.items()))

    # -- sending --------------------------------------------------------------------------------

    def multicast(
        self,
        payload: Buffer,
        service: ServiceLevel | str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> Handle:
        """Multicast to the group, or through a daemon to these groups at one place in one order.

        `await` the handle to wait while the window is full; it returns the message's number. To
        wait for more, `await handle.delivered` or `await handle.stable`.
        """
        message = self._sealed(payload)
        return self._submit((message,), len(message), self._level(service), to)

    def multicast_many(
        self,
        payloads: Iterable[Buffer],
        service: ServiceLevel | str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> Handle:
        """Multicast them in this order; the handle is the last one's. If cancelled while it waits
        to be accepted, the first of them may have been sent."""
        messages = self._all_sealed(payloads)
        level = self._level(service)
        if not messages:
            return Handle(level, own=False)
        return self._submit(messages, sum(map(len, messages)), level, to)

    def _submit(
        self,
        messages: Sequence[bytes],
        nbytes: int,
        level: ServiceLevel,
        to: str | Sequence[str] | None,
    ) -> Handle:
        if to is None:
            return self._send_buffer.submit(messages, nbytes, level)
        groups = self._sessions.groups(to)
        own = self.config.group in groups
        return self._send_buffer.submit(messages, nbytes, level, groups, own)

    def multicast_nowait(
        self,
        payload: Buffer,
        service: ServiceLevel | str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> int:
        """Multicast it now, or raise `Full`."""
        message = self._sealed(payload)
        groups = () if to is None else self._sessions.groups(to)
        return self._send_buffer.say_nowait((message,), len(message), self._level(service), groups)

    def request(self, what: str, /, **arguments: int | str | bytes) -> None:
        """Ask for something that only this protocol knows, as a lock. An `Answer` follows."""
        self._sessions.check_request(what)
        if self._incarnations.closed is not None:
            raise Stopped(self._incarnations.closed)
        if self._incarnations.session is not None:
            self._incarnations.session.request(what, arguments)

    def _sealed(self, payload: Buffer) -> bytes:
        """The payload as the session takes it."""
        message = payload if type(payload) is bytes else _bytes(payload)
        if len(message) > self._bytes_max:
            raise TooLarge(
                f"the message has {len(message)} bytes, over the group's limit"
                f" message_bytes_max={self._bytes_max}: split it or raise the limit"
            )
        return self._replay.sealed(message) if self._replay is not None else message

    def _all_sealed(self, payloads: Iterable[Buffer]) -> Sequence[bytes]:
        """Where all are in order they are not looked at one by one."""
        messages = list(payloads)
        plain = set(map(type, messages)) <= {bytes} and self._replay is None
        if plain and max(map(len, messages), default=0) <= self._bytes_max:
            return messages  # type: ignore[return-value]
        return [self._sealed(payload) for payload in messages]

    async def _send(
        self, messages: Sequence[bytes], service: ServiceLevel | str | None = None
    ) -> int:
        """Multicast what is sealed already."""
        nbytes = sum(map(len, messages))
        return await self._send_buffer.submit(messages, nbytes, self._level(service), own=False)

    def _level(self, service: ServiceLevel | str | None) -> ServiceLevel:
        if self._incarnations.closed is not None:
            raise Stopped(self._incarnations.closed)
        try:
            return self._levels[service]
        except TypeError:  # not hashable, so no level either
            assert service is not None
            return self._sessions.level(service)

    # -- receiving ------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        return await self._stream.next()

    async def batches(self, count_max: int = BATCH_COUNT_MAX) -> AsyncIterator[StreamBatch]:
        """The same stream, all that waits at once: the fastest way to read."""
        while True:
            try:
                batch = await self._stream.next_batch(count_max)
            except StopAsyncIteration:
                return
            yield batch

    def _congested(self, on: bool) -> None:
        self._incarnations.congested(on)

    def _overflowed(self, reason: str) -> None:
        self._incarnations.fail(reason)

    # -- replayable groups ----------------------------------------------------------------------

    async def multicast_rows(
        self,
        query: str,
        partition: int,
        epoch: int,
        first_row: int,
        payloads: Iterable[Buffer],
        service: ServiceLevel | str | None = None,
    ) -> int:
        """Multicast a sink's rows, numbered from `first_row` on. Every member drops, at the same
        offset, those that this partition of the query has sent before, in this epoch or a later
        one. They are safe where the protocol offers that: once a row is delivered, its sender may
        forget it."""
        replay = self._replayable()
        given = [bytes(payload) for payload in payloads]
        for payload in given:
            self._sealed(payload)
        messages = replay.rows(SinkRows(query, partition, epoch), first_row, given)
        if service is None and Service.SAFE in self._sessions.offer.services:
            service = Service.SAFE
        return await self._send(messages, service) if messages else 0

    def rows_heard(self, query: str, partition: int) -> tuple[int, int] | None:
        """The last epoch and row of a sink's partition that the group has ordered, as far as it
        is known here: what a sink needs to know before it forgets them."""
        return self._replayable().history.heard(query, partition)

    @property
    def place(self) -> int:
        """The offset of the last ordered message; the stream may not have come to it yet."""
        return self._replayable().history.place

    def recall(self, first: int, last: int) -> AsyncIterator[list[Message]]:
        """Messages at these offsets that others still have, in order: for a member that was away.
        Read the stream meanwhile. It begins later than `first` when nobody has the beginning any
        more, and may end before `last`: then ask again. `Forgotten` when nobody has any."""
        return self._replayable().recalls.recall(first, last)

    @property
    def life(self) -> str:
        """The group's own incarnation: offsets count from its founding."""
        return self._replayable().history.life

    @property
    def archive(self) -> Archive | None:
        """A longer history than the group's own, to answer others' recalls from."""
        return self._replayable().recalls.archive

    @archive.setter
    def archive(self, archive: Archive | None) -> None:
        self._replayable().recalls.archive = archive

    def _replayable(self) -> Replay:
        if self._replay is None:
            raise Misuse("only a fed group has places: join it with fed=True, as all its members")
        return self._replay

    # -- joining and leaving --------------------------------------------------------------------

    async def _join(self) -> Group:
        await self._incarnations.join()
        return self

    async def leave(self) -> None:
        """Leave cleanly, within `leave_s`; then the stream ends. Idempotent."""
        await self._incarnations.leave()

    def _opened(self) -> None:
        """A session is open: its protocol may be another than the last one's."""
        headers = HEADER_BYTES_MAX if self._replay is not None else 0
        most = max(0, self._sessions.message_bytes_max - headers)
        self._bytes_max = min(self.config.message_bytes_max, most)
        self._levels.renew()


def _bytes(payload: object) -> bytes:
    if not isinstance(payload, bytes | bytearray | memoryview):
        kind = type(payload).__name__
        raise Misuse(f"a message is bytes, not {kind}: encode it first, as text.encode()")
    return bytes(payload)
