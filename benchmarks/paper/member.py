"""One member of the measured group: a process that does what it reads, a JSON object a line.

`python -m benchmarks.paper.member`: the first line says how to join, each further one what to
measure; each is answered by one line. The end of the input is the end of the process.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from unisono.errors import UnisonoError
from unisono.group import Group, join
from unisono.model import Message, View

STAMP_OCTETS: Final = 8
"""At the head of a message: when it was said."""
DRAIN_S: Final = 10.0
SAMPLES_MAX: Final = 2000
"""Delays that a member tells of one measurement."""
SAID_AT_ONCE: Final = 32
"""A sender that never waits lets its loop breathe after so many."""

Heard = Callable[[int, list[Message]], None]


class Ear:
    """Reads the group's stream, and tells what it heard at what time."""

    def __init__(self, group: Group, count: int) -> None:
        self._group = group
        self._count = count
        self.trouble = ""
        self.own = 0
        """The number of the last own message that came back."""
        self.came_back = asyncio.Event()
        self.heard: Heard = lambda now_ns, messages: None

    async def listen(self) -> None:
        together = len(self._group.members) == self._count
        async for batch in self._group.batches():
            now_ns = time.monotonic_ns()
            messages = [item for item in batch if isinstance(item, Message)]
            for item in batch:
                if isinstance(item, View):
                    if together and len(item.members) != self._count:
                        self.trouble = f"the view fell to {len(item.members)} members"
                    together = together or len(item.members) == self._count
            for message in messages:
                if message.sender == self._group.me:
                    self.own = message.number
                    self.came_back.set()
            if messages:
                self.heard(now_ns, messages)
        self.trouble = self.trouble or f"stopped: {self._group.stopped}"
        self.came_back.set()

    async def until_own(self, number: int) -> None:
        async with asyncio.timeout(DRAIN_S):
            while self.own < number and not self.trouble:
                self.came_back.clear()
                await self.came_back.wait()


async def until_ns(at_ns: int) -> None:
    while (left_ns := at_ns - time.monotonic_ns()) > 0:
        await asyncio.sleep(left_ns / 1e9)


async def pour(group: Group, ear: Ear, asked: dict[str, Any]) -> dict[str, Any]:
    """Count what is delivered in each slice of the time; who speaks does so continually."""
    from_ns, end_ns = asked["from_ns"], asked["until_ns"]
    counts = [0] * asked["slices"]

    def heard(now_ns: int, messages: list[Message]) -> None:
        at = (now_ns - from_ns) * len(counts) // (end_ns - from_ns)
        if 0 <= at < len(counts):
            counts[at] += len(messages)

    ear.heard = heard
    await until_ns(asked["begin_ns"])
    if asked["speaks"]:
        payload, service, said, number = bytes(asked["octets"]), asked["service"], 0, 0
        while time.monotonic_ns() < end_ns and not ear.trouble:
            number = await group.multicast(payload, service)
            said += 1
            if said % SAID_AT_ONCE == 0:
                await asyncio.sleep(0)
        await ear.until_own(number)
    await until_ns(end_ns)
    return {"counts": counts}


async def single(group: Group, ear: Ear, asked: dict[str, Any]) -> dict[str, Any]:
    """The delay of what others say; who speaks has one message under way, and pauses then."""
    from_ns, end_ns, pause_s = asked["from_ns"], asked["until_ns"], asked["pause_s"]
    delays_us: list[int] = []

    def heard(now_ns: int, messages: list[Message]) -> None:
        for message in messages:
            if message.sender != group.me:
                said_ns = int.from_bytes(message.payload[:STAMP_OCTETS], "big")
                if said_ns >= from_ns:
                    delays_us.append((now_ns - said_ns) // 1000)

    ear.heard = heard
    await until_ns(asked["begin_ns"])
    if asked["speaks"]:
        filler = bytes(asked["octets"] - STAMP_OCTETS)
        waits_s: deque[float] = deque([0.0], maxlen=8)
        if pause_s:
            await asyncio.sleep(random.uniform(0, pause_s))
        while (said_ns := time.monotonic_ns()) < end_ns and not ear.trouble:
            payload = said_ns.to_bytes(STAMP_OCTETS, "big") + filler
            number = await group.multicast(payload, asked["service"])
            await ear.until_own(number)
            waits_s.append((time.monotonic_ns() - said_ns) / 1e9)
            # A busy ring is met at any place of its round, a quiet one at any time.
            least_s, most_s = (pause_s, 2 * pause_s) if pause_s else (0.0, max(waits_s))
            await asyncio.sleep(random.uniform(least_s, most_s))
    await until_ns(end_ns)
    random.shuffle(delays_us)
    return {"delays_us": delays_us[:SAMPLES_MAX]}


async def work() -> None:
    asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    reading = asyncio.create_task(read(asked, asyncio.current_task()))
    how = await asked.get()
    count = how.pop("count")
    group = await join(**how)
    ear = Ear(group, count)
    listening = asyncio.create_task(ear.listen())
    while len(group.members) < count and not listening.done():
        await asyncio.sleep(0.01)
    tell({"trouble": ear.trouble} if ear.trouble else {"ready": True})
    while not reading.done():
        what = await asked.get()
        try:
            told = await (pour if what["do"] == "pour" else single)(group, ear, what)
        except TimeoutError:
            told = {"trouble": f"own messages did not come back within {DRAIN_S:g} s"}
        tell({"trouble": ear.trouble} if ear.trouble else told)


async def read(asked: asyncio.Queue[dict[str, Any]], worker: asyncio.Task[None] | None) -> None:
    """What to do, line by line. Who asked may be gone at any time: that ends all."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        asked.put_nowait(json.loads(line))
    if worker is not None:
        worker.cancel()


def tell(told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)


def main() -> None:
    try:
        asyncio.run(work())
    except UnisonoError as error:
        tell({"trouble": str(error)})
    except (asyncio.CancelledError, KeyboardInterrupt):
        pass


if __name__ == "__main__":
    main()
