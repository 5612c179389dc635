"""Shared objects: dictionaries, counters and more that all members of a group have in common.

    async with sharing.join("shop", name="ann") as shop:
        stock = shop.dict("stock")
        await stock.put("apples", 3)
        if await stock.compare_and_set("apples", 3, 2):
            await shop.counter("sold").add(1)

Every operation has one place in the group's total order and is applied there by all members. The
pure part is in `services/objects`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Unpack

import unisono
from unisono.errors import Misuse
from unisono.services.objects.table import ObjectTable
from unisono.services.sharing.call import SharedCall
from unisono.services.sharing.collections import SharedCounter, SharedDict, SharedObject
from unisono.services.sharing.objects import OperationRecorder, SharedObjects, level_of
from unisono.services.sharing.watching import Changed, Watcher

__all__ = [
    "Changed",
    "OperationRecorder",
    "SharedCall",
    "SharedCounter",
    "SharedDict",
    "SharedObject",
    "SharedObjects",
    "Watcher",
    "join",
]

FORMAT: Final = "objects/1"
"""The join option of such a group, so that no other member takes operations for messages."""


@contextlib.asynccontextmanager
async def join(
    group: str | None = None,
    /,
    *,
    config: str | Path | None = None,
    recorder: OperationRecorder | None = None,
    **options: Unpack[unisono.JoinOptions],
) -> AsyncIterator[SharedObjects]:
    """Join as `unisono.join` does, as a member or through a daemon. `Misuse` if the protocol has
    no one order of the whole group. In a part of it that may not go on operations wait."""
    given = options.get("format")
    options["format"] = f"{FORMAT}:{given}" if given else FORMAT
    table = ObjectTable()
    objects: list[SharedObjects] = []

    def restore(state: bytes) -> None:
        if objects:
            objects[0].restore(state)
        else:
            table.restore(state)

    async with unisono.join(
        group, config=config, snapshot=table.state, restore=restore, **options
    ) as joined:
        if joined.config.slow == "shed":
            raise Misuse("slow='shed' drops operations at one member: use 'block' or 'leave'")
        found = SharedObjects(joined, table, level_of(joined), recorder)
        objects.append(found)
        try:
            await found.begun.wait()
            yield found
        finally:
            await found.leave()
