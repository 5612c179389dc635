"""The way out of one socket: packets leave in bursts, wait in a bounded queue, or are counted."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from unisono.model import Buffer
from unisono.net import offload

SEGMENTS_MAX = 64
OCTETS_MAX = 65_000
"""One call carries at most this much: what fits a UDP datagram of 65,535 with its headers."""
RETRY_S = 0.001
"""A device without buffers does not say when it has some."""

SockAddr: TypeAlias = Any
Parcel: TypeAlias = tuple[SockAddr, Sequence[Buffer], int]
"""Target, packets, and the size of all but the last, which may be shorter."""

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
"""The name under which a packet that the system would not send is counted."""


def runs(packets: Sequence[Buffer]) -> Iterator[tuple[Sequence[Buffer], int]]:
    """Cut into runs of equal length, the last of each possibly shorter, that fit one call."""
    start, count = 0, len(packets)
    while start < count:
        size = len(packets[start])
        end = start + 1
        limit = min(count, start + min(SEGMENTS_MAX, OCTETS_MAX // size)) if size else end
        while end < limit:
            length = len(packets[end])
            if not 0 < length <= size:
                break
            end += 1
            if length < size:
                break
        yield (packets if end - start == count else packets[start:end]), size
        start = end


class Outbox:
    """Sends on one socket without ever blocking the loop."""

    def __init__(
        self, sock: socket.socket, counts: dict[str, int], queue_octets_max: int, offloads: bool
    ) -> None:
        self._sock = sock
        self._counts = counts
        self._queue: deque[Parcel] = deque()
        self._queue_octets = 0
        self._queue_octets_max = queue_octets_max
        self._loop: asyncio.AbstractEventLoop | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._segmenting: dict[int, list[tuple[int, int, bytes]]] = {}
        self.segments = offloads and offload.can_segment(sock)
        """Whether bursts leave by one call; falls to False for good when the kernel refuses."""

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def send(self, targets: Sequence[SockAddr], packets: Sequence[Buffer]) -> None:
        for run, size in runs(packets):
            for to in targets:
                if self._queue:
                    self._enqueue((to, run, size))
                    continue
                done = self._transmit(to, run, size)
                if done < len(run):
                    self._enqueue((to, run[done:], size))

    def _transmit(self, to: SockAddr, run: Sequence[Buffer], size: int) -> int:
        """How many were dealt with, sent or counted as lost; fewer than all: the socket is full."""
        if len(run) == 1 or not self.segments:
            return self._singly(to, run)
        try:
            sent = self._sock.sendmsg(run, self._cut(size), 0, to)
        except OSError as error:
            if error.errno in offload.REFUSALS:
                return self._singly(to, run, after_refusal=True)
            return self._refused(error, len(run))
        self._sent(len(run), sent)
        return len(run)

    def _singly(self, to: SockAddr, run: Sequence[Buffer], after_refusal: bool = False) -> int:
        for place, packet in enumerate(run):
            try:
                self._sent(1, self._sock.sendto(packet, to))
            except OSError as error:
                if not self._refused(error, 1):
                    return place
            else:
                if after_refusal and self.segments:
                    # The same packet went alone: it was the offload that was refused, not the
                    # packet or its target.
                    self.segments = False
                    self._count("net.offload_refused", 1)
                    offload.log.info("bursts are refused here; datagrams leave one by one")
        return len(run)

    def _cut(self, size: int) -> list[tuple[int, int, bytes]]:
        found = self._segmenting.get(size)
        if found is None:
            if len(self._segmenting) > 4096:
                self._segmenting.clear()
            found = self._segmenting[size] = offload.segmenting(size)
        return found

    def _refused(self, error: OSError, packets: int) -> int:
        """0 when the socket is full, else the packets are lost, and counted."""
        if error.errno in FULL:
            self._wait(by_timer=error.errno in (errno.ENOBUFS, errno.ENOMEM))
            return 0
        self._count(f"drop.{REASONS.get(error.errno or 0, 'send_error')}", packets)
        return packets

    def _sent(self, packets: int, octets: int) -> None:
        counts = self._counts
        counts["net.out.calls"] += 1
        counts["net.out.packets"] += packets
        counts["net.out.octets"] += octets

    def _count(self, name: str, packets: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + packets

    # -- the queue ------------------------------------------------------------------------------

    def _enqueue(self, parcel: Parcel) -> None:
        octets = sum(map(len, parcel[1]))
        if self._queue_octets + octets > self._queue_octets_max:
            self._count("drop.send_queue", len(parcel[1]))
            return
        self._queue.append(parcel)
        self._queue_octets += octets

    def _wait(self, by_timer: bool) -> None:
        if self._loop is None:
            return
        if not by_timer:
            self._loop.add_writer(self._sock.fileno(), self.flush)
        elif self._retry is None:
            self._loop.remove_writer(self._sock.fileno())
            self._retry = self._loop.call_later(RETRY_S, self.flush)

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        self._retry = None
        queue = self._queue
        while queue:
            to, run, size = queue.popleft()
            self._queue_octets -= sum(map(len, run))
            done = self._transmit(to, run, size)
            if done < len(run):
                queue.appendleft((to, run[done:], size))
                self._queue_octets += sum(map(len, run[done:]))
                return
        if self._loop is not None:
            self._loop.remove_writer(self._sock.fileno())

    @property
    def waiting_octets(self) -> int:
        return self._queue_octets

    def close(self) -> None:
        """A last try for what waits; what the socket does not take is lost, and counted."""
        if self._queue:
            self.flush()
        self._count("drop.send_queue", sum(len(run) for _, run, _ in self._queue))
        self._queue.clear()
        self._queue_octets = 0
        if self._retry is not None:
            self._retry.cancel()
        if self._loop is not None:
            self._loop.remove_writer(self._sock.fileno())
