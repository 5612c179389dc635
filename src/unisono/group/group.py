"""A group as the application holds it: multicast to it, and iterate over its one ordered stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from unisono.config import Config
from unisono.core import Request
from unisono.errors import Denied, Misuse, Stopped, TooLarge
from unisono.group.incarnations import Incarnations
from unisono.group.levels import Levels
from unisono.group.locks import Lock, Locks
from unisono.group.own_loop import OwnLoop
from unisono.group.pending_requests import PendingRequests
from unisono.group.recall import Archive
from unisono.group.rejoining import RejoinPolicy
from unisono.group.replay import Replay
from unisono.group.session import SessionFactory
from unisono.group.stats import Stats
from unisono.model import (
    Buffer,
    Member,
    Message,
    PayloadBatch,
    Resilient,
    Service,
    ServiceLevel,
    SizeVote,
    View,
)
from unisono.net.handle import Handle, Handles
from unisono.net.send_buffer import SendBuffer, plain_bytes
from unisono.net.stream import Item, Stream, StreamBatch
from unisono.replay_history import HEADER_BYTES_MAX, SinkRows
from unisono.requests import (
    AcquireLock,
    GroupCommand,
    LimitScope,
    VoteSize,
    command_named,
    not_taken,
    size_vote,
)

BATCH_COUNT_MAX: Final = 4096
_BETWEEN: Final = "not in the group now: wait for its next view"


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
        self._loop = OwnLoop()
        self._sessions = sessions
        self._bytes_max = config.message_bytes_max
        """Of a payload."""
        self._levels = Levels(sessions, config.service, config.replayable)
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
        if config.replayable:
            self._replay = Replay(
                config.retain_bytes,
                snapshot is not None,
                self._send,
                lambda: (self.me, self.view),
                lambda: self._bytes_max,
                self._overflowed,
            )
        self._requests = PendingRequests(self._check, self._send_request, self._stream)
        self._locks = Locks(self._requests)
        self._incarnations = Incarnations(
            sessions,
            config.join_s,
            config.leave_s,
            rejoin_policy,
            self._send_buffer,
            handles,
            self._requests,
            self._locks,
            self._stream,
            self._replay,
            sessions.founds and (snapshot is not None or config.replayable),
            self._opened,
        )

    # -- inspection -----------------------------------------------------------------------------

    @property
    def protocol(self) -> str:
        return self._sessions.spec.name

    @property
    def one_order(self) -> bool:
        """Whether all that are members at a time have one history, as replicas need."""
        return self._sessions.spec.serves_daemons(self.config.options)

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
        """Why the group makes no progress, as in a minority; empty while it does."""
        session = self._incarnations.session
        return session.warning if session is not None else ""

    def counters(self) -> dict[str, int]:
        """Totals over all incarnations: packets by kind, drops by reason."""
        found = self._incarnations.counts()
        found["drop.unsent"] += self._send_buffer.unsent_count
        found["shed"] += self._stream.shed_count
        found["stream.waiting"] = len(self._stream)
        found["multicast.waiting"] = self._send_buffer.waiting_count
        if self._replay is not None:
            found.update(self._replay.counts())
        return dict(sorted(found.items()))

    def stats(self) -> Stats:
        """Messages, delays and queue depths, for a program's own monitoring."""
        stream, incarnations = self._stream, self._incarnations
        return Stats(
            **incarnations.totals(),
            shed=stream.shed_count,
            reading=len(stream),
            reading_bytes=stream.waiting_bytes,
            sending=self._send_buffer.waiting_count,
            slow_reader=stream.is_congested,
            blocked=self.blocked,
        )

    # -- sending --------------------------------------------------------------------------------

    def multicast(
        self,
        payload: Buffer,
        service: ServiceLevel | str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> Handle:
        """Multicast to the group; through a daemon, `to` these groups with one sequence number.

        `await` the handle to wait while the window is full; it returns the message's number. To
        wait for more, `await handle.delivered` or `await handle.stable`.
        """
        if to is None:
            return self._send_buffer.submit_one(self._sealed(payload), self._level(service))
        return self._submit(PayloadBatch((self._sealed(payload),)), self._level(service), to)

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
        return self._submit(messages, level, to)

    def _submit(
        self, messages: PayloadBatch, level: ServiceLevel, to: str | Sequence[str] | None
    ) -> Handle:
        if to is None:
            return self._send_buffer.submit(messages, level)
        groups = self._sessions.groups(to)
        own = self.config.group in groups
        return self._send_buffer.submit(messages, level, groups, own)

    def multicast_nowait(
        self,
        payload: Buffer,
        service: ServiceLevel | str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> int:
        """Multicast it now, or raise `Full`."""
        groups = () if to is None else self._sessions.groups(to)
        messages = PayloadBatch((self._sealed(payload),))
        return self._send_buffer.submit_nowait(messages, self._level(service), groups)

    # -- requests ---------------------------------------------------------------------------------

    def request(self, what: GroupCommand | str, /, **arguments: int) -> None:
        """Request what only some protocols offer, as `GoOn()` or `"go_on"`. An `Answer` follows in
        the stream."""
        if isinstance(what, str):
            what = command_named(what, arguments, self._sessions.requests, self.protocol)
        self._check_kind(what)
        if self._incarnations.closed is not None:
            raise Stopped(self._incarnations.closed)
        session = self._incarnations.session
        if session is None or session.finished:
            raise Stopped(_BETWEEN)
        self._send_request(Request(what))

    def lock(self, number: int) -> Lock:
        """One of the group's locks: `async with group.lock(7):`."""
        self._check_kind(AcquireLock(number))
        return self._locks[number]

    async def vote(self, minimum: int | SizeVote | str) -> None:
        """Vote on the size below which the group must not go on after a failure: a number of
        members, or a `SizeVote`, also by name. The largest vote holds."""
        command = VoteSize(minimum := size_vote(minimum))
        self._check(command)
        if minimum > len(self.members):
            raise Misuse(
                f"a minimum of {minimum} is above the group's size of {len(self.members)}: wait"
                " until more members have joined, or vote for less"
            )
        await self._granted(command)

    async def scope(self, hops: int) -> None:
        """Let the group's multicasts cross at most so many routers."""
        command = LimitScope(hops)
        self._check(command)
        await self._granted(command)

    async def _granted(self, command: GroupCommand) -> None:
        answer = await self._requests.request(command)
        if answer.cause is not None:
            raise Denied(f"{command}: {answer.detail or answer.cause.value}")

    def _check(self, command: GroupCommand) -> None:
        """`Misuse` if the protocol does not take this request, `Stopped` if we are not in the
        group."""
        self._check_kind(command)
        if self._incarnations.closed is not None:
            raise Stopped(self._incarnations.closed)
        if not self._incarnations.inside:
            raise Stopped(_BETWEEN)

    def _check_kind(self, command: GroupCommand) -> None:
        kinds = self._sessions.requests
        if type(command) not in kinds:
            from unisono import protocols

            specs = protocols.specs().values()
            able = [f"protocol={s.name!r}" for s in specs if type(command) in s.requests]
            raise not_taken(command.NAME, kinds, self.protocol, sorted(able))

    def _send_request(self, request: Request) -> None:
        """After all that was accepted before it."""
        self._send_buffer.flush()
        session = self._incarnations.session
        if session is not None and not session.finished:
            session.request(request)

    # -- payloads ---------------------------------------------------------------------------------

    def _sealed(self, payload: Buffer) -> bytes:
        """The payload as the session takes it."""
        message = payload if type(payload) is bytes else plain_bytes(payload)
        if len(message) > self._bytes_max:
            raise TooLarge(
                f"the message has {len(message)} bytes, over the group's limit"
                f" message_bytes_max={self._bytes_max}: split it or raise the limit"
            )
        return self._replay.sealed(message) if self._replay is not None else message

    def _all_sealed(self, payloads: Iterable[Buffer]) -> PayloadBatch:
        """Plain bytes within the limit are not checked one by one."""
        given = list(payloads)
        if self._replay is None and list(map(type, given)).count(bytes) == len(given):
            messages = PayloadBatch(given)  # type: ignore[arg-type]
            if messages.longest <= self._bytes_max:
                return messages
        return PayloadBatch(map(self._sealed, given))

    async def _send(
        self, messages: Sequence[bytes], service: ServiceLevel | str | None = None
    ) -> int:
        """Multicast what is sealed already."""
        return await self._send_buffer.submit(
            PayloadBatch(messages), self._level(service), own=False
        )

    def _level(self, service: ServiceLevel | str | None) -> ServiceLevel:
        self._loop.check()
        if self._incarnations.closed is not None:
            raise Stopped(self._incarnations.closed)
        try:
            level = self._levels[service]
        except TypeError:  # not hashable, so no level either
            assert service is not None
            return self._sessions.level(service)
        if type(level) is Resilient:
            self._check_holders(level.k)
        return level

    def _check_holders(self, k: int) -> None:
        view = self._incarnations.view
        if view is not None and self._sessions.holds and k > len(view.members):
            raise Misuse(
                f"resilient({k}): the group has {len(view.members)} members; wait until more have"
                " joined, or ask for fewer, resilient(majority) or resilient(all)"
            )

    # -- receiving ------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Item]:
        self._loop.check()
        return self._stream.next()

    async def batches(self, count_max: int = BATCH_COUNT_MAX) -> AsyncIterator[StreamBatch]:
        """The same stream in batches of all that waits: the fastest way to read."""
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
        one. They are safe if the protocol offers that: once a row is delivered, its sender may
        discard it."""
        replay = self._replayable()
        given = [bytes(payload) for payload in payloads]
        for payload in given:
            self._sealed(payload)
        messages = replay.rows(SinkRows(query, partition, epoch), first_row, given)
        if service is None and Service.SAFE in self._sessions.spec.services:
            service = Service.SAFE
        return await self._send(messages, service) if messages else 0

    def rows_delivered(self, query: str, partition: int) -> tuple[int, int] | None:
        """The last epoch and row of a sink's partition that was ordered, as known here; a sink may
        discard its rows up to there."""
        return self._replayable().history.last_row(query, partition)

    def writers(self) -> dict[tuple[str, int], tuple[int, int]]:
        """By query and partition of a sink, the last epoch and row that was ordered, up to
        `offset`."""
        return self._replayable().history.writers()

    @property
    def offset(self) -> int:
        """The offset of the last ordered message; the stream may not have reached it yet."""
        return self._replayable().history.offset

    def recall(self, first: int, last: int) -> AsyncIterator[list[Message]]:
        """Messages at these offsets that other members still have, in order: for a member that was
        away. Read the stream meanwhile. It begins after `first` if no member has the beginning any
        more, and may end before `last`: then recall again. `Forgotten` if no member has any."""
        return self._replayable().recalls.recall(first, last)

    @property
    def incarnation(self) -> str:
        """The group's own incarnation: offsets count from its founding."""
        return self._replayable().history.incarnation

    @property
    def archive(self) -> Archive | None:
        """A longer history than the group's own, used to answer others' recalls."""
        return self._replayable().recalls.archive

    @archive.setter
    def archive(self, archive: Archive | None) -> None:
        self._replayable().recalls.archive = archive

    def _replayable(self) -> Replay:
        if self._replay is None:
            raise Misuse(
                "only a replayable group has offsets: join with replayable=True, at every member"
            )
        return self._replay

    # -- joining and leaving --------------------------------------------------------------------

    async def _join(self) -> Group:
        self._loop.bind()
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
