"""A replica of ours: `python -m benchmarks.durable.unisono_member NAME DIRECTORY PORT PROTOCOL
MILESTONE`. An update is acknowledged when it is `green` or `stable`."""

from __future__ import annotations

import asyncio
import json
import sys

import unisono
from benchmarks.durable.load import of_store, serve

NAMES = ("a", "b", "c")


class Values:
    """The state machine: eight bytes of an update are its key."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, update: bytes, position: int) -> bytes:
        self.values[update[:8].decode()] = update[8:].decode()
        return b""

    def snapshot(self) -> bytes:
        return json.dumps(self.values).encode()

    def restore(self, state: bytes) -> None:
        self.values = json.loads(state)


class LogStore:
    def __init__(self, log: unisono.ReplicatedLog, milestone: str) -> None:
        self._log = log
        self._is_stable = milestone == "stable"

    async def put(self, key: bytes, value: bytes) -> None:
        handle = self._log.append(key + value)
        await (handle.stable if self._is_stable else handle.green)

    async def get(self, key: bytes) -> None:
        await self._log.query(lambda machine: machine.values.get(key.decode()))

    async def get_latest(self, key: bytes) -> None:
        await self._log.query(lambda machine: machine.values.get(key.decode()), "strict")


async def main(name: str, directory: str, port: str, protocol: str, milestone: str) -> None:
    replica = unisono.replicate(
        "durable",
        name=name,
        members=NAMES,
        path=directory,
        machine=Values(),
        protocol=protocol,
        port=int(port),
    )
    async with replica as log:
        await log.append(bytes(b"%08d" % 0)).stable
        await serve(of_store(LogStore(log, milestone)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
