"""A client whose own reader is slow: what `slow=` means when a daemon stands between."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests.daemon.stage import daemon, daemons, heard, joining, of_size
from tests.net.recorder import free_port
from tests.waiting import eventually
from unisono.client import frames
from unisono.client.frames import FrameKind, JoinFrame, framed
from unisono.daemon import RegistryLimits, SessionLimits

pytestmark = pytest.mark.real

KILO = b"x" * 1000


async def flood(group: Any, count: int) -> None:
    for at in range(count // 10):
        await group.multicast_many([b"%d " % (10 * at + i) + KILO for i in range(10)])


async def test_with_slow_leave_a_slow_client_is_stopped_with_the_reason(place: Path) -> None:
    async with daemons(place), joining(place, "a") as a:
        b = await joining(place, "b", slow="leave", queue_count_max=100)
        await of_size(a, 2)
        await flood(a, 1000)
        await of_size(a, 1)
        found = []
        with pytest.raises(unisono.Stopped, match="the reader is too slow"):
            async for item in b:
                if isinstance(item, unisono.Message):
                    found.append(item.number)
        assert found == list(range(1, len(found) + 1)) and len(found) >= 99
        assert b.stopped is not None and "too slow" in b.stopped


async def test_with_slow_shed_a_client_continues_with_the_newest_messages(place: Path) -> None:
    async with (
        daemons(place),
        joining(place, "a") as a,
        joining(place, "b", slow="shed", queue_count_max=100) as b,
    ):
        await of_size(a, 2)
        await flood(a, 2000)
        await heard(a, 2000)
        await eventually(lambda: b.counters()["in.message"] == 2000)
        shed, found = 0, []
        while not found or found[-1] != 2000:
            item = await anext(b)
            if isinstance(item, unisono.Shed):
                shed += item.count
            elif isinstance(item, unisono.Message):
                found.append(item.number)
        assert found == list(range(shed + 1, 2001)) and shed >= 1900
        assert b.counters()["shed"] == shed


async def test_a_client_that_blocks_receives_all_that_its_queue_holds(place: Path) -> None:
    async with (
        daemons(place) as (one,),
        joining(place, "a") as a,
        joining(place, "b", queue_count_max=10) as b,
    ):
        await of_size(a, 2)
        await flood(a, 3000)
        await heard(a, 3000)
        assert one.counters()["queued.bytes"] > 1 << 20, "it waits in QCMT"
        assert await heard(b, 3000) == [b"%d " % i + KILO for i in range(3000)]
        await eventually(lambda: one.counters()["queued.bytes"] == 0)


async def test_a_life_that_begins_with_a_full_stream_does_not_overfill_it(place: Path) -> None:
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(daemon(place, 0, port))
        b = await joining(place, "b", queue_count_max=50, rejoin=True)
        a = await joining(place, "a")
        await flood(a, 1000)
        await eventually(lambda: b.counters()["stream.waiting"] >= 50)
        closing = asyncio.create_task(one.close())
        await eventually(lambda: one.ring.stopped is not None)
        again = await stack.enter_async_context(daemon(place, 0, port))
        a = await joining(place, "a")
        await flood(a, 1000)
        await asyncio.sleep(0.5)
        assert b.counters()["stream.waiting"] < 1000
        lives = 0
        while (item := await anext(b)) and not lives:
            lives += isinstance(item, unisono.Rejoined)
        await eventually(lambda: b.me.incarnation > 0 and len(a.members) == 2)
        await a.multicast(b"last")
        while (await heard(b, 1)) != [b"last"]:
            pass
        await a.leave()
        await b.leave()
        await closing
        assert again.counts["cut"] == 0


async def test_empty_frames_fill_qsub_too(place: Path) -> None:
    bounds = SessionLimits(submit_bytes_max=1 << 14)
    async with daemons(place, bounds=bounds) as (one,), joining(place, "a") as a:
        reader, writer = await asyncio.open_unix_connection(f"{place}/d0")
        writer.write(frames.hello("x", 1) + framed(JoinFrame("g", False, False)))
        writer.write(frames.frame(FrameKind.LEAVE) * 100_000)
        await of_size(a, 2)
        await of_size(a, 1)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        await eventually(lambda: one.counters()["clients"] == 1)
        await a.multicast(b"still here")
        assert await heard(a, 1) == [b"still here"]


async def test_bounds_are_numbers_above_0_and_paths_may_be_paths(place: Path) -> None:
    for made in (SessionLimits, RegistryLimits):
        with pytest.raises(unisono.Misuse, match="clients_count_max=0: give a whole number"):
            made(clients_count_max=0)
    with pytest.raises(unisono.Misuse, match="at most 16384"):
        RegistryLimits(members_count_max=20_000)

    async with daemons(place), unisono.join("g", daemon=place / "d0", name="a") as a:
        async with unisono.connect(place / "d0") as out:
            await out.send("g", b"x")
        assert await heard(a, 1) == [b"x"]
