"""A counter that every member has: whoever joins is handed its value at a definite place.

Run it as often as you like, in several terminals: python examples/counter.py
"""

import asyncio

import unisono


class Counter:
    """Adding is the same in any order, so causal order is all that it takes."""

    def __init__(self) -> None:
        self.value = 0

    def snapshot(self) -> bytes:
        return str(self.value).encode()

    def restore(self, state: bytes) -> None:
        self.value = int(state)


async def main() -> None:
    counter = Counter()
    joining = unisono.join("counter", snapshot=counter.snapshot, restore=counter.restore)
    async with joining as group:
        await group.multicast(b"1")
        async for event in group:
            if isinstance(event, unisono.Message):
                counter.value += int(event.payload)
                print("the counter is", counter.value, flush=True)
                if event.sender == group.me:
                    break


asyncio.run(main())
