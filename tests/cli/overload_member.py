"""A member of a Transis group that sends as fast as it may for a while, and tells what it did:
`python -m tests.cli.overload_member JSON`. What it is told to do without is taken out of it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import unisono
from unisono.protocols.transis.congestion import NetworkWindow
from unisono.protocols.transis.flow import Flow

SIZE, BATCH = 1000, 32


async def work(how: dict[str, Any]) -> None:
    heard = 0
    async with unisono.join("load", **how["join"], insecure=True) as group:
        while len(group.members) < how["count"]:
            await asyncio.sleep(0.01)
        end_s = time.monotonic() + how["seconds"]

        async def send() -> None:
            while time.monotonic() < end_s:
                await group.multicast_many([bytes(SIZE)] * BATCH)
            await group.multicast(b"end")

        sending = asyncio.create_task(send())
        ends = 0
        async for batch in group.batches():
            payloads = batch.payloads()
            heard += len(payloads)
            ends += payloads.count(b"end")
            if ends == how["count"]:
                break
        await sending
        took_s = time.monotonic() - end_s + how["seconds"]
        told = {"heard": heard, "took_s": took_s, "members": len(group.members)}
        print(json.dumps(told), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    if told["unbridled"]:
        Flow._fill = lambda self, ordering: 0.0  # type: ignore[method-assign]
        NetworkWindow.lost = lambda self, graph: None  # type: ignore[method-assign]
    asyncio.run(work(told))
