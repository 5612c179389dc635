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
from unisono.services.sharing.claims import (
    SharedBarrier,
    SharedElection,
    SharedLock,
    SharedParty,
    SharedReadWriteLock,
    SharedSemaphore,
)
from unisono.services.sharing.collections import (
    SharedCache,
    SharedCounter,
    SharedDict,
    SharedList,
    SharedNumbers,
    SharedObject,
    SharedSet,
)
from unisono.services.sharing.objects import SharedObjects, level_of
from unisono.services.sharing.queues import (
    Published,
    SharedItem,
    SharedOnce,
    SharedQueue,
    SharedTopic,
)
from unisono.services.sharing.watching import Changed, Watcher
from unisono.trace.operations import operation_log

__all__ = [
    "Changed",
    "Published",
    "SharedBarrier",
    "SharedCache",
    "SharedCall",
    "SharedCounter",
    "SharedDict",
    "SharedElection",
    "SharedItem",
    "SharedList",
    "SharedLock",
    "SharedNumbers",
    "SharedObject",
    "SharedObjects",
    "SharedOnce",
    "SharedParty",
    "SharedQueue",
    "SharedReadWriteLock",
    "SharedSemaphore",
    "SharedSet",
    "SharedTopic",
    "Watcher",
    "join",
]

LEASE_S: Final = 5.0
LEASE_S_MIN: Final = 0.2
LEASE_S_MAX: Final = 3600
FORMAT: Final = "objects/1"
"""The join option of such a group, so that no other member takes operations for messages."""


@contextlib.asynccontextmanager
async def join(
    group: str | None = None,
    /,
    *,
    config: str | Path | None = None,
    lease_s: float = LEASE_S,
    **options: Unpack[unisono.JoinOptions],
) -> AsyncIterator[SharedObjects]:
    """Join as `unisono.join` does, as a member or through a daemon. `Misuse` if the protocol has
    no one order of the whole group. In a part of it that may not go on operations wait.

    `lease_s`, the same at all members, is how long a member that is silent keeps what it holds; the
    others get it a quarter of that later."""
    if not LEASE_S_MIN <= lease_s <= LEASE_S_MAX:
        raise Misuse(f"lease_s={lease_s!r}: give {LEASE_S_MIN} to {LEASE_S_MAX} seconds")
    given = options.get("format")
    format_ = f"{FORMAT}:{lease_s:g}"
    options["format"] = f"{format_}:{given}" if given else format_
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
        own = joined.config
        log = operation_log(own.trace, own.run or own.group, str(joined.me))
        found = SharedObjects(joined, table, level_of(joined), lease_s, log)
        objects.append(found)
        try:
            await found.begun.wait()
            yield found
        finally:
            await found.leave()
