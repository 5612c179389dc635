"""Asks the kernel whether a process still listens at an address.

When a datagram reaches a port that nobody has bound, the kernel there answers with ICMP *port
unreachable*, and the sender's kernel reports it as ECONNREFUSED, but only to a connected socket. So
each address in doubt gets a small connected socket of its own, which sends one octet at a time; the
sockets of the group never see an error. A process that is stopped or slow still has its port, and
a machine that is off or cut off does not answer: only a process that is dead is refused.

The kernel gives an error to a connected socket only when the datagram quoted in it has both its
addresses and both its ports. Who does not see our packets has to guess our port, which is another
each time and open for `KEEP_S` while somebody is in doubt; then a living peer has to stay silent as
well. Who can do that can forge the peer's packets too.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from unisono.model import Address
from unisono.net.addresses import is_wildcard
from unisono.net.send_path import SockAddr

SOCKETS_MAX: Final = 32
"""Addresses in doubt at a time; beyond it the oldest makes place."""
KEEP_S: Final = 2.0
"""A socket is closed after so long, and opened anew if it is still wanted."""
PAUSE_US: Final = 1_000
"""Between two probes of one address."""
OCTET: Final = b"?"
"""Too short to be a packet of anything: whoever listens drops it."""


class OpenProbe(NamedTuple):
    """A socket that probes one address."""

    sock: socket.socket
    closing: asyncio.TimerHandle


class Prober:
    """The probes of one member, and what the network answers to them."""

    def __init__(self, host: str, counts: dict[str, int]) -> None:
        """Probes leave from this local address."""
        self._host = "" if is_wildcard(host) else host
        self._counts = counts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refused: Callable[[Address], None] = lambda address: None
        self._open: dict[Address, OpenProbe] = {}
        self._last_us: dict[Address, int] = {}
        self._awaited: set[Address] = set()
        """Probed, and not refused yet: each probe has one answer at most."""

    def attach(self, loop: asyncio.AbstractEventLoop, refused: Callable[[Address], None]) -> None:
        self._loop, self._refused = loop, refused

    def probe(self, address: Address, target: SockAddr) -> None:
        """Send one probe; `target` is the address as the socket calls want it."""
        now_us = time.monotonic_ns() // 1000
        if self._loop is None or now_us - self._last_us.get(address, 0) < PAUSE_US:
            return
        sock = self._socket(address, target, self._loop)
        if sock is None:
            return
        self._last_us[address] = now_us
        self._read(address, sock)  # An answer to the last one, or sending would fail for it.
        with contextlib.suppress(OSError):
            sock.send(OCTET)
            self._awaited.add(address)
            self._count("net.out.probes")

    def _socket(
        self, address: Address, target: SockAddr, loop: asyncio.AbstractEventLoop
    ) -> socket.socket | None:
        found = self._open.get(address)
        if found is not None:
            return found.sock
        if len(self._open) >= SOCKETS_MAX:
            self._close(next(iter(self._open)))
        family = socket.AF_INET6 if len(target) == 4 else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            if self._host:
                sock.bind((self._host, 0, *target[2:]))
            sock.connect(target)
        except OSError:
            sock.close()
            return None
        loop.add_reader(sock.fileno(), self._read, address, sock)
        self._open[address] = OpenProbe(sock, loop.call_later(KEEP_S, self._close, address))
        return sock

    def _read(self, address: Address, sock: socket.socket) -> None:
        """The only thing that comes is an error; datagrams from the peer's port are nobody's."""
        try:
            sock.recv(1)
        except ConnectionRefusedError:
            if address in self._awaited:
                self._awaited.discard(address)
                self._count("net.in.refused")
                self._refused(address)
        except OSError:
            pass  # Nothing yet, or no way there: a machine that is cut off is not a dead process.

    def _close(self, address: Address) -> None:
        sock, closing = self._open.pop(address)
        self._last_us.pop(address, None)
        self._awaited.discard(address)
        closing.cancel()
        if self._loop is not None:
            self._loop.remove_reader(sock.fileno())
        sock.close()

    def close(self) -> None:
        for address in list(self._open):
            self._close(address)
        self._loop = None

    def _count(self, name: str) -> None:
        self._counts[name] = self._counts.get(name, 0) + 1
