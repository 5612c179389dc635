"""A member of the measured group: `python -m benchmarks.paper.member`.

Each line of its input is a JSON object: the first has the arguments of `join`, each further one a
measurement. Each is answered by one line; the end of the input ends the process.
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

from unisono.bench.line_protocol import answer, until_ns
from unisono.errors import UnisonoError
from unisono.group import Group, join
from unisono.model import Message, View

STAMP_BYTES: Final = 8
"""At the head of a message: when it was sent."""
DRAIN_S: Final = 10.0
SAMPLES_MAX: Final = 2000
"""Delays that a member reports of one measurement."""
SENT_AT_ONCE: Final = 32
"""A sender that never blocks yields to its loop after this many messages."""

Listener = Callable[[int, list[Message]], None]


class CurveReceiver:
    """Reads the group's stream and passes on what was delivered when."""

    def __init__(self, group: Group, count: int) -> None:
        self._group = group
        self._count = count
        self.trouble = ""
        self.own = 0
        """The number of the last own message that came back."""
        self.came_back = asyncio.Event()
        self.on_messages: Listener = lambda now_ns, messages: None

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
                self.on_messages(now_ns, messages)
        self.trouble = self.trouble or f"stopped: {self._group.stopped}"
        self.came_back.set()

    async def until_own(self, number: int) -> None:
        async with asyncio.timeout(DRAIN_S):
            while self.own < number and not self.trouble:
                self.came_back.clear()
                await self.came_back.wait()


async def load(group: Group, receiver: CurveReceiver, task: dict[str, Any]) -> dict[str, Any]:
    """Count deliveries in each slice of the time; senders send all the time."""
    from_ns, end_ns = task["from_ns"], task["until_ns"]
    counts = [0] * task["slices"]

    def count(now_ns: int, messages: list[Message]) -> None:
        at = (now_ns - from_ns) * len(counts) // (end_ns - from_ns)
        if 0 <= at < len(counts):
            counts[at] += len(messages)

    receiver.on_messages = count
    await until_ns(task["begin_ns"])
    if task["sends"]:
        payload, service, sent, number = bytes(task["nbytes"]), task["service"], 0, 0
        while time.monotonic_ns() < end_ns and not receiver.trouble:
            number = await group.multicast(payload, service)
            sent += 1
            if sent % SENT_AT_ONCE == 0:
                await asyncio.sleep(0)
        await receiver.until_own(number)
    await until_ns(end_ns)
    return {"counts": counts}


async def single(group: Group, receiver: CurveReceiver, task: dict[str, Any]) -> dict[str, Any]:
    """Delays of messages from others; a sender has one message on its way, then pauses."""
    from_ns, end_ns, pause_s = task["from_ns"], task["until_ns"], task["pause_s"]
    delays_us: list[int] = []

    def sample(now_ns: int, messages: list[Message]) -> None:
        for message in messages:
            if message.sender != group.me:
                sent_ns = int.from_bytes(message.payload[:STAMP_BYTES], "big")
                if sent_ns >= from_ns:
                    delays_us.append((now_ns - sent_ns) // 1000)

    receiver.on_messages = sample
    await until_ns(task["begin_ns"])
    if task["sends"]:
        filler = bytes(task["nbytes"] - STAMP_BYTES)
        waits_s: deque[float] = deque([0.0], maxlen=8)
        if pause_s:
            await asyncio.sleep(random.uniform(0, pause_s))
        while (sent_ns := time.monotonic_ns()) < end_ns and not receiver.trouble:
            payload = sent_ns.to_bytes(STAMP_BYTES, "big") + filler
            number = await group.multicast(payload, task["service"])
            await receiver.until_own(number)
            waits_s.append((time.monotonic_ns() - sent_ns) / 1e9)
            # So that a busy ring is met at any point of its round, a quiet one at any time.
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
    receiver = CurveReceiver(group, count)
    listening = asyncio.create_task(receiver.listen())
    while len(group.members) < count and not listening.done():
        await asyncio.sleep(0.01)
    answer({"trouble": receiver.trouble} if receiver.trouble else {"ready": True})
    while not reading.done():
        task = await asked.get()
        try:
            told = await (load if task["do"] == "load" else single)(group, receiver, task)
        except TimeoutError:
            told = {"trouble": f"own messages were not delivered within {DRAIN_S:g} s"}
        answer({"trouble": receiver.trouble} if receiver.trouble else told)


async def read(asked: asyncio.Queue[dict[str, Any]], worker: asyncio.Task[None] | None) -> None:
    """Tasks, line by line; the end of the input ends the process."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        asked.put_nowait(json.loads(line))
    if worker is not None:
        worker.cancel()


def main() -> None:
    try:
        asyncio.run(work())
    except UnisonoError as error:
        answer({"trouble": str(error)})
    except (asyncio.CancelledError, KeyboardInterrupt):
        pass


if __name__ == "__main__":
    main()
