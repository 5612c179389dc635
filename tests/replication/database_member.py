"""A replica of a database as a process of its own: each line of its input becomes a row, and it
tells when the row has its place for ever."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import unisono

TABLE = """CREATE TABLE IF NOT EXISTS sales(
    text PRIMARY KEY, at DEFAULT CURRENT_TIMESTAMP, dice DEFAULT (random()))"""
WAITING_MAX = 200
"""Rows whose place is not known; further lines are refused then, as they come."""


def tell(kind: str, **told: Any) -> None:
    print(json.dumps({"kind": kind, **told}), flush=True)


class Seller:
    def __init__(self, db: unisono.Database) -> None:
        self._db = db
        self._waiting: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        primary: tuple[str, ...] | None = None
        while self._db.log.stopped is None:
            if self._db.log.primary != primary:
                primary = self._db.log.primary
                tell("primary", members=primary)
            await asyncio.sleep(0.05)
        tell("stopped", reason=self._db.log.stopped)

    async def sell(self, text: str) -> None:
        handle = self._db.deposit("INSERT INTO sales(text) VALUES (?)", (text,))
        await handle
        tell("red", text=text)
        await self._db.answer(handle)
        tell("green", text=text, position=await handle.green)

    async def read(self) -> None:
        await self._db.execute(TABLE)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            if len(self._waiting) < WAITING_MAX:
                task = asyncio.create_task(self.sell(line.strip()))
                self._waiting.add(task)
                task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._waiting.discard(task)
        if not task.cancelled() and (error := task.exception()):
            tell("failed", reason=str(error))


async def main(orders: dict[str, Any]) -> None:
    async with unisono.sqlite(orders.pop("path"), **orders) as db:
        seller = Seller(db)
        reading = asyncio.create_task(seller.read())
        await seller.watch()
        reading.cancel()


if __name__ == "__main__":
    try:
        asyncio.run(main(json.loads(sys.argv[1])))
    except unisono.UnisonoError as error:
        tell("refused", reason=str(error))
