"""Many clients in one process, each of which sends, receives and records its stream.

Orders come as JSON: `clients`, a list of name, group, daemon and the groups each sends to; `batch`
and `pause_s`, how much it sends. On standard input: `talk`, `silence`, `report FILE`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import unisono
from unisono.model import Message, View


def tell(kind: str, **told: Any) -> None:
    print(json.dumps({"kind": kind, **told}), flush=True)


class One:
    """A client and what it read: place, sender and number of each message, and the views."""

    def __init__(self, orders: Mapping[str, Any]) -> None:
        self.orders = orders
        self.name = orders["name"]
        self.log: list[tuple[int | None, str, int]] = []
        self.views: list[tuple[str, list[str]]] = []
        self.wrong: list[str] = []
        self.said = 0
        self.talks = False
        self.ended = ""

    async def join(self) -> None:
        """For one incarnation: the report is of what it sent and delivered."""
        orders = self.orders
        self.group = await unisono.join(
            orders["group"], daemon=orders["daemon"], name=self.name, join_s=60, rejoin=False
        )
        self.me = str(self.group.me)
        self.listening = asyncio.create_task(self.listen())

    async def listen(self) -> None:
        try:
            async for batch in self.group.batches():
                for item in batch:
                    self.take(item)
        except unisono.Stopped as stop:
            self.ended = stop.reason
            tell("stopped", name=self.name, reason=stop.reason)

    def take(self, item: Any) -> None:
        if isinstance(item, Message):
            self.log.append((item.seq, str(item.sender), item.number))
            if (
                item.payload.split(b" ", 2)[:2]
                != f"{item.sender.name} {item.number}".encode().split()
            ):
                self.wrong.append(f"{item.sender} {item.number}: {item.payload[:40]!r}")
        elif isinstance(item, View):
            self.views.append((item.id, sorted(who.name for who in item.members)))
        else:
            self.wrong.append(repr(item))

    async def talk(self, batch: int, pause_s: float, nbytes: int) -> None:
        self.talks = True
        stuff = "x" * nbytes
        while self.talks and not self.ended:
            numbers = range(self.said + 1, self.said + batch + 1)
            payloads = [f"{self.name} {number} {stuff}".encode() for number in numbers]
            try:
                await self.group.multicast_many(payloads, to=self.orders["to"])
            except unisono.Stopped:
                return
            self.said += batch
            await asyncio.sleep(pause_s)

    def report(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "me": self.me,
            "group": self.orders["group"],
            "to": self.orders["to"],
            "said": self.said,
            "log": self.log,
            "views": self.views,
            "wrong": self.wrong[:5],
            "ended": self.ended,
        }


async def run(orders: Mapping[str, Any]) -> None:
    ones = [One(each) for each in orders["clients"]]
    await asyncio.gather(*(one.join() for one in ones))
    tell("joined", names=[one.name for one in ones])
    talking: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if word == "talk":
            talking = [
                asyncio.create_task(one.talk(orders["batch"], orders["pause_s"], orders["nbytes"]))
                for one in ones
            ]
        elif word == "silence":
            for one in ones:
                one.talks = False
            await asyncio.gather(*talking)
            tell("silent", said=sum(one.said for one in ones))
        elif word == "count":
            counts = {one.name: len(one.log) for one in ones}
            tell("count", counts=counts, members={one.name: len(one.group.members) for one in ones})
        elif word.startswith("report "):
            Path(word[7:]).write_text(json.dumps([one.report() for one in ones]))
            tell("reported")
    for one in ones:
        one.listening.cancel()


if __name__ == "__main__":
    asyncio.run(run(json.loads(sys.argv[1])))
