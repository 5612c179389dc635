"""Our ring by `unisono.sync`: one thread sends, another reads, both by batches.

`python -m benchmarks.peers.threads INTERFACE PORT INDEX MEMBERS` is a member.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Sequence

import unisono.sync
from benchmarks.peers.client import Carrier, PeerReceiver, run
from benchmarks.peers.tools import PeerTool, members_alone
from unisono.bench.cluster import Cluster
from unisono.bench.hosts import Hosts
from unisono.bench.system import Workload


class Threads(PeerTool):
    """The library as programs without asyncio use it."""

    name = "unisono-threads"

    def missing(self) -> str:
        return ""

    def started(
        self, hosts: Hosts, workload: Workload
    ) -> contextlib.AbstractContextManager[Cluster]:
        return members_alone(hosts, __name__)


class ThreadsCarrier(Carrier):
    """Reads in a thread of its own."""

    def __init__(self, group: unisono.sync.SyncGroup, receiver: PeerReceiver) -> None:
        self._group = group
        self._receiver = receiver
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    async def send(self, payloads: Sequence[bytes]) -> None:
        # It may block: this thread has nothing else to do but to read commands.
        self._group.multicast_many(payloads)
        await asyncio.sleep(0)

    def _read(self) -> None:
        for batch in self._group.batches():
            if payloads := batch.payloads():
                self._receiver.received(payloads)
        if self._group.stopped:
            self._receiver.trouble(self._group.stopped)


@contextlib.asynccontextmanager
async def connected(
    interface: str, port: int, name: str, receiver: PeerReceiver
) -> AsyncIterator[Carrier]:
    group = unisono.sync.join("bench", name=name, interface=interface, port=port, rejoin=False)
    try:
        yield ThreadsCarrier(group, receiver)
    finally:
        group.leave()


if __name__ == "__main__":
    interface, port, me, members = sys.argv[1:]
    sys.exit(
        run(
            lambda receiver: connected(interface, int(port), f"m{me}", receiver),
            int(me),
            int(members),
        )
    )
