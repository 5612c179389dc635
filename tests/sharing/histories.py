"""Programs that use shared objects in the simulated world, and what must hold of them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

import unisono
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
            if table.place % 8:
                continue  # Often enough.
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


async def read_and_write(state: Copy) -> None:
    async with sharing.join("sim") as objects:
        state.objects = objects
        stock = objects.dict("stock")
        for number in range(8):
            await asyncio.sleep(random.uniform(0.05, 0.3))
            await stock.put("a", f"{objects.me} {number}")
            await stock.read("a")
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


class Fenced:
    """A resource outside the group: it refuses a token below one that it has seen."""

    def __init__(self) -> None:
        self.highest = 0
        self.refused = 0

    def write(self, token: int) -> None:
        if token < self.highest:
            self.refused += 1
        self.highest = max(self.highest, token)


class Holding(Copy):
    def __init__(self) -> None:
        super().__init__()
        self.lock: sharing.SharedLock | None = None
        self.grants: list[tuple[str, int]] = []


async def take_turns(state: Holding) -> None:
    async with sharing.join("sim", lease_s=1.0) as objects:
        state.objects = objects
        while True:
            await asyncio.sleep(random.uniform(0.05, 0.4))
            state.lock = objects.lock("till")
            try:
                async with state.lock:
                    state.grants.append((objects._table.origin, state.lock.token))
                    await asyncio.sleep(random.uniform(0.01, 0.3))
            except unisono.LockLost:
                pass


def one_holder(members: Sequence[SimulatedMember]) -> None:
    """By the table one, and of those that believe it one, at any moment of the world."""
    equal_copies(members)
    holders = []
    for member in members:
        if member.alive and member.state.objects is not None and member.state.lock is not None:
            with member.state.objects._loop.acting():
                if member.state.lock.held:
                    holders.append((member.state.table.origin, member.name))
    origins = [origin for origin, _ in holders]
    assert len(set(origins)) == len(origins), f"held twice: {holders}"


def tokens_rise(members: Sequence[SimulatedMember]) -> None:
    grants = [grant for member in members for grant in member.state.grants]
    assert len(set(grants)) == len(grants), "a token was given twice"
    for member in members:
        for origin in {origin for origin, _ in member.state.grants}:
            own = [token for where, token in member.state.grants if where == origin]
            assert own == sorted(own), own


class Working(Copy):
    def __init__(self) -> None:
        super().__init__()
        self.put: list[tuple[str, int]] = []
        self.done: list[tuple[str, int]] = []


async def work(state: Working) -> None:
    async with sharing.join("sim", lease_s=1.0) as objects:
        state.objects = objects
        queue = objects.queue("jobs")
        for _ in range(3):
            number = await queue.put("job")
            state.put.append((objects._table.origin, number))
        while True:
            origin = objects._table.origin
            try:
                async with queue.take() as item:
                    await asyncio.sleep(random.uniform(0.01, 0.3))
                    await item.done()
                    state.done.append((origin, item.id))
            except unisono.LockLost:
                pass


def each_job_once(members: Sequence[SimulatedMember]) -> None:
    equal_copies(members)
    done = [job for member in members for job in member.state.done]
    assert len(set(done)) == len(done), f"done twice: {done}"


def no_job_is_lost(members: Sequence[SimulatedMember]) -> None:
    done = {job for member in members for job in member.state.done}
    put = {job for member in members for job in member.state.put}
    for member in members:
        if member.alive and member.state.objects is not None:
            table = member.state.table
            queue = table.look("queue", "jobs")
            open_jobs = {item.id for item in (*queue.items, *queue.taken.values())}
            both = {number for origin, number in done if origin == table.origin} & open_jobs
            assert not both, f"done and still there: {both}"
            changed = {number for origin, number in put if origin == table.origin}
            assert all(0 < number <= table.place for number in changed)


async def everything(state: Copy) -> None:
    """All other kinds at once; copies stay equal."""
    async with sharing.join("sim", lease_s=1.0) as objects:
        state.objects = objects
        cache, names, items = objects.cache("c", 4), objects.set("s"), objects.list("l")
        topic, numbers = objects.topic("t", retained=3), objects.numbers("n", block=2)
        barrier, once = objects.barrier("b", 2), objects.once("o")

        async def first() -> str:
            await asyncio.sleep(0.1)
            return str(objects.me)

        async def steps() -> None:
            while True:
                await asyncio.sleep(random.uniform(0.05, 0.4))
                key = random.choice("abcdef")
                match random.randrange(8):
                    case 0:
                        await cache.put(key, 1, random.uniform(0.1, 2))
                    case 1:
                        await objects.batch(names.add(key), names.discard("a"))
                    case 2:
                        await objects.batch(items.append(key), items.insert(0, key), items.pop())
                    case 3:
                        await topic.publish(key)
                    case 4:
                        state.returned.append((objects._table.origin, await numbers.next()))
                    case 5:
                        with contextlib.suppress(TimeoutError, unisono.LockLost):
                            await barrier.wait(0.5)
                    case 6:
                        with contextlib.suppress(unisono.LockLost):
                            found = await once.run(first)
                            state.returned.append((objects._table.origin, found))
                    case 7:
                        with contextlib.suppress(TimeoutError, unisono.LockLost):
                            async with asyncio.timeout(0.5), objects.write_lock("rw"):
                                await asyncio.sleep(0.05)

        await objects.party("here", 1).acquire()
        stepping = asyncio.create_task(steps())
        await asyncio.wait((stepping, asyncio.ensure_future(objects.ended())))


def unique_and_once(members: Sequence[SimulatedMember]) -> None:
    equal_copies(members)
    found = [each for member in members for each in member.state.returned]
    numbers = [each for each in found if isinstance(each[1], int)]
    assert len(set(numbers)) == len(numbers), "a number was given twice"
    once: dict[str, object] = {}
    for origin, value in found:
        if isinstance(value, str):
            assert once.setdefault(origin, value) == value, "done twice"
