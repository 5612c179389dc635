"""PySyncObj: Raft in Python, from PyPI; an ordered message is a replicated call on an object.

`python -m benchmarks.peers.pysyncobj INDEX HOST...` is a member.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from benchmarks.peers.client import Carrier, PeerReceiver, run
from benchmarks.peers.tools import PeerTool, no_module, start_python
from unisono.bench.cluster import Cluster
from unisono.bench.hosts import Hosts
from unisono.bench.system import Workload
from unisono.processes import Processes

PORT: Final = 17400
READY_S: Final = 60.0
SETTINGS: Final[dict[str, Any]] = {
    # A batch is what was called within this time; by default 100 ms.
    "appendEntriesUseBatch": True,
    "appendEntriesPeriod": 0.005,
    "autoTickPeriod": 0.005,
    # Long enough that a busy machine changes no leader in the middle of a round.
    "raftMinTimeout": 2.0,
    "raftMaxTimeout": 4.0,
    "connectionTimeout": 10.0,
    "connectionRetryTime": 0.2,
    # A member that lags is sent the calls, never their resulting state: each is a message.
    "logCompactionMinEntries": 1 << 40,
    "logCompactionMinTime": 1 << 40,
    "sendBufferSize": 1 << 20,
    "recvBufferSize": 1 << 20,
}


class PySyncObj(PeerTool):
    """Raft in pure Python."""

    name = "pysyncobj"

    def missing(self) -> str:
        return no_module("pysyncobj", "pysyncobj")

    @contextlib.contextmanager
    def started(self, hosts: Hosts, workload: Workload) -> Iterator[Cluster]:
        addresses = [host.address for host in hosts.members]
        with Processes() as members:
            for host in hosts.members:
                start_python(members, host, __name__, str(host.index), *addresses)
            yield Cluster([*members])


class RaftLog(Carrier):
    """Calls that every member makes in the same order, in the library's own thread."""

    ahead_count_max = 2000  # Longer queues only make it slower.

    def __init__(self, me: int, hosts: Sequence[str], receiver: PeerReceiver) -> None:
        from pysyncobj import SyncObj, SyncObjConf, replicated

        class Replica(SyncObj):  # type: ignore[misc]
            @replicated  # type: ignore[untyped-decorator]
            def deliver(self, payload: bytes) -> None:
                receiver.received((payload,))

        addresses = [f"{host}:{PORT + i}" for i, host in enumerate(hosts)]
        others = [each for i, each in enumerate(addresses) if i != me]
        self.object = Replica(addresses[me], others, SyncObjConf(**SETTINGS))

    async def ready(self) -> None:
        async with asyncio.timeout(READY_S):
            while not self.object.isReady():
                await asyncio.sleep(0.05)

    def quiet(self) -> None:
        # Nobody lags now, so that the log need not be kept.
        self.object.forceLogCompaction()

    async def send(self, payloads: Sequence[bytes]) -> None:
        call = self.object.deliver
        for each in payloads:
            call(each)
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def connected(
    me: int, hosts: Sequence[str], receiver: PeerReceiver
) -> AsyncIterator[Carrier]:
    log = RaftLog(me, hosts, receiver)
    try:
        await log.ready()
        yield log
    finally:
        log.object.destroy()


if __name__ == "__main__":
    me, *hosts = sys.argv[1:]
    sys.exit(run(lambda receiver: connected(int(me), hosts, receiver), int(me), len(hosts)))
