"""A group of three members in a process of its own and a feed in another, for sinks to write to.

`python -m tests.spark.sinkstage ORDERS` is the process of the members: it obeys words on its
standard input and tells lines of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import unisono
from tests.harness import UNISONO, Child, Module
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, until
from unisono.feed.client import FeedClient
from unisono.group import Group

MEMBERS = ("m0", "m1", "m2")
PATIENCE = {"tries": 60}
"""Machines that run tests are busy."""


# -- the members' process -------------------------------------------------------------------------


class Listening:
    """A member and all that it heard; it can be told not to listen for a while."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.placed: list[tuple[int, bytes]] = []
        self.may = asyncio.Event()
        self.may.set()

    async def listen(self) -> None:
        async for items in self.group.batches():
            for item in items:
                if isinstance(item, unisono.Message):
                    assert item.seq is not None
                    self.placed.append((item.seq, item.payload))
            await self.may.wait()

    def report(self, place: Path) -> None:
        octets = [len(payload).to_bytes(4, "big") + payload for _, payload in self.placed]
        place.write_bytes(b"".join(octets))


async def be_members(orders: dict[str, Any]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        heard = []
        for name in MEMBERS:
            joining = unisono.join(
                "orders",
                name=name,
                port=orders["port"],
                replayable=True,
                join_s=LIMIT_S,
                queue_count_max=orders.get("queue_count_max", 65_536),
                **PATIENCE,
            )
            heard.append(Listening(await stack.enter_async_context(joining)))
        tasks = [asyncio.create_task(each.listen()) for each in heard]
        tell("ready")
        stdin = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin
        )
        while word := (await stdin.readline()).decode().strip():
            if word == "hold":
                heard[-1].may.clear()
            elif word == "go":
                heard[-1].may.set()
            elif word.startswith("count"):
                counts = [len(each.placed) for each in heard]
                repeated = [each.group.counters()["replay.repeated"] for each in heard]
                tell("count", of=word, counts=counts, repeated=repeated)
            elif word.startswith("report"):
                for at, each in enumerate(heard):
                    each.report(Path(orders["place"]) / f"heard-{at}")
                same = all(each.placed == heard[0].placed for each in heard)
                dense = [p for p, _ in heard[0].placed] == [*range(1, len(heard[0].placed) + 1)]
                tell("report", of=word, same=same, dense=dense)
        for task in tasks:
            task.cancel()


def tell(kind: str, **what: Any) -> None:
    print(json.dumps({"kind": kind, **what}), flush=True)


# -- a test's hold on it --------------------------------------------------------------------------


class Stage:
    """A group with a feed. `feed` is where it listens."""

    def __init__(self, place: Path, stack: ExitStack, **options: Any) -> None:
        self.place = place
        self.port, self.feed_port = free_port(), free_port()
        self.feed = f"127.0.0.1:{self.feed_port}"
        self._asked = 0
        orders = {"port": self.port, "place": str(place), **options}
        self.members = stack.enter_context(Module("members", "tests.spark.sinkstage", orders))
        self._wait(lambda: self.members.of("ready"), "the members")
        self._stack = stack
        self.feed_process = self._start_feed()

    def _start_feed(self) -> Child:
        command = [*UNISONO, "feed", "orders", "--log", str(self.place / "log"), "--name", "feed"]
        command += ["--listen", self.feed, "--port", str(self.port), "--json"]
        command += ["--config", str(self._patient())]
        process = self._stack.enter_context(Child("feed", *command))
        process.expect("listening")
        with FeedClient(self.feed, 40) as client:
            self._wait(lambda: client.status()["member"], "the feed")
        return process

    def _patient(self) -> Path:
        file = self.place / "feed.toml"
        file.write_text(f'[group]\ngroup = "orders"\njoin_s = {LIMIT_S}\ntries = 60\n')
        return file

    def kill_feed(self) -> None:
        self.feed_process.kill()

    def restart_feed(self) -> None:
        self.feed_process = self._start_feed()

    def status(self) -> dict[str, Any]:
        with FeedClient(self.feed, LIMIT_S) as client:
            return client.status()

    def _wait(self, done: Callable[[], Any], what: str) -> None:
        until(lambda: done() or not self.members.is_alive, what)
        assert self.members.is_alive, "the members are gone"

    def _ask(self, word: str) -> dict[str, Any]:
        self._asked += 1
        asked = f"{word} {self._asked}"
        self.members.write(asked)
        told: list[dict[str, Any]] = []

        def answered() -> bool:
            told[:] = [each for each in self.members.of(word) if each["of"] == asked]
            return bool(told)

        self._wait(answered, word)
        return told[0]

    def counts(self) -> list[int]:
        """How many messages each member has heard."""
        return list(self._ask("count")["counts"])

    def repeated(self) -> int:
        """How many rows the feed or the first member dropped as delivered before."""
        with FeedClient(self.feed, LIMIT_S) as feed:
            known = feed.status()["counts"].get("rows_known", 0)
        return int(self._ask("count")["repeated"][0]) + int(known)

    def until(self, count: int, all_of_them: bool = True) -> None:
        """All members, or one, have heard so many."""
        which = min if all_of_them else max
        self._wait(lambda: which(self.counts()) >= count, f"{count} messages")

    def heard(self, count: int) -> list[bytes]:
        """What all members heard, in the one order, when they have heard so many."""
        self.until(count)
        told = self._ask("report")
        assert told["same"] and told["dense"], told
        found = [_payloads((self.place / f"heard-{at}").read_bytes()) for at in range(3)]
        assert found[0] == found[1] == found[2]
        return found[0]


def _payloads(octets: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(octets):
        end = at + 4 + int.from_bytes(octets[at : at + 4], "big")
        found.append(octets[at + 4 : end])
        at = end
    return found


@contextmanager
def staged(place: Path, **options: Any) -> Iterator[Stage]:
    place.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        yield Stage(place, stack, **options)


def repeated_of(payloads: list[bytes]) -> list[bytes]:
    return [payload for payload, count in Counter(payloads).items() if count > 1]


def rss_bytes(pid: int) -> int:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    asyncio.run(be_members(json.loads(sys.argv[1])))
