"""The raw burst path: one sender, two receivers, no ordering; on bare sockets and with the driver.

Both run in turns, so that their ratio is meaningful on a busy machine too.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import statistics
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unisono.core import EVERYONE, Arm, Effect, Event, Expired, Join, Received, Send
from unisono.model import Address, Member, Message, View
from unisono.net import offload
from unisono.net.addresses import Addresses
from unisono.net.driver import Driver
from unisono.net.stream import Entry
from unisono.net.udp import Endpoint

GROUP, INTERFACE = "239.192.77.99", "127.0.0.1"
PACKET_BYTES, BURST_COUNT, BURSTS_A_STEP = 1400, 40, 16
BUFFER_BYTES = 16 << 20
IDLE_S = 0.5
RECEIVER_COUNT = 2


class LoadCore:
    """A core that sends the same burst repeatedly, or counts received packets."""

    def __init__(self, sends: bool) -> None:
        self.me = Member("bench", Address(INTERFACE, 0), 1)
        self.counts: dict[str, int] = {}
        self.packets = 0
        self.first_us = self.last_us = 0
        # Distinct buffers, as a protocol's packets are.
        count = BURST_COUNT * BURSTS_A_STEP
        self._burst = [bytes(PACKET_BYTES) for _ in range(count)] if sends else []

    def step(self, now_us: int, event: Event) -> list[Effect]:
        if isinstance(event, Received):
            self.packets += len(event.packets)
            self.last_us = now_us
            self.first_us = self.first_us or now_us
        elif isinstance(event, Join | Expired) and self._burst:
            return [Send(EVERYONE, self._burst), Arm("again", 0)]
        return []

    def send_credit(self) -> int:
        return 0

    def held(self) -> Mapping[Member, int]:
        return {}

    def transition_counts(self) -> Mapping[str, int]:
        return {}


class NullApplication:
    """Ignores everything."""

    def deliver(self, messages: Sequence[Message]) -> None: ...

    def put(self, entry: Entry) -> None: ...

    def install(self, view: View) -> None: ...

    def adopt(self, state: bytes) -> None: ...

    def has_woken(self) -> bool:
        return False

    def stepped(self) -> None: ...

    def ended(self, reason: str | None) -> None: ...


# -- through the driver --------------------------------------------------------------------------


def driven_receiver(port: int, ready: Any, results: Any) -> None:
    async def receive() -> LoadCore:
        core = LoadCore(sends=False)
        driver = _driver(core, port)
        driver.start([Join()])
        ready.release()
        idle_s, before = 0.0, 0
        while idle_s < IDLE_S or not before:
            await asyncio.sleep(0.05)
            idle_s = 0.0 if core.packets != before else idle_s + 0.05
            before = core.packets
        driver.close()
        return core

    core = asyncio.run(receive())
    results.put((core.packets, (core.last_us - core.first_us) / 1e6))


def driven_sender(port: int, seconds: float) -> None:
    async def send() -> None:
        driver = _driver(LoadCore(sends=True), port)
        driver.start([Join()])
        await asyncio.sleep(seconds)
        driver.close()

    asyncio.run(send())


def _driver(core: LoadCore, port: int) -> Driver:
    at = Addresses(multicast=Address(GROUP, port), interface=INTERFACE)
    return Driver(core, Endpoint(at, buffer_bytes=BUFFER_BYTES), NullApplication())


# -- on bare sockets -----------------------------------------------------------------------------


def bare_receiver(port: int, ready: Any, results: Any) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    offload.enlarge(sock, BUFFER_BYTES, receive=True)
    sock.bind((GROUP, port))
    membership = socket.inet_aton(GROUP) + socket.inet_aton(INTERFACE)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    bursts = offload.coalesce(sock)
    ready.release()
    buffer = memoryview(bytearray(65536))
    packets, first, last = 0, 0.0, 0.0
    try:
        while True:
            size, ancillary, _, _ = sock.recvmsg_into([buffer], 64)
            segment = offload.segment_size(ancillary, size) if bursts else size
            packets += -(-size // segment)
            last = time.perf_counter()
            if not first:
                first = last
                sock.settimeout(IDLE_S)
    except TimeoutError:
        pass
    results.put((packets, last - first))


def bare_sender(port: int, seconds: float) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    offload.enlarge(sock, BUFFER_BYTES, receive=False)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(INTERFACE))
    sock.connect((GROUP, port))
    count = BURST_COUNT if offload.can_segment(sock) else 1
    data = bytes(PACKET_BYTES * count)
    option = [(offload.SOL_UDP, offload.UDP_SEGMENT, struct.pack("H", PACKET_BYTES))]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(16):
            sock.sendmsg([data], option if count > 1 else [])


# -- both ----------------------------------------------------------------------------------------


def once(
    receiver: Callable[[int, Any, Any], None], sender: Callable[[int, float], None], seconds: float
) -> float:
    """Packets received per second, the mean of the two receivers."""
    spawn = multiprocessing.get_context("spawn")
    ready, results = spawn.Semaphore(0), spawn.Queue()
    port = _free_port()
    processes = [
        spawn.Process(target=receiver, args=(port, ready, results), daemon=True)
        for _ in range(RECEIVER_COUNT)
    ]
    try:
        for process in processes:
            process.start()
        for _ in processes:
            if not ready.acquire(timeout=30):
                raise TimeoutError("a receiver did not start within 30 s")
        processes.append(spawn.Process(target=sender, args=(port, seconds), daemon=True))
        processes[-1].start()
        found = [results.get(timeout=seconds + 30) for _ in range(RECEIVER_COUNT)]
        return float(statistics.mean(packets / max(took, 1e-6) for packets, took in found))
    finally:
        for process in processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((INTERFACE, 0))
        port: int = probe.getsockname()[1]
        return port


def raw(
    seconds: float = 1.0, rounds: int = 3, progress: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Both in turns; medians over the rounds, in packets received per second."""
    driven, bare = [], []
    for index in range(rounds):
        bare.append(once(bare_receiver, bare_sender, seconds))
        driven.append(once(driven_receiver, driven_sender, seconds))
        if progress is not None:
            progress(f"round {index + 1}/{rounds}: bare {bare[-1]:,.0f}, driver {driven[-1]:,.0f}")
    return {
        "packet_bytes": PACKET_BYTES,
        "burst_count": BURST_COUNT,
        "receivers": RECEIVER_COUNT,
        "rounds": rounds,
        "bare_packets_s": round(statistics.median(bare)),
        "driver_packets_s": round(statistics.median(driven)),
        "ratio": round(statistics.median(driven) / statistics.median(bare), 3),
        "ratios": [round(ours / theirs, 3) for ours, theirs in zip(driven, bare, strict=True)],
    }
