"""Sessions through the local daemon: frames on a socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Final

from unisono.client import frames
from unisono.client.frame_splitter import FrameSplitter
from unisono.client.frames import (
    SLACK_BYTES,
    BundleReader,
    FrameKind,
    PlacedFrame,
    ShedFrame,
    StateFrame,
    WelcomeFrame,
    framed,
)
from unisono.client.listen_address import ListenAddress, Unix
from unisono.client.lock_frames import AnswerFrame, LockFrame
from unisono.core import Cause, Request
from unisono.errors import BadPacket
from unisono.group.session import SessionEvents
from unisono.layout import decode
from unisono.model import Member, ServiceLevel, View
from unisono.net.handle import Placement
from unisono.net.stream import CaptureMark, Shed, Stable, Unstable, progress_notice
from unisono.parts.message_runs import MessageRun, MessageRuns
from unisono.requests import AcquireLock, ReleaseLock

HELLO_REPLY_BYTES_MAX = 64 << 10

log = logging.getLogger("unisono.client")


class DaemonSession(asyncio.Protocol):
    """One connection to the daemon, from `start` on; in one group, or in none to send only."""

    cause: Final[Cause | None] = None
    """The daemon reports reasons as text only."""

    def __init__(
        self,
        address: ListenAddress,
        events: SessionEvents,
        welcomed: Callable[[WelcomeFrame], None],
        name: str,
        incarnation: int,
        window_bytes_max: int,
        group: str = "",
        join: bytes = b"",
    ) -> None:
        """`welcomed` is called before the first event; `join` is the frame that joins the group."""
        self.finished = False
        self.welcome: WelcomeFrame | None = None
        self.warning = ""
        self._address, self._events, self._welcomed = address, events, welcomed
        self._name, self._incarnation = name, incarnation
        self._window_bytes_max = window_bytes_max
        self._group, self._join = group, join
        self._splitter = FrameSplitter(HELLO_REPLY_BYTES_MAX)
        self._bundles = BundleReader()
        self._runs: list[MessageRun] = []
        """Of the frames at hand, those not yet delivered."""
        self._me: Member | None = None
        self._view: View | None = None
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._heads: dict[tuple[ServiceLevel, tuple[str, ...]], bytes] = {}
        self._leaving = False
        self._congested = False
        self._counts: Counter[str] = Counter()

    def counts(self) -> Counter[str]:
        return self._counts.copy()

    def describe(self) -> str:
        state = "answered" if self.welcome else "connected" if self._transport else "not connected"
        return f"at {self._address}: {state}"

    def send_credit(self) -> int:
        """The window, less what the socket has not accepted yet."""
        if self._transport is None or self.welcome is None or self._leaving or self.finished:
            return 0
        if self._join and self._view is None:
            return 0
        return max(0, self._window_bytes_max - self._transport.get_write_buffer_size())

    # -- the connection -------------------------------------------------------------------------

    def start(self) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop, address = asyncio.get_running_loop(), self._address
        try:
            if isinstance(address, Unix):
                transport, _ = await loop.create_unix_connection(lambda: self, address.path)
            else:
                transport, _ = await loop.create_connection(
                    lambda: self, address.host, address.port
                )
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            self._end(
                f"no daemon answers at {address} ({why}): start one with"
                f" unisono daemon --listen {address}"
            )
            return
        if self.finished:
            transport.abort()
            return
        self._transport = transport
        # Well below the window, so that `resume_writing` is called when it opens again.
        half = self._window_bytes_max // 2
        transport.set_write_buffer_limits(high=half, low=half // 2)
        self._write(frames.hello(self._name, self._incarnation) + self._join)
        self._hold_back()

    def connection_lost(self, error: Exception | None) -> None:
        why = f" ({error})" if error else ""
        self._end(
            f"the daemon at {self._address} is gone: the connection ended{why};"
            " join again when it is back, or with rejoin=True"
        )

    def data_received(self, data: bytes) -> None:
        self._counts["local.in.calls"] += 1
        self._counts["local.in.bytes"] += len(data)
        try:
            for kind, body in self._splitter.feed(data):
                if self.finished:
                    return
                self._take(kind, body)
        except BadPacket as error:
            self._end(f"bad frame from the daemon at {self._address} ({error}): use one version")
        if not self.finished:
            self._deliver()

    def resume_writing(self) -> None:
        self._events.stepped()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self.finished:
            self._counts["local.out.calls"] += 1
            self._counts["local.out.bytes"] += len(data)
            self._transport.write(data)

    # -- what the daemon reports ----------------------------------------------------------------

    def _take(self, kind: int, body: memoryview) -> None:
        if kind == FrameKind.DELIVER:
            if self._view is None:
                raise BadPacket("no_view")
            run = self._bundles.run(body, self._view.id)
            self._counts["in.message"] += run.times
            self._runs.append(run)
        elif kind == FrameKind.BLOCKED:
            self._deliver()
            if (why := frames.read_bye(body)) != self.warning:
                self.warning = why
                self._events.put(progress_notice(why))
        else:
            self._deliver()
            self._take_notice(kind, body)

    def _deliver(self) -> None:
        if self._runs:
            runs, self._runs = self._runs, []
            self._events.deliver(MessageRuns(runs))

    def _take_notice(self, kind: int, body: memoryview) -> None:
        """Handle any other frame, in order among the messages."""
        if kind == FrameKind.VIEW:
            self._view = self._seen(frames.read_view(body, self._view))
            self._events.install(self._view)
            self._events.stepped()
        elif kind in (FrameKind.STABLE, FrameKind.UNSTABLE):
            about = tuple(self._bundles.run(body, self._view.id if self._view else "").messages())
            is_stable = kind == FrameKind.STABLE
            self._events.put(Stable(about) if is_stable else Unstable(about, Cause.TOO_FEW))
        elif kind == FrameKind.SHED:
            self._events.put(Shed(decode(ShedFrame, body).messages))
        elif kind == FrameKind.PLACED:
            number, messages, seq, refused = decode(PlacedFrame, body)
            self._events.place(Placement(number, messages, seq or None, refused))
        elif kind == FrameKind.ANSWER:
            self._events.put(decode(AnswerFrame, body).answer())
        elif kind == FrameKind.CAPTURE:
            self._events.put(CaptureMark(bytes(body), self._captured))
        elif kind == FrameKind.ADOPT:
            self._events.adopt(bytes(body))
        elif kind == FrameKind.WELCOME:
            self._take_welcome(decode(WelcomeFrame, body))
        elif kind == FrameKind.BYE:
            self._end(frames.read_bye(body))
        elif kind == FrameKind.LEFT:
            self._end(None)
        else:
            raise BadPacket("kind")

    def _seen(self, view: View) -> View:
        """All clients of a daemon are sent the same changes: some are local to this one."""
        if self._me is None:
            raise BadPacket("no_welcome")
        changes = [seen for change in view.changes for seen in change.seen_by(self._me)]
        return replace(view, changes=tuple(changes))

    def _take_welcome(self, welcome: WelcomeFrame) -> None:
        self.welcome = welcome
        longest = welcome.message_bytes_max + SLACK_BYTES
        self._splitter.allow(max(longest, frames.VIEW_BYTES_MAX))
        self._welcomed(welcome)
        self._me = Member(self._name, welcome.address, self._incarnation)
        self._events.opened(self._me)
        self._events.stepped()

    # -- Session --------------------------------------------------------------------------------

    def submit(
        self, messages: Sequence[bytes], service: ServiceLevel, groups: tuple[str, ...]
    ) -> None:
        if self.finished:
            return
        head = self._heads.get((service, groups))
        if head is None:
            if len(self._heads) >= frames.SENDERS_COUNT_MAX:
                self._heads.clear()
            head = frames.submit_head(service, groups or (self._group,))
            self._heads[service, groups] = head
        submits = [frames.submit(head, bundle) for bundle in frames.bundles(messages)]
        self._counts["out.message"] += len(messages)
        self._write(b"".join(submits) if len(submits) > 1 else submits[0])
        self._events.stepped()

    def request(self, request: Request) -> None:
        assert isinstance(request.what, AcquireLock | ReleaseLock)
        self._write(framed(LockFrame.of(request.key, request.what)))

    def congested(self, on: bool) -> None:
        self._congested = on
        self._hold_back()

    def fail(self, reason: str) -> None:
        self._write(frames.frame(FrameKind.LEAVE))
        self._end(reason)

    def _hold_back(self) -> None:
        """While the reader is slow, leave incoming data in the socket."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._congested:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _captured(self, key: Hashable, state: bytes) -> None:
        assert isinstance(key, bytes)
        limit = self.welcome.message_bytes_max if self.welcome else 0
        if len(state) <= limit:
            self._write(framed(StateFrame(False, key, state)))
            return
        why = f"the state of {self._name} has {len(state)} bytes, over message_bytes_max={limit}"
        log.warning("%s: joiners get no state", why)
        self._write(framed(StateFrame(True, key, why.encode())))

    def leave(self) -> None:
        self._leaving = True
        if self.welcome is None:
            self._end(None)
        else:
            self._write(frames.frame(FrameKind.LEAVE))

    # -- the end --------------------------------------------------------------------------------

    def _end(self, reason: str | None) -> None:
        if not self.finished:
            self.close()
            self._events.ended(None if self._leaving else reason)

    def close(self) -> None:
        self.finished = True
        if self._connecting is not None and self._connecting is not _current():
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.close()


def _current() -> asyncio.Task[object] | None:
    with contextlib.suppress(RuntimeError):
        return asyncio.current_task()
    return None
