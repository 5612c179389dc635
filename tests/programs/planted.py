"""Five programs, each with a bug that applications have, and the same ones mended."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence

import unisono
from unisono.programs import SimulatedMember


class Account:
    """Deposits by read, change and write: two members read the same balance."""

    def __init__(self) -> None:
        self.balance = 0
        self.deposits = 0
        """Ordered so far."""

    def snapshot(self) -> bytes:
        return json.dumps([self.balance, self.deposits]).encode()

    def restore(self, state: bytes) -> None:
        self.balance, self.deposits = json.loads(state)


async def lost_update(group: unisono.Group, state: Account) -> None:
    await _account(group, state, lambda: state.balance + 1)


async def update(group: unisono.Group, state: Account) -> None:
    await _account(group, state, lambda: 1, adds=True)


async def _account(group, state, payload, adds=False):  # type: ignore[no-untyped-def]
    async def deposit() -> None:
        for _ in range(4):
            await asyncio.sleep(random.uniform(0.1, 0.6))
            await group.multicast(b"%d" % payload())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(deposit())
        async for event in group:
            if isinstance(event, unisono.Message):
                state.deposits += 1
                state.balance = state.balance * adds + int(event.payload)


def nothing_is_lost(members: Sequence[SimulatedMember]) -> None:
    for member in members:
        if member.alive:
            assert member.state.balance == member.state.deposits, member.state.__dict__


class Terms:
    """Who leads writes, with the number of its view."""

    def __init__(self) -> None:
        self.writes: list[tuple[float, int]] = []
        """When, and in which term."""


def term_of(view: unisono.View) -> int:
    return int(view.id.partition("-")[0])


async def stale_leader(group: unisono.Group, state: Terms) -> None:
    """Leads until it hears otherwise; its writes go to a disk that takes all."""

    async def lead() -> None:
        while True:
            await asyncio.sleep(0.1)
            if group.members[0] == group.me:
                state.writes.append((asyncio.get_running_loop().time(), term_of(group.view)))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(lead())
        async for _ in group:
            pass


async def leader(group: unisono.Group, state: Terms) -> None:
    """Writes through the group: a write counts where it is ordered."""

    async def lead() -> None:
        while True:
            await asyncio.sleep(0.1)
            if group.members[0] == group.me:
                await group.multicast(b"write", "safe")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(lead())
        term = 0
        async for event in group:
            match event:
                case unisono.View() if not event.transitional:
                    term = term_of(event)
                case unisono.Message(sender) if sender == group.me:
                    state.writes.append((event.seq or 0, term))


def terms_rise(members: Sequence[SimulatedMember]) -> None:
    writes = sorted(write for member in members for write in member.state.writes)
    terms = [term for _, term in writes]
    assert terms == sorted(terms), f"an old leader wrote: {terms[-5:]}"


class Jobs:
    """Ten jobs, which each member knows from the beginning."""

    def __init__(self) -> None:
        self.taken: dict[int, str] = {}
        self.did: list[int] = []
        """By this member itself."""

    def snapshot(self) -> bytes:
        return json.dumps(list(self.taken.items())).encode()

    def restore(self, state: bytes) -> None:
        self.taken = dict(json.loads(state))


async def double_take(group: unisono.Group, state: Jobs) -> None:
    await _take(group, state, waits=False)


async def take(group: unisono.Group, state: Jobs) -> None:
    await _take(group, state, waits=True)


async def _take(group: unisono.Group, state: Jobs, waits: bool) -> None:
    async def work() -> None:
        while job := next((n for n in range(1, 11) if n not in state.taken), 0):
            taken = group.multicast(b"%d" % job, "safe")
            await taken
            if waits:  # Without it, others may have been ordered first.
                await taken.delivered
                while job not in state.taken:
                    await asyncio.sleep(0.001)
                if state.taken[job] != str(group.me):
                    continue
            state.did.append(job)
            await asyncio.sleep(random.uniform(0.05, 0.3))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work())
        async for event in group:
            if isinstance(event, unisono.Message):
                state.taken.setdefault(int(event.payload), str(event.sender))


def each_job_once(members: Sequence[SimulatedMember]) -> None:
    did = [job for member in members for job in member.state.did]
    assert len(did) == len(set(did)), f"done twice: {sorted(did)}"


class Once:
    """Counts each request once, by its number."""

    def __init__(self) -> None:
        self.counted = 0
        self.seen: set[int] = set()


class Forgetful(Once):
    """A joiner gets the count, but not what was counted."""

    def snapshot(self) -> bytes:
        return b"%d" % self.counted

    def restore(self, state: bytes) -> None:
        self.counted, self.seen = int(state), set()


class Remembering(Once):
    def snapshot(self) -> bytes:
        return json.dumps(sorted(self.seen)).encode()

    def restore(self, state: bytes) -> None:
        self.seen = set(json.loads(state))
        self.counted = len(self.seen)


async def forgotten_state(group: unisono.Group, state: Forgetful) -> None:
    await _count(group, state)


async def kept_state(group: unisono.Group, state: Remembering) -> None:
    await _count(group, state)


async def _count(group: unisono.Group, state: Once) -> None:
    async def request() -> None:
        for _ in range(10):
            await asyncio.sleep(random.uniform(0.05, 0.4))
            await group.multicast(b"%d" % random.randrange(12))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(request())
        async for event in group:
            if isinstance(event, unisono.Message) and int(event.payload) not in state.seen:
                state.seen.add(int(event.payload))
                state.counted += 1


def counts_are_equal(members: Sequence[SimulatedMember]) -> None:
    counts = {member.state.counted for member in members if member.alive}
    assert len(counts) <= 1, f"counts differ: {sorted(counts)}"


class Orders:
    def __init__(self) -> None:
        self.placed: set[str] = set()
        self.confirmed: set[str] = set()
        """To clients of this member."""

    def snapshot(self) -> bytes:
        return json.dumps(sorted(self.placed)).encode()

    def restore(self, state: bytes) -> None:
        self.placed = set(json.loads(state))


async def early_reply(group: unisono.Group, state: Orders) -> None:
    await _order(group, state, early=True)


async def reply(group: unisono.Group, state: Orders) -> None:
    await _order(group, state, early=False)


async def _order(group: unisono.Group, state: Orders, early: bool) -> None:
    async def serve() -> None:
        for number in range(10):
            await asyncio.sleep(random.uniform(0.05, 0.4))
            order = f"{group.me} {number}"
            placed = group.multicast(order.encode(), "safe")
            await (placed if early else placed.delivered)
            state.confirmed.add(order)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve())
        async for event in group:
            if isinstance(event, unisono.Message):
                state.placed.add(event.payload.decode())


def confirmed_is_placed(members: Sequence[SimulatedMember]) -> None:
    confirmed = {order for member in members for order in member.state.confirmed}
    for member in members:
        if member.alive:
            lost = confirmed - member.state.placed
            assert not lost, f"confirmed and lost: {sorted(lost)}"
