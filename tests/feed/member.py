"""A member of a replayable group as a process: multicasts until `quiet`, and leaves at the end
of its input. `python -m tests.feed.member '{"name": …, "port": …, "word": …, "trace": …}'`"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any, Final

import unisono
from unisono.errors import Stopped

PAUSE_S, BURST = 0.05, 10
ALIKE: Final = {"join_s": 40.0, "tries": 60}
"""Options of every member, the feed too: another value of `tries` is refused."""


def payload(word: str, number: int) -> bytes:
    """A message; the word differs between incarnations."""
    return f"{word}:{number}".encode()


async def talk(group: Any, word: str, quiet: asyncio.Event) -> None:
    # Safe: an agreed message may be delivered to its sender alone, just before the others exclude
    # it for being slow.
    number = 0
    # Alone, it may have founded a group of its own beside that of the others, which will yield.
    while len(group.members) == 1 and not quiet.is_set():
        await asyncio.sleep(PAUSE_S)
    while not quiet.is_set():
        with contextlib.suppress(Stopped):
            words = [payload(word, number + n) for n in range(BURST)]
            await group.multicast_many(words, service=unisono.SAFE)
        number += BURST
        await asyncio.sleep(PAUSE_S)
    print(json.dumps({"kind": "quiet", "said": number}), flush=True)


async def listen(group: Any) -> None:
    async for _ in group.batches():
        pass


async def live(name: str, port: int, word: str, trace: str) -> None:
    options = {"port": port, "replayable": True, **ALIKE}
    quiet = asyncio.Event()
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def ordered() -> None:
        word = sys.stdin.readline()
        quiet.set()
        if not word and not ended.done():
            ended.set_result(None)

    loop.add_reader(sys.stdin, ordered)
    async with unisono.join("g", name=name, trace=trace, run="kills", **options) as group:
        print(json.dumps({"kind": "joined", "life": group.incarnation}), flush=True)
        tasks = [asyncio.create_task(each) for each in (listen(group), talk(group, word, quiet))]
        await ended
        loop.remove_reader(sys.stdin)
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(live(**json.loads(sys.argv[1])))
