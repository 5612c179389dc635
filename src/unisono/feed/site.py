"""The feed process: a member of the group, the log, the server, and the filling of holes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import unisono
from unisono import config as configs
from unisono.errors import Forgotten, Misuse, Refused, Stopped, UnisonoError
from unisono.feed import protocol, rows
from unisono.feed.access import open_to_all, server_tls, token_in
from unisono.feed.archive import LogArchive
from unisono.feed.keeper import Append, Keeper
from unisono.feed.server import Server
from unisono.group import Group
from unisono.log import Log
from unisono.model import Message, View
from unisono.net.stream import Item, Rejoined

RETAIN_BYTES: Final = 1 << 30
RETAIN_S: Final = 86_400.0
TRIM_EVERY_S: Final = 5.0
PAUSE_S, PAUSE_MAX_S = 0.3, 10.0
RECALL_TRIES: Final = 10
"""Unanswered recalls of a hole, a second apart, before it is considered lost."""
FORGOTTEN_TRIES: Final = 3
"""The same if all members answer that they have nothing: another feed may be joining."""
COMPARED_COUNT: Final = 512
"""Messages at the end of the log that are compared with the group's when the feed rejoins."""
IN_FLIGHT_BYTES_MAX: Final = 8 << 20
"""Writers' rows on their way through the group; further rows wait."""
ALONE_S: Final = 2.0
"""How long a feed that is alone sends no rows: members that start together may found their group
twice, and rows of the founding that yields are lost."""
LOOK_S: Final = 0.01
NAME: Final = "name"

log = logging.getLogger("unisono.feed")


class Feed:
    """A feed of one group: a context manager that listens, joins the group and keeps the log.

    >>> async with Feed("orders", "orders.log", listen="127.0.0.1:7420") as feed:
    ...     await feed.serve()
    """

    def __init__(
        self,
        group: str | None,
        directory: Path | str,
        *,
        listen: str = f"127.0.0.1:{protocol.PORT}",
        retain_bytes: int | None = RETAIN_BYTES,
        retain_s: float | None = RETAIN_S,
        durable: bool = True,
        token: Path | str | None = None,
        tls_cert: Path | str | None = None,
        tls_key: Path | str | None = None,
        **options: Any,
    ) -> None:
        """Clients state the `token` that this file holds. `options` are those of `join`.
        Retention is bounded by size, by age, or both."""
        if (retain_bytes is not None and retain_bytes <= 0) or (
            retain_s is not None and not retain_s > 0
        ):
            raise Misuse("retain_bytes= and retain_s= must be above 0, or None for no bound")
        if options.get("rejoin"):
            raise Misuse("a feed always rejoins: leave rejoin= out")
        ((self._host, self._port),) = _one(protocol.addresses(listen), listen)
        plain = {key: value for key, value in options.items() if key != "config"}
        read = configs.read(group, options.get("config"), plain)
        self._name = read.group
        self._is_named = bool(read.name)
        self._requested = (group, {**options, "replayable": True, "rejoin": False})
        unisono.join(group, **self._requested[1])  # Checks the options.
        self._access = (token_in(token), server_tls(tls_cert, tls_key))
        self._directory = Path(directory)
        self._retain = (retain_bytes, retain_s)
        self._durable = durable
        self._group: Group | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._log_lock = asyncio.Lock()
        self._moved = asyncio.Event()
        self._holed = asyncio.Event()
        """A damaged batch was set aside, and leaves a hole."""
        self._in_flight = 0
        self._was_inside = False
        self._joined_s = 0.0
        self._why_away = "the feed has not joined its group yet"
        self.counts: Counter[str] = Counter()

    # -- coming and going -------------------------------------------------------------------------

    async def __aenter__(self) -> Feed:
        self._log = await asyncio.to_thread(Log, self._directory, durable=self._durable)
        try:
            self._keeper = Keeper(self._log, self._name)
            if not self._is_named:
                self._requested[1]["name"] = await asyncio.to_thread(_name_in, self._log)
            self._server = Server(
                str(self._directory),
                lambda: self._log.bounds,
                self.status,
                self.take,
                self._set_aside,
                *self._access,
            )
            self._port = await self._server.open(self._host, self._port)
            if warning := open_to_all(self._host, *self._access):
                log.warning("the feed listens at %s %s", self._host, warning)
        except BaseException:
            self._log.close()
            raise
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._leaving = asyncio.Event()
        self._tasks = [loop.create_task(self._keep_joined()), loop.create_task(self._forget())]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leaving.set()
        await self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        async with self._log_lock:
            await asyncio.to_thread(self._log.close)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or self._ended.done():
            return
        error = task.exception()
        if error is not None:
            self._ended.set_exception(error)

    async def serve(self) -> None:
        """Runs until cancelled; raises what stops the feed, such as a full disk."""
        await asyncio.shield(self._ended)

    @property
    def at(self) -> str:
        """The listen address."""
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def status(self) -> dict[str, Any]:
        group = self._group
        first, end, last = self._log.bounds
        return {
            "group": self._name,
            "life": self._keeper.incarnation,
            "member": str(group.me) if group is not None and not group.stopped else None,
            "members": [str(member) for member in group.members] if group is not None else [],
            "away": None if group is not None else self._why_away,
            "blocked": (group.blocked if group is not None else "") or None,
            "first": first,
            "end": end,
            "last": last,
            "missing": self._keeper.missing()[:10],
            "octets": self._log.nbytes,
            "stretches": [list(each) for each in self._keeper.stretches],
            "opening": self._keeper.opening,
            "readers": self._server.readers_count,
            "in_flight_octets": self._in_flight,
            "commits": self._log.commits,
            "counts": dict(sorted((self.counts + self._server.counts).items())),
        }

    # -- the member -------------------------------------------------------------------------------

    async def _keep_joined(self) -> None:
        """Join the group, and again when stopped; the log is served meanwhile. A feed that is
        refused at the start ends with the reason."""
        pause_s = PAUSE_S
        while True:
            try:
                if await self._stay_member():
                    pause_s = PAUSE_S
            except Stopped as stop:
                self._why_away = stop.reason
                if isinstance(stop, Refused) and not self._was_inside:
                    raise
            except OSError as error:
                self._why_away = str(error)
            self.counts["rejoined"] += 1
            log.warning("out of the group: %s; joining again", self._why_away)
            await asyncio.sleep(pause_s)
            pause_s = min(PAUSE_MAX_S, pause_s * 2)

    async def _stay_member(self) -> bool:
        """One stay in the group; returns whether it had a view."""
        name, options = self._requested
        async with unisono.join(name, **options) as group:
            joined = group.incarnation
            delivered = False
            filling: asyncio.Task[None] | None = None
            archive = LogArchive(self._keeper, self._directory)
            try:
                async for batch in group.batches():
                    items: Sequence[Item] = batch
                    if not delivered:
                        items = _from_first_view(batch)
                        if not items:
                            continue
                        delivered = self._was_inside = True
                        seq = _seq_of(items[0])
                        known = (group.writers(), group.offset)
                        await self._append(
                            lambda s=seq, k=known: self._keeper.enter(joined, s, _now_us(), *k)  # type: ignore[misc]
                        )
                        await self._compare(group, archive)
                        self._group, group.archive = group, archive
                        self._joined_s = time.monotonic()
                        filling = asyncio.create_task(self._fill(group))
                    if not await self._deliver(items):
                        self._why_away = "the group merged with another founding"
                        return delivered
                    if filling is not None and filling.done():
                        filling.result()
            except asyncio.CancelledError:
                await self._left_alone(group)
                raise
            finally:
                self._group = None
                group.archive = None
                if filling is not None:
                    filling.cancel()
                    await asyncio.gather(filling, return_exceptions=True)
                archive.close()
        raise Stopped(group.stopped or "the stream ended")

    async def _deliver(self, items: Sequence[Item]) -> bool:
        """Append these items, up to another incarnation, which another stay will append."""
        again = next((at for at, item in enumerate(items) if isinstance(item, Rejoined)), None)
        mine = items if again is None else items[:again]
        if mine:
            await self._append(lambda: self._keeper.deliver(mine, _now_us()))
            self.counts["messages"] += sum(isinstance(item, Message) for item in mine)
        return again is None

    async def _left_alone(self, group: Group) -> None:
        """The feed ends. If it is the group's last member, no message can follow."""
        if not self._keeper.is_open or group.stopped:
            return
        with contextlib.suppress(UnisonoError, TimeoutError):
            await group.leave()
            rest = [item async for items in group.batches() for item in items]
            if rest and not await self._deliver(rest):
                return
            if len(group.members) == 1 and not self._keeper.missing():
                await self._append(self._keeper.left_alone)

    # -- the log ----------------------------------------------------------------------------------

    async def _append(self, work: Callable[[], Append]) -> None:
        """Append durably, one at a time; not interrupted if the caller is cancelled."""
        await asyncio.shield(asyncio.create_task(self._append_now(work)))

    async def _append_now(self, work: Callable[[], Append]) -> None:
        async with self._log_lock:
            made = work()
            if made:
                await asyncio.to_thread(self._log.append, made.batches, made.meta)
        self._moved.set()

    async def _set_aside(self, first: int) -> None:
        """A reader met a damaged batch: its offsets are recalled."""
        async with self._log_lock:
            if await asyncio.to_thread(self._log.set_aside, first):
                self.counts["set_aside"] += 1
        self._holed.set()

    async def _fill(self, group: Group) -> None:
        """Recall from other members what was delivered while we were away, and what the log held
        in batches that were damaged since."""
        while True:
            self._holed.clear()
            await self._fill_holes(group)
            await self._holed.wait()

    async def _fill_holes(self, group: Group) -> None:
        tries = 0
        while missing := self._keeper.missing():
            first, last = missing[0]
            begins = self._keeper.stretches[-1].begins if self._keeper.stretches else first
            if first < begins:
                why = "the log was damaged, and the group is another since"
                await self._lose(first, min(last, begins - 1), why)
                continue
            try:
                if await self._recall(group, first, last):
                    tries = 0
                    continue
                why, most = "the members that have them do not answer", RECALL_TRIES
            except Forgotten:
                why, most = "no member has them any more", FORGOTTEN_TRIES
            tries += 1
            if tries >= most:
                await self._lose(first, last, why)
                tries = 0
            else:
                await asyncio.sleep(1)

    async def _compare(self, group: Group, archive: LogArchive) -> None:
        """Compare the last messages of the log with the group's. An agreed message that is not safe
        may be lost with all members that had it, and we were one of them."""
        other: list[int] = []
        for base, first, last in self._keeper.tails():
            first = max(first, last - COMPARED_COUNT + 1)
            ours = await asyncio.to_thread(archive.logged, base, first, last)
            known = {message.seq: _identity(message) for message in ours}
            with contextlib.suppress(Forgotten):
                async for messages in group.recall(first, last):
                    both = [m for m in messages if m.seq in known]
                    other += [_seq_of(m) for m in both if known[m.seq] != _identity(m)]
        if other:
            # Messages after a hole are appended again from the hole on.
            upto = min(min(other) - 1, self._log.end - self._keeper.base)
            await self._append(lambda: self._keeper.take_back(upto, _now_us()))

    async def _recall(self, group: Group, first: int, last: int) -> bool:
        """Fill this hole from other members; returns whether anything came."""
        base, before = self._keeper.base, self._keeper.missing()
        async for messages in group.recall(first - base, last - base):
            self.counts["recalled"] += len(messages)
            await self._append(lambda some=messages: self._keeper.fill(some, _now_us()))  # type: ignore[misc]
        return self._keeper.missing() != before

    async def _lose(self, first: int, last: int, why: str) -> None:
        log.warning("offsets %d to %d are lost: %s", first, last, why)
        self.counts["lost"] += last - first + 1
        await self._append(lambda: self._keeper.lose(first, last, why, _now_us()))

    async def _forget(self) -> None:
        """Apply retention periodically, and merge small batches."""
        nbytes, age_s = self._retain
        while True:
            async with self._log_lock:
                dropped = await asyncio.to_thread(self._log.trim, nbytes, age_s)
            if dropped is not None:
                self.counts["dropped_places"] += dropped.last - dropped.first + 1
            holes = self._log.holes()
            while count := await asyncio.to_thread(self._log.merge, rows.merged):
                self.counts["batches_merged"] += count
            if self._log.holes() != holes:
                self._holed.set()
            await asyncio.sleep(TRIM_EVERY_S)

    # -- intake -----------------------------------------------------------------------------------

    async def take(
        self, query: str, partition: int, epoch: int, first_row: int, payloads: list[bytes]
    ) -> int:
        """Multicast a writer's rows, and return when they are ordered and logged."""
        nbytes = sum(map(len, payloads)) + 64 * len(payloads)
        while self._in_flight and self._in_flight + nbytes > IN_FLIGHT_BYTES_MAX:
            await self._next_move()
        self._in_flight += nbytes
        try:
            return await self._taken(query, partition, epoch, first_row, payloads)
        finally:
            self._in_flight -= nbytes
            self._moved.set()

    async def _taken(
        self, query: str, partition: int, epoch: int, first_row: int, payloads: list[bytes]
    ) -> int:
        group = self._member_now()
        # What an earlier incarnation of the group ordered, this one may not know.
        known = self._keeper.writers.last(query, partition) or (-1, 0)
        done = 0 if epoch > known[0] else max(0, known[1] + 1 - first_row)
        done = len(payloads) if epoch < known[0] else done
        self.counts["rows_known"] += min(done, len(payloads))
        first_row, payloads = first_row + done, payloads[done:]
        if not payloads:
            return self._log.end
        while len(group.members) == 1 and time.monotonic() < self._joined_s + ALONE_S:
            await self._next_move()
            self._still(group)
        await group.multicast_rows(query, partition, epoch, first_row, payloads)
        last = (epoch, first_row + len(payloads) - 1)
        while (group.rows_delivered(query, partition) or (-1, -1)) < last:
            await self._next_move()
            self._still(group)
        sent = group.offset
        while not self._keeper.is_open or self._log.last < self._keeper.base + sent:
            await self._next_move()
            self._still(group)
        self.counts["rows_taken"] += len(payloads)
        return self._keeper.base + sent

    def _member_now(self) -> Group:
        if self._group is None:
            raise Stopped(self._why_away)
        return self._group

    def _still(self, group: Group) -> None:
        if self._group is not group or group.stopped:
            raise Stopped(group.stopped or self._why_away)

    async def _next_move(self) -> None:
        self._moved.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._moved.wait(), LOOK_S)


def _name_in(log: Log) -> str:
    """A feed keeps its name: to a ring with a fixed number of sites, another name would be another
    site, and the first would be missing."""
    name = log.meta(NAME)
    if name is None:
        name = f"feed-{os.urandom(4).hex()}"
        log.append([], {NAME: name})
    return name


def _one(found: list[tuple[str, int]], text: str) -> list[tuple[str, int]]:
    if len(found) != 1:
        raise Misuse(f"--listen {text!r}: give one HOST:PORT")
    return found


def _from_first_view(items: Sequence[Item]) -> list[Item]:
    """Items before the first view belong to failed attempts to join."""
    start = next((at for at, item in enumerate(items) if isinstance(item, View)), len(items))
    return list(items[start:])


def _seq_of(item: Item) -> int:
    return (item.seq or 0) if isinstance(item, View | Message) else 0


def _identity(message: Message) -> tuple[str, int, int]:
    return message.sender.name, message.sender.incarnation, message.number


def _now_us() -> int:
    return time.time_ns() // 1000
