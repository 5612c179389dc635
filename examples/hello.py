"""The twenty lines of the README: join, speak, and hear one ordered stream.

Run it in two terminals: python examples/hello.py ann; python examples/hello.py bob
"""

import asyncio
import sys

import unisono


async def main(name: str) -> None:
    heard = set()
    async with unisono.join("orders", name=name) as group:
        async for event in group:  # one ordered stream
            match event:
                case unisono.View(members):
                    print("members:", *(member.name for member in members), flush=True)
                    await group.multicast(f"hello from {name}".encode())
                case unisono.Message(sender, payload):
                    print(f"{sender.name}: {payload.decode()}", flush=True)
                    heard.add(sender.name)
            if len(heard) > 1:
                break


asyncio.run(main(sys.argv[1]))
