"""Groups for threads: `unisono.sync.join` as `unisono.join`, without `async` and `await`.

A background thread runs the event loop of all groups of the process: the first join starts it, the
last leave stops it. Groups that are still open when the interpreter ends are left.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar, Unpack

from unisono.client import join as join_async
from unisono.config import JoinOptions
from unisono.group import Group
from unisono.spec import ProtocolSpec
from unisono.sync import background as backgrounds
from unisono.sync.group import SyncGroup, SyncHandle, SyncLock
from unisono.sync.service import SyncIterator, SyncService

__all__ = ["SyncGroup", "SyncHandle", "SyncIterator", "SyncLock", "SyncService", "join", "open"]

S = TypeVar("S")


def join(
    group: str | None = None,
    /,
    *,
    config: str | Path | None = None,
    snapshot: Callable[[], bytes] | None = None,
    restore: Callable[[bytes], None] | None = None,
    spec: ProtocolSpec | None = None,
    **options: Unpack[JoinOptions],
) -> SyncGroup:
    """Join a group and return it: `with unisono.sync.join("orders") as group`. The arguments are
    those of `unisono.join`."""
    joining = join_async(
        group, config=config, snapshot=snapshot, restore=restore, spec=spec, **options
    )

    async def enter() -> Group:
        return await joining

    background = backgrounds.acquire()
    try:
        joined = background.call(enter())
    except BaseException:
        backgrounds.release(background)
        raise
    found = SyncGroup(joined, background)
    backgrounds._open.add(found)
    return found


def open(service: AbstractAsyncContextManager[S], timeout_s: float | None = None) -> SyncService[S]:
    """Any service for threads: `with unisono.sync.open(rpc.join("prices")) as opened`. Shared
    objects and messages to one member have facades of their own, in `unisono.sync.sharing` and
    `unisono.sync.direct`."""
    return SyncService(service, timeout_s)
