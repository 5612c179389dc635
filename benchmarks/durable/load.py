"""The load: so many updates outstanding, each followed by another as soon as it is acknowledged."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, Final, Protocol

SIZE: Final = 100
KEYS: Final = 1000
WARM_S: Final = 0.3


class Store(Protocol):
    """What a system does for its client."""

    async def put(self, key: bytes, value: bytes) -> None:
        """Returns when the update is acknowledged as durable."""

    async def get(self, key: bytes) -> None:
        """A read of what this member has."""

    async def get_latest(self, key: bytes) -> None:
        """A read that sees all that was acknowledged before."""


def update(number: int) -> tuple[bytes, bytes]:
    """A key and a value, together an update of `SIZE` bytes."""
    key = b"%08d" % (number % KEYS)
    return key, os.urandom((SIZE - len(key)) // 2).hex().encode()


async def measured(
    call: Callable[[int], Awaitable[None]], outstanding: int, seconds: float
) -> dict[str, Any]:
    """Calls a second, and the times that half and 99 of 100 of them took at most."""
    took: list[float] = []
    begin = perf_counter() + WARM_S
    end = begin + seconds
    count = 0

    async def worker() -> None:
        nonlocal count
        while (now := perf_counter()) < end:
            count += 1
            await call(count)
            if now >= begin:
                took.append(perf_counter() - now)
            await asyncio.sleep(0)  # A read may need no turn of the event loop.

    await asyncio.gather(*(worker() for _ in range(outstanding)))
    took.sort()
    if not took:
        return {"rate": 0.0, "p50_ms": None, "p99_ms": None}
    return {
        "rate": round(len(took) / (perf_counter() - begin), 1),
        "p50_ms": round(1000 * took[len(took) // 2], 3),
        "p99_ms": round(1000 * took[len(took) * 99 // 100], 3),
    }


Calls = Mapping[str, Callable[[int], Awaitable[None]]]
"""By name, what is measured: each is given the number of the call."""


def of_store(store: Store) -> Calls:
    return {
        "put": lambda number: store.put(*update(number)),
        "get": lambda number: store.get(update(number)[0]),
        "get_latest": lambda number: store.get_latest(update(number)[0]),
    }


async def serve(calls: Calls) -> None:
    """Loads as lines of input: what, how many outstanding, and seconds."""
    print(json.dumps({"ready": True}), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        what, outstanding, seconds = line.split()
        found = await measured(calls[what], int(outstanding), float(seconds))
        print(json.dumps({"what": what, "outstanding": int(outstanding), **found}), flush=True)
