"""The locks of a group as replicated state, and the requests that change it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.core import Answer, Cause
from unisono.errors import Misuse
from unisono.model import Address as At
from unisono.model import Change, ChangeKind, ChangeScope, Member, SizeVote
from unisono.parts.locks import LockAnswers, LockEvent, LockTable
from unisono.requests import (
    AcquireLock,
    GoOn,
    GroupCommand,
    LimitScope,
    ReleaseLock,
    VoteSize,
    command_of,
)

GRANTED, DENIED = ChangeKind.LOCK_GRANTED, ChangeKind.LOCK_DENIED
RELEASED = ChangeKind.LOCK_RELEASED
KINDS = (AcquireLock, ReleaseLock, VoteSize, LimitScope, GoOn)


def test_a_lock_is_granted_denied_and_passed_on_in_the_order_of_requests() -> None:
    table: LockTable[str] = LockTable()
    table, events = table.applied("a", AcquireLock(7))
    assert events == (LockEvent(GRANTED, 7, "a"),)
    assert table.applied("b", AcquireLock(7)) == (table, (LockEvent(DENIED, 7, "b"),))
    for waiting in ("c", "b"):
        table, events = table.applied(waiting, AcquireLock(7, wait=True))
        assert not events and table.holder(7) == "a"
    table, events = table.applied("a", ReleaseLock(7))
    assert events == (LockEvent(RELEASED, 7, "a"), LockEvent(GRANTED, 7, "c"))
    table, events = table.applied("b", ReleaseLock(7))  # withdrawn
    assert not events
    table, events = table.applied("c", ReleaseLock(7))
    assert events == (LockEvent(RELEASED, 7, "c"),) and not table.queues


def test_the_locks_of_the_dead_are_released_in_order() -> None:
    table: LockTable[str] = LockTable({9: ("a", "b", "c"), 2: ("a",), 5: ("c", "a")})
    table, events = table.without({"a", "b"})
    assert events == (
        LockEvent(RELEASED, 2, "a"),
        LockEvent(RELEASED, 9, "a"),
        LockEvent(GRANTED, 9, "c"),
    )
    assert table.queues == {9: ("c",), 5: ("c",)}


def test_each_request_is_answered_once() -> None:
    table: LockTable[str] = LockTable({1: ("b",), 2: ("b",)})
    answers = LockAnswers("a")

    def ask(request: AcquireLock | ReleaseLock, key: int) -> list[Answer]:
        nonlocal table
        table, events = table.applied("a", request)
        return answers.to_own(request, key, events, table)

    assert ask(AcquireLock(1), 1) == [Answer("lock", Cause.REFUSED, "lock 1 is held by b", 1)]
    assert ask(AcquireLock(1, wait=True), 2) == []
    assert ask(AcquireLock(2, wait=True), 3) == []
    assert ask(ReleaseLock(2), 4) == [
        Answer("lock", Cause.REFUSED, "withdrawn", 3),
        Answer("release", key=4),
    ]
    assert ask(ReleaseLock(2), 5)[0].cause is Cause.REFUSED
    table, events = table.without({"b"})
    assert answers.to_waiting(events) == [Answer("lock", key=2)]
    assert answers.to_waiting(events) == []
    assert ask(AcquireLock(1), 6) == [Answer("lock", Cause.REFUSED, "lock 1 is held by a", 6)]
    assert ask(ReleaseLock(1), 7) == [Answer("release", key=7)]


MEMBERS = st.sampled_from("abcd")
NUMBERS = st.integers(0, 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(MEMBERS, st.builds(AcquireLock, NUMBERS, st.booleans())),
        st.tuples(MEMBERS, st.builds(ReleaseLock, NUMBERS)),
        st.tuples(MEMBERS, st.none()),
    )
)


@given(STEPS)
def test_events_alone_determine_the_holders_and_no_lock_has_two(
    steps: list[tuple[str, AcquireLock | ReleaseLock | None]],
) -> None:
    table: LockTable[str] = LockTable()
    held: dict[int, str] = {}
    for member, request in steps:
        if request is None:
            table, events = table.without({member})
        else:
            table, events = table.applied(member, request)
        for what, number, whose in events:
            if what is RELEASED:
                assert held.pop(number) == whose
            elif what is GRANTED:
                assert held.setdefault(number, whose) == whose
            else:
                assert held[number] != whose
        assert held == {number: queue[0] for number, queue in table.queues.items()}
        assert all(len(set(queue)) == len(queue) for queue in table.queues.values())


@pytest.mark.parametrize(
    "command",
    [AcquireLock(7), AcquireLock(255, wait=True), ReleaseLock(0), VoteSize(3), GoOn()]
    + [VoteSize(vote) for vote in SizeVote]
    + [LimitScope(0)],
    ids=str,
)
def test_a_command_is_read_from_its_text(command: GroupCommand) -> None:
    assert command_of(str(command), KINDS) == command


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("lock number=256", "lock 256: a group's locks are numbered 0 to 255"),
        ("release number=-1", "numbered 0 to 255"),
        ("vote minimum=0", "1 to 32767, or optimistic, pessimistic, none_may_fail"),
        ("vote minimum=2147483648", "from 1 to 32767"),
        ("vote minimum=-4", "is no vote"),
        ("scope hops=256", r"0 \(this host\) to 255 routers"),
        ("lock key=1", "'lock' takes number, wait; given: key"),
        ("lock number=x", "write each argument as name=number"),
        ("unlock number=1", "takes no request 'unlock', but lock, release"),
    ],
)
def test_bad_arguments_are_refused_with_the_remedy(text: str, error: str) -> None:
    with pytest.raises(Misuse, match=error):
        command_of(text, KINDS)


def test_a_change_names_its_lock_vote_or_scope_and_is_local_to_one_member() -> None:
    a, b = Member("a", At("127.0.0.1", 1), 1), Member("b", At("127.0.0.1", 2), 1)
    granted = Change(GRANTED, (a,), number=7)
    assert str(granted) == "lock_granted 7 a#1"
    assert str(Change(ChangeKind.SIZE_CHANGED, (b,), number=-2)) == "size_changed pessimistic b#1"
    assert str(Change(ChangeKind.SIZE_CHANGED, (b,), number=2)) == "size_changed 2 b#1"
    assert str(Change(ChangeKind.SCOPE_CHANGED, number=4)) == "scope_changed 4"
    assert granted.seen_by(a)[0].where is ChangeScope.LOCAL
    assert granted.seen_by(b)[0].where is ChangeScope.REMOTE
    mine, theirs = Change(ChangeKind.FAILED, (a, b)).seen_by(a)
    assert (mine.who, theirs.who) == ((a,), (b,))
