"""A member of an RMP group as a process of its own: it multicasts the lines of its input, each at
another level, and works under the group's locks until it is told to `rest`."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

import unisono
from unisono import ALL, MAJORITY, Member, Message, Resilient, Service, View

LEVELS = (
    Service.UNRELIABLE,
    Service.RELIABLE,
    Service.FIFO,
    Service.AGREED,
    Resilient(2),
    Resilient(MAJORITY),
    Resilient(ALL),
)
LOCKS = 3
REST = "rest"
LAST = "is here"
"""Lines that end so are ordered: all members that live have to deliver them."""


def tell(kind: str, **told: Any) -> None:
    print(json.dumps({"kind": kind, **told}), flush=True)


class Working:
    """The group's locks are few: most members wait for one while another works under it."""

    def __init__(self, group: unisono.Group) -> None:
        self._group = group
        self._dice = random.Random(group.me.name)

    async def read(self) -> None:
        async for item in self._group:
            if isinstance(item, Message):
                tell(
                    "message",
                    sender=item.sender.name,
                    number=item.number,
                    text=item.payload.decode(),
                )
            elif isinstance(item, View):
                tell("view", members=_names(item.members))

    async def work(self) -> None:
        while True:
            try:
                lock = self._group.lock(self._dice.randrange(LOCKS))
                async with lock:
                    tell("holds", lock=lock.number)
                    await asyncio.sleep(self._dice.uniform(0.05, 0.5))
            except (unisono.LockLost, unisono.Stopped, TimeoutError):
                await asyncio.sleep(0.1)  # It is joining again, and holds nothing.

    async def obey(self, tasks: asyncio.TaskGroup) -> None:
        """Until the end of the input."""
        working = tasks.create_task(self.work())
        lines = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := (await lines.readline()).decode().strip():
            if line == REST:
                working.cancel()
            else:
                tasks.create_task(self._send(line))

    async def _send(self, line: str) -> None:
        level = Service.AGREED if line.endswith(LAST) else self._dice.choice(LEVELS)
        try:
            await self._group.multicast(line.encode(), level)
        except unisono.UnisonoError as error:
            tell("refused", why=str(error))


def _names(members: tuple[Member, ...]) -> list[str]:
    return [member.name for member in members]


async def main(orders: dict[str, Any]) -> None:
    joining = unisono.join(orders.pop("group"), protocol="rmp", **orders)
    async with joining as group, asyncio.TaskGroup() as tasks:
        working = Working(group)
        reading = tasks.create_task(working.read())
        await working.obey(tasks)
        reading.cancel()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
