"""A counter that every member has: each adds 1 a second, and a joiner is handed the value.

Run it in several terminals, one after another: python examples/counter.py [SECONDS]
It stays until Ctrl-C, or for so many seconds.
"""

import asyncio
import contextlib
import itertools
import sys

import unisono


class Counter:
    """Adding is the same in any order, so any protocol will do."""

    def __init__(self) -> None:
        self.value = 0

    def snapshot(self) -> bytes:
        return str(self.value).encode()

    def restore(self, state: bytes) -> None:
        self.value = int(state)
        print("handed over:", self.value, flush=True)


async def add(group: unisono.Group, rounds: int | None) -> None:
    for _ in itertools.count() if rounds is None else range(rounds):
        await group.multicast(b"1")
        await asyncio.sleep(1)
    await group.leave()  # which ends the stream


async def main(rounds: int | None) -> None:
    counter = Counter()
    joining = unisono.join("counter", snapshot=counter.snapshot, restore=counter.restore)
    async with joining as group, asyncio.TaskGroup() as tasks:
        tasks.create_task(add(group, rounds))
        async for event in group:
            if isinstance(event, unisono.Message):
                counter.value += int(event.payload)
                print("the counter is", counter.value, flush=True)


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
