"""The receive path: reads until the socket is empty, into buffers that last while referenced.

A small read is copied, so that a kept packet of 60 bytes does not hold a large buffer. A large read
stays where the kernel put it, in a slab; the next read takes the next part. A slab without views is
reused from its start, while it is warm in the cache; a full slab with views is replaced by another
and tried again later.
"""

from __future__ import annotations

import socket
from collections import deque
from sys import byteorder

from unisono.model import Address, Buffer, Burst, Packets

DATAGRAM_BYTES_MAX = 65_536
SLAB_BYTES = 10 * DATAGRAM_BYTES_MAX
SLABS_KEPT_MAX = 4
COPIED_BYTES_MAX = 4096
READS_MAX = 64
READ_BYTES_MAX = 512 << 10
"""The most that one wake-up reads, so that timers and senders are served."""
SOURCES_KNOWN_MAX = 1024
ANCILLARY_BYTES = 64
MSG_TRUNC = int(socket.MSG_TRUNC)
"""As an int: arithmetic on the enum costs as much as a read of 10 kB."""


class ReceivePath:
    """Reads the datagrams of a member's sockets."""

    def __init__(self, counts: dict[str, int], me: Address) -> None:
        self._counts = counts
        self._me = me
        self._slabs: deque[bytearray] = deque()
        self._slab = bytearray(SLAB_BYTES)
        self._whole = memoryview(self._slab)
        self._at = 0
        self._sources: dict[object, Address] = {}

    def read(
        self, sock: socket.socket, taken_max: int = READS_MAX
    ) -> list[tuple[Address, Packets]]:
        """What waits in the socket, up to the bounds.

        Adjacent bursts of one source and one packet size become one burst.
        """
        found: list[tuple[Address, Packets]] = []
        nbytes = packets = calls = passed_over = 0
        receive, sources, me = sock.recvmsg_into, self._sources, self._me
        whole, at = self._space()
        start, of, cut = at, me, 0  # The burst that grows: its position, source and packet size.
        region = whole[at : at + DATAGRAM_BYTES_MAX]
        try:
            while calls < min(READS_MAX, taken_max + passed_over) and nbytes < READ_BYTES_MAX:
                size, ancillary, flags, origin = receive((region,), ANCILLARY_BYTES)
                calls += 1
                source = sources.get(origin) or self._source(origin)
                if source is me or flags & MSG_TRUNC:
                    self._count("net.in.echo" if source is me else "drop.truncated")
                    passed_over += 1
                    continue
                nbytes += size
                # The only ancillary data requested is the size of a burst's packets.
                segment = int.from_bytes(ancillary[0][2], byteorder) if ancillary else size or 1
                packets += -(-size // segment) if size else 1
                if source is not of or segment != cut or (at - start) % segment:
                    if start < at:
                        found.append((of, Burst(whole[start:at], cut)))
                    start, of, cut = at, source, segment
                if size > COPIED_BYTES_MAX:
                    at = self._at = at + size
                    if at + DATAGRAM_BYTES_MAX > SLAB_BYTES:
                        found.append((of, Burst(whole[start:at], cut)))
                        whole, at = self._space()
                        start = at
                    region = whole[at : at + DATAGRAM_BYTES_MAX]
                else:
                    if start < at:
                        found.append((of, Burst(whole[start:at], cut)))
                        start = at
                    _add_copy(found, source, bytes(region[:size]), segment)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            # The network's answer to something we sent; the socket itself works.
            self._count(f"net.in.error_{error.errno}")
        if start < at:
            found.append((of, Burst(whole[start:at], cut)))
        self._tally(calls, packets, nbytes)
        return found

    def _tally(self, calls: int, packets: int, nbytes: int) -> None:
        self._counts["net.in.calls"] += calls
        self._counts["net.in.packets"] += packets
        self._counts["net.in.bytes"] += nbytes

    def _source(self, origin: tuple[str, int]) -> Address:
        if len(self._sources) >= SOURCES_KNOWN_MAX:
            self._sources.clear()
        address = Address(origin[0].partition("%")[0], origin[1])
        if address == self._me:
            address = self._me
        self._sources[origin] = address
        return address

    def _space(self) -> tuple[memoryview, int]:
        """A slab, and a position in it with space for one datagram."""
        if self._at and self._is_free():
            self._at = 0
        if self._at + DATAGRAM_BYTES_MAX > SLAB_BYTES:
            self._slabs.append(self._slab)
            self._slab, self._at = self._slabs.popleft(), 0
            if not self._is_free():
                if len(self._slabs) < SLABS_KEPT_MAX:
                    self._slabs.append(self._slab)
                self._slab = bytearray(SLAB_BYTES)
            self._whole = memoryview(self._slab)
        return self._whole, self._at

    def _is_free(self) -> bool:
        """Whether there is no other view of the slab."""
        self._whole.release()
        try:
            # A bytearray cannot be resized while there is a view of it.
            self._slab.pop()
            self._slab.append(0)
        except BufferError:
            return False
        finally:
            self._whole = memoryview(self._slab)
        return True

    def _count(self, name: str) -> None:
        self._counts[name] = self._counts.get(name, 0) + 1


def _add_copy(
    found: list[tuple[Address, Packets]], source: Address, data: bytes, segment: int
) -> None:
    """Consecutive single datagrams of one source become one burst."""
    view = memoryview(data)
    if segment < len(data):
        found.append((source, Burst(view, segment)))
        return
    if found and found[-1][0] is source:
        last = found[-1][1]
        if isinstance(last, list):
            last.append(view)
            return
    single: list[Buffer] = [view]
    found.append((source, single))
