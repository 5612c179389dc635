"""Locks, votes and scope over the real members of a protocol that has them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

import unisono
from tests.group.sessions import session_of
from tests.net.recorder import free_port
from tests.waiting import eventually
from unisono import ChangeKind, Group
from unisono.protocols import specs
from unisono.requests import AcquireLock, VoteSize

pytestmark = pytest.mark.real

LOCKING = [name for name, spec in specs().items() if AcquireLock in spec.requests]
VOTING = [name for name, spec in specs().items() if VoteSize in spec.requests]


class Reader:
    """A member whose stream is read: what it saw."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.changes: list[str] = []
        self.payloads: list[bytes] = []

    async def read(self) -> None:
        with contextlib.suppress(unisono.Stopped):
            async for item in self.group:
                if isinstance(item, unisono.View):
                    self.changes += [
                        f"{change.what.value} {change.number}"
                        for change in item.changes
                        if change.number is not None
                    ]
                elif isinstance(item, unisono.Message):
                    self.payloads.append(item.payload)


@contextlib.asynccontextmanager
async def members(protocol: str, names: str, **options: int) -> AsyncIterator[list[Reader]]:
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        found: list[Reader] = []
        for name in names:
            joining = unisono.join(
                "locks", protocol=protocol, name=name, port=port, rejoin=False, options=options
            )
            found.append(Reader(await stack.enter_async_context(joining)))
        reading = [asyncio.create_task(each.read()) for each in found]
        await eventually(lambda: all(len(each.group.members) == len(names) for each in found))
        yield found
        for task in reading:
            task.cancel()


@pytest.mark.parametrize("protocol", LOCKING)
async def test_what_a_lock_protects_is_current_when_it_is_granted(protocol: str) -> None:
    async with members(protocol, "abc") as (a, b, c):

        async def work(reader: Reader) -> None:
            for _ in range(5):
                async with reader.group.lock(7):
                    count = len(reader.payloads)
                    await reader.group.multicast(b"%d" % count)

        await asyncio.gather(work(a), work(b), work(c), work(a))
        for each in (a, b, c):
            await eventually(lambda each=each: len(each.changes) >= 40)
            assert each.payloads == [b"%d" % n for n in range(20)], "no update is lost"
            assert each.changes == ["lock_granted 7", "lock_released 7"] * 20


@pytest.mark.parametrize("protocol", LOCKING)
async def test_the_locks_of_the_dead_go_to_those_that_wait(protocol: str) -> None:
    async with members(protocol, "abc") as (a, b, c):
        await c.group.lock(2).acquire()
        await c.group.lock(1).acquire()
        assert not await b.group.lock(1).try_acquire()
        waiting = asyncio.create_task(a.group.lock(1).acquire())
        await asyncio.sleep(0.1)
        await a.group.multicast(b"ordered after the request").delivered
        later = asyncio.create_task(b.group.lock(1).acquire())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        session_of(c.group).close()
        await waiting
        assert a.changes[-3:] == ["lock_released 1", "lock_granted 1", "lock_released 2"]
        assert await b.group.lock(2).try_acquire()
        a.group.lock(1).release()
        await later
        failed = [each.what for each in a.group.view.changes]
        assert ChangeKind.LOCK_GRANTED in failed


@pytest.mark.parametrize("protocol", VOTING)
async def test_votes_and_scope_are_views(protocol: str) -> None:
    # By default a part below the minimum size hopes for ten seconds, and attempts take three.
    async with members(protocol, "abc", detect_us=300_000, verdict_us=500_000) as (a, b, c):
        await a.group.vote(2)
        await b.group.vote("none_may_fail")
        await c.group.vote(unisono.SizeVote.OPTIMISTIC)
        await c.group.scope(4)
        expected = ["size_changed 2", "size_changed -3", "size_changed -1", "scope_changed 4"]
        await eventually(lambda: all(each.changes == expected for each in (a, b, c)))
        with pytest.raises(unisono.Misuse, match="above the group's size of 3"):
            await a.group.vote(4)
        # None may fail: the others do not go on without c.
        session_of(c.group).close()
        await eventually(lambda: a.group.stopped is not None and b.group.stopped is not None)
        assert "too few" in f"{a.group.stopped} {b.group.stopped}"
