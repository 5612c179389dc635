"""NATS JetStream: one server, Debian's, with a stream in memory; members publish and follow it.

`python -m benchmarks.peers.nats HOST INDEX MEMBERS` is a member.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.client import Carrier, PeerReceiver, run
from benchmarks.peers.tools import PeerTool, no_module, not_installed, start, start_python
from unisono.bench.cluster import Cluster
from unisono.bench.hosts import Hosts
from unisono.bench.system import Workload
from unisono.processes import PATH, Processes

PORT: Final = 17222
STREAM: Final = "bench"
KEPT_BYTES: Final = 512 << 20
"""What the stream holds at most; a member may lag by that."""
PENDING_COUNT_MAX: Final = 4000
"""Messages that the server has not yet acknowledged; the client's own default."""
SERVER_WAIT_S: Final = 20


class Nats(PeerTool):
    """One server that all talk to, Debian's package."""

    name = "nats"

    def missing(self) -> str:
        if not shutil.which("nats-server", path=PATH):
            return not_installed("nats-server")
        return no_module("nats", "nats-py")

    @contextlib.contextmanager
    def started(self, hosts: Hosts, workload: Workload) -> Iterator[Cluster]:
        home = hosts.scratch / "nats"
        home.mkdir(exist_ok=True)
        conf = home / "nats.conf"
        conf.write_text(configuration(hosts.server.address, home))
        count = str(len(hosts.members))
        with Processes() as servers, Processes() as members:
            start(servers, "nats-server", hosts.server, "nats-server", "-c", str(conf))
            for host in hosts.members:
                arguments = (hosts.server.address, str(host.index), count)
                start_python(members, host, __name__, *arguments)
            yield Cluster([*members], [*servers])


def configuration(host: str, home: Path) -> str:
    """Defaults, except the address and room for a message of 1 MiB."""
    return f"""listen: "{host}:{PORT}"
max_payload: 8MB
max_pending: 256MB
jetstream {{
  store_dir: "{home}"
  max_memory_store: 2GB
}}
"""


class JetStream(Carrier):
    """Publishes without waiting for each acknowledgement, up to a bound."""

    def __init__(self, jetstream: Any) -> None:
        self._publish = jetstream.publish_async

    async def send(self, payloads: Sequence[bytes]) -> None:
        for each in payloads:
            await self._publish(STREAM, each)


@contextlib.asynccontextmanager
async def connected(host: str, receiver: PeerReceiver) -> AsyncIterator[Carrier]:
    import nats
    from nats.js.api import StorageType

    async def on_error(error: Exception) -> None:
        print(repr(error), file=sys.stderr)

    client = await nats.connect(
        f"nats://{host}:{PORT}",
        error_cb=on_error,
        reconnect_time_wait=0.1,
        max_reconnect_attempts=SERVER_WAIT_S * 10,
        allow_reconnect=True,
        pending_size=8 << 20,
    )
    jetstream = client.jetstream(publish_async_max_pending=PENDING_COUNT_MAX)
    await jetstream.add_stream(
        name=STREAM, subjects=[STREAM], storage=StorageType.MEMORY, max_bytes=KEPT_BYTES
    )

    async def on_message(message: Any) -> None:
        receiver.received((message.data,))

    await jetstream.subscribe(
        STREAM, cb=on_message, ordered_consumer=True, pending_msgs_limit=-1, pending_bytes_limit=-1
    )
    try:
        yield JetStream(jetstream)
    finally:
        await client.close()


if __name__ == "__main__":
    host, me, members = sys.argv[1:]
    sys.exit(run(lambda receiver: connected(host, receiver), int(me), int(members)))
