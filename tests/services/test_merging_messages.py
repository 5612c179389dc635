"""Messages of a reconciliation as bytes, and what a member does about those that are wrong."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness import ROOT, output_of
from tests.services.merging_world import Log
from unisono.errors import Misuse
from unisono.model import Address, Member, Message, View
from unisono.services.merge.exchange import ComponentState
from unisono.services.merge.messages import (
    SERVICE,
    Abandon,
    Again,
    BadMergeMessage,
    ComponentPiece,
    Computed,
    MergeMessage,
    Present,
    encoded,
    read,
)
from unisono.services.merge.reconciler import (
    Compute,
    MergeLimits,
    Reconciled,
    Reconciler,
    SendMergeMessage,
    Unreconciled,
)

A, B = (Member(name, Address("127.0.0.1", at), 1) for at, name in enumerate("ab", 1))
NUMBER = st.integers(0, 2**32 - 1)
KEY = (st.text(max_size=9), NUMBER)
MESSAGES = st.one_of(
    st.builds(
        Present, *KEY, st.lists(NUMBER, max_size=5).map(tuple), st.booleans(), st.text(max_size=9)
    ),
    st.builds(ComponentPiece, *KEY, NUMBER, NUMBER, st.binary(max_size=99)),
    st.builds(Computed, *KEY, st.text(max_size=9)),
    st.builds(Abandon, *KEY, st.text(max_size=9), st.text(max_size=9)),
    st.builds(Again, *KEY),
)


@given(MESSAGES)
def test_messages_round_trip(message: MergeMessage) -> None:
    assert read(encoded(message)) == message


@given(MESSAGES, st.data())
def test_hostile_bytes_raise_nothing_else(message: MergeMessage, data: st.DataObject) -> None:
    payload = bytearray(encoded(message))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(1, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadMergeMessage):
        assert read(encoded(read(bytes(payload)))) == read(bytes(payload))


class Pair:
    """Two members that come together in a view, each with a log of its own, and their order."""

    def __init__(self, limits: MergeLimits | None = None) -> None:
        self.logs = {A: Log(), B: Log()}
        self.each = {me: Reconciler(log, limits) for me, log in self.logs.items()}
        self.told: dict[Member, list[object]] = {A: [], B: []}
        self.order: list[Message] = []
        for me, reconciler in self.each.items():
            reconciler.start(me)
            self.logs[me].entries.append(me.name)
            reconciler.install(View((me,), f"only {me.name}"))
        for me in self.each:
            self.do(me, self.each[me].install(View((A, B), "both", stayed=(me,))))

    def do(self, me: Member, duties: object) -> None:
        assert isinstance(duties, list)
        for duty in duties:
            if isinstance(duty, SendMergeMessage):
                self.order.append(Message(me, duty.payload, 0))
            elif isinstance(duty, Compute):
                result: bytes | Exception
                try:
                    result = self.logs[me].reconcile(duty.states)
                except Exception as error:
                    result = error
                self.do(me, self.each[me].computed(duty.key, result))
            else:
                self.told[me].append(duty)

    def go_on(self) -> None:
        while self.order:
            message = self.order.pop(0)
            for me, reconciler in self.each.items():
                self.do(me, reconciler.deliver(message))


def test_two_logs_become_one() -> None:
    pair = Pair()
    pair.order.append(Message(B, b"\0held", 1))
    pair.go_on()
    (_, reconciled, held) = pair.told[A]
    assert pair.told[A][1:] == pair.told[B][1:] and isinstance(held, Message)
    assert isinstance(reconciled, Reconciled)
    assert reconciled.states == (
        ComponentState((A,), b'["a"]'),
        ComponentState((B,), b'["b"]'),
    )
    assert pair.logs[A].entries == pair.logs[B].entries == ["a", "b"]


def test_one_that_is_late_is_tried_again_so_often() -> None:
    pair = Pair(MergeLimits(attempts_count_max=3))
    for attempt in range(3):
        pair.do(B, pair.each[B].expire(("both", attempt)))
        pair.order = [m for m in pair.order if isinstance(read(m.payload), Abandon)]
        message = pair.order.pop()
        for me, reconciler in pair.each.items():
            pair.do(me, reconciler.deliver(message))
        if pair.order:
            message = pair.order.pop()
            for me, reconciler in pair.each.items():
                pair.do(me, reconciler.deliver(message))
    for me in (A, B):
        told = [each for each in pair.told[me] if isinstance(each, Unreconciled)]
        assert [each.cause for each in told] == ["late"] * 3
        assert pair.each[me].apart and pair.each[me].under_way is None


def test_a_state_above_the_limit_is_told_to_all() -> None:
    pair = Pair(MergeLimits(state_bytes_max=3))
    pair.go_on()
    for me in (A, B):
        (told,) = [each for each in pair.told[me] if isinstance(each, Unreconciled)]
        assert told.cause == "too large" and "a#1 has 5 bytes, over 3" in told.reason


def test_what_is_held_back_has_a_bound() -> None:
    pair = Pair(MergeLimits(held_bytes_max=100))
    pair.order[:0] = [Message(A, b"\0" + bytes(60), 1)]
    pair.go_on()
    for me in (A, B):
        _, told, held = pair.told[me]
        assert isinstance(told, Unreconciled) and told.cause == "overrun"
        assert isinstance(held, Message) and pair.each[me].apart


def test_the_next_view_ends_it_and_begins_anew() -> None:
    pair = Pair()
    pair.order[:0] = [Message(A, b"\0held", 1)]
    message = pair.order.pop(0)
    for me, reconciler in pair.each.items():
        pair.do(me, reconciler.deliver(message))
        pair.do(me, reconciler.install(View((A, B), "next", stayed=(A, B))))
    pair.go_on()
    for me in (A, B):
        assert [type(each).__name__ for each in pair.told[me]] == [
            *("View", "Message", "View", "Reconciled")
        ]


def test_malformed_messages_are_ignored_by_all() -> None:
    pair = Pair()
    hostile = [SERVICE, SERVICE + b"[]", b"", b"x", SERVICE + b'["Present"]']
    pair.order[:0] = [Message(B, payload, 1) for payload in hostile]
    pair.go_on()
    assert pair.each[A].ignored_count == 5 and not pair.each[A].apart


def test_a_protocol_that_does_not_tell_who_came_along_is_refused() -> None:
    reconciler = Reconciler(Log())
    reconciler.start(A)
    reconciler.install(View((A,), "1"))
    with pytest.raises(Misuse, match="came along"):
        reconciler.install(View((A, B), "2"))


def test_the_airline_of_the_example_shows_conflicts_and_loses_nobody() -> None:
    output = output_of(str(ROOT / "examples" / "seats.py"))
    assert "conflict about seat" in output and "overbooked: " in output
    assert "overbooked: nobody" not in output and "wrong" not in output
