"""A client of ZooKeeper: `-m benchmarks.objects.zookeeper_client PORTS`, with kazoo and its recipes
for counters and locks; a thread for each caller."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from benchmarks.durable.load import KEYS, Calls, serve, update
from benchmarks.objects.unisono_member import LOCKS

CALLERS_MAX = 64


async def main(*ports: str) -> None:
    from kazoo.client import KazooClient

    client = KazooClient(",".join(f"127.0.0.1:{port}" for port in ports))
    await asyncio.to_thread(client.start, 60)
    client.ensure_path("/store")
    for number in range(KEYS):
        client.ensure_path(f"/store/{update(number)[0].decode()}")
    counter = client.Counter("/count")
    loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(CALLERS_MAX)

    async def put(number: int) -> None:
        key, value = update(number)
        await loop.run_in_executor(threads, client.set, f"/store/{key.decode()}", value)

    async def add(number: int) -> None:
        await loop.run_in_executor(threads, counter.__add__, 1)

    def take_turn(number: int) -> None:
        with client.Lock(f"/locks/{number % LOCKS}"):
            pass

    async def lock(number: int) -> None:
        await loop.run_in_executor(threads, take_turn, number)

    calls: Calls = {"dict": put, "counter": add, "lock": lock}
    await serve(calls)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
