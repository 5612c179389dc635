"""The send path of one socket: packets leave in bursts, wait in a bounded queue, or are dropped."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from unisono.model import Burst, Bursts, Packets
from unisono.net import offload
from unisono.sealing.records import OVERHEAD_BYTES
from unisono.sealing.seal import Run, Seal

SEGMENTS_MAX = 64
BYTES_MAX = 65_000
"""The most that one call sends: a UDP datagram of 65,535 bytes, less its headers."""
RETRY_S = 0.001
"""A device without free buffers is polled: it reports nothing when it has some."""

SockAddr: TypeAlias = Any

FULL = frozenset((errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ENOMEM))
REASONS = {
    errno.ECONNREFUSED: "refused",
    errno.ENETUNREACH: "unreachable",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETDOWN: "unreachable",
    errno.ENODEV: "unreachable",
    errno.EADDRNOTAVAIL: "unreachable",
    errno.EMSGSIZE: "too_long",
    errno.EPERM: "forbidden",
    errno.EACCES: "forbidden",
}
"""The counter of packets that the system refuses to send."""


def runs(packets: Packets, overhead: int = 0) -> Iterator[Run]:
    """Cut into runs that fit one call, of equal length except for a shorter last packet; also when
    each packet grows by `overhead`."""
    kind = type(packets)  # They are sequences, of which `isinstance` is slow.
    if kind is Burst:
        yield from _parts(packets, overhead)  # type: ignore[arg-type]
        return
    if kind is Bursts:
        for burst in packets.each():  # type: ignore[union-attr]
            yield from _parts(burst, overhead)
        return
    count = len(packets)
    if count == 1:
        yield packets[0], len(packets[0]), 1
        return
    # Counting and joining run in C: no Python code runs per packet unless lengths differ.
    lengths = list(map(len, packets))
    start = 0
    while start < count:
        size = lengths[start]
        end = min(count, start + _fitting(size + overhead)) if size else start + 1
        if lengths[start:end].count(size) < end - start:
            end = _first_odd(lengths, start, end)
        if end - start == 1:
            yield packets[start], size, 1
        else:
            yield b"".join(packets[start:end]), size, end - start
        start = end


def _fitting(size: int) -> int:
    """How many packets of this size one call sends."""
    return max(1, min(SEGMENTS_MAX, BYTES_MAX // size))


def _parts(burst: Burst, overhead: int) -> Iterator[Run]:
    """Contiguous packets are not copied."""
    buffer, size = burst.buffer, burst.size
    step = size * _fitting(size + overhead) if size else 1
    for start in range(0, len(buffer), step):
        part = buffer[start : start + step]
        yield part, size, -(-len(part) // size)


def _first_odd(lengths: list[int], start: int, end: int) -> int:
    """The end of the run that begins at `start`: after a shorter packet, before a longer one."""
    size = lengths[start]
    for index in range(start + 1, end):
        length = lengths[index]
        if length != size:
            return index + 1 if 0 < length < size else index
    return end


class SendPath:
    """Sends on one socket without blocking the event loop."""

    def __init__(
        self, sock: socket.socket, counts: dict[str, int], queue_bytes_max: int, offloads: bool
    ) -> None:
        self._sock = sock
        self._counts = counts
        self._queue: deque[tuple[SockAddr, Run]] = deque()
        self._queue_bytes = 0
        self._queue_bytes_max = queue_bytes_max
        self._loop: asyncio.AbstractEventLoop | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._segmenting: dict[int, list[tuple[int, int, bytes]]] = {}
        self.segments = offloads and offload.can_segment(sock)
        """Whether bursts leave in one call; False for good once the kernel refuses."""
        self._seal: Seal | None = None

    def use(self, seal: Seal) -> None:
        """Seal every packet from now on."""
        self._seal = seal

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def send(self, targets: Sequence[SockAddr], packets: Packets) -> None:
        seal = self._seal
        if seal is None:
            for run in runs(packets):
                self._send_run(targets, run)
        else:
            for run in runs(packets, OVERHEAD_BYTES):
                self._send_run(targets, seal.seal(run, self.segments))

    def send_sealed(self, to: SockAddr, packet: bytes) -> None:
        """Send a packet that the seal made."""
        self._send_run((to,), (packet, len(packet), 1))

    def _send_run(self, targets: Sequence[SockAddr], run: Run) -> None:
        for to in targets:
            if self._queue:
                self._enqueue(to, run)
            elif rest := self._transmit(to, run):
                self._enqueue(to, rest)

    def _transmit(self, to: SockAddr, run: Run) -> Run | None:
        """Send, or count as dropped. Returns what the full socket did not take."""
        data, size, count = run
        if count == 1 or not self.segments:
            return self._singly(to, run)
        try:
            sent = self._sock.sendmsg((data,), self._cut(size), 0, to)
        except OSError as error:
            if error.errno in offload.REFUSALS:
                return self._singly(to, run, after_refusal=True)
            return run if self._is_full(error, count) else None
        self._sent(count, sent)
        return None

    def _singly(self, to: SockAddr, run: Run, after_refusal: bool = False) -> Run | None:
        data, size, count = run
        whole = memoryview(data)
        for index in range(count):
            start = index * size
            try:
                self._sent(1, self._sock.sendto(whole[start : start + size], to))
            except OSError as error:
                if self._is_full(error, 1):
                    return whole[start:], size, count - index
            else:
                if after_refusal and self.segments:
                    # A single packet passed: the offload was refused, not the packet or its target.
                    self.segments = False
                    self._count("net.offload_refused", 1)
                    offload.log.info("segmentation is refused; datagrams are sent one by one")
        return None

    def _cut(self, size: int) -> list[tuple[int, int, bytes]]:
        found = self._segmenting.get(size)
        if found is None:
            if len(self._segmenting) > 4096:
                self._segmenting.clear()
            found = self._segmenting[size] = offload.segmenting(size)
        return found

    def _is_full(self, error: OSError, packets: int) -> bool:
        """Whether to wait for the socket; otherwise the packets are counted as dropped."""
        if error.errno in FULL:
            self._wait(by_timer=error.errno in (errno.ENOBUFS, errno.ENOMEM))
            return True
        self._count(f"drop.{REASONS.get(error.errno or 0, 'send_error')}", packets)
        return False

    def _sent(self, packets: int, nbytes: int) -> None:
        counts = self._counts
        counts["net.out.calls"] += 1
        counts["net.out.packets"] += packets
        counts["net.out.bytes"] += nbytes

    def _count(self, name: str, packets: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + packets

    # -- the queue ------------------------------------------------------------------------------

    def _enqueue(self, to: SockAddr, run: Run) -> None:
        nbytes = len(run[0])
        if self._queue_bytes + nbytes > self._queue_bytes_max:
            self._count("drop.send_queue", run[2])
            return
        self._queue.append((to, run))
        self._queue_bytes += nbytes

    def _wait(self, by_timer: bool) -> None:
        if self._loop is None:
            return
        if not by_timer:
            self._loop.add_writer(self._sock.fileno(), self.flush)
        elif self._retry is None:
            self._loop.remove_writer(self._sock.fileno())
            self._retry = self._loop.call_later(RETRY_S, self.flush)

    def flush(self) -> None:
        """Send from the queue, as far as the socket takes it."""
        self._retry = None
        queue = self._queue
        while queue:
            to, run = queue.popleft()
            self._queue_bytes -= len(run[0])
            if rest := self._transmit(to, run):
                queue.appendleft((to, rest))
                self._queue_bytes += len(rest[0])
                return
        if self._loop is not None:
            self._loop.remove_writer(self._sock.fileno())

    @property
    def waiting_bytes(self) -> int:
        return self._queue_bytes

    def close(self) -> None:
        """Flush once more; what the socket does not take is counted as dropped."""
        if self._queue:
            self.flush()
        self._count("drop.send_queue", sum(run[2] for _, run in self._queue))
        self._queue.clear()
        self._queue_bytes = 0
        if self._retry is not None:
            self._retry.cancel()
        if self._loop is not None:
            self._loop.remove_writer(self._sock.fileno())
