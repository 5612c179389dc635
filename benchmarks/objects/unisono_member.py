"""Our shared objects: `-m benchmarks.objects.unisono_member NAME PORT PROTOCOL`; the first of three
members has the callers."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from benchmarks.durable.load import Calls, serve, update
from unisono.services import sharing
from unisono.services.sharing import SharedObjects

NAMES = ("m0", "m1", "m2")
LOCKS = 1000


def calls(objects: SharedObjects) -> Calls:
    store, counter = objects.dict("store"), objects.counter("count")

    async def put(number: int) -> None:
        key, value = update(number)
        await store.put(key.decode(), value.decode())

    async def add(number: int) -> None:
        await counter.add()

    async def lock(number: int) -> None:
        mine = objects.lock(str(number % LOCKS))
        await mine.acquire()
        await mine.release()

    return {"dict": put, "counter": add, "lock": lock}


async def main(name: str, port: str, protocol: str) -> None:
    options: Any = {"mtp": {"master": int(name == NAMES[0])}, "ring": {"sites": len(NAMES)}}
    async with sharing.join(
        "objects",
        name=name,
        port=int(port),
        protocol=protocol,
        join_s=60,
        **options.get(protocol, {}),
    ) as objects:
        while len(objects.members) < len(NAMES):
            await asyncio.sleep(0.05)
        await serve(calls(objects))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
