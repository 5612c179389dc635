"""Applications of one machine that share its daemon: rooms to listen in, and news for all of them.

Start the daemon first, and then listeners and a speaker in other terminals:

    unisono daemon --listen unix:/tmp/unisono.sock
    python examples/site.py /tmp/unisono.sock listen kitchen
    python examples/site.py /tmp/unisono.sock listen garden
    python examples/site.py /tmp/unisono.sock say kitchen,garden 'dinner is ready'

A listener stays until Ctrl-C, or for so many messages. Stop the daemon and start it again:
the listeners come back by themselves.
"""

import asyncio
import contextlib
import sys

import unisono


async def listen(daemon: str, room: str, count: int | None) -> None:
    """A member of one room."""
    async with unisono.join(room, daemon=daemon) as group:
        async for event in group:
            match event:
                case unisono.View(members):
                    print(f"in {room}:", *(member.name for member in members), flush=True)
                case unisono.Message(sender, payload):
                    print(f"{sender.name}: {payload.decode()}", flush=True)
                    count = count and count - 1
                    if count == 0:
                        return
                case unisono.Rejoined(reason):
                    print(f"back again; {reason}", flush=True)


async def say(daemon: str, rooms: list[str], words: str) -> None:
    """A member of none: the words have one place in the order of all these rooms."""
    async with unisono.connect(daemon, name="speaker") as connection:
        await connection.send(rooms, words.encode())


async def main(daemon: str, what: str, rooms: str, *rest: str) -> None:
    if what == "say":
        await say(daemon, rooms.split(","), *rest)
    else:
        await listen(daemon, rooms, int(rest[0]) if rest else None)


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main(*sys.argv[1:]))
