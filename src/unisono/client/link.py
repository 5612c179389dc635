"""One life of a client: its connection to the daemon.

To the group above, a link is what a `Life` with its driver and core is to a member: it is fed the
same events, says what room there is, and tells what happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, cast

from unisono.client import frames
from unisono.client.frames import SLACK_OCTETS, Cutter, Hearing, Kind, Welcome
from unisono.client.where import Door, Unix
from unisono.core import Captured, Cause, Congested, Event, Leave, Multicast
from unisono.errors import BadPacket
from unisono.model import Member, ServiceLevel, View
from unisono.net.stream import AdoptMark, CaptureMark, Entry, Shed, Stable

HELLO_REPLY_OCTETS_MAX = 64 << 10

log = logging.getLogger("unisono.client")


class To(NamedTuple):
    """How a message is said: at which level, to which groups. Stands where a member's own
    messages have the level alone."""

    level: ServiceLevel
    groups: tuple[str, ...]


class Above(Protocol):
    """Those who are told."""

    def welcomed(self, welcome: Welcome) -> None:
        """The daemon answers; nothing was said yet."""

    def heard(self, entries: Sequence[Entry]) -> None: ...

    def installed(self, view: View) -> None: ...

    def stepped(self) -> None:
        """There may be more room, or less."""

    def ended(self, reason: str | None) -> None:
        """The life is over: cleanly, or for this reason."""


class Link(asyncio.Protocol):
    """The connection, from `start` on."""

    def __init__(
        self,
        door: Door,
        above: Above,
        name: str,
        incarnation: int,
        window_octets_max: int,
        first: bytes = b"",
    ) -> None:
        """`first` goes behind the hello: what asks to be let into a group."""
        self.finished = self.counted = False
        self.driver = self.core = self
        self.welcome: Welcome | None = None
        self.cause: Cause | None = None
        self.known = 0
        self.warning = ""
        """Why the daemon waits, as a minority does."""
        self._door, self._above = door, above
        self._name, self._incarnation = name, incarnation
        self._window_octets_max = window_octets_max
        self._first = first
        self._cutter = Cutter(HELLO_REPLY_OCTETS_MAX)
        self._hearing = Hearing()
        self._view: View | None = None
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._heads: dict[To, bytes] = {}
        self._leaving = False
        self._congested = False
        self._counts: Counter[str] = Counter()

    @property
    def me(self) -> Member:
        assert self.welcome is not None, "asked before the daemon answered"
        return Member(self._name, self.welcome.address, self._incarnation)

    def counts(self) -> Counter[str]:
        return self._counts.copy()

    def tried(self) -> str:
        state = "answered" if self.welcome else "connected" if self._transport else "not connected"
        return f"at {self._door}: {state}"

    def room(self) -> int:
        """What the socket has not taken yet is the window."""
        if self._transport is None or self.welcome is None or self._leaving or self.finished:
            return 0
        if self._first and self._view is None:
            return 0
        return max(0, self._window_octets_max - self._transport.get_write_buffer_size())

    # -- the connection -------------------------------------------------------------------------

    def start(self) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop, door = asyncio.get_running_loop(), self._door
        try:
            if isinstance(door, Unix):
                await loop.create_unix_connection(lambda: self, door.path)
            else:
                await loop.create_connection(lambda: self, door.host, door.port)
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            self._end(
                f"no daemon answers at {door} ({why}): start one with"
                f" unisono daemon --listen {door}"
            )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.finished:
            self._transport.abort()
            return
        # Well below the window, so that there is a word when it opens again.
        half = self._window_octets_max // 2
        self._transport.set_write_buffer_limits(high=half, low=half // 2)
        self._write(frames.hello(self._name, self._incarnation) + self._first)
        self._hold_back()

    def connection_lost(self, error: Exception | None) -> None:
        why = f" ({error})" if error else ""
        self._end(
            f"the daemon at {self._door} is gone: the connection ended{why};"
            " join again when it is back, or with rejoin=True"
        )

    def data_received(self, data: bytes) -> None:
        self._counts["local.in.calls"] += 1
        self._counts["local.in.octets"] += len(data)
        entries: list[Entry] = []
        try:
            for kind, body in self._cutter.feed(data):
                if self.finished:
                    return
                self._take(kind, body, entries)
        except BadPacket as error:
            self._end(f"the daemon at {self._door} does not speak as this client does ({error})")
        if entries and not self.finished:
            self._above.heard(entries)

    def resume_writing(self) -> None:
        self._above.stepped()

    def _write(self, octets: bytes) -> None:
        if self._transport is not None and not self.finished:
            self._counts["local.out.calls"] += 1
            self._counts["local.out.octets"] += len(octets)
            self._transport.write(octets)

    # -- what the daemon says -------------------------------------------------------------------

    def _take(self, kind: int, body: memoryview, entries: list[Entry]) -> None:
        if kind == Kind.DELIVER:
            if self._view is None:
                raise BadPacket("no_view")
            found = self._hearing.messages(body, self._view.id)
            self._counts["in.message"] += len(found)
            entries += found
        elif kind == Kind.VIEW:
            self._view = frames.read_view(body, self._view)
            entries.append(self._view)
            # The view is in the stream when those are told who wait for it.
            self._pass(entries)
            self._above.installed(self._view)
            self._above.stepped()
        elif kind == Kind.STABLE:
            id_ = self._view.id if self._view else ""
            entries.append(Stable(tuple(self._hearing.messages(body, id_))))
        elif kind == Kind.BLOCKED:
            self.warning = frames.read_bye(body)
        elif kind == Kind.SHED:
            entries.append(Shed(frames.read_shed(body)))
        elif kind == Kind.CAPTURE:
            entries.append(CaptureMark(bytes(body), self._captured))
        elif kind == Kind.ADOPT:
            entries.append(AdoptMark(bytes(body)))
        elif kind == Kind.WELCOME:
            self.welcome = frames.read_welcome(body)
            longest = self.welcome.message_octets_max + SLACK_OCTETS
            self._cutter.octets_max = max(longest, frames.VIEW_OCTETS_MAX)
            self._above.welcomed(self.welcome)
            self._above.stepped()
        else:
            self._pass(entries)
            if kind == Kind.BYE:
                self._end(frames.read_bye(body))
            elif kind == Kind.LEFT:
                self._end(None)
            else:
                raise BadPacket("kind")

    def _pass(self, entries: list[Entry]) -> None:
        if entries:
            self._above.heard(entries[:])
            entries.clear()

    # -- what the group feeds -------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        if self.finished:
            return
        if isinstance(event, Multicast):
            self._submit(event.messages, cast(To, event.service))
        elif isinstance(event, Congested):
            self._congested = event.on
            self._hold_back()
        elif isinstance(event, Leave):
            self.leave()
        elif isinstance(event, Captured):
            self._write(frames.state(cast(bytes, event.key), event.state))

    def fail(self, reason: str, farewell: Event | None = None) -> None:
        if isinstance(farewell, Leave):
            self._write(frames.frame(Kind.LEAVE))
        self._end(reason)

    def _submit(self, messages: Sequence[bytes], to: To) -> None:
        head = self._heads.get(to)
        if head is None:
            if len(self._heads) >= frames.SENDERS_COUNT_MAX:
                self._heads.clear()
            head = self._heads[to] = frames.submit_head(to.level, to.groups)
        bundles: list[bytes] = []
        frames.cut_into_bundles(
            messages, lambda bundle: bundles.append(frames.submit(head, bundle))
        )
        self._counts["out.message"] += len(messages)
        self._write(b"".join(bundles) if len(bundles) > 1 else bundles[0])
        self._above.stepped()

    def _hold_back(self) -> None:
        """While the reader is slow, what comes stays in the socket."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._congested:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _captured(self, key: Hashable, state: bytes) -> None:
        assert isinstance(key, bytes)
        limit = self.welcome.message_octets_max if self.welcome else 0
        if len(state) <= limit:
            self.feed(Captured(key, state))
            return
        why = f"the state of {self._name} has {len(state)} bytes, over message_octets_max={limit}"
        log.warning("%s: whoever joins gets none", why)
        self._write(frames.state(key, why.encode(), failed=True))

    def leave(self) -> None:
        self._leaving = True
        if self.welcome is None:
            self._end(None)
        else:
            self._write(frames.frame(Kind.LEAVE))

    # -- the end --------------------------------------------------------------------------------

    def _end(self, reason: str | None) -> None:
        if not self.finished:
            self.close()
            self._above.ended(None if self._leaving else reason)

    def close(self) -> None:
        """End at once and tell nobody. Twice is no harm."""
        self.finished = True
        if self._connecting is not None and self._connecting is not _current():
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.close()


def _current() -> asyncio.Task[object] | None:
    with contextlib.suppress(RuntimeError):
        return asyncio.current_task()
    return None
