"""A client of etcd: `python -m benchmarks.durable.etcd_client PORT`, of the member that it asks.

The few messages that are needed are written here as protobuf, by hand: the fields of a put and of a
range are their key (1), value (2) and whether a range is serializable (7).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.durable.load import of_store, serve

SERIALIZABLE = b"\x38\x01"


def field(number: int, value: bytes) -> bytes:
    assert len(value) < 128, "a length of one byte"
    return bytes((number << 3 | 2, len(value))) + value


class EtcdStore:
    def __init__(self, channel: Any) -> None:
        self._put = channel.unary_unary("/etcdserverpb.KV/Put")
        self._range = channel.unary_unary("/etcdserverpb.KV/Range")

    async def put(self, key: bytes, value: bytes) -> None:
        await self._put(field(1, key) + field(2, value))

    async def get(self, key: bytes) -> None:
        await self._range(field(1, key) + SERIALIZABLE)

    async def get_latest(self, key: bytes) -> None:
        await self._range(field(1, key))


async def answered(first: Callable[[], Awaitable[object]]) -> None:
    """Repeat the first call until the server is up."""
    import grpc

    async with asyncio.timeout(60):
        while True:
            try:
                await first()
                return
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.2)


async def main(port: str) -> None:
    import grpc

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        store = EtcdStore(channel)
        await answered(lambda: store.put(b"first", b""))
        await serve(of_store(store))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
