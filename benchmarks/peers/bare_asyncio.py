"""Bare asyncio: datagrams into a queue, and a task that awaits them; no order and no repair.

The floor for what an application of asyncio can see: what a protocol of ours adds to a lone message
is the distance to this. A message that is larger than a packet, or more than one sender, it does
not carry. `python -m benchmarks.peers.bare_asyncio INTERFACE PORT INDEX MEMBERS` is a member.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

from benchmarks.peers.client import Carrier, PeerReceiver, run
from benchmarks.peers.tools import PeerTool, members_alone, one_sender
from unisono.bench.cluster import Cluster
from unisono.bench.hosts import Hosts
from unisono.bench.system import Workload
from unisono.net import offload
from unisono.net.bench import BUFFER_BYTES, GROUP, PACKET_BYTES


class BareAsyncio(PeerTool):
    """The floor of asyncio."""

    name = "asyncio"
    services = ("unreliable",)
    default_service = "unreliable"

    def missing(self) -> str:
        return ""

    def refuses(self, workload: Workload) -> str:
        if workload.size > PACKET_BYTES:
            return f"asyncio has no messages above a packet of {PACKET_BYTES} bytes"
        return one_sender(self.name, workload)

    def started(
        self, hosts: Hosts, workload: Workload
    ) -> contextlib.AbstractContextManager[Cluster]:
        return members_alone(hosts, __name__)


class Receiving(asyncio.DatagramProtocol):
    """Into the queue."""

    def __init__(self, queue: asyncio.Queue[bytes]) -> None:
        self._queue = queue

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._queue.put_nowait(data)


class DatagramCarrier(Carrier):
    """A packet a message. A sender is not far ahead of its own deliveries, so little is lost."""

    ahead_count_max = 64

    def __init__(self, transport: asyncio.DatagramTransport, where: tuple[str, int]) -> None:
        self._transport = transport
        self._where = where

    async def send(self, payloads: Sequence[bytes]) -> None:
        for each in payloads:
            self._transport.sendto(each, self._where)
        await asyncio.sleep(0)


def sockets(interface: str, port: int) -> tuple[socket.socket, socket.socket]:
    """To send by, and to receive by."""
    where = socket.inet_aton(interface)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, where)
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    offload.enlarge(receiver, BUFFER_BYTES, receive=True)
    receiver.bind((GROUP, port))
    receiver.setsockopt(
        socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + where
    )
    for each in (sender, receiver):
        each.setblocking(False)
    return sender, receiver


@contextlib.asynccontextmanager
async def connected(interface: str, port: int, receiver: PeerReceiver) -> AsyncIterator[Carrier]:
    loop = asyncio.get_running_loop()
    outgoing, incoming = sockets(interface, port)
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    sending, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=outgoing)
    reading, _ = await loop.create_datagram_endpoint(lambda: Receiving(queue), sock=incoming)

    async def read() -> None:
        while True:
            found = [await queue.get()]
            while not queue.empty():
                found.append(queue.get_nowait())
            receiver.received(found)

    task = asyncio.create_task(read())
    try:
        yield DatagramCarrier(sending, (GROUP, port))
    finally:
        task.cancel()
        for each in (sending, reading):
            each.close()


if __name__ == "__main__":
    interface, port, me, members = sys.argv[1:]
    sys.exit(run(lambda receiver: connected(interface, int(port), receiver), int(me), int(members)))
