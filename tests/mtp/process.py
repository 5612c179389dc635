"""A member of a web as a process of its own, and a test's handle on it.

Its state is the count of messages and a running hash over all of them, so that two members that
were given the same state and delivered the same messages after it report the same digests.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import unisono
from tests.harness import Module
from tests.waiting import LIMIT_S, until
from unisono.model import Message, View

HASH_BYTES = 16
LARGE_BYTES_MAX = 1 << 20


class Ledger:
    """The application: what it delivered so far, and a ballast that makes its state large."""

    def __init__(self, ballast_bytes: int) -> None:
        self.count = 0
        self.digest = bytes(HASH_BYTES)
        self._ballast: bytes | memoryview = bytes(ballast_bytes)

    def add(self, message: Message) -> None:
        front = f"{message.sender} {message.number} ".encode()
        self.digest = blake2b(
            message.payload, digest_size=HASH_BYTES, key=self.digest, person=_short(front)
        ).digest()
        self.count += 1

    def snapshot(self) -> bytes:
        return b"".join((self.count.to_bytes(8, "big"), self.digest, self._ballast))

    def restore(self, state: bytes) -> None:
        self.count = int.from_bytes(state[:8], "big")
        self.digest = state[8 : 8 + HASH_BYTES]
        self._ballast = memoryview(state)[8 + HASH_BYTES :]
        tell("restored", count=self.count, octets=len(state))


def _short(front: bytes) -> bytes:
    return blake2b(front, digest_size=16).digest()


def tell(kind: str, **told: Any) -> None:
    print(json.dumps({"kind": kind, "at_s": round(time.monotonic(), 4), **told}), flush=True)


def rss_bytes(what: str = "VmRSS") -> int:
    """Memory that is resident now, or as `VmHWM` at most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) << 10


def payloads(seed: int, large_every: int, bytes_max: int) -> Iterator[bytes]:
    """Most are under 1 KiB; one of so many has up to 1 MiB."""
    dice = random.Random(seed)
    stuff = dice.randbytes(2 * LARGE_BYTES_MAX)
    while True:
        large = large_every and not dice.randrange(large_every)
        size = dice.randrange(LARGE_BYTES_MAX if large else bytes_max)
        start = dice.randrange(LARGE_BYTES_MAX)
        yield stuff[start : start + size]


class Playing:
    """One member at work, by its orders:

    - `join`: the keywords of `join`;
    - `talks`: send messages until `hush`;
    - `bytes_max`, `large_every`, `batch`, `pause_s`: their sizes, how many at once, how often;
    - `every`: report a digest after so many messages;
    - `nap_s`, `blocks`: sleep so long after each message, and whether the loop sleeps too;
    - `ballast_bytes`: make the state so large.
    """

    def __init__(self, orders: Mapping[str, Any]) -> None:
        self.orders = orders
        self.ledger = Ledger(orders.get("ballast_bytes", 0))
        self.talks = orders.get("talks", False)

    async def run(self) -> None:
        ledger = self.ledger
        keywords = dict(self.orders["join"])
        began = time.monotonic()
        self.group = await unisono.join(
            keywords.pop("group"),
            protocol="mtp",
            snapshot=ledger.snapshot,
            restore=ledger.restore,
            **keywords,
        )
        tell("joined", took_s=round(time.monotonic() - began, 4), rss=rss_bytes())
        tasks = [asyncio.create_task(each()) for each in (self.hear, self.say)]
        try:
            await self.obey()
            await self.group.leave()
            self.now("end")
        finally:
            for task in tasks:
                task.cancel()

    async def hear(self) -> None:
        every, nap_s = self.orders.get("every", 1000), self.orders.get("nap_s", 0)
        try:
            async for item in self.group:
                if isinstance(item, Message):
                    self.ledger.add(item)
                    if self.ledger.count % every == 0:
                        digest = self.ledger.digest.hex()
                        tell("digest", count=self.ledger.count, digest=digest)
                    if nap_s and self.orders.get("blocks"):
                        time.sleep(nap_s)
                    elif nap_s:
                        await asyncio.sleep(nap_s)
                elif isinstance(item, View):
                    tell("view", members=[who.name for who in item.members], detail=item.detail)
                else:
                    tell(type(item).__name__.lower(), reason=getattr(item, "reason", ""))
        except unisono.Stopped as stop:
            tell("stopped", reason=stop.reason)

    async def say(self) -> None:
        orders = self.orders
        words = payloads(
            orders.get("seed", 0), orders.get("large_every", 0), orders.get("octets_max", 1024)
        )
        batch = orders.get("batch", 50)
        while self.talks:
            try:
                await self.group.multicast_many([next(words) for _ in range(batch)])
            except unisono.Stopped:
                return
            await asyncio.sleep(orders.get("pause_s", 0))
        tell("silent", count=self.ledger.count)

    async def say_large(self, octets: int) -> None:
        try:
            number = await self.group.multicast(b"x" * octets)
            tell("said", number=number)
        except unisono.TooLarge as error:
            tell("refused", why=str(error))

    async def obey(self) -> None:
        """Until `leave` on standard input, or its end."""
        loop = asyncio.get_running_loop()
        while True:
            word = (await loop.run_in_executor(None, sys.stdin.readline)).strip()
            if word == "now":
                self.now("now")
            elif word == "silence":
                self.talks = False
            elif word.startswith("say "):
                await self.say_large(int(word[4:]))
            else:
                return

    def now(self, kind: str) -> None:
        tell(
            kind,
            count=self.ledger.count,
            digest=self.ledger.digest.hex(),
            rss=rss_bytes(),
            rss_max=rss_bytes("VmHWM"),
            counters={name: count for name, count in self.group.counters().items() if count},
        )


class Process(Module):
    """A test's hold on one such process."""

    def __init__(self, orders: Mapping[str, Any], before: Sequence[str] = ()) -> None:
        self.began = time.monotonic()
        super().__init__(orders["join"]["name"], "tests.mtp.process", orders, before)

    def ask(self) -> dict[str, Any]:
        """How it is now."""
        before = len(self.of("now"))
        self.write("now")
        until(
            lambda: len(self.of("now")) > before or not self.is_alive,
            f"an answer of {self.name}",
            lambda: str(self.objects[-3:]),
        )
        assert self.is_alive, f"{self.name} ended: {self.objects[-3:]}"
        return self.of("now")[-1]

    @property
    def view(self) -> list[str]:
        views = self.of("view")
        return sorted(views[-1]["members"]) if views else []

    @property
    def digests(self) -> dict[int, str]:
        return {each["count"]: each["digest"] for each in self.of("digest")}

    @property
    def count(self) -> int:
        """Messages that it has delivered at least."""
        return max(self.digests, default=0)

    def leave(self) -> dict[str, Any]:
        self.write("leave")
        assert self.wait(LIMIT_S) == 0
        until(lambda: self.of("end"), f"the last words of {self.name}")
        return self.of("end")[-1]


if __name__ == "__main__":
    asyncio.run(Playing(json.loads(sys.argv[1])).run())
