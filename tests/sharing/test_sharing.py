"""Shared objects among real members."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import unisono
from tests.net.recorder import free_port
from unisono.errors import LockLost, Misuse, NotHeld
from unisono.services import sharing
from unisono.services.objects.values import decoded, encoded
from unisono.services.sharing import SharedObjects


async def test_members_share_a_dict() -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        joining = [sharing.join("t", name=name, port=port) for name in ("ann", "bob", "cid")]
        ann, bob, cid = [await stack.enter_async_context(each) for each in joining]
        stock = ann.dict("stock")
        watcher = bob.dict("stock").watch("apples")
        assert await stock.put("apples", 3) is None
        assert stock["apples"] == 3
        change = await anext(watcher)
        assert (change.key, change.value) == ("apples", 3)
        assert await bob.dict("stock").read("apples") == 3
        assert not await cid.dict("stock").compare_and_set("apples", 2, 1)
        assert await cid.dict("stock").compare_and_set("apples", 3, 2)
        assert await ann.batch(stock.remove("apples"), ann.counter("n").add(5)) == [2, 5]
        late = await stack.enter_async_context(sharing.join("t", name="dan", port=port))
        assert late.counter("n").value == 5
        counts = await asyncio.gather(*(each.counter("n").add() for each in (ann, bob, cid)))
        assert sorted(counts) == [6, 7, 8]
        await late.sync()
        assert late.counter("n").value == 8
        with pytest.raises(Misuse, match="whole numbers"):
            await ann.counter("n").add(0.5)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="no value of a shared object"):
            await stock.put("x", {1, 2})
    with pytest.raises(unisono.Stopped):
        await stock.read("apples")


async def test_what_is_not_traced_is_not_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with sharing.join("t", name="ann", port=free_port()) as ann:
        await ann.counter("n").add()
    assert not list(tmp_path.iterdir())


async def test_a_protocol_without_one_order_is_refused() -> None:
    with pytest.raises(Misuse, match="need one order of the whole group"):
        async with sharing.join("t", name="ann", protocol="rmcast", port=free_port()):
            pass


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        -1.5,
        "a",
        b"\x00~",
        [1, [b"x"]],
        {"~b": "00"},
        {"~": {"~~b": b""}},
        {"a": [{}]},
    ],
)
def test_values_survive(value: object) -> None:
    assert decoded(encoded(value)) == value


@pytest.mark.parametrize("value", [{1: 2}, {1}, float("nan"), object()])
def test_what_is_no_value_is_refused(value: object) -> None:
    with pytest.raises(Misuse):
        encoded(value)


@contextlib.asynccontextmanager
async def group_of(count: int, lease_s: float = 5.0) -> AsyncIterator[list[SharedObjects]]:
    port = free_port()
    async with AsyncExitStack() as stack:
        joining = [
            sharing.join("t", name=name, port=port, lease_s=lease_s) for name in "abc"[:count]
        ]
        yield [await stack.enter_async_context(each) for each in joining]


async def test_sets_lists_and_numbers() -> None:
    async with group_of(2) as (ann, bob):
        assert await ann.set("s").add("x")
        assert not await bob.set("s").add("x")
        assert await bob.set("s").read_all() == ["x"]
        assert await ann.list("l").append("b") == 1
        assert await bob.list("l").insert(0, "a") == 2
        assert await ann.list("l").read_all() == ["a", "b"]
        assert await bob.list("l").pop() == "b"
        with pytest.raises(Misuse, match="not possible"):
            await ann.list("l").set(5, "z")
        numbers = [each.numbers("n", block=10) for each in (ann, bob)]
        found = [await each.next() for each in numbers for _ in range(15)]
        assert len(set(found)) == 30


async def test_cached_entries_go_everywhere_and_not_before_their_time() -> None:
    async with group_of(2) as (ann, bob):
        watcher = bob.cache("c").watch("k")
        begun_s = time.monotonic()
        await ann.cache("c").put("k", 1, ttl_s=0.5)
        assert (await anext(watcher)).value == 1
        gone = await anext(watcher)
        assert gone.value is None
        assert time.monotonic() - begun_s >= 0.5
        assert await ann.cache("c").read("k") is None


async def test_a_lock_is_granted_in_turn_with_rising_tokens() -> None:
    async with group_of(3) as members:
        tokens: list[int] = []

        async def turn(objects: SharedObjects) -> None:
            async with objects.lock("till") as lock:
                assert lock.held
                tokens.append(lock.token)
                await objects.counter("n").add()

        await asyncio.gather(*(turn(each) for each in members for _ in range(3)))
        assert tokens == sorted(set(tokens))
        assert len(tokens) == 9
        first, second = members[0].lock("till"), members[1].lock("till")
        assert await first.try_acquire()
        assert await second.try_acquire() is None
        with pytest.raises(TimeoutError):
            await second.acquire(timeout=0.1)
        assert await first.release()
        assert await second.acquire(timeout=60)
        with pytest.raises(NotHeld):
            first.release()


async def test_the_lock_of_one_that_leaves_is_released() -> None:
    async with group_of(2) as (ann, bob):
        await ann.lock("till").acquire()
        waiting = asyncio.create_task(bob.lock("till").acquire())
        await ann.leave()
        await asyncio.wait_for(waiting, 60)


async def test_a_holder_that_is_silent_knows_its_loss_before_another_has_the_lock() -> None:
    async with group_of(2, lease_s=0.4) as (ann, bob):
        lock, other = ann.lock("till"), bob.lock("till")
        with pytest.raises(LockLost):
            async with lock:
                ann._keeping.cancel()  # It renews no more, as if it stood still.
                waiting = asyncio.create_task(other.acquire())
                while not waiting.done():
                    if not lock.held:
                        break
                    await asyncio.sleep(0.005)
                assert not waiting.done(), "the loss comes first"
                asyncio.get_running_loop().call_soon(ann._lapsed)
                await asyncio.Event().wait()
        assert await asyncio.wait_for(waiting, 60) > lock.token


async def test_readers_share_and_writers_do_not() -> None:
    async with group_of(2) as (ann, bob):
        first, second = ann.read_lock("r"), bob.read_lock("r")
        await first.acquire()
        await second.acquire()
        writer = ann.write_lock("r")
        waiting = asyncio.create_task(writer.acquire())
        await asyncio.sleep(0)
        await ann.sync()
        assert await bob.read_lock("r").try_acquire() is None
        first.release()
        second.release()
        await asyncio.wait_for(waiting, 60)
        assert await ann.semaphore("s", 2).try_acquire()
        assert await bob.semaphore("s", 2).try_acquire()
        assert await bob.semaphore("s", 2).try_acquire() is None
        with pytest.raises(Misuse, match="agree on a number"):
            await bob.semaphore("s", 3).try_acquire()


async def test_leaders_parties_barriers_and_once() -> None:
    async with group_of(2) as (ann, bob):
        async with ann.election("chief") as term:
            assert await bob.election("chief").leader() == str(ann.me)
            assert term.token
        party = bob.party("here", "gpu")
        async with party:
            assert await ann.party("here").read() == [[str(bob.me), "gpu"]]
        assert await ann.party("here").read() == []
        opened = await asyncio.gather(*(each.barrier("b", 2).wait(60) for each in (ann, bob)))
        assert opened[0] == opened[1]
        ran: list[str] = []

        async def install(name: str) -> str:
            ran.append(name)
            return name

        found = await asyncio.gather(
            ann.once("setup").run(lambda: install("ann")),
            bob.once("setup").run(lambda: install("bob")),
        )
        assert found == [ran[0]] * 2
        assert len(ran) == 1


async def test_work_goes_back_from_one_that_fails_and_results_to_those_that_wait() -> None:
    async with group_of(3, lease_s=0.4) as (ann, bob, cid):
        queue = ann.queue("jobs")
        result = asyncio.ensure_future(_result(queue))
        with pytest.raises(RuntimeError):
            async with bob.queue("jobs").take():
                raise RuntimeError
        stuck = bob.queue("jobs").take()
        await stuck.acquire()
        await bob.leave()  # with the item

        async def double(value: object) -> object:
            assert isinstance(value, int)
            return value * 2

        working = asyncio.create_task(cid.queue("jobs").work(double))
        assert await asyncio.wait_for(result, 60) == 42
        assert await queue.size() == 0
        working.cancel()


async def _result(queue: sharing.SharedQueue) -> object:
    return await queue.submit(21)


async def test_topics_reach_subscribers_in_order() -> None:
    async with group_of(2) as (ann, bob):
        news = ann.topic("news", retained=2)
        for number in range(3):
            await news.publish(number)
        await bob.sync()
        heard = []
        await news.publish(3)
        async for item in bob.topic("news", retained=2).subscribe(since=0):
            heard.append(item.value)
            if len(heard) == 2:
                break
        assert heard == [2, 3] or heard == [1, 2]
