"""Groups on real sockets: joining, sending, delivering, leaving, and everything that goes wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import unisono
from tests import waiting
from tests.group.sessions import session_of
from tests.net.flood import FLOOD, LINGERING
from tests.net.recorder import free_port
from unisono.group import Group

pytestmark = pytest.mark.real


def joining(port: int, name: str, group: str = "orders", **options: Any) -> unisono.Joining:
    return unisono.join(
        group, name=name, spec=FLOOD, multicast="239.192.77.9", port=port, **options
    )


async def heard(group: Group, count: int) -> list[bytes]:
    """The next so many messages."""
    found: list[bytes] = []
    while len(found) < count:
        event = await anext(group)
        if isinstance(event, unisono.Message):
            found.append(event.payload)
    return found


async def of_size(group: Group, count: int) -> unisono.View:
    async for event in group:
        if isinstance(event, unisono.View) and len(event.members) == count:
            return event
    raise AssertionError("the stream ended")


@asynccontextmanager
async def pair(port: int, **options: Any) -> AsyncIterator[tuple[Group, Group]]:
    """Two members that know each other; the options are the second one's."""
    async with joining(port, "a") as a, joining(port, "b", **options) as b:
        while not (len(a.members) == len(b.members) == 2):
            await asyncio.sleep(0.001)
        yield a, b


async def test_a_group_has_one_stream_and_its_members_leave_cleanly(port: int) -> None:
    async with joining(port, "a") as a:
        async with joining(port, "b") as b:
            await of_size(a, 2)
            await of_size(b, 2)
            assert await b.multicast(b"one") == 1
            assert await b.multicast_many([b"two", bytearray(b"three")]) == 3
            assert b.multicast_nowait(memoryview(b"four")) == 4
            assert await heard(a, 4) == [b"one", b"two", b"three", b"four"]
            assert b.me.name == "b" and b.me in a.view
        assert [member.name for member in (await of_size(a, 1)).members] == ["a"]
        assert await heard(b, 4) and [event async for event in b] == []
        with pytest.raises(unisono.Stopped, match="left the group"):
            await b.multicast(b"late")
        await b.leave()


async def test_join_can_be_awaited_and_with_a_list_of_peers(port: int) -> None:
    peers = [f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}"]
    a, b = [await unisono.join("orders", spec=FLOOD, peers=peers) for _ in peers]
    await of_size(a, 2)
    await of_size(b, 2)
    await a.multicast(b"x")
    assert await heard(b, 1) == [b"x"]
    assert a.me.name != b.me.name and b.me.incarnation > a.me.incarnation
    await asyncio.gather(a.leave(), b.leave())


async def test_groups_on_one_address_do_not_disturb_each_other(port: int) -> None:
    async with pair(port) as (a, b), joining(port, "x", "other") as x:
        await x.multicast(b"not for you")
        await a.multicast(b"for b")
        assert await heard(b, 1) == [b"for b"]
        assert len(x.members) == 1 and b.counters()["drop.group"] > 0


async def test_messages_of_one_turn_leave_together(port: int) -> None:
    async with pair(port) as (a, b):
        before = a.counters()["net.out.calls"]
        await asyncio.gather(*(a.multicast(b"%03d" % n) for n in range(100)))
        assert await heard(b, 100) == [b"%03d" % n for n in range(100)]
        assert a.counters()["net.out.packets"] >= 100
        if session_of(a).endpoint.segments:
            assert a.counters()["net.out.calls"] - before < 30


async def test_batches_are_the_same_stream(port: int) -> None:
    async with pair(port) as (a, b):
        await a.multicast_many([b"%d" % n for n in range(50)])
        found: list[bytes] = []
        async for batch in b.batches():
            found += [event.payload for event in batch if isinstance(event, unisono.Message)]
            if len(found) == 50:
                break
        assert found == [b"%d" % n for n in range(50)]


async def test_the_caller_s_mistakes_are_reported(port: int) -> None:
    async with joining(port, "a", message_bytes_max=10) as a:
        with pytest.raises(unisono.TooLarge, match="message_bytes_max=10"):
            await a.multicast(bytes(11))
        with pytest.raises(unisono.TooLarge):
            await a.multicast_many([b"", bytes(11)])
        with pytest.raises(unisono.Misuse, match="encode it first"):
            await a.multicast("text")  # type: ignore[arg-type]
        with pytest.raises(
            unisono.Misuse, match="does not offer causal: use mtp or ring or rmcast"
        ):
            await a.multicast(b"x", unisono.CAUSAL)
        with pytest.raises(unisono.Misuse, match="does not offer resilient"):
            await a.multicast(b"x", unisono.Resilient(unisono.MAJORITY))
        for odd in ([], {}, 0.5):
            with pytest.raises(unisono.Misuse, match="unknown service"):
                await a.multicast(b"x", odd)  # type: ignore[arg-type]
        reading = asyncio.create_task(heard(a, 1))
        await asyncio.sleep(0)
        with pytest.raises(unisono.Misuse, match="already has a reader"):
            await anext(a)
        await a.multicast(b"fits", service="unreliable")
        assert await reading == [b"fits"]
        with pytest.raises(unisono.Misuse, match="already joined"):
            await a._join()


async def test_a_full_window_makes_callers_wait_in_line(port: int) -> None:
    options = {"window_bytes_max": 10, "refill_us": 2_000}
    async with joining(port, "a", **options) as a:
        calls = [asyncio.create_task(a.multicast(b"%05d" % n)) for n in range(20)]
        await asyncio.sleep(0)
        with pytest.raises(unisono.Full):
            a.multicast_nowait(b"impatient")
        assert a.counters()["multicast.waiting"] > 0
        assert await asyncio.gather(*calls) == list(range(1, 21))
        assert await heard(a, 20) == [b"%05d" % n for n in range(20)]
        many = await a.multicast_many([b"%05d" % n for n in range(20)])
        assert many == 40 and len(await heard(a, 20)) == 20


async def test_a_cancelled_caller_sends_nothing_and_delays_no_other(port: int) -> None:
    options = {"window_bytes_max": 3, "refill_us": 20_000}
    async with joining(port, "a", **options) as a:
        await a.multicast(b"one")
        calls = [asyncio.create_task(a.multicast(text)) for text in (b"two", b"xxx", b"tri")]
        await asyncio.sleep(0.001)
        calls[1].cancel()
        await asyncio.wait(calls)
        assert await heard(a, 3) == [b"one", b"two", b"tri"]
        assert calls[2].result() == 3 and a.counters()["multicast.waiting"] == 0


async def test_waiting_callers_get_the_reason_when_the_member_stops(port: int) -> None:
    a = await joining(port, "a", window_bytes_max=1, refill_us=60_000_000)
    await a.multicast(b"x")
    waiting = asyncio.create_task(a.multicast(b"y"))
    await asyncio.sleep(0.001)
    await a.leave()
    with pytest.raises(unisono.Stopped):
        await waiting


async def test_a_member_that_fails_ends_its_stream_with_the_reason(port: int) -> None:
    a = await joining(port, "a", fail_at=2, rejoin=False)
    await a.multicast_many([b"x", b"y"])
    assert await heard(a, 2) == [b"x", b"y"]
    with pytest.raises(unisono.Stopped, match="told to fail"):
        await anext(a)
    with pytest.raises(unisono.Stopped, match="told to fail"):
        await a.multicast(b"z")
    assert a.stopped == "told to fail"
    await a.leave()


async def test_a_bug_in_the_core_stops_the_member_and_no_caller_hangs(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL):
        a = await joining(port, "a", bug_at=1, rejoin=False)
        await a.multicast(b"x")
        with pytest.raises(unisono.Stopped, match="internal error: RuntimeError: planted"):
            await heard(a, 1)


async def test_a_member_that_rejoins_reports_it_and_continues_as_a_new_incarnation(
    port: int,
) -> None:
    async with joining(port, "a", fail_at=1) as a:
        first = a.me
        await a.multicast(b"x")
        events = [await anext(a) for _ in range(4)]
        assert [type(event).__name__ for event in events] == [
            "View",
            "Message",
            "Rejoined",
            "View",
        ]
        again = events[2]
        assert isinstance(again, unisono.Rejoined) and again.reason == "told to fail"
        assert again.me == a.me and a.me.incarnation > first.incarnation
        assert await a.multicast(b"y") == 1
        assert a.counters()["out.say"] >= 1


async def test_a_member_that_was_alone_and_silent_joins_again_unasked(port: int) -> None:
    """Two that started together each founded the group; the one that gives way has lost nothing."""

    async with joining(port, "a", rejoin=False) as a:
        first = a.me
        session_of(a).driver.fail("another part of the group goes on")
        events = [await anext(a) for _ in range(3)]
        assert [type(event).__name__ for event in events] == ["View", "Rejoined", "View"]
        assert a.me.incarnation > first.incarnation
        await a.multicast(b"x")
        session_of(a).driver.fail("once more")
        with pytest.raises(unisono.Stopped, match="once more"):
            while True:
                await anext(a)


async def test_a_join_that_finds_no_members_reports_what_was_tried(port: int) -> None:
    with pytest.raises(unisono.Stopped) as caught:
        async with joining(port, "a", silent=1, join_s=0.1):
            raise AssertionError("there is no view")
    text = str(caught.value)
    assert f"239.192.77.9:{port}" in text and "flood" in text and "packets went out" in text


async def test_a_join_that_is_cancelled_leaves_no_socket_behind(port: int) -> None:
    peer = [f"127.0.0.1:{port}"]
    call = asyncio.ensure_future(
        asyncio.wait_for(
            unisono.join("orders", spec=FLOOD, peers=peer, silent=1).__aenter__(), 0.05
        )
    )
    with pytest.raises(TimeoutError):
        await call
    async with unisono.join("orders", spec=FLOOD, peers=peer, port=port) as again:
        assert again.me.address.port == port


async def test_a_traced_group_leaves_its_file(tmp_path: Path, port: int) -> None:
    reading = pytest.importorskip("unisono.trace.reading")

    async with joining(port, "a", trace=tmp_path, run="r") as a:
        await a.multicast(b"x")
        await heard(a, 1)
    rows = reading.read_trace(tmp_path).runs["r"]
    assert [row.kind for row in rows] == ["join", "view", "send", "deliver", "leave"]


async def test_a_running_incarnation_has_written_its_trace_but_for_the_last_moment(
    tmp_path: Path, port: int
) -> None:
    reading = pytest.importorskip("unisono.trace.reading")

    async with joining(port, "a", trace=tmp_path, run="r") as a:
        await a.multicast(b"x")
        await heard(a, 1)

        def kinds() -> list[str]:
            return [row.kind for row in reading.read_trace(tmp_path).runs.get("r", ())]

        told_so_far = ["join", "view", "send", "deliver"]
        await waiting.eventually(lambda: kinds() == told_so_far, pause_s=0.1)


async def test_a_leave_that_is_cancelled_closes_the_sockets_all_the_same(port: int) -> None:
    a = await unisono.join("orders", spec=LINGERING, peers=[f"127.0.0.1:{port}"])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(a.leave(), 0.05)
    assert a.stopped == "left the group"
    b = await unisono.join("orders", spec=FLOOD, peers=[f"127.0.0.1:{port}"], port=port)
    await b.leave()


async def test_a_taken_name_is_reported_with_the_remedy(port: int) -> None:
    options: dict[str, Any] = {"multicast": "239.192.77.9", "port": port}
    async with unisono.join("real", name="a", **options):
        with pytest.raises(unisono.Stopped, match=r"is taken by .*: give another name="):
            await unisono.join("real", name="a", **options)


async def test_the_real_protocol_runs_on_it(port: int) -> None:
    options: dict[str, Any] = {"multicast": "239.192.77.9", "port": port}
    async with (
        unisono.join("real", name="a", **options) as a,
        unisono.join("real", name="b", **options) as b,
    ):
        await of_size(a, 2)
        await b.multicast_many([b"%d" % n for n in range(500)])
        assert await heard(a, 500) == [b"%d" % n for n in range(500)]
