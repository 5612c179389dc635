"""What a sender may wait for, with each protocol that offers it, on real sockets."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unisono
from tests.group.sessions import session_of
from tests.net.recorder import free_port
from unisono.core import Cause
from unisono.errors import NotResilient
from unisono.group import Group
from unisono.model import Address, Member, Message, PayloadBatch, Resilient, Service
from unisono.net.handle import Handle, Handles
from unisono.net.send_buffer import SendBuffer
from unisono.parts.message_runs import MessageRun, MessageRuns

ME = Member("a", Address("127.0.0.1", 1), 1)


def joining(port: int, name: str, **options: Any) -> unisono.Joining:
    return unisono.join("handles", name=name, multicast="239.192.77.9", port=port, **options)


async def both(a: Group, b: Group) -> None:
    while not (len(a.members) == len(b.members) == 2):
        await asyncio.sleep(0.001)


@pytest.mark.real
@pytest.mark.parametrize(
    ("protocol", "service", "options"),
    [("rmcast", "causal", {}), ("ring", "agreed", {}), ("ring", "safe", {"replayable": True})],
)
async def test_a_sender_waits_for_its_own_delivery(
    protocol: str, service: str, options: dict[str, Any]
) -> None:
    port = free_port()
    async with (
        joining(port, "a", protocol=protocol, **options) as a,
        joining(port, "b", protocol=protocol, **options) as b,
    ):
        await both(a, b)
        handle = a.multicast(b"one", service)
        found = await handle.delivered
        assert (found.sender, found.payload, found.number) == (a.me, b"one", await handle)
        many = a.multicast_many([b"two", b"three"], service)
        assert (await many.delivered).payload == b"three"
        heard = [item async for item in _messages(a, 3)]
        assert [m.seq for m in heard] == [found.seq, heard[1].seq, (await many.delivered).seq]
        if service == "safe":
            assert await handle.stable == ()  # Safe, and the ring names no holders.


async def _messages(group: Group, count: int) -> Any:
    async for item in group:
        if isinstance(item, Message):
            yield item
            count -= 1
            if not count:
                return


@pytest.mark.real
async def test_a_waiting_caller_gets_the_reason_when_the_member_stops_first() -> None:
    port = free_port()
    async with joining(port, "a", rejoin=False) as a, joining(port, "b", rejoin=False) as b:
        await both(a, b)
        handle = a.multicast(b"one")
        delivered = handle.delivered
        session_of(a).fail("for a test")
        with pytest.raises(unisono.Undelivered, match="for a test"):
            await delivered
        with pytest.raises(unisono.Undelivered, match="for a test"):
            await handle.delivered


@pytest.mark.real
async def test_what_cannot_be_awaited_is_a_misuse() -> None:
    port = free_port()
    async with joining(port, "a") as a:
        with pytest.raises(unisono.Misuse, match="safe or resilient"):
            _ = a.multicast(b"one", "causal").stable
        empty = a.multicast_many([])
        assert await empty == 0
        with pytest.raises(unisono.Misuse, match="empty"):
            _ = empty.delivered


async def test_a_resilient_message_is_delivered_before_it_is_stable() -> None:
    handles = Handles()
    handles.begin(ME)
    handle = Handle(Resilient(2))
    handle.accept(1)
    handles.add(handle)
    runs = MessageRuns([MessageRun(ME, b"xy", 0, 1, 2, 1, "v", 7, Resilient(2))])
    handles.deliver(runs)
    assert (await handle.delivered).seq == 7 and not handle.stable.done()
    handles.stabilize(runs, (ME,))
    assert await handle.stable == (ME,)


def test_a_resilient_message_that_too_few_can_hold_is_delivered_and_not_stable() -> None:
    async def main() -> None:
        handles, handle = Handles(), Handle(Resilient(3))
        handles.begin(ME)
        handle.accept(1)
        handles.add(handle)
        message = Message(ME, b"x", 1, "v", 7, Resilient(3))
        handles.deliver([message])
        waiting = handle.stable
        handles.fail_stability([message], Cause.TOO_FEW)
        for future in (waiting, handle.stable):
            with pytest.raises(NotResilient, match="too few members are left that can hold it"):
                await future
        assert (await handle.delivered).seq == 7
        handles.fail("stopped")
        assert (await handle.delivered).seq == 7

    asyncio.run(main())


@pytest.mark.parametrize("cut_apart", [False, True])
async def test_a_message_that_overtakes_a_stronger_one_hides_neither(cut_apart: bool) -> None:
    levels = {1: Resilient(3), 2: Resilient(2), 3: Service.RELIABLE}
    handles, sent = Handles(), {n: Handle(level) for n, level in levels.items()}
    handles.begin(ME)
    for number, handle in sent.items():
        handle.accept(number)
        handles.add(handle)
    messages = [Message(ME, b"%d" % n, n, "v", None, levels[n]) for n in (3, 2, 1)]
    runs = MessageRuns(list(map(MessageRun.of, messages)))
    handles.deliver(messages if cut_apart else runs)
    assert [(await handle.delivered).payload for handle in sent.values()] == [b"1", b"2", b"3"]
    handles.stabilize(messages[2:], (ME,))
    handles.stabilize(messages[1:2], ())
    assert (await sent[1].stable, await sent[2].stable) == ((ME,), ())


async def test_own_messages_are_found_among_runs_that_are_not_cut_apart() -> None:
    handles = Handles()
    handles.begin(ME)
    waited = {}
    for number in (2, 5, 9):
        handle = Handle(Service.AGREED)
        handle.accept(number)
        handles.add(handle)
        waited[number] = handle.delivered
    other = Member("b", Address("127.0.0.1", 2), 1)
    data = b"".join(b"%02d" % n for n in range(1, 9))
    runs = MessageRuns(
        [
            MessageRun(other, data, 0, 2, 8, 1, "v", 1, Service.AGREED),
            MessageRun(ME, data, 0, 2, 8, 1, "v", 9, Service.AGREED),
        ]
    )
    handles.deliver(runs)
    found = {number: future.result() for number, future in waited.items() if future.done()}
    assert {n: (m.payload, m.seq) for n, m in found.items()} == {
        2: (b"02", 10),
        5: (b"05", 13),
    }
    assert runs.payloads()[8:] == [b"%02d" % n for n in range(1, 9)]
    handles.fail("over")
    with pytest.raises(unisono.Undelivered):
        await waited[9]


async def test_a_future_keeps_its_handle_and_a_handle_that_nobody_keeps_is_forgotten() -> None:
    handles = Handles()
    handles.begin(ME)
    futures = {}
    for number in (1, 2, 3):
        handle = Handle(Service.AGREED)
        handle.accept(number)
        handles.add(handle)
        if number == 2:
            futures[number] = handle.delivered
    del handle
    gc.collect()
    handles.deliver(MessageRuns([MessageRun(ME, b"abc", 0, 1, 3, 1, "v", 7, Service.AGREED)]))
    assert (await futures[2]).payload == b"b"
    assert not handles._undelivered


async def test_a_time_out_of_one_waiter_does_not_spoil_the_handle() -> None:
    handles = Handles()
    handles.begin(ME)
    handle = Handle(Resilient(2))
    handle.accept(1)
    handles.add(handle)
    for future in (handle.delivered, handle.stable):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0)
    message = Message(ME, b"x", 1, "v", 7, Resilient(2))
    handles.deliver([message])
    handles.stabilize([message], (ME,))
    assert await handle.delivered == message
    assert await handle.stable == (ME,)


class Window:
    """A session that takes what its credit permits."""

    finished = False

    def __init__(self) -> None:
        self.credit = 0
        self.sent: list[bytes] = []

    def send_credit(self) -> int:
        return self.credit

    def submit(self, messages: Any, service: Any, groups: Any) -> None:
        self.sent += messages


SENDS = st.lists(
    st.tuples(st.binary(max_size=3), st.sampled_from((Service.AGREED, Service.FIFO))), max_size=12
)


@given(SENDS, st.integers(0, 40), st.integers(0, 40))
def test_one_message_is_submitted_as_a_batch_of_one_is(
    sends: list[tuple[bytes, Service]], credit: int, more: int
) -> None:
    async def play(one_by_one: bool) -> tuple[object, ...]:
        window, buffer = Window(), SendBuffer()
        window.credit = credit
        buffer.begin(window)
        handles = [
            buffer.submit_one(each, level)
            if one_by_one
            else buffer.submit(PayloadBatch((each,)), level)
            for each, level in sends
        ]
        waited = buffer.waiting_count
        window.credit += more
        buffer.stepped()
        buffer.flush()
        return window.sent, waited, buffer.waiting_count, [each.number for each in handles]

    assert asyncio.run(play(True)) == asyncio.run(play(False))


async def test_a_message_is_withdrawn_when_the_last_one_that_waits_for_it_is_cancelled() -> None:
    window, buffer = Window(), SendBuffer()
    buffer.begin(window)
    handle = buffer.submit(PayloadBatch([b"q"]), Service.AGREED)
    one, other = asyncio.ensure_future(handle), asyncio.create_task(_number(handle))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert buffer.waiting_count == 1 and not other.done()
    other.cancel()
    await asyncio.wait([other])
    assert buffer.waiting_count == 0
    with pytest.raises(unisono.Undelivered, match="withdrawn"):
        await handle
    with pytest.raises(unisono.Undelivered, match="withdrawn"):
        await handle.delivered
    task = asyncio.create_task(buffer.submit(PayloadBatch([b"r"]), Service.AGREED))
    task.cancel()  # Before its first step.
    await asyncio.wait([task])
    assert buffer.waiting_count == 0
    last = buffer.submit(PayloadBatch([b"s"]), Service.AGREED)
    window.credit = 100
    buffer.stepped()
    assert await asyncio.create_task(last) == await asyncio.create_task(last) == 1
    buffer.flush()
    assert window.sent == [b"s"]


async def test_who_has_to_be_told_keeps_nothing() -> None:
    """A callback, and a task that nobody keeps but who it waits for."""
    handles, window, told = Handles(), Window(), list[str]()
    window.credit = 100
    handles.begin(ME)
    buffer = SendBuffer(None, handles)
    buffer.begin(window)

    async def wait_for(handle: Handle) -> None:
        await handle.stable
        told.append("task")

    level = Resilient(2)
    buffer.submit_one(b"1", level).delivered.add_done_callback(lambda _: told.append("one"))
    many = PayloadBatch([b"2", b"3"])
    buffer.submit(many, level).stable.add_done_callback(lambda _: told.append("many"))
    asyncio.ensure_future(wait_for(buffer.submit_one(b"4", level)))  # noqa: RUF006
    await asyncio.sleep(0)
    gc.collect()
    messages = [Message(ME, b"%d" % each, each, "v", each, level) for each in (1, 2, 3, 4)]
    handles.deliver(messages)
    gc.collect()
    handles.stabilize(messages, (ME,))
    await asyncio.sleep(0)
    assert sorted(told) == ["many", "one", "task"]
    await asyncio.sleep(0)
    assert not buffer._awaited, "nor are they kept then"
    assert not [each for each in gc.get_objects() if isinstance(each, Handle)]


async def _number(handle: Handle) -> int:
    return await handle


async def test_awaiting_a_message_that_was_shed_fails() -> None:
    handles = Handles()
    handles.begin(ME)
    waited = []
    for number in (1, 2, 3):
        handle = Handle(Service.AGREED)
        handle.accept(number)
        handles.add(handle)
        waited.append(handle.delivered)
    handles.shed()
    handles.deliver([Message(ME, b"x", 2, "v", 7, Service.AGREED)])
    assert waited[1].done() and not waited[2].done()
    with pytest.raises(unisono.Undelivered, match="shed"):
        await waited[0]
