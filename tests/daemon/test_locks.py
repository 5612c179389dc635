"""Locks of lightweight groups, over real daemons: whatever their protocol is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import unisono
from tests.daemon.stage import daemon, daemons, joining
from tests.net.recorder import free_port
from unisono import ChangeKind, ChangeScope, Group

pytestmark = pytest.mark.real

GRANTED, RELEASED = ChangeKind.LOCK_GRANTED, ChangeKind.LOCK_RELEASED


@contextlib.asynccontextmanager
async def read(group: Group) -> AsyncIterator[list[unisono.Change]]:
    """Read the group meanwhile; the changes of its views."""
    changes: list[unisono.Change] = []

    async def reading() -> None:
        with contextlib.suppress(unisono.Stopped):
            async for item in group:
                if isinstance(item, unisono.View):
                    changes.extend(item.changes)

    task = asyncio.create_task(reading())
    try:
        yield changes
    finally:
        task.cancel()


async def test_clients_of_two_daemons_take_turns(place: Path) -> None:
    async with (
        daemons(place, 2),
        joining(place, "a") as a,
        joining(place, "b", at=1) as b,
        read(a) as seen,
        read(b),
    ):
        inside = 0

        async def work(group: Group, turns: int) -> None:
            nonlocal inside
            for _ in range(turns):
                async with group.lock(7):
                    inside += 1
                    assert inside == 1
                    await asyncio.sleep(0.001)
                    inside -= 1

        await asyncio.gather(work(a, 5), work(b, 5), work(a, 5))
        while sum(change.what is RELEASED for change in seen) < 15:
            await asyncio.sleep(0.01)
        about = [change for change in seen if change.number == 7]
        assert [change.what for change in about] == [GRANTED, RELEASED] * 15
        for change in about:
            mine = change.who == (a.me,)
            assert change.where is (ChangeScope.LOCAL if mine else ChangeScope.REMOTE)
        # Other groups have locks of their own.
        async with joining(place, "c", "other") as c, read(c), a.lock(9):
            assert await c.lock(9).try_acquire()


async def test_the_locks_of_a_client_that_leaves_or_dies_are_released_in_order(place: Path) -> None:
    async with daemons(place, 2), joining(place, "a") as a, read(a) as seen:
        b = await joining(place, "b", at=1)
        async with read(b):
            await b.lock(2).acquire()
            await b.lock(1).acquire()
            waiting = asyncio.create_task(a.lock(1).acquire())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            session = b._incarnations.session
            session._transport.abort()  # type: ignore[union-attr]
            await waiting
        failed = next(at for at, each in enumerate(seen) if each.what is ChangeKind.FAILED)
        assert [(each.what, each.number) for each in seen[failed + 1 : failed + 4]] == [
            (RELEASED, 1),
            (GRANTED, 1),
            (RELEASED, 2),
        ]
        assert not b.lock(2).held and b.lock(2).lost.is_set()


async def test_a_lock_is_lost_with_the_daemon_and_free_for_the_others(place: Path) -> None:
    port = free_port()
    async with daemon(place, 0, port), joining(place, "a") as a, read(a):
        other = daemon(place, 1, port)
        await other.__aenter__()
        b = await joining(place, "b", at=1)
        async with read(b):
            working = asyncio.create_task(_hold(b))
            while not b.lock(3).held:
                await asyncio.sleep(0.01)
            taking = asyncio.create_task(a.lock(3).acquire())
            await other.close()
            with pytest.raises(unisono.LockLost, match="lock 3 is lost: the daemon"):
                await working
            await taking
            assert a.lock(3).held


async def _hold(group: Group) -> None:
    async with group.lock(3):
        await asyncio.sleep(60)


async def test_a_daemon_that_joins_later_knows_the_locks(place: Path) -> None:
    port = free_port()
    async with daemon(place, 0, port) as d0, joining(place, "a") as a, read(a):
        await a.lock(200).acquire()
        async with daemon(place, 1, port) as d1, joining(place, "b", at=1) as b, read(b):
            assert not await b.lock(200).try_acquire()
            waiting = asyncio.create_task(b.lock(200).acquire(timeout=20))
            await asyncio.sleep(0.05)
            a.lock(200).release()
            await waiting
            with pytest.raises(TimeoutError):
                await a.lock(200).acquire(timeout=0.05)
            async with a.lock(1):  # ordered after the withdrawal
                pass
            assert d0.registry.snapshot() == d1.registry.snapshot()
            b.lock(200).release()
            await a.lock(200).acquire()
