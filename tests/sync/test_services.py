"""Services for threads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import unisono
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S
from unisono.errors import LockLost
from unisono.services import rpc
from unisono.services import sharing as async_sharing
from unisono.services.sharing import Published
from unisono.sync import background as backgrounds
from unisono.sync import direct, sharing
from unisono.sync.sharing import SyncObjects

pytestmark = pytest.mark.real


@pytest.fixture
def port() -> int:
    return free_port()


def joined(port: int, name: str) -> SyncObjects:
    return sharing.join("shop", name=name, port=port, timeout_s=LIMIT_S)


@pytest.fixture
def two(port: int) -> Iterator[tuple[SyncObjects, SyncObjects]]:
    with joined(port, "ann") as ann, joined(port, "bob") as bob:
        yield ann, bob
    assert backgrounds._current is None, "the last one stops the thread"


def test_collections_by_the_names_that_tasks_use(two: tuple[SyncObjects, SyncObjects]) -> None:
    ann, bob = two
    stock, theirs = ann.dict("stock"), bob.dict("stock")
    changes = theirs.watch()
    assert stock.put("apples", 3) is None
    assert (stock["apples"], stock.get("pears", 0), len(stock)) == (3, 0, 1)
    assert "apples" in stock and list(stock) == ["apples"]
    assert theirs.read("apples") == 3
    assert not theirs.compare_and_set("apples", 2, 1)
    assert ann.batch(stock.inner.put("pears", 1), ann.counter("n").inner.add(5)) == [None, 5]
    assert [changes.next(LIMIT_S).key for _ in range(2)] == ["apples", "pears"]
    assert ann.submit(stock.inner.remove("pears")).result(LIMIT_S) == 1
    gone = changes.next(LIMIT_S)
    assert (gone.key, gone.value) == ("pears", None)
    with pytest.raises(TimeoutError, match="nothing came within"):
        changes.next(0.01)
    changes.close()
    with pytest.raises(StopIteration):
        changes.next(LIMIT_S)
    assert bob.counter("n").add() == 6 and bob.counter("n").value == 6
    assert (ann.numbers("ids").next(), bob.numbers("ids").next()) == (1, 2)
    assert ann.set("seen").add("x") and not bob.set("seen").add("x")
    assert ann.list("rows").append("first") == 1 and bob.list("rows").pop() == "first"
    ann.cache("pages").put("/", "home", ttl_s=60)
    assert bob.cache("pages").read("/") == "home"
    assert [member.name for member in bob.members] == ["ann", "bob"]


def test_a_lock_is_held_by_one_thread(two: tuple[SyncObjects, SyncObjects]) -> None:
    tokens: list[int] = []

    def turns(objects: SyncObjects) -> None:
        for _ in range(5):
            with objects.lock("till") as lock:
                assert lock.held
                tokens.append(lock.token)
                assert tokens[-1] == lock.token, "nobody else came between"

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(turns, objects) for objects in two * 2]:
            each.result()
    assert tokens == sorted(set(tokens)) and len(tokens) == 20


def test_waiting_for_a_lock_ends_and_withdraws_the_request(
    two: tuple[SyncObjects, SyncObjects],
) -> None:
    ann, bob = two
    with ann.lock("till"):
        assert bob.lock("till").try_acquire() is None
        with pytest.raises(TimeoutError):
            bob.lock("till").acquire(timeout=0.01)
    with ann.lock("till") as mine:
        mine.release()
    assert bob.lock("till").try_acquire() is not None
    with pytest.raises(LockLost), ann.lock("other") as lost:
        ann.run(lambda: lost.inner.lose("taken away"))
    with pytest.raises(ValueError), ann.lock("other"):
        raise ValueError
    assert not ann.lock("other").holders()


def test_a_lock_granted_at_the_last_moment_is_given_back(port: int) -> None:
    with joined(port, "ann") as ann:
        lock, taken = ann.lock("till"), 0
        for step in range(100):
            ann.timeout_s = step / 100_000
            with contextlib.suppress(TimeoutError):
                lock.acquire()
                taken += 1
                ann.timeout_s = LIMIT_S
                lock.release()
        ann.timeout_s = LIMIT_S
        with lock:
            assert taken < 100


def test_what_a_block_raises_is_not_hidden_by_a_leave(port: int) -> None:
    with joined(port, "ann") as ann, pytest.raises(ValueError), ann.lock("till"):
        ann.leave()
        raise ValueError
    with joined(port, "bob") as bob, pytest.raises(unisono.Stopped), bob.lock("till"):
        bob.leave()


def test_a_closed_watch_ends_for_the_thread_that_reads_it(port: int) -> None:
    with joined(port, "ann") as ann, ThreadPoolExecutor(1) as pool:
        for changes in (ann.dict("stock").watch(), ann.topic("news").subscribe()):
            reading = pool.submit(list, changes)
            while changes._next is None:
                os.sched_yield()
            changes.close()
            assert reading.result(LIMIT_S) == []
            assert list(changes) == []


@pytest.mark.filterwarnings("error")
def test_a_thread_that_would_wait_for_itself_is_told(port: int) -> None:
    def inside() -> None:
        for call in (changes.next, changes.close, lambda: stock.put("apples", 1), ann.leave):
            with pytest.raises(unisono.Misuse, match="the group's own thread"):
                call()

    with joined(port, "ann") as ann:
        stock = ann.dict("stock")
        changes = stock.watch()
        with pytest.raises(TimeoutError):
            changes.next(timeout=0)
        ann.run(inside)
        gc.collect()
        assert stock.put("apples", 1) is None and changes.next(LIMIT_S).key == "apples"


def test_a_child_is_told_that_nothing_will_come(port: int) -> None:
    with joined(port, "ann") as ann:
        changes = ann.dict("stock").watch()
        with pytest.raises(TimeoutError):
            changes.next(timeout=0)
        ann._gate.acquire()  # As by a thread that calls while another forks.
        child = os.fork()
        if not child:
            told = 0
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(LIMIT_S))
            try:
                for call in (changes.next, lambda: ann.dict("stock").put("apples", 1), ann.leave):
                    with pytest.raises(unisono.Misuse, match="forked"):
                        call()
                    told += 1
            finally:
                os._exit(told)
        ann._gate.release()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_an_interrupted_join_ends_before_its_loop(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    context = async_sharing.join("shop", name="ann", port=port)
    left: list[str] = []

    @contextlib.asynccontextmanager
    async def interrupted() -> AsyncIterator[None]:
        try:
            async with context:
                main = threading.main_thread().ident
                assert main is not None
                signal.pthread_kill(main, signal.SIGINT)
                await asyncio.sleep(LIMIT_S)
                yield
        finally:
            left.append("left")

    with pytest.raises(KeyboardInterrupt):
        unisono.sync.open(interrupted())
    assert left == ["left"] and backgrounds._current is None
    assert not [each for each in caplog.records if each.name == "asyncio"]


def test_a_call_ends_when_its_time_is_over(port: int) -> None:
    late = pytest.raises(TimeoutError, match=r"not done within 0\.01 s")
    with sharing.join("shop", name="ann", port=port, timeout_s=0.01) as ann, late:
        ann.barrier("start", 2).wait()


def test_work_is_done_by_threads_and_once_by_one(two: tuple[SyncObjects, SyncObjects]) -> None:
    ann, bob = two
    done: list[threading.Thread] = []

    def double(value: Any) -> Any:
        done.append(threading.current_thread())
        return 2 * value

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(bob.queue("jobs").work, double)
        assert [ann.queue("jobs").submit(number) for number in range(3)] == [0, 2, 4]
        assert ann.once("set up").run(lambda: "ann's") == "ann's"
        assert bob.once("set up").run(lambda: "bob's") == "ann's"
        bob.leave()
        with pytest.raises(unisono.Stopped):
            working.result(LIMIT_S)
    assert threading.main_thread() not in done
    bob.leave()
    with pytest.raises(unisono.Stopped, match="join again"):
        bob.dict("stock").put("apples", 1)


def test_a_topic_has_one_order(two: tuple[SyncObjects, SyncObjects]) -> None:
    ann, bob = two
    place = ann.topic("news", retained=2).publish("old")
    bob.sync()
    news = bob.topic("news", retained=2).subscribe(since=0)
    assert news.next(LIMIT_S) == Published(place, "old")
    with pytest.raises(TimeoutError, match="nothing came within"):
        news.next(timeout=0.001)
    ann.topic("news", retained=2).publish("new")
    assert next(news).value == "new", "what came after the waiting ended is still read"
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(list, news)
        while not news._reader.locked():
            os.sched_yield()
        with pytest.raises(unisono.Misuse, match="one thread only"):
            news.next()
        bob.leave()
        assert reading.result(LIMIT_S) == []
    news.close()


def test_questions_are_asked_and_answered_by_threads(port: int) -> None:
    def serve(group: direct.SyncDirectGroup, read: list[bytes]) -> None:
        for item in group:
            match item:
                case direct.SyncQuestion():
                    item.answer(item.message.payload.upper())
                case direct.Unicast(message):
                    read.append(message.payload)

    with ThreadPoolExecutor(2) as pool:
        letters: list[bytes] = []
        with (
            direct.join("talk", name="ann", port=port) as ann,
            direct.join("talk", name="bob", port=port) as bob,
        ):
            serving = [pool.submit(serve, ann, []), pool.submit(serve, bob, letters)]
            assert ann.send("bob", b"hello") == 1
            assert ann.ask("bob", b"how much?") == b"HOW MUCH?"
            assert letters == [b"hello"], "first in, first out"
            with pytest.raises(unisono.Misuse, match="cid is not in the group"):
                ann.send("cid", b"")
        for each in serving:
            each.result(LIMIT_S)


def test_any_service_is_open_to_threads(port: int) -> None:
    async def serve(group: rpc.RpcGroup) -> None:
        group.answer(lambda call: call.payload * 2)
        await group.serve()

    with unisono.sync.open(rpc.join("prices", name="ann", port=port), LIMIT_S) as ann:
        serving = ann.submit(serve(ann.service))
        assert ann.call(ann.service.call(b"x")).answers == {ann.service.me: b"xx"}
        serving.cancel()


def operations(kind: type) -> set[str]:
    return {
        name
        for name, value in vars(kind).items()
        if callable(value) and (not name.startswith("_") or name in ("__len__", "__contains__"))
    }


@pytest.mark.parametrize("name", [name for name in sharing.__all__ if name.startswith("Sync")])
def test_threads_have_every_operation_that_tasks_have(name: str) -> None:
    if name in ("SyncClaim", "SyncIterator"):
        return
    facade = getattr(sharing, name)
    kind = getattr(async_sharing, name.replace("Sync", "Shared").replace("SharedShared", "Shared"))
    inherited = {
        async_sharing.SharedBarrier: {"acquire", "try_acquire", "release"},
        async_sharing.SharedObjects: {"operate", "believe", "forget", "restore", "ended"},
    }
    offered = {each for base in kind.__mro__[:-2] for each in operations(base)}
    internal = {"lose", "end_block"} | inherited.get(kind, set())
    assert not {each for each in offered - internal if not hasattr(facade, each)}


def test_every_shared_object_has_a_face_for_threads() -> None:
    makers = operations(async_sharing.SharedObjects.__mro__[1])
    assert makers <= operations(sharing.SyncObjects) and len(makers) == 16
