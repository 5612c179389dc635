"""The way in: reads until dry, into buffers that stay whole as long as someone looks at them.

A read that brings little is copied, so that a kept packet of 60 bytes never holds a large buffer.
A read that brings much stays where the kernel put it: in a slab of which the next read takes the
next part. A slab that is full goes to the end of a short ring and is used again when it comes round
and nobody holds a view of it any more; otherwise it is left to its holders and a new one is made.
"""

from __future__ import annotations

import socket
from collections import deque

from unisono.model import Address, Buffer, Burst, Packets
from unisono.net import offload

DATAGRAM_OCTETS_MAX = 65_536
SLAB_OCTETS = 8 * DATAGRAM_OCTETS_MAX
SLABS_KEPT_MAX = 4
COPIED_OCTETS_MAX = 4096
READS_MAX = 64
READ_OCTETS_MAX = 1 << 20
"""One wake-up reads at most this much, so that timers and senders have their turn."""
SOURCES_KNOWN_MAX = 1024
ANCILLARY_OCTETS = 64


class Inbox:
    """Reads the datagrams of a member's sockets."""

    def __init__(self, counts: dict[str, int], me: Address | None = None) -> None:
        self._counts = counts
        self._me = me
        self._slabs: deque[bytearray] = deque()
        self._slab = bytearray(SLAB_OCTETS)
        self._whole = memoryview(self._slab)
        self._at = 0
        self._sources: dict[object, Address] = {}

    def read(self, sock: socket.socket) -> list[tuple[Address, Packets]]:
        """What waits in the socket, up to the bound; nothing when it is dry."""
        found: list[tuple[Address, Packets]] = []
        octets = packets = calls = 0
        receive = sock.recvmsg_into
        region = self._region()
        try:
            while calls < READS_MAX and octets < READ_OCTETS_MAX:
                size, ancillary, flags, origin = receive([region], ANCILLARY_OCTETS)
                calls += 1
                if flags & socket.MSG_TRUNC:
                    self._count("drop.truncated")
                    continue
                source = self._sources.get(origin) or self._source(origin)
                if source is self._me:
                    self._count("net.in.echo")
                    continue
                octets += size
                segment = offload.segment_size(ancillary, size) if ancillary else size
                packets += -(-size // segment) if size else 1
                if size <= COPIED_OCTETS_MAX:
                    self._add(found, source, memoryview(bytes(region[:size])), segment)
                else:
                    self._add(found, source, region[:size], segment)
                    self._at += size
                    region = self._region()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            # An answer of the network to something we sent; the socket itself is well.
            self._count(f"net.in.error_{error.errno}")
        counts = self._counts
        counts["net.in.calls"] += calls
        counts["net.in.packets"] += packets
        counts["net.in.octets"] += octets
        return found

    @staticmethod
    def _add(
        found: list[tuple[Address, Packets]], source: Address, view: memoryview, segment: int
    ) -> None:
        if segment < len(view):
            found.append((source, Burst(view, segment)))
            return
        if found and found[-1][0] is source:
            last = found[-1][1]
            if isinstance(last, list):  # single datagrams side by side are one burst to the core
                last.append(view)
                return
        single: list[Buffer] = [view]
        found.append((source, single))

    def _source(self, origin: tuple[str, int]) -> Address:
        if len(self._sources) >= SOURCES_KNOWN_MAX:
            self._sources.clear()
        address = Address(origin[0].partition("%")[0], origin[1])
        if address == self._me:
            address = self._me
        self._sources[origin] = address
        return address

    def _region(self) -> memoryview:
        """Room for one whole datagram."""
        if self._at + DATAGRAM_OCTETS_MAX > SLAB_OCTETS:
            self._slabs.append(self._slab)
            self._whole.release()
            self._slab = self._free_slab()
            self._whole = memoryview(self._slab)
            self._at = 0
        return self._whole[self._at : self._at + DATAGRAM_OCTETS_MAX]

    def _free_slab(self) -> bytearray:
        if len(self._slabs) < SLABS_KEPT_MAX:
            return bytearray(SLAB_OCTETS)
        slab = self._slabs.popleft()
        try:
            # A bytearray cannot change its size while any view of it lives.
            slab.pop()
            slab.append(0)
        except BufferError:
            return bytearray(SLAB_OCTETS)
        return slab

    def _count(self, name: str) -> None:
        self._counts[name] = self._counts.get(name, 0) + 1
