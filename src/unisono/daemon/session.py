"""One client of a daemon: QSUB, what it said and the ring has not taken yet, and QCMT, what is to
be delivered to it. Both are bounded; neither ever makes another client wait.

QSUB full: its socket is not read any more, so the client waits. QCMT full: the client is cut off
with a reason or, if it asked for that, its oldest messages are shed and it is told how many.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from unisono.client import frames
from unisono.client.frames import (
    FRONT_BYTES,
    HELLO_BYTES_MAX,
    SLACK_BYTES,
    FrameKind,
    FrameSplitter,
    HelloFrame,
    ShedFrame,
    framed,
)
from unisono.daemon.registry import check_positive
from unisono.errors import BadPacket
from unisono.layout import decode
from unisono.model import Buffer

WRITE_BYTES = 256 << 10
"""So much is handed to the system at once."""
BYE_S = 60.0
"""So long a client may take to read why it was cut off."""
HELLO_S = 10.0
NEAR = 2
"""A queue is read again, or may be filled again, when it is down to one in so many."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Of one client; `clients` and `all_bytes` of all of them together."""

    clients_count_max: int = 1024
    submit_bytes_max: int = 1 << 20
    """QSUB; one message may be larger."""
    queue_bytes_max: int = 64 << 20
    """QCMT; one message may be larger."""
    queue_count_max: int = 65_536
    """Frames in QCMT."""
    all_bytes_max: int = 1 << 30
    """All QCMTs: beyond it, the client with the longest is cut off."""

    def __post_init__(self) -> None:
        check_positive(self)


class Submission(NamedTuple):
    frame: bytes
    messages: int
    """How many it has: 0 for what must not be shed."""
    shed: int = 0


HERE = Submission(b"", 0)
"""The place, among what is held back, of a state that was asked for again."""


class SessionHost(Protocol):
    """What a session needs of its daemon."""

    bounds: SessionLimits
    message_bytes_max: int
    counts: Counter[str]
    octets: int
    """In all QCMTs."""

    def opened(self, session: ClientSession) -> int:
        """Its number, or an error that says why not."""

    def hailed(self, session: ClientSession, hello: HelloFrame) -> None: ...

    def closed(self, session: ClientSession) -> None: ...

    async def pump(self, session: ClientSession) -> None:
        """Take from QSUB until the client is gone."""


class ClientSession(asyncio.Protocol):
    """One connection. It ends in one of three ways: the client goes, dies, or is cut off."""

    def __init__(self, site: SessionHost) -> None:
        self._site = site
        self._cutter = FrameSplitter(HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._late: asyncio.TimerHandle | None = None
        self._pumping: asyncio.Task[None] | None = None
        self._submitted: deque[tuple[int, memoryview]] = deque()
        self._submitted_bytes = 0
        self._reading = True
        self._more = asyncio.Event()
        self._queue: deque[Submission] = deque()
        self._queue_bytes = 0
        self._held: deque[Submission] | None = None
        """What waits for the state that goes before it."""
        self._writing = True
        self.number = 0
        self.hello: HelloFrame | None = None
        self.group = ""
        self.sheds = False
        self.said_count = 0
        self.asked: set[bytes] = set()
        """The states that it was asked for."""
        self.ending = ""
        """Why nothing more is read or delivered."""
        self.lost = False
        """The socket is closed."""

    def __str__(self) -> str:
        who = self.hello.name if self.hello else "a client"
        return f"{who} ({self.number})"

    # -- the connection -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES, low=WRITE_BYTES // 4)
        try:
            self.number = self._site.opened(self)
        except Exception as error:  # whatever is wrong, this one client is told
            self.cut(str(error))
            return
        loop = asyncio.get_running_loop()
        self._late = loop.call_later(HELLO_S, self.cut, f"no hello within {HELLO_S:g} s")

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self.ending = self.ending or "its connection ended"
        self._forget()
        if self._late is not None:
            self._late.cancel()
        self._more.set()
        if self._pumping is None:
            self._site.closed(self)

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        if self.ending:
            return
        self._site.counts["local.in.calls"] += 1
        self._site.counts["local.in.octets"] += len(data)
        try:
            for kind, body in self._cutter.feed(data):
                if self.hello is None:
                    self._hail(kind, body)
                else:
                    self._submitted.append((kind, body))
                    self._submitted_bytes += len(body) + FRONT_BYTES
        except BadPacket as error:
            self.bad(error.reason)
            return
        if self._submitted_bytes >= self._site.bounds.submit_bytes_max and self._reading:
            self._reading = False
            self._site.counts["submit.full"] += 1
            self._tell().pause_reading()
        self._more.set()

    def _hail(self, kind: int, body: memoryview) -> None:
        if kind != FrameKind.HELLO:
            raise BadPacket("foreign")
        self.hello = decode(HelloFrame, body)
        if self._late is not None:
            self._late.cancel()
        self._cutter.bytes_max = self._site.message_bytes_max + SLACK_BYTES
        self._site.hailed(self, self.hello)
        if not self.ending:
            self._pumping = asyncio.get_running_loop().create_task(self._pump())

    async def _pump(self) -> None:
        try:
            await self._site.pump(self)
        finally:
            self._pumping = None
            if self.lost:
                self._site.closed(self)

    def _tell(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    # -- QSUB -----------------------------------------------------------------------------------

    async def submitted(self) -> list[tuple[int, memoryview]]:
        """All frames that wait; none when the client is gone and none is left."""
        while not self._submitted and not self.ending:
            self._more.clear()
            await self._more.wait()
        found = list(self._submitted)
        self._submitted.clear()
        return found

    def taken(self, octets: int) -> None:
        """The ring has taken so much of it: there is room again."""
        self._submitted_bytes -= octets
        bound = self._site.bounds.submit_bytes_max
        if not self._reading and self._submitted_bytes * NEAR <= bound and not self.lost:
            self._reading = True
            self._tell().resume_reading()

    # -- QCMT -----------------------------------------------------------------------------------

    @property
    def queue_bytes(self) -> int:
        return self._queue_bytes

    def put(self, frame: bytes, messages: int = 0) -> None:
        """At the end of QCMT; `flush` when all that happened at once is there."""
        if self.ending:
            return
        entry = Submission(frame, messages)
        (self._queue if self._held is None else self._held).append(entry)
        self._add(len(frame))
        if self._is_over():
            self._overflow()

    def _add(self, octets: int) -> None:
        self._queue_bytes += octets
        self._site.octets += octets

    def _is_over(self) -> bool:
        bounds, count = self._site.bounds, len(self._queue) + len(self._held or ())
        if count > bounds.queue_count_max:
            return True
        return self._queue_bytes > bounds.queue_bytes_max and count > 1

    def _overflow(self) -> None:
        self.flush()
        if self._is_over() and self.sheds:
            self._shed()
        if self._is_over():
            bounds, count = self._site.bounds, len(self._queue) + len(self._held or ())
            what = "waits for its state" if self._held is not None else "reads too slowly"
            self.cut(
                f"the client {what}: {count} frames with {self._queue_bytes} bytes wait for it"
                f" (queue_count_max={bounds.queue_count_max},"
                f" queue_bytes_max={bounds.queue_bytes_max})"
            )

    def _shed(self) -> None:
        """The oldest messages go; a notice stands where they stood. All else stays."""
        kept: list[Submission] = []
        bounds = self._site.bounds
        while self._queue and (
            NEAR * self._queue_bytes > bounds.queue_bytes_max
            or NEAR * (len(self._queue) + len(kept)) > bounds.queue_count_max
        ):
            entry = self._queue.popleft()
            self._add(-len(entry.frame))
            shed = entry.messages + entry.shed
            if not shed:
                kept.append(entry)
                continue
            self._site.counts["shed"] += entry.messages
            if kept and kept[-1].shed:
                shed += kept.pop().shed
            kept.append(Submission(framed(ShedFrame(shed)), 0, shed))
        self._queue.extendleft(reversed(kept))
        self._add(sum(len(entry.frame) for entry in kept))

    @property
    def holds(self) -> bool:
        return self._held is not None

    def hold(self) -> None:
        """From here on, wait for the state of this place."""
        if self._held is None:
            self._held = deque()
        else:
            # That of another, later place: what was held before is dropped when it comes.
            self._held.append(HERE)

    def release(self, state: Buffer | None = None) -> None:
        """The state and what was held back after its place; without one, all that was."""
        held, self._held = list(self._held or ()), None
        if self.ending:
            return
        if state is not None:
            last = max((at for at, entry in enumerate(held) if entry is HERE), default=-1)
            self._add(-sum(len(entry.frame) for entry in held[: last + 1]))
            held = held[last + 1 :]
            self.put(frames.adopt(state))
            if self.ending:
                return
        self._queue.extend(entry for entry in held if entry is not HERE)
        if self._is_over():
            self._overflow()

    def flush(self) -> None:
        """Hand over as much as the socket takes."""
        transport = self._transport
        while self._queue and self._writing and transport is not None and not self.lost:
            batch: list[bytes] = []
            octets = 0
            while self._queue and (octets < WRITE_BYTES or not batch):
                entry = self._queue.popleft()
                batch.append(entry.frame)
                octets += len(entry.frame)
            self._add(-octets)
            self._site.counts["local.out.calls"] += 1
            self._site.counts["local.out.octets"] += octets
            transport.write(b"".join(batch) if len(batch) > 1 else batch[0])

    def pause_writing(self) -> None:
        self._writing = False

    def resume_writing(self) -> None:
        self._writing = True
        self.flush()

    # -- the end --------------------------------------------------------------------------------

    def bad(self, reason: str) -> None:
        self._site.counts[f"drop.frame_{reason}"] += 1
        self.cut(f"bad frame ({reason}): the client does not speak as this daemon does")

    def cut(self, reason: str) -> None:
        """Tell the client why, and end. What it was to hear after this place is dropped."""
        if self.ending:
            return
        self._forget()
        self._last(frames.bye(reason), reason)
        if self.number:
            self._site.counts["cut"] += 1

    def part(self) -> None:
        """The client is out, as it asked: all it was to hear goes before the last word."""
        if not self.ending:
            self._last(frames.frame(FrameKind.LEFT), "left")

    def _last(self, frame: bytes, why: str) -> None:
        self._held = None
        self._queue.append(Submission(frame, 0))
        self._add(len(frame))
        self.flush()
        self.ending = why
        self._more.set()
        if self._transport is None or self.lost:
            return
        if self._late is not None:
            self._late.cancel()
        # What is left is written when the socket takes it, or dropped when it never does.
        self._closing()
        self._late = asyncio.get_running_loop().call_later(BYE_S, self._transport.abort)

    def _closing(self) -> None:
        transport = self._tell()
        if self._queue:
            transport.write(b"".join(entry.frame for entry in self._queue))
            self._forget()
        transport.close()

    def _forget(self) -> None:
        self._queue.clear()
        self._held = None
        self._add(-self._queue_bytes)
