"""Programs that use shared objects in the simulated world, and what must hold of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from unisono.programs import SimulatedMember
from unisono.services import sharing
from unisono.services.sharing import SharedObjects


class Copy:
    """What `main` leaves for the judges."""

    def __init__(self) -> None:
        self.objects: SharedObjects | None = None
        self.returned: list[tuple[str, object]] = []

    @property
    def table(self):  # type: ignore[no-untyped-def]
        assert self.objects is not None
        return self.objects._table


def equal_copies(members: Sequence[SimulatedMember]) -> None:
    """Members at the same place of the same group have the same objects."""
    states: dict[tuple[str, int], bytes] = {}
    for member in members:
        if member.alive and member.state.objects is not None:
            table = member.state.table
            state = table.state()
            before = states.setdefault((table.origin, table.place), state)
            assert state == before, f"{member.name} differs at {table.place}"


async def dict_and_counter(state: Copy) -> None:
    async with sharing.join("sim") as objects:
        state.objects = objects
        stock, sold = objects.dict("stock"), objects.counter("sold")
        for _ in range(6):
            await asyncio.sleep(random.uniform(0.05, 0.5))
            key = random.choice("ab")
            before = stock.get(key, 0)
            done, _ = await objects.batch(
                stock.compare_and_set(key, before or None, before + 1), sold.add(1)
            )
            state.returned.append((objects._table.origin, key if done else ""))
        await objects.ended()


def nothing_is_lost(members: Sequence[SimulatedMember]) -> None:
    """What was confirmed is in the copies of those that go on with it."""
    for member in members:
        if member.alive and member.state.objects is not None:
            table, objects = member.state.table, member.state.objects
            done = [
                key for other in members for origin, key in other.state.returned
                if origin == table.origin
            ]  # fmt: skip
            for key in "ab":
                assert objects.dict("stock").get(key, 0) >= done.count(key), key
            assert objects.counter("sold").value >= len(done)
