"""A member that is stopped rejoins by itself, and the application learns what it missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unisono
from tests.group.sessions import session_of
from unisono.core import Cause
from unisono.delivered_counts import DeliveredCounts
from unisono.group import Group
from unisono.group.rejoining import (
    FINAL,
    LASTING_S,
    PAUSE_MAX_S,
    PAUSE_S,
    RETURNS_MAX,
    RejoinPolicy,
)
from unisono.model import Address, Member, Message, Service, View
from unisono.net.outstanding import Outstanding
from unisono.parts.message_runs import MessageRun, MessageRuns

A, B = (Member(name, Address("10.0.0.1", 1), 1) for name in "ab")
VIEW = View((A, B), "v", seq=9)
ALONE = View((A,), "v", seq=9)


def message(number: int, sender: Member = A, seq: int | None = None) -> Message:
    return Message(sender, b"%d" % number, number, "v", seq, Service.AGREED)


# -- lost messages --------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 4), max_size=8),
    st.data(),
    st.booleans(),
)
def test_what_was_sent_and_not_delivered_back_is_lost(
    batches: list[int], data: st.DataObject, as_spans: bool
) -> None:
    outstanding = Outstanding()
    outstanding.begin(A)
    said = 0
    for count in batches:
        outstanding.sent([b"%d" % number for number in range(said + 1, said + count + 1)])
        said += count
    heard = data.draw(st.integers(0, said))
    others = data.draw(st.integers(0, 3))
    told = [message(number + 1, B, number + 1) for number in range(others)]
    told += [message(number, A, others + number) for number in range(1, heard + 1)]
    if as_spans:
        outstanding.delivered(MessageRuns([MessageRun.of(each) for each in told]))
    else:
        outstanding.delivered(told)
    wanted = [(number, b"%d" % number) for number in range(heard + 1, said + 1)]
    assert list(outstanding.undelivered()) == wanted
    assert outstanding.seq == (others + heard or None)


def test_messages_in_one_span_count_to_the_last_of_them() -> None:
    outstanding = Outstanding()
    outstanding.begin(A)
    outstanding.sent([b"1", b"2", b"3"])
    outstanding.delivered(MessageRuns([MessageRun(A, b"12", 0, 1, 2, 1, "v", 5, Service.AGREED)]))
    assert (outstanding.undelivered(), outstanding.seq) == (((3, b"3"),), 6)


def test_a_weaker_message_overtakes_a_stronger_one_which_may_be_lost() -> None:
    outstanding = Outstanding()
    outstanding.begin(A)
    outstanding.sent([b"1", b"2"])
    outstanding.sent([b"3", b"4", b"5"])
    outstanding.delivered([message(3, A, 1), message(4, A, 2)])
    assert [number for number, _ in outstanding.undelivered()] == [1, 2, 5]
    outstanding.delivered([message(1, A, 3)])
    assert outstanding.undelivered() == ((2, b"2"), (5, b"5"))
    outstanding.delivered([message(2, A, 4)])
    assert outstanding.undelivered() == ((5, b"5"),)
    assert len(outstanding._batches) == 1 and not outstanding._ahead


def test_what_was_shed_on_its_way_here_is_not_lost() -> None:
    outstanding = Outstanding()
    outstanding.begin(A)
    outstanding.sent([b"1", b"2", b"3", b"4"])
    outstanding.shed()
    outstanding.delivered([message(3, A, 3)])
    assert outstanding.undelivered() == ((4, b"4"),)


def test_counts_of_what_a_state_has_never_go_back() -> None:
    counts = DeliveredCounts()
    counts.deliver([message(2, A, 1)])
    counts.deliver([message(1, A, 2)])
    counts.deliver(MessageRuns([MessageRun.of(message(1, A, 3))]))
    assert counts._last == {A: 2}


# -- whether, and when ----------------------------------------------------------------------------


def ended(rejoin_policy: RejoinPolicy, cause: Cause = Cause.EXCLUDED, now_s: float = 1.0) -> bool:
    back = rejoin_policy.comes_back("why", cause, VIEW, silent=False)
    rejoin_policy.ended("why", cause, now_s)
    return back


def test_a_rejoin_reports_the_reason_what_was_missed_and_what_was_lost() -> None:
    rejoin_policy = RejoinPolicy("a", rejoin=True, founds=True)
    rejoin_policy.begin(A)
    assert rejoin_policy.arrived(A, VIEW, 0.0) is None
    rejoin_policy.outstanding.sent([b"1", b"2"])
    rejoin_policy.outstanding.delivered([message(1, A, 5)])
    assert ended(rejoin_policy)
    rejoin_policy.begin(B)
    again = rejoin_policy.arrived(B, VIEW, 2.0)
    assert again == unisono.Rejoined("why", B, Cause.EXCLUDED, range(6, 10), (b"2",))
    rejoin_policy.begin(B)
    assert rejoin_policy.arrived(B, VIEW, 3.0) is None, "reported once"


@pytest.mark.parametrize(("place", "seq"), [(None, 9), (5, None), (12, 9)])
def test_what_is_unknown_is_not_reported(place: int | None, seq: int | None) -> None:
    rejoin_policy = RejoinPolicy("a", rejoin=True, founds=True)
    rejoin_policy.begin(A)
    rejoin_policy.arrived(A, VIEW, 0.0)
    rejoin_policy.outstanding.delivered([message(1, A, place)])
    ended(rejoin_policy)
    again = rejoin_policy.arrived(A, View((A,), "w", seq=seq), 2.0)
    assert again is not None and again.missed is None


@pytest.mark.parametrize("cause", sorted(FINAL, key=str))
def test_where_the_application_must_decide_no_member_rejoins(cause: Cause) -> None:
    assert not ended(RejoinPolicy("a", rejoin=True, founds=True), cause)


def test_a_member_refused_at_its_first_join_does_not_retry() -> None:
    rejoin_policy = RejoinPolicy("a", rejoin=True, founds=True)
    assert not rejoin_policy.comes_back("why", Cause.REFUSED, None, silent=True)
    assert not rejoin_policy.comes_back("why", Cause.REFUSED, ALONE, silent=True)
    assert rejoin_policy.comes_back("why", Cause.REFUSED, VIEW, silent=True)


def test_a_daemon_that_was_never_there_is_not_waited_for() -> None:
    rejoin_policy = RejoinPolicy("a", rejoin=True, founds=False)
    assert not rejoin_policy.comes_back("no daemon", Cause.STOPPED, None, silent=True)
    assert rejoin_policy.comes_back("no daemon", Cause.STOPPED, VIEW, silent=True)


def test_pauses_grow_and_returns_are_bounded_until_a_life_has_lasted() -> None:
    rejoin_policy = RejoinPolicy("a", rejoin=True, founds=True)
    pauses = []
    while ended(rejoin_policy):
        pauses.append(rejoin_policy.next_pause_s())
        rejoin_policy.begin(A)
        rejoin_policy.arrived(A, VIEW, 0.0)
    assert pauses[:3] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]
    assert max(pauses) == PAUSE_MAX_S and len(pauses) == RETURNS_MAX
    rejoin_policy.begin(A)
    rejoin_policy.arrived(A, VIEW, 0.0)
    rejoin_policy.ended("why", Cause.EXCLUDED, LASTING_S)
    assert ended(rejoin_policy) and rejoin_policy.next_pause_s() == PAUSE_S


def test_a_member_that_gave_up_does_not_rejoin() -> None:
    rejoin_policy = RejoinPolicy("a", rejoin=True, founds=True)
    rejoin_policy.give_up()
    assert not ended(rejoin_policy)
    assert not rejoin_policy.comes_back("apart", Cause.STOPPED, ALONE, silent=True)


# -- for real -------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("protocol", ["ring", "mtp"])
async def test_one_that_was_left_out_is_back_with_the_state_and_knows_what_it_missed(
    protocol: str, port: int
) -> None:
    """It is deaf and dumb for a while; the others go on, and it is given their state."""

    states = {name: [b""] for name in "abc"}
    items: dict[str, list[Any]] = {name: [] for name in "abc"}

    async def member(name: str) -> Group:
        role = {"master": int(name == "a")} if protocol == "mtp" else {"sites": 3}
        return await unisono.join(
            "orders",
            name=name,
            protocol=protocol,
            port=port,
            service="safe" if protocol == "ring" else "agreed",
            detect_us=200_000,
            snapshot=lambda: states[name][0],
            restore=lambda state: states[name].__setitem__(0, state),
            options=role,
        )

    async def read(name: str, joining: Coroutine[Any, Any, Group]) -> Group:
        group = await joining
        reading.append(asyncio.create_task(reads(name, group)))
        return group

    async def reads(name: str, group: Group) -> None:
        async for item in group:
            items[name].append(item)
            if isinstance(item, unisono.Message):
                states[name][0] += item.payload

    async def until(done: Callable[[], bool]) -> None:
        while not done():
            await asyncio.sleep(0.01)

    reading: list[asyncio.Task[None]] = []
    a, b, c = await asyncio.gather(*(read(name, member(name)) for name in "abc"))
    await until(lambda: {len(each.members) for each in (a, b, c)} == {3})
    await c.multicast(b"1")
    await until(lambda: states["c"][0] == b"1")
    first = c.me
    endpoint = session_of(c).endpoint
    endpoint.send = lambda to, packets: None  # type: ignore[method-assign]
    await c.multicast(b"in vain")
    await until(lambda: len(a.members) == 2)
    await a.multicast(b"2")
    await b.multicast(b"3")
    del endpoint.send
    await until(lambda: c.me != first and len(c.members) == 3 and len(states["c"][0]) == 3)
    at = next(at for at, each in enumerate(items["c"]) if isinstance(each, unisono.Rejoined))
    again, view = items["c"][at : at + 2]
    assert again.cause is Cause.EXCLUDED and again.me == c.me
    assert again.lost == (b"in vain",)
    assert c.counters()["drop.unsaid"] == 1
    assert isinstance(view, unisono.View) and again.missed is not None
    assert view.seq == again.missed.stop - 1 and len(again.missed) >= 2
    assert states["c"][0] == states["a"][0], "the state was handed over again"
    for group in (c, b, a):
        await group.leave()
