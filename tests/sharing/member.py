"""A member that works with shared objects as a process of its own: its orders are JSON; it puts the
lines of its input into a dictionary until it is told to `rest`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import random
import sys
from pathlib import Path
from typing import Any

import unisono
from unisono.services import sharing
from unisono.services.sharing import SharedObjects

REST = "rest"
HOLD = "hold"
"""Take the lock, and write to the resource until it is lost."""


def tell(kind: str, **told: Any) -> None:
    print(json.dumps({"kind": kind, **told}), flush=True)


class Resource:
    """Outside the group: a file that refuses tokens below the highest that it has seen."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, token: int) -> bool:
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            highest = max(map(int, file.read().split()), default=0)
            if token >= highest:
                file.write(f"{token}\n")
        return token >= highest


class Worker:
    def __init__(self, objects: SharedObjects, resource: Resource) -> None:
        self._objects, self._resource = objects, resource
        self._dice = random.Random(str(objects.me))

    async def watch(self) -> None:
        said = self._objects.dict("said")
        watcher = said.watch()
        tell("view", members=[each.name for each in self._objects.members])
        while True:
            changes = [change async for change in _at_most(watcher, 0.1)]
            if any(change.replaced for change in changes):
                for name, text in said.items():
                    tell("message", sender=name, number=0, text=text)
            for change in changes:
                tell("message", sender=change.key, number=change.place, text=change.value)
            tell("view", members=[each.name for each in self._objects.members])

    async def work(self) -> None:
        """An operation of any kind, again and again."""
        steps = (self._count, self._store, self._take_turn, self._do_job)
        while True:
            await asyncio.sleep(self._dice.uniform(0.005, 0.1))
            with contextlib.suppress(unisono.LockLost, unisono.Undelivered, TimeoutError):
                async with asyncio.timeout(20):
                    await self._dice.choice(steps)()

    async def _count(self) -> None:
        await self._objects.counter("n").add()

    async def _store(self) -> None:
        store, key = self._objects.dict("store"), self._dice.choice("abc")
        before = await store.read(key)
        await store.compare_and_set(key, before, (before or 0) + 1)

    async def _take_turn(self) -> None:
        async with self._objects.lock("till") as lock:
            tell("holds", token=lock.token)
            if not self._resource.write(lock.token):
                tell("refused", token=lock.token)
            await asyncio.sleep(self._dice.uniform(0, 0.1))

    async def _do_job(self) -> None:
        jobs = self._objects.queue("jobs")
        await jobs.put(str(self._objects.me))
        async with jobs.take():
            await asyncio.sleep(self._dice.uniform(0, 0.05))

    async def hold(self) -> None:
        try:
            async with self._objects.lock("till") as lock:
                tell("holds", token=lock.token)
                while True:
                    if not self._resource.write(lock.token):
                        tell("refused", token=lock.token)
                    await asyncio.sleep(0)
        except unisono.LockLost:
            tell("lost")


async def _at_most(watcher: Any, wait_s: float) -> Any:
    """What comes within this time."""
    with contextlib.suppress(TimeoutError):
        while True:
            yield await asyncio.wait_for(anext(watcher), wait_s)


async def main(orders: dict[str, Any]) -> None:
    resource = Resource(Path(orders.pop("resource")))
    works = orders.pop("works")
    async with sharing.join(orders.pop("group"), **orders) as objects:
        worker = Worker(objects, resource)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.watch())
            working = tasks.create_task(worker.work()) if works else None
            lines = asyncio.StreamReader()
            loop = asyncio.get_running_loop()
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
            while line := (await lines.readline()).decode().strip():
                if line == REST and working is not None:
                    working.cancel()
                elif line == HOLD:
                    tasks.create_task(worker.hold())
                else:
                    tasks.create_task(said(objects, line))


async def said(objects: SharedObjects, line: str) -> None:
    with contextlib.suppress(unisono.Undelivered):
        await objects.dict("said").put(str(objects.me.name), line)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
