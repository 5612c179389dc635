"""Groups for threads: the same stream and the same guarantees, without `await`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import unisono
from tests.harness import output_of
from tests.net.flood import FLOOD
from tests.waiting import LIMIT_S
from unisono.errors import LockLost
from unisono.sync import SyncGroup
from unisono.sync import background as backgrounds

pytestmark = pytest.mark.real


def joined(port: int, name: str, **options: Any) -> SyncGroup:
    return unisono.sync.join(
        "orders", name=name, **{"spec": FLOOD, "multicast": "239.192.77.9", "port": port, **options}
    )


@pytest.fixture
def alone(port: int) -> Iterator[SyncGroup]:
    with joined(port, "a") as group:
        yield group
    assert backgrounds._current is None, "the last one stops the thread"


def payloads(group: SyncGroup, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        item = group.next(timeout=LIMIT_S)
        if isinstance(item, unisono.Message):
            found.append(item.payload)
    return found


def test_two_members_hear_the_same_in_order(port: int) -> None:
    with joined(port, "a") as a, joined(port, "b") as b:
        for group in (a, b):
            for item in group:
                if isinstance(item, unisono.View) and len(item.members) == 2:
                    break
        assert b.multicast(b"one").result(LIMIT_S) == 1
        handle = b.multicast_many([b"two", bytearray(b"three")])
        assert b.multicast_nowait(memoryview(b"four")).result(LIMIT_S) == 4
        delivered = handle.delivered
        assert isinstance(delivered, Future)
        assert delivered.result(LIMIT_S).payload == b"three"
        assert payloads(a, 4) == [b"one", b"two", b"three", b"four"]
        assert [member.name for member in a.members] == ["a", "b"]
        assert a.stopped is None
        assert a.counters()["net.in.packets"] > 0
    assert payloads(b, 4) == [b"one", b"two", b"three", b"four"], "what was left is still read"
    assert b.next() is None
    assert list(b) == []


def test_many_threads_send_and_none_of_it_is_lost(alone: SyncGroup) -> None:
    def send(thread: int) -> None:
        for number in range(2000):
            alone.multicast(b"%d %d" % (thread, number))

    with ThreadPoolExecutor(4) as pool:
        sending = [pool.submit(send, thread) for thread in range(4)]
        found = payloads(alone, 8000)
        for each in sending:
            each.result()
    for thread in range(4):
        mine = [each for each in found if each.startswith(b"%d " % thread)]
        assert mine == [b"%d %d" % (thread, number) for number in range(2000)]


def refusals(group: SyncGroup) -> dict[str, Callable[[], object]]:
    return {
        "a message is bytes, not str": lambda: group.multicast("text"),  # type: ignore[arg-type]
        "unknown service": lambda: group.multicast(b"", "fastest"),
        "is over message_bytes_max=10": lambda: group.multicast(bytes(11)),
    }


def test_what_is_wrong_with_a_call_is_raised_by_it(port: int) -> None:
    with joined(port, "a", message_bytes_max=10) as group:
        for words, call in refusals(group).items():
            with pytest.raises(unisono.Misuse, match=words):
                call()
    with pytest.raises(unisono.Stopped, match="left the group: join again"):
        group.multicast(b"late")
    with pytest.raises(unisono.Misuse, match="group ''"):
        unisono.sync.join("")
    assert backgrounds._current is None


def test_a_call_from_the_groups_own_thread_would_wait_for_itself(alone: SyncGroup) -> None:
    async def inside() -> None:
        with pytest.raises(unisono.Misuse, match="return first"):
            alone.multicast(b"from inside").result()

    alone._background.call(inside())


def test_a_second_reader_is_refused(alone: SyncGroup) -> None:
    while not isinstance(alone.next(LIMIT_S), unisono.View):
        pass
    reading = threading.Thread(target=alone.next, args=(LIMIT_S,))
    reading.start()
    while not alone._reader.locked():
        os.sched_yield()
    with pytest.raises(unisono.Misuse, match="one thread only"):
        alone.next()
    alone.multicast(b"end")
    reading.join(LIMIT_S)


def test_waiting_ends_in_time_and_loses_nothing(alone: SyncGroup) -> None:
    while not isinstance(alone.next(LIMIT_S), unisono.View):
        pass
    with pytest.raises(TimeoutError, match="nothing came within"):
        alone.next(timeout=0.001)
    alone.multicast(b"after")
    assert payloads(alone, 1) == [b"after"]


def test_a_signal_handler_may_send_and_interrupts_the_reader(alone: SyncGroup) -> None:
    """As Ctrl-C does; what comes next is still read."""

    def handler(*_: object) -> None:
        alone.multicast_nowait(b"from the handler")
        raise KeyboardInterrupt

    alone.multicast(b"first")
    assert payloads(alone, 1) == [b"first"]
    before = signal.signal(signal.SIGUSR2, handler)
    try:
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGUSR2)).start()
        with pytest.raises(KeyboardInterrupt):
            for _ in alone:
                pass
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert payloads(alone, 1) == [b"from the handler"]


def test_a_lock_is_held_by_one(port: int) -> None:
    options = {"spec": None, "protocol": "rmp"}
    with joined(port, "a", **options) as a, joined(port, "b", **options) as b:
        for group in (a, b):
            threading.Thread(target=lambda g=group: list(g), daemon=True).start()
        while not (len(a.members) == len(b.members) == 2):
            os.sched_yield()
        with a.lock(7) as lock:
            assert lock.held
            assert not b.lock(7).try_acquire()
        theirs = b.lock(7)
        theirs.acquire(timeout=LIMIT_S)
        assert not a.lock(7).held
        theirs.release()
        with pytest.raises(LockLost), a.lock(8) as lost:
            lost._group._run(lambda: lost._inner.lose("taken away"))


CHILD = """
import os, sys
import unisono
with unisono.sync.join("forks", port=int(sys.argv[1])) as group:
    child = os.fork()
    if not child:
        try:
            group.multicast(b"from the child")
        except unisono.Misuse as error:
            print(error, flush=True)
        with unisono.sync.join("own", port=int(sys.argv[1])) as own:
            print(own.multicast(b"x").delivered.result(10).payload, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(group.multicast(b"parent").delivered.result(10).payload, flush=True)
left_open = unisono.sync.join("open", port=int(sys.argv[1]))
"""


def test_a_forked_child_is_told_and_may_join_itself(port: int) -> None:
    told, own, parent = output_of("-c", CHILD, str(port)).splitlines()
    assert "forked after the group was joined" in told
    assert "join in the child" in told
    assert (own, parent) == ("b'x'", "b'parent'")


async def test_it_works_beside_a_running_loop_as_in_a_notebook(port: int) -> None:
    with joined(port, "a") as group:
        group.multicast(b"one")
        assert payloads(group, 1) == [b"one"]


async def test_a_group_of_another_loop_says_what_to_do(port: int) -> None:
    joining = unisono.join("orders", name="a", spec=FLOOD, multicast="239.192.77.9", port=port)
    async with joining as group:

        async def elsewhere() -> None:
            with pytest.raises(unisono.Misuse, match="which is for threads"):
                await group.multicast(b"from another loop")
            with pytest.raises(unisono.Misuse, match="another thread or loop"):
                await anext(group)

        await asyncio.to_thread(asyncio.run, elsewhere())


def test_importing_it_starts_nothing() -> None:
    program = "import threading, unisono; unisono.sync; print(threading.active_count())"
    assert output_of("-c", program) == "1\n"
    assert sys.modules["unisono.sync"] is unisono.sync
