"""The public face: `join` a group, `multicast` to it, iterate over its one ordered stream."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from unisono import config as configs
from unisono.config import Config
from unisono.core import Cause, Congested, Leave, Offer, Request, Setting
from unisono.errors import Misuse, Stopped, TooLarge, UnisonoError
from unisono.group.fed import HEADER_OCTETS_MAX, Fed, Feeding, check_ordered
from unisono.group.joining import Joining
from unisono.group.returning import Returning
from unisono.group.traced import Traced
from unisono.model import Buffer, Member, ServiceLevel, View
from unisono.net import where
from unisono.net.identity import believed, default_name, new_incarnation
from unisono.net.life import RECORDS_COUNT_MAX, Life
from unisono.net.speaker import Full, Speaker
from unisono.net.stable import StableFile
from unisono.net.stream import Batch, Item, Rejoined, Shed, Stable, Stream
from unisono.net.udp import Endpoint

__all__ = ["Batch", "Full", "Group", "Joining", "Rejoined", "Shed", "Stable", "join"]

BATCH_COUNT_MAX = 4096
REOPEN_COUNT_MAX = 8

log = logging.getLogger("unisono.group")


def join(
    group: str | None = None,
    /,
    *,
    config: str | Path | None = None,
    snapshot: Callable[[], bytes] | None = None,
    restore: Callable[[bytes], None] | None = None,
    offer: Offer | None = None,
    **options: Any,
) -> Joining:
    """Join a group: `async with join("orders") as group` or `group = await join("orders")`.

    The group is a name or a URL; `config` a TOML file with a table `[group]`, or a URL; `options`
    are the fields of `Config` and the protocol's own. Keywords win. `snapshot` and `restore` hand
    the application's state to those who join. `offer` brings a protocol outside the catalogue.
    """
    read = configs.read(group, config, options)
    if read.daemon:
        raise Misuse("daemon= is for unisono.join: a member is in the group itself")
    if offer is None:
        from unisono import protocols

        offer = protocols.offer(read.protocol)
    if (snapshot is None) != (restore is None):
        raise Misuse("snapshot= and restore= go together: every member may have to do either")
    configs.check_shedding(read, snapshot is not None)
    return Joining(Group(read, offer, snapshot, restore))


class Group(Feeding):
    """A member's hold on its group. Iterate it, in one place, for messages, views and notices."""

    _local = False  # Not through a daemon.

    def __init__(
        self,
        config: Config,
        offer: Offer,
        snapshot: Callable[[], bytes] | None = None,
        restore: Callable[[bytes], None] | None = None,
    ) -> None:
        self.config = config
        self.protocol = offer.name
        self._offer = offer
        self._options = configs.check_options(config, offer)
        self._levels: dict[ServiceLevel | str | None, ServiceLevel] = {}
        self._levels[None] = (
            self._level(config.service) if config.service else configs.default_service(offer)
        )
        if config.fed:
            check_ordered(self._levels[None], offer.name)
        self._name = config.name or default_name()
        self._with_state = snapshot is not None or config.fed
        self._life: Life | None = None
        self._view: View | None = None
        self._first_view: asyncio.Future[None] | None = None
        self._departed: asyncio.Future[None] | None = None
        self._ended: str | None = None
        self._rejoining: asyncio.Task[None] | None = None
        self._inside = False
        """This life has had a view."""
        self._returning = Returning(self._name, config.rejoin, self._local)
        self._past: Counter[str] = Counter()
        self._remembered: deque[bytes] = deque(maxlen=RECORDS_COUNT_MAX)
        self._known = 0
        """The highest incarnation of our name that we know of, from our file or from others."""
        self._speaker = Speaker(self._returning.unheard)
        bounds = (config.slow, config.queue_count_max, config.queue_octets_max)
        told = (*bounds, self._congested, self._overflowed, snapshot, restore)
        if config.fed:
            self._fed = Fed(config.retain_octets, self._speak, lambda: (self.me, self.view))
        self._stream = self._fed.stream(*told) if self._fed is not None else Stream(*told)

    # -- what is known --------------------------------------------------------------------------

    @property
    def me(self) -> Member:
        """This life of this process, as the others see it."""
        if self._life is None:
            raise Stopped(self._ended or "not joined yet: await join() first")
        return self._life.core.me

    @property
    def view(self) -> View:
        """The last view installed; the stream may not have come to it yet."""
        if self._view is None:
            raise Stopped(self._ended or "not joined yet: await join() first")
        return self._view

    @property
    def members(self) -> tuple[Member, ...]:
        return self.view.members

    @property
    def stopped(self) -> str | None:
        """Why the member is no longer in the group; nothing while it is."""
        return self._ended

    @property
    def blocked(self) -> str:
        """Why the member waits though it is in the group, as a minority does; empty while it can
        work."""
        return self._life.driver.warning if self._life is not None else ""

    def counters(self) -> dict[str, int]:
        """What happened so far, over all lives of this group: packets by kind, drops by reason."""
        found = self._past.copy()
        if self._life is not None and not self._life.counted:
            found.update(self._life.counts())
        found["drop.unsent"] += self._speaker.unsent_count
        found["shed"] += self._stream.shed_count
        found["stream.waiting"] = len(self._stream)
        found["multicast.waiting"] = self._speaker.waiting_count
        if self._fed is not None:
            found.update(self._fed.counts())
        return dict(sorted(found.items()))

    # -- speaking -------------------------------------------------------------------------------

    async def multicast(self, payload: Buffer, service: ServiceLevel | str | None = None) -> int:
        """Say it to the group; waits while the window is full. Returns the message's number."""
        message = self._checked(payload)
        return await self._speaker.say((message,), len(message), self._ready(service))

    async def multicast_many(
        self, payloads: Iterable[Buffer], service: ServiceLevel | str | None = None
    ) -> int:
        """Say them in this order; returns the last one's number. If cancelled while it waits, the
        first of them may have been said."""
        messages = self._all_checked(payloads)
        level = self._ready(service)
        if not messages:
            return 0
        return await self._speaker.say(messages, sum(map(len, messages)), level)

    def multicast_nowait(self, payload: Buffer, service: ServiceLevel | str | None = None) -> int:
        """Say it now, or raise `Full`."""
        message = self._checked(payload)
        return self._speaker.say_nowait((message,), len(message), self._ready(service))

    def request(self, what: str, /, **arguments: int | str | bytes) -> None:
        """Ask for something that only this protocol knows, as a lock; an `Answer` will tell."""
        if what not in self._offer.requests:
            offered = ", ".join(self._offer.requests) or "none"
            raise Misuse(f"{self.protocol} knows no request {what!r}; it knows: {offered}")
        self._ready(None)
        if self._life is not None:
            self._life.driver.feed(Request(what, arguments))

    def _checked(self, payload: Buffer) -> bytes:
        if type(payload) is not bytes:
            if not isinstance(payload, bytes | bytearray | memoryview):
                kind = type(payload).__name__
                raise Misuse(f"a message is bytes, not {kind}: encode it first, as text.encode()")
            payload = bytes(payload)
        if len(payload) > self.config.message_octets_max:
            raise TooLarge(
                f"the message has {len(payload)} bytes, over the group's limit"
                f" message_octets_max={self.config.message_octets_max}: split it or raise the limit"
            )
        return self._fed.sealed(payload) if self._fed is not None else payload

    def _all_checked(self, payloads: Iterable[Buffer]) -> Sequence[bytes]:
        """Where all is in order they are not looked at one by one."""
        messages = list(payloads)
        plain = set(map(type, messages)) <= {bytes} and self._fed is None
        if plain and max(map(len, messages), default=0) <= self.config.message_octets_max:
            return messages  # type: ignore[return-value]
        return [self._checked(payload) for payload in messages]

    async def _speak(
        self, payloads: Sequence[bytes], service: ServiceLevel | str | None = None
    ) -> int:
        """Say what is sealed already."""
        return await self._speaker.say(payloads, sum(map(len, payloads)), self._ready(service))

    def _ready(self, service: ServiceLevel | str | None) -> ServiceLevel:
        if self._ended is not None:
            raise Stopped(self._ended)
        if self._departed is not None:
            raise Stopped("leaving the group")
        try:
            level = self._levels.get(service)
        except TypeError:  # no key, so no level either
            level = None
        return level if level is not None else self._level(service)

    def _level(self, service: ServiceLevel | str | None) -> ServiceLevel:
        level = configs.service_level("" if service is None else service)
        if level not in self._offer.services:
            from unisono import protocols

            configs.check_service(level, self._offer, protocols.offers().values())
        if self.config.fed:
            check_ordered(level, self.protocol)
        if len(self._levels) < 64 and service is not None:
            self._levels[service] = level
        return level

    # -- hearing --------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        return await self._stream.next()

    async def batches(self, count_max: int = BATCH_COUNT_MAX) -> AsyncIterator[Batch]:
        """The same stream, all that waits at once: for those in a hurry."""
        while True:
            try:
                batch = await self._stream.next_batch(count_max)
            except StopAsyncIteration:
                return
            yield batch

    def _congested(self, on: bool) -> None:
        if self._life is not None and self._departed is None:
            self._life.driver.feed(Congested(on))

    def _overflowed(self, reason: str) -> None:
        """Its reader would be as slow in another life."""
        self._returning.give_up()
        if self._life is not None:
            self._life.driver.fail(reason, farewell=Leave())

    # -- coming and going -----------------------------------------------------------------------

    async def _join(self) -> Group:
        if self._first_view is not None:
            raise Misuse("this group was joined already: call join() again for another member")
        self._first_view = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self.config.join_s):
                await self._begin(None)
                await self._first_view
        except TimeoutError:
            reason = self._why_no_view()
            await self._give_up(reason)
            raise Stopped(reason) from None
        except BaseException as error:
            await self._give_up(str(error) or type(error).__name__)
            raise
        return self

    async def _give_up(self, reason: str) -> None:
        """Those who were about to let us in, or have, are told: they need not wait for us."""
        self._ended = self._ended or reason
        try:
            await self._depart()
        finally:  # also when the caller has no more patience
            self._abandon(reason)

    def _why_no_view(self) -> str:
        text = f"no view within join_s={self.config.join_s:g} s"
        if self._life:
            text += f": tried {self.protocol} {self._life.tried()}"
        advice = self._offer.advice(self._options)
        return f"{advice} ({text})" if advice else text

    def _abandon(self, reason: str, clean: bool = False) -> None:
        if self._rejoining is not None:
            self._rejoining.cancel()
        if self._life is not None:
            self._life.close()
        self._finish(reason, None if clean else Stopped(reason))

    async def _begin(self, reason: str | None) -> None:
        """A life begins: the first, or the one after a life that ended for this reason."""
        config = self.config
        if all(where.in_numbers(where.host_and_port(p, "peer")[0]) for p in config.peers):
            at = configs.place(config)
        else:
            at = await asyncio.get_running_loop().run_in_executor(None, configs.place, config)
        with ExitStack() as opened:
            endpoint = Endpoint(
                at,
                buffer_octets=config.buffer_octets,
                send_queue_octets_max=config.send_queue_octets_max,
                offloads=config.offload,
                group=config.group,
            )
            opened.callback(endpoint.close)
            stable = StableFile(config.stable) if config.stable else None
            if stable is not None:
                opened.callback(stable.close)
                self._known = max(self._known, stable.incarnation)
            me = Member(self._name, endpoint.address, new_incarnation(self._known))
            if stable is not None:
                stable.begin(me.incarnation)
            life = self._life = self._made(me, endpoint, stable)
            opened.pop_all()
        self._inside = False
        self._returning.begin(me)
        life.start()
        if not life.driver.finished:
            self._stream.renew()
            self._speaker.begin(life.driver)

    def _made(self, me: Member, endpoint: Endpoint, stable: StableFile | None) -> Life:
        core, ledger = self._offer.make(self._setting(me, endpoint)), None
        if self.config.trace:
            ledger = Traced(core, self._offer, self.config)
            core = ledger.core
        told = (self._arriving, self._installed, self._life_ended)
        heard = (self._stream, self._speaker, self._returning.unheard)
        return Life(endpoint, core, *heard, *told, self._remembered, stable, ledger)

    def _setting(self, me: Member, endpoint: Endpoint) -> Setting:
        return Setting(
            me=me,
            group=self.config.group,
            seed=int.from_bytes(os.urandom(8), "big") >> 1,
            packet_octets_max=min(self.config.packet_octets_max, endpoint.packet_octets_max),
            message_octets_max=self.config.message_octets_max
            + (HEADER_OCTETS_MAX if self._fed is not None else 0),
            window_octets_max=self.config.window_octets_max,
            with_state=self._with_state,
            durable=bool(self.config.stable),
            options=self._options,
            terms=configs.terms(self.config),
        )

    def _life_ended(self, reason: str | None) -> None:
        if self._life is not None:
            self._past.update(self._life.counts())
            self._life.counted = True
            self._known = max(self._known, believed(self._life.driver.known))
        leaving = self._departed is not None
        if reason and self._view is None and f"name {self._name} is taken" in reason:
            reason += ": give another name="
        cause = (self._life and self._life.driver.cause) or Cause.STOPPED
        ended = (reason or "", cause, self._view, self._speaker.silent)
        if reason is not None and not leaving and self._returning.comes_back(*ended):
            self._speaker.end(None)
            self._returning.ended(reason, cause, time.monotonic())
            if self._rejoining is not None:
                self._rejoining.cancel()
            self._rejoining = asyncio.get_running_loop().create_task(self._rejoin(reason))
            return
        text = reason or "left the group"
        self._finish(text, None if reason is None or leaving else Stopped(reason))

    def _finish(self, text: str, error: Stopped | None) -> None:
        self._ended = self._ended or text
        self._speaker.end(Stopped(self._ended))
        self._stream.end(error.reason if error else None)
        if self._fed is not None:
            self._fed.recalls.close()
        if self._first_view is not None and not self._first_view.done():
            self._first_view.set_exception(Stopped(self._ended))
            self._first_view.exception()  # seen, even if nobody waits any more
        if self._departed is not None and not self._departed.done():
            self._departed.set_result(None)

    async def _rejoin(self, reason: str) -> None:
        why = reason
        for _ in range(REOPEN_COUNT_MAX):
            level = logging.WARNING if self.config.rejoin else logging.INFO
            log.log(level, "%s stopped: %s; joining again", self._name, reason)
            await asyncio.sleep(self._returning.next_pause_s() * random.uniform(0.5, 1.5))
            try:
                await self._begin(reason)
            except (UnisonoError, OSError) as error:
                log.warning("%s cannot join again: %s", self._name, error)
                why = f"{reason}; and could not join again: {error}"
            else:
                await asyncio.sleep(self.config.join_s)
                if not self._inside:
                    log.warning("%s is not back, and tries on: %s", self._name, self._why_no_view())
                return
        self._finish(why, Stopped(why))

    def _arriving(self, view: View) -> None:
        """The first view of a life comes next in the stream."""
        again = self._returning.arrived(self.me, view, time.monotonic())
        if again is not None:
            if self._fed is not None:  # Its places are its own, and `messages` has what was missed.
                again = replace(again, missed=None, lost=self._fed.bare(again.lost))
            self._stream.put(again)

    def _installed(self, view: View) -> None:
        self._view = view
        self._inside = True
        if self._first_view is not None and not self._first_view.done():
            self._first_view.set_result(None)

    async def leave(self) -> None:
        """Leave cleanly, within `leave_s`; then the stream ends. Twice is no harm."""
        self._speaker.flush()
        if self._rejoining is not None:
            self._rejoining.cancel()
        try:
            if self._ended is None:
                await self._depart()
        finally:  # also when the caller has no more patience
            self._abandon("left the group", clean=True)

    async def _depart(self) -> None:
        """Say goodbye, and wait until the others have heard it, or `leave_s` is over."""
        life = self._life
        if life is not None and not life.driver.finished:
            if self._departed is None:
                self._departed = asyncio.get_running_loop().create_future()
                self._speaker.end(Stopped("leaving the group"))
                life.driver.feed(Congested(False))
                life.driver.feed(Leave())
            await asyncio.wait([self._departed], timeout=self.config.leave_s)
