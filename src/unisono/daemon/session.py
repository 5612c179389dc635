"""One client of a daemon: QSUB, messages it sent that the ring has not accepted, and QCMT, what is
to be delivered to it. Both are bounded; neither delays another client.

QSUB full: the socket is not read, so the client waits. QCMT full: the client is disconnected with a
reason or, if it chose so, its oldest messages are shed and their number is reported.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from unisono.client import frames
from unisono.client.frame_splitter import FrameSplitter
from unisono.client.frames import (
    FRONT_BYTES,
    HELLO_BYTES_MAX,
    SLACK_BYTES,
    FrameKind,
    HelloFrame,
    ShedFrame,
    framed,
)
from unisono.daemon.registry import check_positive
from unisono.errors import BadPacket
from unisono.layout import decode
from unisono.model import Buffer

WRITE_BYTES = 256 << 10
"""Bytes passed to the socket at once."""
BYE_S = 60.0
"""How long a client may take to read why it was disconnected."""
HELLO_S = 10.0
NEAR = 2
"""A full queue is used again once it is down to 1/NEAR of its bound."""


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
    """All QCMTs: beyond it, the client with the longest one is disconnected."""

    def __post_init__(self) -> None:
        check_positive(self)


class Submission(NamedTuple):
    frame: bytes
    messages: int
    """Its messages; 0 for a frame that must not be shed."""
    shed: int = 0


HERE = Submission(b"", 0)
"""Marks, in what is held back, where a state was requested again."""


class SessionHost(Protocol):
    """What a session needs of its daemon."""

    bounds: SessionLimits
    message_bytes_max: int
    counts: Counter[str]

    def queued(self, nbytes: int) -> None:
        """So many bytes more, or fewer, are in a QCMT."""

    def opened(self, session: ClientSession) -> int:
        """Returns its number; `Misuse` if it is refused."""

    def greeted(self, session: ClientSession, hello: HelloFrame) -> None: ...

    def closed(self, session: ClientSession) -> None: ...

    async def pump(self, session: ClientSession) -> None:
        """Take from QSUB until the client is gone."""


class ClientSession(asyncio.Protocol):
    """One connection. It ends when the client leaves, dies or is disconnected."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self._counts = host.counts
        self._splitter = FrameSplitter(HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._pumping: asyncio.Task[None] | None = None
        self._submitted: deque[tuple[int, memoryview]] = deque()
        self._submitted_bytes = 0
        self._reading = True
        self._more = asyncio.Event()
        self._queue: deque[Submission] = deque()
        self._queue_bytes = 0
        self._held: deque[Submission] | None = None
        """What waits until the state has been delivered."""
        self._writing = True
        self.number = 0
        self.hello: HelloFrame | None = None
        self.group = ""
        self.sheds = False
        self.sent_count = 0
        self.requested_states: set[bytes] = set()
        """Keys of the states that it was asked to give."""
        self.ending = ""
        """Why nothing more is read or delivered."""
        self.lost = False
        """The socket is closed."""

    def __str__(self) -> str:
        name = self.hello.name if self.hello else "a client"
        return f"{name} ({self.number})"

    # -- the connection -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES, low=WRITE_BYTES // 4)
        try:
            self.number = self._host.opened(self)
        except Exception as error:  # Whatever is wrong, this client alone ends.
            self.cut(str(error))
            return
        loop = asyncio.get_running_loop()
        self._timeout = loop.call_later(HELLO_S, self.cut, f"no hello within {HELLO_S:g} s")

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self.ending = self.ending or "its connection ended"
        self._forget()
        if self._timeout is not None:
            self._timeout.cancel()
        self._more.set()
        if self._pumping is None:
            self._host.closed(self)

    def data_received(self, data: bytes) -> None:
        if self.ending:
            return
        self._counts["local.in.calls"] += 1
        self._counts["local.in.bytes"] += len(data)
        try:
            for kind, body in self._splitter.feed(data):
                if self.hello is None:
                    self._greet(kind, body)
                else:
                    self._submitted.append((kind, body))
                    self._submitted_bytes += len(body) + FRONT_BYTES
        except BadPacket as error:
            self.bad(error.reason)
            return
        if self._submitted_bytes >= self._host.bounds.submit_bytes_max and self._reading:
            self._reading = False
            self._counts["submit.full"] += 1
            self._writable().pause_reading()
        self._more.set()

    def _greet(self, kind: int, body: memoryview) -> None:
        if kind != FrameKind.HELLO:
            raise BadPacket("foreign")
        self.hello = decode(HelloFrame, body)
        if self._timeout is not None:
            self._timeout.cancel()
        self._splitter.allow(self._host.message_bytes_max + SLACK_BYTES)
        self._host.greeted(self, self.hello)
        if not self.ending:
            self._pumping = asyncio.get_running_loop().create_task(self._pump())

    async def _pump(self) -> None:
        try:
            await self._host.pump(self)
        finally:
            self._pumping = None
            if self.lost:
                self._host.closed(self)

    def _writable(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    # -- QSUB -----------------------------------------------------------------------------------

    async def submitted(self) -> list[tuple[int, memoryview]]:
        """All frames that wait; empty once the client is gone."""
        while not self._submitted and not self.ending:
            self._more.clear()
            await self._more.wait()
        found = list(self._submitted)
        self._submitted.clear()
        return found

    def taken(self, nbytes: int) -> None:
        """The ring accepted this much: there is credit again."""
        self._submitted_bytes -= nbytes
        bound = self._host.bounds.submit_bytes_max
        if not self._reading and self._submitted_bytes * NEAR <= bound and not self.lost:
            self._reading = True
            self._writable().resume_reading()

    # -- QCMT -----------------------------------------------------------------------------------

    @property
    def queue_bytes(self) -> int:
        return self._queue_bytes

    def put(self, frame: bytes, messages: int = 0) -> None:
        """Append to QCMT. Call `flush` after a batch."""
        if self.ending:
            return
        entry = Submission(frame, messages)
        (self._queue if self._held is None else self._held).append(entry)
        self._add(len(frame))
        if self._is_over():
            self._overflow()

    def _add(self, nbytes: int) -> None:
        self._queue_bytes += nbytes
        self._host.queued(nbytes)

    def _is_over(self) -> bool:
        bounds, count = self._host.bounds, len(self._queue) + len(self._held or ())
        if count > bounds.queue_count_max:
            return True
        return self._queue_bytes > bounds.queue_bytes_max and count > 1

    def _overflow(self) -> None:
        self.flush()
        if self._is_over() and self.sheds:
            self._shed()
        if self._is_over():
            bounds, count = self._host.bounds, len(self._queue) + len(self._held or ())
            what = "waits for its state" if self._held is not None else "reads too slowly"
            self.cut(
                f"the client {what}: {count} frames with {self._queue_bytes} bytes wait for it"
                f" (queue_count_max={bounds.queue_count_max},"
                f" queue_bytes_max={bounds.queue_bytes_max})"
            )

    def _shed(self) -> None:
        """Drop the oldest messages, with a notice in their stead. All else stays."""
        kept: list[Submission] = []
        bounds = self._host.bounds
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
            self._counts["shed"] += entry.messages
            if kept and kept[-1].shed:
                shed += kept.pop().shed
            kept.append(Submission(framed(ShedFrame(shed)), 0, shed))
        self._queue.extendleft(reversed(kept))
        self._add(sum(len(entry.frame) for entry in kept))

    @property
    def holds(self) -> bool:
        return self._held is not None

    def hold(self) -> None:
        """Hold back from here on, until the state as of here has come."""
        if self._held is None:
            self._held = deque()
        else:
            # A later state is awaited: what was held before is dropped when it comes.
            self._held.append(HERE)

    def release(self, state: Buffer | None = None) -> None:
        """Deliver the state and what was held back after it; without a state, all of it."""
        held, self._held = list(self._held or ()), None
        if self.ending:
            return
        if state is not None:
            last = max((at for at, entry in enumerate(held) if entry is HERE), default=-1)
            self._add(-sum(len(entry.frame) for entry in held[: last + 1]))
            held = held[last + 1 :]
            self.put(frames.frame(FrameKind.ADOPT, state))
            if self.ending:
                return
        self._queue.extend(entry for entry in held if entry is not HERE)
        if self._is_over():
            self._overflow()

    def flush(self) -> None:
        """Write as much as the socket takes."""
        transport = self._transport
        while self._queue and self._writing and transport is not None and not self.lost:
            batch: list[bytes] = []
            nbytes = 0
            while self._queue and (nbytes < WRITE_BYTES or not batch):
                entry = self._queue.popleft()
                batch.append(entry.frame)
                nbytes += len(entry.frame)
            self._add(-nbytes)
            self._counts["local.out.calls"] += 1
            self._counts["local.out.bytes"] += nbytes
            transport.write(b"".join(batch) if len(batch) > 1 else batch[0])

    def pause_writing(self) -> None:
        self._writing = False

    def resume_writing(self) -> None:
        self._writing = True
        self.flush()

    # -- the end --------------------------------------------------------------------------------

    def bad(self, reason: str) -> None:
        self._counts[f"drop.frame_{reason}"] += 1
        self.cut(f"bad frame ({reason}): use a client of the daemon's version")

    def cut(self, reason: str) -> None:
        """Report the reason to the client and end. What waits in QCMT is dropped."""
        if self.ending:
            return
        self._forget()
        self._last(frames.bye(reason), reason)
        if self.number:
            self._counts["cut"] += 1

    def part(self) -> None:
        """The client left, as it requested: deliver what waits, then end."""
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
        if self._timeout is not None:
            self._timeout.cancel()
        # The transport writes the rest when the socket takes it; BYE_S bounds that.
        self._closing()
        self._timeout = asyncio.get_running_loop().call_later(BYE_S, self._transport.abort)

    def _closing(self) -> None:
        transport = self._writable()
        if self._queue:
            transport.write(b"".join(entry.frame for entry in self._queue))
            self._forget()
        transport.close()

    def _forget(self) -> None:
        self._queue.clear()
        self._held = None
        self._add(-self._queue_bytes)
