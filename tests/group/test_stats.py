"""What a program can see of its group: blocked or not, views, a slow reader, numbers."""

from __future__ import annotations

import asyncio
import logging

import pytest

import unisono
from tests.net.flood import FLOOD
from tests.waiting import eventually
from unisono.programs import Program
from unisono.sim import FaultEvent, Plan, Weather, run
from unisono.sim.plan import SECOND_US


def test_a_minority_reads_that_it_is_blocked_and_when_it_is_not() -> None:
    told: dict[str, list[str]] = {}

    async def main(group: unisono.Group, name: str) -> None:
        async for item in group:
            match item:
                case unisono.Blocked(reason):
                    assert reason == group.blocked
                    told.setdefault(name, []).append("blocked")
                case unisono.Unblocked() | unisono.Rejoined():
                    told.setdefault(name, []).append("goes on")

    split = FaultEvent("isolate", SECOND_US, 3 * SECOND_US, (2,))
    weather = Weather(fault_us=4 * SECOND_US, schedule=(split,))
    plan = Plan(protocol="ring", nodes=3, messages=0, weather=weather, program=Program(main))
    assert not run(plan).broken
    assert told == {"c": ["blocked", "goes on"]}


@pytest.mark.real
async def test_numbers_and_log_say_what_happened_once_each(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "unisono.group")
    joining = unisono.join(
        "orders", name="a", spec=FLOOD, multicast="239.192.77.9", port=port, queue_count_max=100
    )
    async with joining as group:
        before = group.stats()
        assert (before.sent, before.views, before.rejoined) == (0, 1, 0)
        assert before.delay_p50_s is None
        await group.multicast_many([b"four"] * 150)
        await eventually(lambda: group.stats().delivered == 150)
        full = group.stats()
        assert (full.sent, full.reading, full.reading_bytes) == (150, 151, 600)
        assert full.slow_reader
        assert full.delay_p50_s is not None
        assert full.delay_p99_s is not None
        assert 0 < full.delay_p50_s <= full.delay_p99_s
        heard = 0
        while heard < 150:
            heard += isinstance(await anext(group), unisono.Message)
        assert not group.stats().slow_reader
        await asyncio.sleep(0)
    lines = [record.message for record in caplog.records]
    assert [line for line in lines if "view" in line] == [
        line for line in lines if line.startswith("a: view ") and "of 1 members: +a#" in line
    ]
    assert lines.count("a: the reader is slow, senders are held back") == 1
    assert lines.count("a: the reader is back") == 1
