"""The paper's rules, one by one, over the real cores."""

from __future__ import annotations

import pytest

from tests.rmp.stage import Stage
from unisono.core import Answer, Cause, Congested, Fail, Reach, Received, Stabilize
from unisono.model import ChangeKind, Resilient, Service, SizeVote
from unisono.protocols.rmp.labels import label
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.quorums import ViewQuorums
from unisono.protocols.rmp.reformation import RingReformation
from unisono.protocols.rmp.token import TokenRotation
from unisono.requests import AcquireLock, LimitScope, ReleaseLock, VoteSize

LOCKS = (ChangeKind.LOCK_GRANTED, ChangeKind.LOCK_DENIED, ChangeKind.LOCK_RELEASED)


def acks(stage: Stage, name: str, since_us: int) -> list[str]:
    return stage.sent(name, "ack", since_us)


@pytest.mark.rule("RMP-1")
def test_one_ack_orders_the_blocks_of_several_sources_the_same_everywhere() -> None:
    stage = Stage("a", "b", "c")
    for name in "abc":
        stage.multicast(name, name.encode())
    stage.run(500_000)
    assert stage.payloads("a") == stage.payloads("b") == stage.payloads("c")
    assert sorted(stage.payloads("a")) == [b"a", b"b", b"c"]
    places = [message.seq for message in stage.delivered("a")]
    assert places == [1, 2, 3]


@pytest.mark.rule("RMP-2")
def test_a_site_with_an_empty_slot_does_not_accept_the_token() -> None:
    stage = Stage("a", "b", "c")
    stage.is_lost = lambda sender, receiver, what: receiver == "c" and what.startswith("data")
    stage.multicast("a", b"x")
    stage.run(600_000)
    assert walked(stage, "c", "wait_for_slots") == 1 and stage.sent("c", "nack")
    accepted = walked(stage, "c", "accept")
    assert not stage.payloads("c")
    stage.is_lost = lambda sender, receiver, what: False
    stage.run(500_000)
    assert stage.payloads("c") == [b"x"] and walked(stage, "c", "accept") > accepted


def walked(stage: Stage, name: str, action: str) -> int:
    counts = stage.cores[name].transition_counts()
    return sum(times for arrow, times in counts.items() if f"/{action}--" in arrow)


@pytest.mark.rule("RMP-2")
def test_without_the_hold_rule_a_site_vouches_for_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TokenRotation, "may_accept", TokenRotation.is_named)
    with pytest.raises(AssertionError):
        test_a_site_with_an_empty_slot_does_not_accept_the_token()


@pytest.mark.rule("RMP-3")
def test_another_site_answers_for_a_source_that_is_gone() -> None:
    stage = Stage("a", "b", "c", "d")
    stage.is_lost = lambda sender, receiver, what: receiver == "c" and what.startswith("data")
    stage.multicast("a", b"x")
    stage.run(5_000)
    stage.kill("a")
    stage.is_lost = lambda sender, receiver, what: False
    stage.run(4_000_000)
    assert stage.payloads("c") == stage.payloads("b") == stage.payloads("d") == [b"x"]


@pytest.mark.rule("RMP-4")
def test_without_data_the_token_moves_on_by_null_acks() -> None:
    stage = Stage("a", "b", "c", idle_us=50_000)
    since_us = stage.now_us
    stage.run(400_000)
    for name in "abc":
        mine = acks(stage, name, since_us)
        assert mine and all(what.endswith("null") for what in mine)


@pytest.mark.rule("RMP-6")
def test_each_level_is_delivered_as_early_as_its_promise_allows() -> None:
    stage = Stage("a", "b", "c")
    stage.is_lost = lambda sender, receiver, what: what.startswith("ack")
    for service in (Service.AGREED, Service.FIFO, Service.RELIABLE, Service.UNRELIABLE):
        stage.multicast("a", service.name.encode(), service=service)
    stage.run(20_000)
    assert sorted(stage.payloads("b")) == [b"FIFO", b"RELIABLE", b"UNRELIABLE"]
    stage.is_lost = lambda sender, receiver, what: False
    stage.run(500_000)
    assert b"AGREED" in stage.payloads("b")


@pytest.mark.rule("RMP-7")
def test_order_and_resilience_are_two_events() -> None:
    stage = Stage("a", "b", "c")
    stage.multicast("a", b"x", service=Resilient(Resilient.ALL))
    stage.run(500_000)
    kinds = [type(effect).__name__ for effect in stage.done["a"]]
    assert kinds.index("Deliver") < kinds.index("Stabilize")
    (stable,) = stage.only("a", Stabilize)
    assert [member.name for member in stable.holders] == ["a", "b", "c"]


@pytest.mark.rule("RMP-8")
def test_a_view_says_what_happened_and_to_whom() -> None:
    stage = Stage("a", "b", "c")
    assert stage.changes("a", ChangeKind.JOINED) == [
        "joined a#1 local",
        "joined b#1 remote",
        "joined c#1 remote",
    ]
    stage.request("b", AcquireLock(7))
    stage.run(300_000)
    assert stage.changes("b", *LOCKS) == ["lock_granted 7 b#1 local"]
    assert stage.changes("c", *LOCKS) == ["lock_granted 7 b#1 remote"]
    assert stage.views("a")[-1].id == stage.views("b")[-1].id == stage.views("c")[-1].id


@pytest.mark.rule("RMP-9")
def test_a_lock_has_one_holder_and_that_of_a_lost_member_is_released_in_order() -> None:
    stage = Stage("a", "b", "c")
    stage.request("b", AcquireLock(7), 1)
    stage.run(300_000)
    stage.request("c", AcquireLock(7), 2)
    stage.request("c", ReleaseLock(7), 3)
    stage.run(300_000)
    assert stage.only("b", Answer) == [Answer("lock", key=1)]
    denied, not_held = stage.only("c", Answer)
    assert (denied.cause, denied.key) == (Cause.REFUSED, 2)
    assert (not_held.cause, not_held.key) == (Cause.REFUSED, 3)
    stage.kill("b")
    stage.run(6_000_000)
    for name in "ac":
        view = stage.views(name)[-1]
        changes = [str(change) for change in view.changes]
        assert changes == ["failed b#1", "lock_released 7 b#1", "recovered"]
    stage.request("c", AcquireLock(7), 4)
    stage.run(300_000)
    assert stage.only("c", Answer)[-1] == Answer("lock", key=4)


@pytest.mark.rule("RMP-10")
@pytest.mark.rule("RMP-12")
@pytest.mark.parametrize(
    ("vote", "goes_on"),
    [(2, True), (3, False), (SizeVote.OPTIMISTIC, True), (SizeVote.NONE_MAY_FAIL, False)],
)
def test_the_largest_vote_is_the_minimum_size(vote: int, goes_on: bool) -> None:
    stage = Stage("a", "b", "c", verdict_us=1_000_000)
    stage.request("a", VoteSize(vote))
    stage.run(300_000)
    assert len(stage.changes("b", ChangeKind.SIZE_CHANGED)) == 1
    stage.kill("c")
    stage.run(9_000_000)
    causes = [fail.cause for fail in stage.only("b", Fail)]
    assert causes == ([] if goes_on else [Cause.TOO_FEW])
    assert bool(stage.changes("b", ChangeKind.RECOVERED)) == goes_on


@pytest.mark.rule("RMP-10")
def test_a_vote_above_the_size_is_denied() -> None:
    stage = Stage("a", "b")
    stage.request("a", VoteSize(5))
    stage.run(300_000)
    (answer,) = stage.only("a", Answer)
    assert answer.cause is Cause.REFUSED and "group of 2" in answer.detail


@pytest.mark.rule("RMP-10")
def test_a_part_may_go_on_by_a_vote_but_never_vouches_for_a_majority() -> None:
    stage = Stage("a", "b", "c", minimum=1)
    stage.kill("b")
    stage.kill("c")
    stage.run(6_000_000)
    assert [*stage.members("a")] == ["a"]
    assert stage.changes("a", ChangeKind.PARTED) == ["parted global"]
    stage.multicast("a", b"x", service=Resilient(Resilient.MAJORITY))
    stage.run(1_000_000)
    assert stage.payloads("a") == [b"x"] and not stage.only("a", Stabilize)


@pytest.mark.rule("RMP-11")
def test_a_reformation_removes_the_lost_behind_all_that_was_ordered() -> None:
    stage = Stage("a", "b", "c", "d")
    stage.multicast("d", b"last words")
    stage.run(1_000)
    stage.kill("d")
    stage.multicast("a", b"after")
    stage.run(6_000_000)
    for name in "abc":
        assert sorted(stage.members(name)) == ["a", "b", "c"]
        assert stage.payloads(name) == stage.payloads("a")
        assert stage.changes(name, ChangeKind.RECOVERED) == ["recovered global"]
    assert set(stage.payloads("a")) == {b"last words", b"after"}
    since_us = stage.now_us
    stage.multicast("b", b"on")
    stage.run(500_000)
    assert stage.payloads("c")[-1] == b"on" and acks(stage, "a", since_us)


@pytest.mark.rule("RMP-12")
def test_a_part_below_the_minimum_size_stops_with_a_verdict() -> None:
    stage = Stage("a", "b", "c", verdict_us=2_000_000)
    stage.kill("b")
    stage.kill("c")
    stage.run(10_000_000)
    (fail,) = stage.only("a", Fail)
    assert fail.cause is Cause.TOO_FEW


@pytest.mark.rule("RMP-13")
def test_sites_that_reform_at_once_end_with_one_new_list() -> None:
    stage = Stage("a", "b", "c", "d", "e")
    stage.is_lost = lambda sender, receiver, what: True
    stage.run(1_600_000)  # Nobody hears anybody: all of them reform.
    reformers = {who for _, who, what in stage.packets if what.startswith("fault")}
    assert len(reformers) > 1
    stage.kill("e")
    stage.is_lost = lambda sender, receiver, what: False
    stage.run(15_000_000)
    assert all(sorted(stage.members(name)) == ["a", "b", "c", "d"] for name in "abcd")
    assert len({stage.views(name)[-1].id for name in "abcd"}) == 1


@pytest.mark.rule("RMP-14")
def test_a_false_alarm_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage("a", "b", "c")
    before = {name: len(stage.views(name)) for name in "abc"}
    stage.is_lost = lambda sender, receiver, what: what.startswith(("ack", "confirm"))
    stage.run(1_400_000)
    stage.is_lost = lambda sender, receiver, what: False
    stage.multicast("a", b"x")
    stage.run(1_000_000)
    assert any(what.startswith("resume") for _, _, what in stage.packets)
    assert not any(what.startswith("new-list") for _, _, what in stage.packets)
    assert {name: len(stage.views(name)) for name in "abc"} == before
    assert stage.payloads("c") == [b"x"]


@pytest.mark.rule("RMP-14")
def test_without_the_short_way_a_false_alarm_is_a_reformation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RingReformation, "is_false_alarm", lambda self, event: False)
    with pytest.raises(AssertionError):
        test_a_false_alarm_changes_nothing(monkeypatch)


@pytest.mark.rule("RMP-15")
def test_a_reformation_only_removes() -> None:
    stage = Stage("a", "b", "c")
    stage.kill("c")
    stage.run(200_000)
    stage.start("d")
    stage.run(6_000_000)
    added = [view for view in stage.views("a") if view.left]
    assert all(not view.joined for view in added) and [m.name for m in added[0].left] == ["c"]
    assert sorted(stage.members("a")) == ["a", "b", "d"]


@pytest.mark.rule("RMP-16")
def test_a_reformation_renews_the_identifier_and_others_are_ignored() -> None:
    stage = Stage("a", "b", "c")
    before = stage.views("a")[-1].id.rpartition("-")[2]
    stage.kill("c")
    stage.run(6_000_000)
    after = stage.views("a")[-1].id.rpartition("-")[2]
    assert before != after
    strangers = Stage("x", "y")
    strangers.multicast("x", b"elsewhere")
    strangers.run(300_000)
    elsewhere = strangers.cores["x"].me.address
    inside = [packet for packet in strangers.sealed if label(packet).startswith(("data", "ack"))]
    stage.step("a", Received(elsewhere, inside))
    stage.run(300_000)
    assert stage.cores["a"].counts["drop.ring"] == len(inside) > 2
    assert not stage.payloads("a") and sorted(stage.members("a")) == ["a", "b"]


@pytest.mark.rule("RMP-17")
def test_a_wide_scope_has_more_tries() -> None:
    parameters = Parameters.of({})
    assert parameters.tries_within(1) == 10
    assert parameters.tries_within(32) >= 30
    assert parameters.period_max_us == 2_000_000


@pytest.mark.rule("RMP-17")
def test_a_silent_site_is_lost_after_so_many_tries() -> None:
    stage = Stage("a", "b", "c", tries=4)
    stage.kill("c")
    since_us = stage.now_us
    stage.run(6_000_000)
    faults = [what for name in "ab" for what in stage.sent(name, "fault", since_us)]
    assert len(faults) >= 4
    assert sorted(stage.members("a")) == ["a", "b"]


@pytest.mark.rule("RMP-18")
def test_a_receiver_that_falls_behind_slows_its_senders_and_is_not_expelled() -> None:
    stage = Stage("a", "b", "c", window_bytes=100_000)
    stage.step("c", Congested(True))
    sent = 0
    for _ in range(100):
        if stage.cores["a"].send_credit() > 11_000:
            stage.multicast("a", bytes(10_000))
            sent += 1
        stage.run(20_000)
    assert sent < 20, "the window does not end"
    assert sorted(stage.members("a")) == ["a", "b", "c"]
    stage.step("c", Congested(False))
    stage.run(2_000_000)
    assert len(stage.payloads("c")) == sent
    assert stage.cores["a"].send_credit() > 90_000


@pytest.mark.rule("RMP-19")
def test_the_scope_is_changed_in_the_order() -> None:
    stage = Stage("a", "b")
    stage.request("b", LimitScope(8), 5)
    stage.run(300_000)
    for name in "ab":
        assert stage.changes(name, ChangeKind.SCOPE_CHANGED) == ["scope_changed 8 global"]
        assert stage.only(name, Reach) == [Reach(8)]
    assert stage.only("b", Answer) == [Answer("scope", key=5)]
    stage.start("c")
    stage.run(1_500_000)
    assert stage.only("c", Reach) == [Reach(8)]


def test_any_two_quorums_of_one_view_meet() -> None:
    view = ViewQuorums.of(0, {1, 2, 3, 4})
    assert view.has_majority({1, 2, 3}) and not view.has_majority({1, 2})
