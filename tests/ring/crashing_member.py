"""A member of a ring as a process of its own, which on command dies while it holds the token.

Under load the token is nowhere for long: who looks from outside kills a process that held it a
moment ago. So the process ends itself, by SIGKILL, in the step that brought it the token, before
anything that the step asked for is done: what it would have said never leaves.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import unisono
from unisono.core import Effect, Event
from unisono.model import Message, View
from unisono.protocols.ring import SPEC
from unisono.protocols.ring.core import Site
from unisono.protocols.ring.figures import SEND
from unisono.protocols.ring.states import SendState

SPEAKING = tuple(
    step.name for steps in SEND.index.values() for step in steps if step.to is SendState.WAITACK
)
BATCH = 5
PAUSE_S = 0.002
OCTETS = 200


def tell(kind: str, **told: Any) -> None:
    """By one system call, so that all of it is out when the process dies."""
    os.write(1, (json.dumps({"kind": kind, "at_s": time.monotonic(), **told}) + "\n").encode())


class Mortal(Site):
    """It dies as the holder, once it shall."""

    doomed = False

    def step(self, now_us: int, event: Event) -> list[Effect]:
        before = self._spoken()
        effects = super().step(now_us, event)
        if Mortal.doomed and (self.token.is_here() or self._spoken() > before):
            tell("died", s=self.ordering.S)
            os.kill(os.getpid(), signal.SIGKILL)
        return effects

    def _spoken(self) -> int:
        return sum(self.send.walked.get(f"send: {name}", 0) for name in SPEAKING)


class Playing:
    """Sends all the time, and records when it delivered what."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self._join = orders
        self._heard_s: list[float] = []

    async def run(self) -> None:
        keywords = dict(self._join)
        name, spec = keywords.pop("group"), replace(SPEC, make=Mortal)
        async with unisono.join(name, spec=spec, **keywords) as group:
            tasks = [asyncio.create_task(each(group)) for each in (self._hear, self._say)]
            try:
                await self._obey()
            finally:
                for task in tasks:
                    task.cancel()

    async def _hear(self, group: unisono.Group) -> None:
        async for batch in group.batches():
            if any(isinstance(item, Message) for item in batch):
                self._heard_s.append(time.monotonic())
            for item in batch:
                if isinstance(item, View):
                    tell("view", members=sorted(who.name for who in item.members))

    async def _say(self, group: unisono.Group) -> None:
        while True:
            await group.multicast_many([bytes(OCTETS)] * BATCH)
            await asyncio.sleep(PAUSE_S)

    async def _obey(self) -> None:
        """Until standard input ends."""
        loop = asyncio.get_running_loop()
        while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            if word == "die":
                Mortal.doomed = True
            else:
                self._tell_gap(float(word))

    def _tell_gap(self, since_s: float) -> None:
        """The longest time without a delivery that ended after then, and how much came after it."""
        heard_s = [each for each in self._heard_s if each > since_s - 1]
        later = [(b - a, b) for a, b in pairwise(heard_s) if b > since_s]
        gap_s, end_s = max(later, default=(0.0, 0.0))
        tell("gap", gap_s=gap_s, later=sum(each > end_s for each in heard_s))


if __name__ == "__main__":
    asyncio.run(Playing(json.loads(sys.argv[1])).run())
