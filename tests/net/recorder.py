"""An endpoint that records what it receives, for tests on real sockets."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any

from tests.waiting import LIMIT_S
from unisono.model import Address, Packets
from unisono.net.addresses import Addresses
from unisono.net.udp import Endpoint


class Recorder:
    """Keeps what an endpoint receives, with the memoryviews it was handed."""

    def __init__(self, at: Addresses, **options: Any) -> None:
        self.endpoint = Endpoint(at, buffer_bytes=1 << 20, **options)
        self.bursts: list[tuple[Address, Packets]] = []
        self._news = asyncio.Event()
        self.endpoint.attach(asyncio.get_running_loop(), self._received)

    def _received(self, found: list[tuple[Address, Packets]]) -> None:
        self.bursts += found
        self._news.set()

    @property
    def packets(self) -> list[bytes]:
        return [bytes(packet) for _, packets in self.bursts for packet in packets]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def received(self, count: int) -> list[bytes]:
        await self.until(lambda: len(self.packets) >= count)
        return self.packets

    def close(self) -> None:
        self.endpoint.close()


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free now, for UDP and TCP. It is below those that the kernel gives to others
    on its own; a test in another process may still take it, so tests bind to 0 where they can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    dice = random.SystemRandom()  # workers would draw the same ports from one seed
    while True:
        port = dice.randrange(15_000, 30_000)
        try:
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                with socket.socket(family, kind) as probe:
                    probe.bind((host, port))
        except OSError:
            continue
        return port
