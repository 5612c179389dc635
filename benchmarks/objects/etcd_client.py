"""A client of etcd: `-m benchmarks.objects.etcd_client PORT`. Its counter is a transaction that
compares, as etcd has none; its lock is the server's own, with a lease.

The few messages are written here as protobuf, by hand.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.durable.etcd_client import answered, field
from benchmarks.durable.load import Calls, serve, update
from benchmarks.objects.unisono_member import LOCKS

LEASE_S = 60
COUNTER = b"count"


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and texts of a message."""
    at = 0

    def number() -> int:
        nonlocal at
        found = shift = 0
        while True:
            found |= (message[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if message[at - 1] < 128:
                return found

    while at < len(message):
        key = number()
        value = number()
        if key & 7 == 2:
            at, value = at + value, message[at : at + value]  # type: ignore[assignment]
        yield key >> 3, value


def value_of(message: bytes, number: int) -> Any:
    return next((value for at, value in fields(message) if at == number), None)


class EtcdObjects:
    def __init__(self, channel: Any) -> None:
        self._put = channel.unary_unary("/etcdserverpb.KV/Put")
        self._range = channel.unary_unary("/etcdserverpb.KV/Range")
        self._txn = channel.unary_unary("/etcdserverpb.KV/Txn")
        self._grant = channel.unary_unary("/etcdserverpb.Lease/LeaseGrant")
        self._lock = channel.unary_unary("/v3lockpb.Lock/Lock")
        self._unlock = channel.unary_unary("/v3lockpb.Lock/Unlock")
        self._lease = 0

    async def put(self, number: int) -> None:
        key, value = update(number)
        await self._put(field(1, key) + field(2, value))

    async def add(self, number: int) -> None:
        while True:
            found = value_of(await self._range(field(1, COUNTER)), 2) or b""
            count, revision = int(value_of(found, 5) or 0), value_of(found, 3) or 0
            same = number_field(2, 2) + field(3, COUNTER) + number_field(6, revision)
            put = field(2, field(1, COUNTER) + field(2, b"%d" % (count + 1)))
            if value_of(await self._txn(field(1, same) + field(2, put)), 2):
                return

    async def lock(self, number: int) -> None:
        name = field(1, b"lock %d" % (number % LOCKS)) + number_field(2, self._lease)
        key = value_of(await self._lock(name), 2)
        await self._unlock(field(1, key))

    async def lease(self) -> None:
        self._lease = value_of(await self._grant(number_field(1, LEASE_S)), 2)

    def calls(self) -> Calls:
        return {"dict": self.put, "counter": self.add, "lock": self.lock}


async def main(port: str) -> None:
    import grpc

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        objects = EtcdObjects(channel)
        await answered(objects.lease)
        await serve(objects.calls())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
