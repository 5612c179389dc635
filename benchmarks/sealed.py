"""What sealing costs: `python -m benchmarks.sealed [SECONDS]`.

Three members in one process, open and sealed in turns; the yardstick is the processor time of the
process for a message, so other work on the machine matters little.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import sys
import time
from typing import NamedTuple

import unisono

SIZES = (64, 1000, 1 << 20)
ROUNDS = 7
MEMBERS = 3
LONE_COUNT = 300


class Cost(NamedTuple):
    """Processor time of a message in a stream of them, and delay of one alone."""

    message_us: float
    lone_us: float


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def members(key: bytes) -> list[unisono.Group]:
    port = free_port()
    found = await asyncio.gather(
        *(unisono.join("bench", name=f"m{n}", port=port, key=key) for n in range(MEMBERS))
    )
    while any(group.view is None or len(group.view.members) < MEMBERS for group in found):
        await asyncio.sleep(0.02)
    return list(found)


async def read(group: unisono.Group, count: int) -> None:
    async for batch in group.batches():
        count -= len(batch.payloads())
        if count <= 0:
            return


async def cost(groups: list[unisono.Group], size: int, seconds: float) -> Cost:
    payload = os.urandom(size)
    some = max(8, min(20_000, (8 << 20) // size))
    message_us, spent_s = [], 0.0
    while spent_s < seconds:
        began_s = time.process_time()
        readers = [asyncio.create_task(read(group, some)) for group in groups]
        await groups[0].multicast_many([payload] * some)
        await asyncio.gather(*readers)
        took_s = time.process_time() - began_s
        spent_s += took_s
        message_us.append(1e6 * took_s / some)
    lone_us = []
    for _ in range(LONE_COUNT if size == SIZES[0] else 0):
        began_s = time.process_time()
        readers = [asyncio.create_task(read(group, 1)) for group in groups]
        await groups[0].multicast(payload)
        await asyncio.gather(*readers)
        lone_us.append(1e6 * (time.process_time() - began_s))
    return Cost(statistics.median(message_us), statistics.median(lone_us or [0]))


async def compare(seconds: float) -> None:
    """The two groups are there all the time: an idle one costs next to nothing."""
    groups = [await members(key) for key in (b"", os.urandom(16))]
    for size in SIZES:
        costs: list[list[Cost]] = [[], []]
        for _ in range(ROUNDS):
            for own, found in zip(groups, costs, strict=True):
                found.append(await cost(own, size, seconds))
        plain_us, sealed_us = (min(each.message_us for each in found) for found in costs)
        line = f"{size:>8} B  open {plain_us:8.2f} us  sealed {sealed_us:8.2f} us"
        line += f"  {plain_us / sealed_us:.0%} of the throughput"
        if size == SIZES[0]:
            alone, later = (min(each.lone_us for each in found) for found in costs)
            line += f"; lone {alone:.0f} us, {later:.0f} us: {later / alone - 1:+.1%}"
        print(line, flush=True)
    for group in (*groups[0], *groups[1]):
        await group.leave()


if __name__ == "__main__":
    asyncio.run(compare(float(sys.argv[1]) if len(sys.argv) > 1 else 0.2))
