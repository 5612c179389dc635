"""A replica as a process: appends the lines of its input, and tells what becomes green."""

from __future__ import annotations

import asyncio
import json
import sys

import unisono


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


async def main(name: str, members: str, path: str, port: str, protocol: str) -> None:
    log_of = unisono.replicate(
        "orders",
        name=name,
        members=members.split(","),
        path=path,
        port=int(port),
        protocol=protocol,
        detect_ms=500,
    )
    async with log_of as log:
        reader = asyncio.create_task(follow(log))
        tell(event="began", position=log.position)
        loop = asyncio.get_running_loop()
        waiting: set[asyncio.Task[None]] = set()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            task = asyncio.create_task(append(log, line.strip()))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        reader.cancel()


async def append(log: unisono.ReplicatedLog, text: str) -> None:
    handle = log.append(text.encode())
    await handle
    tell(event="red", text=text)
    tell(event="acknowledged", text=text, position=await handle.green)
    await handle.stable
    tell(event="stable", text=text)


async def follow(log: unisono.ReplicatedLog) -> None:
    async for entry in log:
        tell(event="green", position=entry.position, text=entry.update.decode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
