"""Probes whether a process still listens at an address.

When a datagram reaches an unbound port, the kernel there answers with ICMP *port unreachable*, and
the sender's kernel reports it as ECONNREFUSED, but only to a connected socket. So each suspected
address gets a connected socket, which sends one byte at a time; the sockets of the group never see
an error. A process that is stopped or slow still has its port, and a machine that is off or cut off
does not answer: only a dead process is refused.

The kernel reports the error only if the datagram quoted in it matches both addresses and ports. An
attacker that does not see our packets has to guess our port, which differs each time and is open
for `KEEP_S` while a member is suspected; and the live peer must be silent meanwhile. An attacker
that can do that can forge the peer's packets too.
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
"""Addresses probed at a time; beyond, the oldest socket is closed."""
KEEP_S: Final = 2.0
"""A socket is closed after this time, and opened again if still needed."""
PAUSE_US: Final = 1_000
"""Between two probes of one address."""
PROBE: Final = b"?"
"""Too short to be a packet: a live process drops it."""


class OpenProbe(NamedTuple):
    """A socket that probes one address."""

    sock: socket.socket
    closing: asyncio.TimerHandle


class Prober:
    """The probes of one member, and the network's answers."""

    def __init__(self, host: str, counts: dict[str, int]) -> None:
        """Probes leave from this local address."""
        self._host = "" if is_wildcard(host) else host
        self._counts = counts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refused: Callable[[Address], None] = lambda address: None
        self._open: dict[Address, OpenProbe] = {}
        self._last_us: dict[Address, int] = {}
        self._awaited: set[Address] = set()
        """Probed and not refused yet: each probe has at most one answer."""

    def attach(self, loop: asyncio.AbstractEventLoop, refused: Callable[[Address], None]) -> None:
        self._loop, self._refused = loop, refused

    def probe(self, address: Address, target: SockAddr) -> None:
        """Send one probe; `target` is the address as socket calls take it."""
        now_us = time.monotonic_ns() // 1000
        if self._loop is None or now_us - self._last_us.get(address, 0) < PAUSE_US:
            return
        sock = self._socket(address, target, self._loop)
        if sock is None:
            return
        self._last_us[address] = now_us
        self._read(address, sock)  # A pending error would make sending fail.
        with contextlib.suppress(OSError):
            sock.send(PROBE)
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
        """Only errors matter; datagrams from the peer's port are dropped."""
        try:
            sock.recv(1)
        except ConnectionRefusedError:
            if address in self._awaited:
                self._awaited.discard(address)
                self._count("net.in.refused")
                self._refused(address)
        except OSError:
            pass  # No answer yet, or no route: that does not show a dead process.

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
