"""Slow readers, and state transfer at its place in the stream."""

from __future__ import annotations

import asyncio
import time

import pytest

import unisono
from tests.group.test_group import heard, joining, pair
from unisono.model import Address, Member, Message, View
from unisono.net.stream import AdoptMark, CaptureMark, Shed, Stream

ME = Member("a", Address("127.0.0.1", 1), 1)


def said(*numbers: int) -> list[Message]:
    return [Message(ME, b"", number) for number in numbers]


@pytest.mark.real
async def test_a_blocked_stream_withholds_and_loses_nothing(port: int) -> None:
    async with pair(port, slow="block", queue_count_max=10) as (a, b):
        payloads = [b"%d" % n for n in range(100)]
        for payload in payloads:
            await a.multicast(payload)
        while b.counters().get("in.say", 0) < 100:
            await asyncio.sleep(0.001)
        assert b.counters()["congested.True"] == 1
        assert b.counters()["stream.waiting"] < 100
        assert await heard(b, 100) == payloads
        assert b.counters()["congested.False"] >= 1


@pytest.mark.real
async def test_a_shedding_stream_drops_the_oldest_and_counts_them(port: int) -> None:
    async with pair(port, slow="shed", queue_count_max=10) as (a, b):
        await a.multicast_many([b"%d" % n for n in range(100)])
        while b.counters().get("in.say", 0) < 100:
            await asyncio.sleep(0.001)
        events = [await anext(b) for _ in range(b.counters()["stream.waiting"])]
        kept = [event.payload for event in events if isinstance(event, Message)]
        lost = sum(event.count for event in events if isinstance(event, Shed))
        assert len(events) <= 10 and kept[-1] == b"99"
        assert len(kept) + lost == 100 and b.counters()["shed"] == lost
        assert [event for event in events if isinstance(event, View)]


@pytest.mark.real
async def test_a_reader_too_slow_leaves_with_a_reason_and_the_others_see_it(port: int) -> None:
    async with pair(port, slow="leave", queue_count_max=10) as (a, b):
        await a.multicast_many([b"x"] * 100)
        while b.stopped is None or len(a.members) == 2:
            await asyncio.sleep(0.001)
        with pytest.raises(unisono.Stopped, match=r"too slow.*queue_count_max=10"):
            await heard(b, 1000)


@pytest.mark.real
async def test_messages_unsent_at_its_own_end_are_counted(port: int) -> None:
    a = await joining(port, "a", slow="leave", queue_count_max=5)
    for _ in range(10):
        a.multicast_nowait(b"x", service="unreliable")
    for _ in range(7):
        a.multicast_nowait(b"y", service="reliable")
    await asyncio.sleep(0)
    assert a.stopped is not None
    assert a.counters()["drop.unsent"] == 7
    await a.leave()


async def test_shed_notices_stand_where_the_messages_stood() -> None:
    overflows: list[str] = []
    stream = Stream("shed", 5, 1000, lambda on: None, overflows.append)
    view = View((ME,), "v")
    stream.extend([*said(1), view, *said(2, 3, 4, 5, 6)])
    events = [await stream.next() for _ in range(len(stream))]
    assert events == [Shed(1), view, Shed(3), *said(5, 6)]
    assert stream.shed_count == 4 and not overflows


@pytest.mark.parametrize(("count", "few"), [(1, True), (50, False)])
async def test_a_reader_that_few_have_woken_is_to_have_its_turn(count: int, few: bool) -> None:
    stream = Stream("block", 100, 1000, lambda on: None, lambda reason: None)
    stream.extend(said(1))
    assert not stream.has_woken, "nobody waits"
    assert await stream.next() == said(1)[0]
    reading = asyncio.ensure_future(stream.next_batch(100))
    await asyncio.sleep(0)
    stream.extend(said(*range(count)))
    assert stream.has_woken is few
    assert len(await reading) == count
    assert not stream.has_woken


def test_views_alone_cannot_fill_the_stream_without_end() -> None:
    overflows: list[str] = []
    stream = Stream("shed", 5, 1000, lambda on: None, overflows.append)
    for number in range(7):
        stream.put(View((ME,), str(number)))
    assert overflows


def large(*numbers: int) -> list[Message]:
    return [Message(ME, bytes(40), number) for number in numbers]


async def test_a_queue_is_bounded_in_bytes_too() -> None:
    told: list[bool] = []
    stream = Stream("block", 100, 100, told.append, lambda reason: None)
    stream.extend(large(1, 2))
    assert told == []
    stream.extend(large(3))
    assert told == [True]
    assert await stream.next() == large(1)[0]
    assert told == [True]
    assert list(await stream.next_batch(1)) == large(2)
    assert told == [True, False]


async def test_what_is_too_much_in_bytes_is_shed_or_ends_the_member() -> None:
    overflows: list[str] = []
    stream = Stream("shed", 100, 100, lambda on: None, overflows.append)
    stream.extend(large(1, 2, 3, 4))
    assert list(await stream.next_batch(10)) == [Shed(2), *large(3, 4)]
    stream.extend([Message(ME, bytes(500), 5)])
    assert (await stream.next_batch(10))[0] == Message(ME, bytes(500), 5), "one alone may be"
    assert not overflows
    stream = Stream("leave", 100, 100, lambda on: None, overflows.append)
    stream.extend(large(1, 2, 3))
    assert "3 events with 120 bytes" in overflows[0]


def test_a_reader_that_always_finds_something_lets_the_loop_turn() -> None:
    async def story() -> int:
        stream = Stream("block", 100, 1000, lambda on: None, lambda reason: None)
        stream.extend(said(*range(20)))
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        for _ in range(20):
            await stream.next()
            time.sleep(0.006)  # What a reader does that does not know better.
        task.cancel()
        return turns

    assert asyncio.run(story()) >= 19


async def test_marks_are_acted_on_when_the_reader_gets_there() -> None:
    log: list[object] = []
    stream = Stream(
        "block", 100, 1000, lambda on: None, log.append, lambda: repr(log).encode(), log.append
    )
    stream.extend(said(1))
    stream.put(CaptureMark("k", lambda key, state: log.append((key, state))))
    stream.extend(said(2))
    stream.put(AdoptMark(b"state"))
    stream.extend(said(3))
    log.append((await stream.next_batch(10))[0])
    assert log == said(1), "nothing is captured while the first is being read"
    batch = await stream.next_batch(10)
    assert log[1:] == [("k", repr(said(1)).encode())] and list(batch) == said(2)
    assert await stream.next() == said(3)[0] and log[2] == b"state"


async def test_the_end_follows_what_is_queued() -> None:
    stream = Stream("block", 100, 1000, lambda on: None, lambda reason: None)
    stream.extend(said(1))
    stream.end("because")
    stream.extend(said(2))
    assert await stream.next() == said(1)[0]
    for _ in range(2):
        with pytest.raises(unisono.Stopped, match="because"):
            await stream.next()


@pytest.mark.real
async def test_a_joiner_is_handed_the_state_at_its_place(port: int) -> None:
    mine: list[bytes] = []
    theirs: list[bytes] = []

    async def follow(group: unisono.Group, state: list[bytes]) -> None:
        async for event in group:
            if isinstance(event, Message):
                state.append(event.payload)

    def adopt(state: bytes) -> None:
        theirs[:] = state.split()

    async with joining(
        port, "a", snapshot=lambda: b" ".join(mine), restore=lambda state: None
    ) as a:
        await a.multicast_many([b"1", b"2", b"3"])
        async with joining(port, "b", snapshot=lambda: b"", restore=adopt) as b:
            while len(a.members) < 2:
                await asyncio.sleep(0.001)
            assert not mine, "the mark waits behind three unread messages"
            readers = [asyncio.create_task(follow(a, mine))]
            readers.append(asyncio.create_task(follow(b, theirs)))
            while theirs != [b"1", b"2", b"3"]:
                await asyncio.sleep(0.001)
            await a.multicast(b"4")
            while theirs != mine or len(mine) < 4:
                await asyncio.sleep(0.001)
        await readers[1]
    await readers[0]
