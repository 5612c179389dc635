"""Admission to a real group: a joiner with other options is refused, and the members continue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import unisono
from tests.group.sessions import session_of
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, run_story
from unisono.group import Group

pytestmark = pytest.mark.real

STATE = {"snapshot": lambda: b"state", "restore": lambda state: None}


def joining(port: int, name: str, protocol: str, **options: Any) -> unisono.Joining:
    if protocol == "mtp" and name == "a":
        options["master"] = 1
    where = {"multicast": "239.192.77.9", "port": port}
    return unisono.join("orders", name=name, **{**where, "protocol": protocol, **options})


async def next_message(group: Group) -> bytes:
    async for item in group:
        if isinstance(item, unisono.Message):
            return item.payload
    raise AssertionError("the stream ended")


async def refused(protocol: str, inside: dict[str, Any], outside: dict[str, Any]) -> str:
    """The refusal of a joiner with these options; the member inside works before and after."""
    port = free_port()
    async with joining(port, "a", protocol, **inside) as a:
        # It is refused, and does not wait for join_s: that would be longer than a test may take.
        late: dict[str, Any] = {"protocol": protocol, "join_s": 10 * LIMIT_S}
        with pytest.raises(unisono.Stopped) as stopped:
            async with joining(port, "b", **{**late, **outside}):
                pass
        await a.multicast(b"\xf5still here")
        assert await next_message(a) == b"\xf5still here"
        assert not a.blocked and len(a.members) == 1
        assert a.counters()["out.note"] >= 1
    return stopped.value.reason


CASES = [
    ({}, STATE, "state=false and this member has state=true: leave out snapshot= and restore="),
    (STATE, {}, "state=true and this member has state=false: give snapshot= and restore="),
    (
        {},
        {"message_bytes_max": 9},
        "message_bytes_max=67108864 and this member has message_bytes_max=9",
    ),
]


@pytest.mark.parametrize("protocol", ["rmcast", "mtp", "ring"])
@pytest.mark.parametrize(("inside", "outside", "words"), CASES)
def test_one_that_does_not_fit_is_refused_with_the_reason(
    protocol: str, inside: dict[str, Any], outside: dict[str, Any], words: str
) -> None:
    reason = run_story(refused(protocol, inside, outside))
    assert f"the group 'orders' has {words}" in reason


@pytest.mark.parametrize("protocol", ["mtp", "ring"])
@pytest.mark.parametrize("replayable", [True, False])
def test_a_plain_member_never_receives_the_framing_of_a_replayable_group(
    protocol: str, replayable: bool
) -> None:
    reason = run_story(
        refused(protocol, {"replayable": replayable}, {"replayable": not replayable})
    )
    its, ours = str(replayable).lower(), str(not replayable).lower()
    assert (
        f"has replayable={its} and this member has replayable={ours}: give replayable={its}"
        in reason
    )


@pytest.mark.parametrize("protocol", ["rmcast", "mtp", "ring"])
@pytest.mark.parametrize("other", ["rmcast", "mtp", "ring"])
def test_a_joiner_with_another_protocol_is_refused_with_the_group_s(
    protocol: str, other: str
) -> None:
    if protocol != other:
        reason = run_story(refused(protocol, {}, {"protocol": other}))
        assert f"has protocol={protocol} and this member has protocol={other}: give" in reason


@pytest.mark.parametrize(
    ("protocol", "option", "value"),
    [("rmcast", "detect_us", 20_000), ("mtp", "masters", 3), ("ring", "sites", 3)],
)
def test_options_of_the_protocol_are_alike(protocol: str, option: str, value: int) -> None:
    reason = run_story(refused(protocol, {}, {option: value}))
    assert f"{option}={value}: give {option}=" in reason


@pytest.mark.parametrize("protocol", ["rmcast", "mtp", "ring"])
@pytest.mark.parametrize("octets", [512, 9000])
async def test_packets_window_and_queues_may_differ(protocol: str, octets: int) -> None:
    own: dict[str, Any] = {"packet_bytes_max": octets, "window_bytes_max": 100_000}
    port, large = free_port(), bytes(40_000)
    async with (
        joining(port, "a", protocol) as a,
        joining(port, "b", protocol, queue_count_max=9, **own) as b,
    ):
        for said in (a, b):
            await said.multicast(large)
            assert await next_message(a) == await next_message(b) == large


async def test_two_that_wait_for_others_report_that_they_differ() -> None:
    port = free_port()
    with pytest.raises(unisono.Stopped) as stopped:
        await asyncio.gather(
            joining(port, "a", "ring", sites=2, join_s=1.5)._group._join(),
            joining(port, "b", "ring", sites=3, join_s=1.5)._group._join(),
        )
    assert "has sites=3 and this member has sites=2" in stopped.value.reason


def test_one_that_rejoins_is_refused_once_and_does_not_try_on() -> None:
    reason = run_story(refused("ring", {}, {**STATE, "rejoin": True}))
    assert "state=false" in reason


@pytest.mark.parametrize("protocol", ["rmcast", "mtp", "ring"])
@pytest.mark.parametrize("state", [False, True])
async def test_a_joiner_that_gives_up_blocks_no_member(protocol: str, state: bool) -> None:
    """A ring of one counted it, and was blocked for good."""

    port, options = free_port(), STATE if state else {}
    async with joining(port, "a", protocol, **options) as a:
        for patience_us in (0, 200, 500, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000, 6_000):
            trying = asyncio.ensure_future(joining(port, "b", protocol, **options)._group._join())
            await asyncio.sleep(patience_us / 1e6)
            trying.cancel()
            try:
                group = await trying
            except asyncio.CancelledError:
                pass
            else:
                await group.leave()
            said = b"%d" % patience_us
            await a.multicast(said)
            while await next_message(a) != said:
                pass
            while len(a.members) > 1:
                await asyncio.sleep(0.005)
            assert not a.blocked


async def test_a_join_that_is_cancelled_twice_ends_at_once() -> None:
    joined = joining(free_port(), "a", "ring", sites=3)._group
    trying = asyncio.ensure_future(joined._join())
    await asyncio.sleep(0.05)
    trying.cancel()
    await asyncio.sleep(0)
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying
    assert joined.stopped and session_of(joined).driver.finished
