"""Views, locks, votes and scope as events in the order [RMP-8 to RMP-10, RMP-19]."""

from __future__ import annotations

import pytest

from tests.rmp.theatre import Room, together
from unisono.core import Answer, Cause, Depart, Fail, FailStability, Reach
from unisono.errors import Misuse
from unisono.model import Change, ChangeKind, ChangeScope, Resilient, SizeVote
from unisono.protocols.rmp.packets import AckFields, PacketKind
from unisono.requests import AcquireLock, LimitScope, ReleaseLock, VoteSize


def kinds(changes: list[Change], *of: ChangeKind) -> list[str]:
    return [f"{c.what.value} {c.number} {c.where.value}" for c in changes if c.what in of]


def history(room: Room, name: str) -> list[str]:
    """Messages and views of a member, in its order."""
    found = []
    for effect in room.effects[name]:
        if type(effect).__name__ == "Deliver":
            found += [m.payload.decode() for m in effect.messages]  # type: ignore[attr-defined]
        elif type(effect).__name__ == "Install":
            found.append(effect.view.id)  # type: ignore[attr-defined]
    return found


@pytest.mark.rule("RMP-8")
def test_views_stand_at_the_same_place_among_the_messages() -> None:
    room = together("a", "b", "c")
    room.obey("start rmp d")
    for number in range(12):
        room.multicast("abc"[number % 3], f"m{number}")
        if number == 3:
            room.request("b", AcquireLock(7))
        if number == 5:
            room.obey("join d")
        if number == 9:
            room.obey("leave c")
            break
        room.pass_ms(3)
    room.until(lambda: room.members("a") == "abd")
    room.pass_ms(300)
    first = history(room, "a")
    assert first == history(room, "b")
    own = history(room, "d")
    assert len(own) > 1
    assert own == first[-len(own) :], "from its own first view on"
    left = history(room, "c")
    assert left == first[: len(left)]


@pytest.mark.rule("RMP-8")
def test_a_view_reports_what_happened_and_where() -> None:
    room = together("a", "b", "c")
    room.request("b", AcquireLock(7))
    room.until(lambda: all(room.changes(name) for name in "abc"))
    assert kinds(room.changes("b"), ChangeKind.LOCK_GRANTED) == ["lock_granted 7 local"]
    assert kinds(room.changes("a"), ChangeKind.LOCK_GRANTED) == ["lock_granted 7 remote"]
    room.request("c", AcquireLock(7))
    room.until(lambda: all(kinds(room.changes(n), ChangeKind.LOCK_DENIED) for n in "abc"))
    assert kinds(room.changes("c"), ChangeKind.LOCK_DENIED) == ["lock_denied 7 local"]
    room.request("b", ReleaseLock(7))
    room.until(lambda: kinds(room.changes("c"), ChangeKind.LOCK_RELEASED))
    room.request("a", VoteSize(2))
    room.request("a", LimitScope(3))
    room.until(lambda: kinds(room.changes("c"), ChangeKind.SCOPE_CHANGED))
    assert kinds(room.changes("a"), ChangeKind.SIZE_CHANGED) == ["size_changed 2 local"]
    room.obey("leave b")
    room.until(lambda: room.members("a") == "ac")
    assert kinds(room.changes("a"), ChangeKind.LEFT) == ["left None remote"]


@pytest.mark.rule("RMP-8")
def test_a_completed_recovery_is_a_global_change() -> None:
    room = together("a", "b", "c")
    room.obey("crash c")
    room.until(lambda: room.views("a") and room.members("a") == "ab")
    (recovered,) = [c for c in room.changes("a") if c.what is ChangeKind.RECOVERED]
    assert recovered.where is ChangeScope.GLOBAL
    assert [c.who[0].name for c in room.changes("b") if c.what is ChangeKind.FAILED] == ["c"]


@pytest.mark.rule("RMP-8")
def test_a_change_that_its_token_site_alone_has_ordered_is_shown_to_nobody() -> None:
    room = together("a", "b", "c")
    room.rest_at("c")
    room.loses = lambda by, to, packet: "c" in (by, to)
    room.request("c", AcquireLock(7), 5)
    room.until(lambda: room.found("c", Fail))
    assert [ack.timestamp for ack in room.acks() if ack.sender == room.key("c") and ack.named]
    assert not room.views("c")
    assert not room.found("c", Answer), "the others may grant it to another"
    assert room.members("a") == room.members("b") == "ab"


@pytest.mark.rule("RMP-8")
def test_one_whose_removal_nobody_else_has_is_excluded_and_has_not_left() -> None:
    room = together("a", "b", "c")
    room.rest_at("c")
    room.loses = lambda by, to, packet: "c" in (by, to)
    room.obey("leave c")
    room.until(lambda: room.views("a") and room.members("a") == "ab")
    room.loses = None
    room.until(lambda: room.found("c", Fail))
    assert not room.found("c", Depart)


@pytest.mark.rule("RMP-8")
def test_one_whose_removal_the_others_keep_has_left_though_it_hears_no_ack() -> None:
    room = together("a", "b", "c", "d", "e")
    room.rest_at("e")
    room.loses = lambda by, to, packet: to == "e" and isinstance(packet, AckFields)
    room.obey("leave e")
    room.until(lambda: any(ack.sender == room.key("e") and ack.named for ack in room.acks()))
    room.pass_ms(1)
    room.obey("crash c")
    room.until(lambda: room.found("e", Depart))
    assert not room.found("e", Fail)
    assert room.of(PacketKind.COMMIT), "it learned of its removal from the new list"


# -- locks ----------------------------------------------------------------------------------------


@pytest.mark.rule("RMP-9")
def test_each_of_256_locks_has_one_holder() -> None:
    room = together("a", "b")
    for number in (0, 1, 255):
        room.request("a", AcquireLock(number), 10 + number)
        room.request("b", AcquireLock(number), 10 + number)
    room.until(lambda: all(len(room.found(name, Answer)) == 3 for name in "ab"))
    granted = [
        (name, each.key) for name in "ab" for each in room.found(name, Answer) if each.cause is None
    ]
    assert sorted(key for _, key in granted) == [10, 11, 265], "one of each"
    with pytest.raises(Misuse):
        AcquireLock(256)


@pytest.mark.rule("RMP-9")
def test_locks_of_a_lost_member_are_released_in_the_order() -> None:
    room = together("a", "b", "c")
    room.request("c", AcquireLock(7))
    room.until(lambda: all(room.changes(name) for name in "abc"))
    room.request("a", AcquireLock(7, wait=True), 5)
    room.pass_ms(300)
    assert not room.found("a", Answer), "it waits"
    room.obey("crash c")
    room.until(lambda: room.found("a", Answer))
    assert room.found("a", Answer) == [Answer(AcquireLock.NAME, None, "", 5)]
    last = {name: [str(change) for change in room.views(name)[-1].changes] for name in "ab"}
    assert [text.split()[0] for text in last["b"]] == [
        "failed",
        "lock_released",
        "lock_granted",
        "recovered",
    ]
    assert [t.split()[0] for t in last["a"]] == [t.split()[0] for t in last["b"]]


# -- minimum size ---------------------------------------------------------------------------------


@pytest.mark.rule("RMP-10")
@pytest.mark.parametrize(
    ("vote", "stops"),
    [(4, True), (3, False), (SizeVote.NONE_MAY_FAIL, True), (SizeVote.OPTIMISTIC, False)],
)
def test_the_largest_vote_is_the_minimum_size(vote: int, stops: bool) -> None:
    room = together("a", "b", "c", "d", "e")
    room.request("c", VoteSize(int(vote)))
    room.until(lambda: all(room.changes(name) for name in "abcde"))
    (change,) = room.changes("a")
    assert (change.what, change.number) == (ChangeKind.SIZE_CHANGED, vote)
    assert change.where is ChangeScope.REMOTE
    room.obey("crash d\ncrash e")
    ended = lambda: all(  # noqa: E731
        room.found(n, Fail) if stops else room.members(n) == "abc" for n in "abc"
    )
    room.until(ended)
    assert all(bool(room.found(name, Fail)) == stops for name in "abc")


@pytest.mark.rule("RMP-10")
def test_a_vote_beyond_the_group_is_refused() -> None:
    room = together("a", "b")
    room.request("a", VoteSize(3), 4)
    room.until(lambda: room.found("a", Answer))
    (answer,) = room.found("a", Answer)
    assert answer.cause is Cause.REFUSED and answer.key == 4
    assert not room.changes("b")


@pytest.mark.rule("RMP-10")
def test_a_part_goes_on_by_a_small_vote_of_all_and_claims_no_majority() -> None:
    room = together("a", "b", "c")
    for name in "abc":
        room.request(name, VoteSize(1))
    room.until(lambda: all(len(room.changes(name)) == 3 for name in "abc"))
    room.obey("crash b\ncrash c")
    room.until(lambda: room.members("a") == "a")
    room.multicast("a", "alone", Resilient(Resilient.MAJORITY))
    room.pass_ms(500)
    assert room.payloads("a") == ["alone"]
    assert not room.stable("a")
    (failed,) = room.found("a", FailStability)
    assert [bytes(each.payload) for each in failed.messages] == [b"alone"]
    assert failed.cause is Cause.TOO_FEW


@pytest.mark.rule("RMP-6")
def test_a_sender_learns_that_too_few_are_left_for_its_message() -> None:
    room = together("a", "b", "c")
    room.obey("crash c")
    room.multicast("a", "for three", Resilient(3))
    room.pass_ms(100)
    assert not room.found("a", FailStability)
    room.until(lambda: all(room.views(name) for name in "ab"))
    room.pass_ms(100)
    for name in "ab":
        assert [each.cause for each in room.found(name, FailStability)] == [Cause.TOO_FEW]
    assert not room.stable("a")


# -- scope ----------------------------------------------------------------------------------------


@pytest.mark.rule("RMP-19")
def test_the_scope_changes_at_one_place_for_all() -> None:
    room = together("a", "b", "c")
    room.request("b", LimitScope(5), 3)
    room.until(lambda: all(room.changes(name) for name in "abc"))
    for name in "abc":
        (change,) = room.changes(name)
        assert (change.what, change.number) == (ChangeKind.SCOPE_CHANGED, 5)
        assert room.found(name, Reach) == [Reach(5)]
    assert room.found("b", Answer) == [Answer(LimitScope.NAME, None, "", 3)]
    assert len({room.views(name)[-1].id for name in "abc"}) == 1


@pytest.mark.rule("RMP-19")
def test_a_member_that_joins_later_gets_the_scope() -> None:
    room = together("a", "b")
    room.request("b", LimitScope(5))
    room.until(lambda: room.changes("a"))
    room.obey("start rmp c\njoin c")
    room.until(lambda: room.views("c"))
    assert room.site("c")._state.group.hops == 5
    assert Reach(5) in room.found("c", Reach)
    assert room.of(PacketKind.WELCOME)
