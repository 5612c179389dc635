"""The driver: effects in order, timers, and a core that breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.net.recorder import free_port
from tests.waiting import LIMIT_S
from unisono.core import (
    Arm,
    Captured,
    Cause,
    Congested,
    Deliver,
    Depart,
    Disarm,
    Effect,
    Event,
    Expired,
    Fail,
    FailStability,
    Join,
    Leave,
    Persist,
    Received,
    Send,
    Stabilize,
)
from unisono.model import Address, Member, Message, Packets, Resilient, View
from unisono.net.addresses import Addresses
from unisono.net.driver import Driver
from unisono.net.stream import Entry
from unisono.net.udp import Endpoint
from unisono.parts.message_runs import MessageRun, MessageRuns

pytestmark = pytest.mark.real
HERE = Addresses(multicast=Address("239.192.77.9", free_port()), interface="127.0.0.1")
ME = Member("a", Address("127.0.0.1", 1), 1)


class Script:
    """A core that answers each event as the test requires, and records the events."""

    def __init__(self, answer: Callable[[Event], list[Effect]]) -> None:
        self.me = ME
        self.counts: dict[str, int] = {}
        self.told: list[tuple[int, Event]] = []
        self._answer = answer

    def step(self, now_us: int, event: Event) -> list[Effect]:
        self.told.append((now_us, event))
        return self._answer(event)

    def send_credit(self) -> int:
        return 1

    def held(self) -> Mapping[Member, int]:
        return {}

    def transition_counts(self) -> Mapping[str, int]:
        return {}


class Diary:
    """An application that writes everything down."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.end: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.on_deliver: Callable[[], None] = lambda: None

    def deliver(self, messages: Sequence[Message]) -> None:
        self.lines += messages
        self.on_deliver()

    def put(self, entry: Entry) -> None:
        self.lines.append(entry)

    def install(self, view: View) -> None: ...

    def adopt(self, state: bytes) -> None: ...

    def has_woken(self) -> bool:
        return False

    def stepped(self) -> None: ...

    def ended(self, reason: str | None) -> None:
        self.end.set_result(reason)


async def test_effects_are_performed_in_the_order_given_and_a_record_first() -> None:
    diary = Diary()
    said = Message(ME, b"x", 1)
    core = Script(lambda event: [Persist(b"r"), Deliver([said]), Persist(b"s"), Depart()])
    driver = Driver(core, Endpoint(HERE), diary, diary.lines.append)
    driver.start([Join()])
    assert await diary.end is None
    assert diary.lines == [b"r", said, b"s"] and driver.finished


async def test_a_notice_of_stability_hands_on_runs_that_are_not_cut_apart() -> None:
    diary = Diary()
    runs = MessageRuns([MessageRun(ME, b"xy", 0, 1, 2, 1, "v", 7, Resilient(2))])
    effects = [Stabilize(runs, (ME,)), FailStability(runs, Cause.TOO_FEW), Depart()]
    Driver(Script(lambda event: [*effects]), Endpoint(HERE), diary).start([Join()])
    assert await diary.end is None
    assert all(notice.messages is runs for notice in diary.lines) and len(diary.lines) == 2


async def test_timers_expire_in_order_and_a_disarmed_one_never() -> None:
    diary = Diary()
    first: list[Effect] = [
        Arm("late", 30_000),
        Arm("soon", 5_000),
        Arm("never", 10_000),
        Arm("moved", 1_000),
        Arm("moved", 15_000),
        Disarm("never"),
    ]
    answers = {Join(): first, Expired("late"): [Fail("done")]}
    core = Script(lambda event: answers.get(event, []))
    Driver(core, Endpoint(HERE), diary).start([Join()])
    assert await diary.end == "done"
    names = [event.timer for _, event in core.told if isinstance(event, Expired)]
    assert names == ["soon", "moved", "late"]
    (start_us, _), (soon_us, _), *_, (late_us, _) = core.told
    assert soon_us - start_us >= 4_000 and late_us - start_us >= 29_000


async def test_an_event_fed_during_a_step_follows_it() -> None:
    diary = Diary()
    deliver: list[Effect] = [Deliver([Message(ME, b"x", 1)]), Persist(b"same step")]
    answers = {Join(): deliver, Congested(True): [Persist(b"next step"), Depart()]}
    core = Script(lambda event: answers.get(event, []))
    driver = Driver(core, Endpoint(HERE), diary, diary.lines.append)
    diary.on_deliver = lambda: driver.feed(Congested(True))
    driver.start([Join()])
    await diary.end
    assert diary.lines[1:] == [b"same step", b"next step"]


async def test_a_burst_is_one_step() -> None:
    diary = Diary()
    core = Script(lambda event: [Depart()] if isinstance(event, Received) else [])
    hearer = Endpoint(HERE)
    Driver(core, hearer, diary).start([Join()])
    speaker = Driver(
        Script(lambda event: [Send((hearer.address,), [bytes(1000)] * 30)]),
        Endpoint(HERE),
        Diary(),
    )
    speaker.start([Join()])
    await diary.end
    events = [event for _, event in core.told if isinstance(event, Received)]
    assert len(events) == 1 and events[0].source == speaker.endpoint.address
    assert len(events[0].packets) == 30 or not speaker.endpoint.segments
    speaker.close()


async def test_a_core_that_raises_is_stopped_with_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def break_down(event: Event) -> list[Effect]:
        raise ZeroDivisionError("planted")

    with caplog.at_level(logging.ERROR, "unisono.net"):
        diary = Diary()
        driver = Driver(Script(break_down), Endpoint(HERE), diary)
        driver.start([Join()])
        assert await diary.end == "internal error: ZeroDivisionError: planted"
        driver.feed(Leave())  # a failed core gets no events
    assert "planted" in caplog.text


async def test_waiting_packets_are_read_before_a_late_timer_expires() -> None:
    import time

    diary = Diary()

    def answer(event: Event) -> list[Effect]:
        if isinstance(event, Join):
            return [Arm("silence", 1_000)]
        return [Disarm("silence"), Depart()] if isinstance(event, Received) else []

    core = Script(answer)
    endpoint, other = Endpoint(HERE), Endpoint(HERE)
    driver = Driver(core, endpoint, diary)
    driver.start([Join()])
    other.attach(asyncio.get_running_loop(), lambda found: None)
    other.send((endpoint.address,), [b"I am here"])
    time.sleep(0.05)  # the whole process sleeps: the timer is late, the packet waits
    driver._expire()
    assert await diary.end is None
    assert not [event for _, event in core.told if isinstance(event, Expired)]
    other.close()


@pytest.mark.parametrize("gives_way", [True, False])
async def test_who_was_woken_comes_before_the_packets_that_wait(gives_way: bool) -> None:
    loop, lines = asyncio.get_running_loop(), list[bytes]()
    endpoint, other = Endpoint(HERE), Endpoint(HERE)
    both = loop.create_future()

    def received(found: list[tuple[Address, Packets]]) -> bool:
        for _, packets in found:
            lines.extend(map(bytes, packets))
        loop.call_soon(read)
        return gives_way

    def read() -> None:
        lines.append(b"read")
        if lines.count(b"read") == 2:
            both.set_result(None)

    endpoint.attach(loop, received)
    other.attach(loop, lambda found: None)
    for packet in (b"one", b"another"):
        other.send((endpoint.address,), [packet])
    async with asyncio.timeout(LIMIT_S):
        await both
    order = [b"one", b"read", b"another"] if gives_way else [b"one", b"another", b"read"]
    assert lines[:3] == order
    endpoint.close()
    other.close()


async def test_a_farewell_is_sent_when_the_world_ends_an_incarnation() -> None:
    diary, heard = Diary(), asyncio.get_running_loop().create_future()
    other = Endpoint(HERE)
    other.attach(asyncio.get_running_loop(), heard.set_result)
    core = Script(
        lambda event: [Send((other.address,), [b"bye"])] if isinstance(event, Leave) else []
    )
    driver = Driver(core, Endpoint(HERE), diary)
    driver.start([Join()])
    driver.fail("too slow", farewell=Leave())
    assert await diary.end == "too slow" and not driver.ended_by_core
    ((_, packets),) = await heard
    assert [bytes(packet) for packet in packets] == [b"bye"]
    driver.feed(Captured("k", b""))
    other.close()
