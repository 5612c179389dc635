"""Redis Streams: one server, Debian's, orders all messages; members add to a stream and read it.

`python -m benchmarks.peers.redis HOST INDEX MEMBERS` is a member.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from benchmarks.peers.client import Carrier, PeerReceiver, run
from benchmarks.peers.tools import PeerTool, no_module, not_installed, start, start_python
from unisono.bench.cluster import Cluster
from unisono.bench.hosts import Hosts
from unisono.bench.system import Workload
from unisono.processes import PATH, Processes

PORT: Final = 17379
STREAM: Final = "bench"
KEPT_BYTES: Final = 512 << 20
"""What the stream holds at most; a member may lag by that."""
READ_COUNT: Final = 500
SERVER_WAIT_S: Final = 20.0
FIELD: Final = b"m"


class Redis(PeerTool):
    """One server that all talk to, Debian's package."""

    name = "redis"

    def missing(self) -> str:
        if not shutil.which("redis-server", path=PATH):
            return not_installed("redis-server")
        return no_module("redis", "redis")

    @contextlib.contextmanager
    def started(self, hosts: Hosts, workload: Workload) -> Iterator[Cluster]:
        count = str(len(hosts.members))
        with Processes() as servers, Processes() as members:
            start(servers, "redis-server", hosts.server, *server_command(hosts.server.address))
            for host in hosts.members:
                arguments = (hosts.server.address, str(host.index), count)
                start_python(members, host, __name__, *arguments)
            yield Cluster([*members], [*servers])


def server_command(host: str) -> list[str]:
    """All in memory: nothing is written to disk, as with us."""
    options = {
        "--bind": host,
        "--port": str(PORT),
        "--protected-mode": "no",
        "--save": "",
        "--appendonly": "no",
        "--logfile": "/dev/null",
    }
    return ["redis-server", *(word for pair in options.items() for word in pair)]


class RedisStream(Carrier):
    """Adds in pipelines; a thread of its own reads in batches."""

    def __init__(self, host: str, receiver: PeerReceiver) -> None:
        self._host = host
        self._receiver = receiver
        self._adding = self._client()
        self._over = False
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    async def send(self, payloads: Sequence[bytes]) -> None:
        # It may block: this thread has nothing else to do. Waiting for the server is the only flow
        # control that Redis has.
        pipeline = self._adding.pipeline(transaction=False)
        kept = max(1000, KEPT_BYTES // len(payloads[0]))
        for each in payloads:
            pipeline.xadd(STREAM, {FIELD: each}, maxlen=kept, approximate=True)
        pipeline.execute()
        await asyncio.sleep(0)

    def close(self) -> None:
        self._over = True

    def _client(self) -> Any:
        import redis

        until = time.monotonic() + SERVER_WAIT_S
        while True:
            client = redis.Redis(self._host, PORT, socket_connect_timeout=2)
            try:
                client.ping()
                return client
            except redis.exceptions.ConnectionError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _read(self) -> None:
        try:
            client, last = self._client(), b"0"
            while not self._over:
                found = client.xread({STREAM: last}, count=READ_COUNT, block=1000)
                for _, entries in found.items() if isinstance(found, dict) else found:
                    self._receiver.received([fields[FIELD] for _, fields in entries])
                    last = entries[-1][0]
        except Exception as error:  # Reported here, or a failure of the thread is lost.
            if not self._over:
                self._receiver.trouble(f"redis: {error}")


@contextlib.asynccontextmanager
async def connected(host: str, receiver: PeerReceiver) -> AsyncIterator[Carrier]:
    stream = RedisStream(host, receiver)
    try:
        yield stream
    finally:
        stream.close()


if __name__ == "__main__":
    host, me, members = sys.argv[1:]
    sys.exit(run(lambda receiver: connected(host, receiver), int(me), int(members)))
