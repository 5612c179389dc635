"""The chronicle by itself: places, rows, the past, what others hand over, what is hostile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono import replay_history
from unisono.errors import Misuse
from unisono.model import Address, Member, Message, Resilient, Service, View
from unisono.replay_history import (
    MARK,
    WRITERS_COUNT_MAX,
    PastMessage,
    RecallChoice,
    RecallOffer,
    RecallPart,
    RecallRequest,
    ReplayHistory,
    SinkRows,
)

A = Member("a", Address("127.0.0.1", 1), 7)
B = Member("b", Address("::1", 2), 8)
VIEW = View((A, B), id="1")


def said(payload: bytes, number: int = 1, service: object = Service.AGREED) -> Message:
    return Message(A, payload, number, "1", 99, service)  # type: ignore[arg-type]


def begun(retain_bytes: int = 10_000) -> ReplayHistory:
    fresh = ReplayHistory(retain_bytes)
    fresh.see(VIEW)
    return fresh


def delivered(one: ReplayHistory, *payloads: bytes) -> list[tuple[int | None, bytes]]:
    found = [one.deliver(said(payload)) for payload in payloads]
    return [(each.seq, each.payload) for each in found if isinstance(each, Message)]


def test_ordered_messages_have_places_from_one_on() -> None:
    one = begun()
    assert delivered(one, b"x", b"", replay_history.plain(b"\xf5y")) == [
        (1, b"x"),
        (2, b""),
        (3, b"\xf5y"),
    ]
    assert one.see(VIEW).seq == 3


@pytest.mark.parametrize("service", [Service.RELIABLE, Service.CAUSAL])
def test_what_has_no_order_has_no_place(service: Service) -> None:
    one = begun()
    found = one.deliver(said(replay_history.plain(b"\xf5x"), service=service))
    assert isinstance(found, Message) and (found.seq, found.payload) == (None, b"\xf5x")
    assert (
        one.deliver(said(replay_history.rows(SinkRows("q", 0, 0), 0, [b"r"])[0], service=service))
        is None
    )
    assert (one.offset, one.malformed_count) == (0, 1)


def test_resilient_messages_are_ordered() -> None:
    found = begun().deliver(said(b"x", service=Resilient(Resilient.MAJORITY)))
    assert isinstance(found, Message) and found.seq == 1


def test_a_repeated_row_is_dropped_and_takes_no_offset() -> None:
    one, whose = begun(), SinkRows("q", 3, 5)
    first = replay_history.rows(whose, 0, [b"r0", b"r1"])
    assert delivered(one, *first) == [(1, b"r0"), (2, b"r1")]
    again = replay_history.rows(whose, 0, [b"r0", b"r1", b"r2"])
    assert delivered(one, *again) == [(3, b"r2")]
    assert delivered(one, *replay_history.rows(SinkRows("q", 3, 4), 7, [b"old epoch"])) == []
    assert delivered(one, *replay_history.rows(SinkRows("q", 4, 4), 0, [b"its neighbour"])) == [
        (4, b"its neighbour")
    ]
    assert delivered(one, *replay_history.rows(SinkRows("p", 3, 5), 0, [b"another query"])) == [
        (5, b"another query")
    ]
    assert delivered(one, *replay_history.rows(SinkRows("q", 3, 6), 0, [b"next"])) == [(6, b"next")]
    assert one.repeated_count == 3


def test_a_joiner_continues_at_the_offset_of_the_others() -> None:
    one, two = begun(), ReplayHistory(1000)
    delivered(one, b"x", *replay_history.rows(SinkRows("q", 0, 1), 0, [b"r0", b"r1"]))
    two.adopt(one.state())
    two.see(View((A, B), id="2"))
    assert (two.incarnation, two.offset) == (one.incarnation, 3)
    more = replay_history.rows(SinkRows("q", 0, 1), 0, [b"r0", b"r1", b"r2"])
    assert delivered(two, *more) == delivered(one, *more) == [(4, b"r2")]
    assert two.state() == one.state()
    assert (two.first, two.last) == (4, 4) and two.messages(1, 9)[0].payload == b"r2"


def test_founders_of_one_view_found_one_life_and_another_view_another() -> None:
    assert begun().incarnation == begun().incarnation != ""
    other = ReplayHistory()
    other.see(View((A,), id="1"))
    assert other.incarnation != begun().incarnation


def test_a_group_founded_anew_counts_anew() -> None:
    one = begun()
    delivered(one, b"x", *replay_history.rows(SinkRows("q", 0, 1), 0, [b"r"]))
    incarnation = one.incarnation
    one.begin()
    one.see(View((A,), id="9"))
    assert one.incarnation != incarnation and (one.offset, one.first) == (0, 0)
    assert delivered(one, *replay_history.rows(SinkRows("q", 0, 1), 0, [b"r"])) == [(1, b"r")]


def test_the_past_is_bounded() -> None:
    one = begun(retain_bytes=10 * (64 + 36))
    delivered(one, *(bytes(36) for _ in range(25)))
    assert (one.first, one.last) == (16, 25)
    assert [each.seq for each in one.messages(1, 99)] == list(range(16, 26))
    assert [each.seq for each in one.messages(18, 19)] == [18, 19]
    assert one.messages(3, 9) == []
    delivered(one, bytes(2000))
    assert (one.first, one.last) == (0, 0) and one.messages(1, 99) == []
    assert begun(0).messages(1, 9) == []


def test_the_past_does_not_outlive_a_jump() -> None:
    one, two = begun(), begun()
    delivered(one, b"x", b"y")
    delivered(two, b"x")
    two.adopt(one.state())
    assert two.messages(1, 2) == []


def test_only_so_many_writers_are_known() -> None:
    one = begun()
    for n in range(WRITERS_COUNT_MAX + 1):
        delivered(one, *replay_history.rows(SinkRows("q", n, 1), 0, [b"r"]))
    offset = one.offset
    assert one.forgotten_count == 1
    delivered(one, *replay_history.rows(SinkRows("q", 1, 1), 0, [b"r"]))
    assert one.offset == offset
    delivered(one, *replay_history.rows(SinkRows("q", 0, 1), 0, [b"r"]))
    assert one.offset == offset + 1, "the one that wrote longest ago is forgotten, and no other"


def test_the_records_of_a_recall_round_trip() -> None:
    one = begun()
    past = (
        Message(B, b"x" * 5, 3, "v", 4, Service.SAFE),
        Message(A, b"", 4, "", 5, Resilient(Resilient.ALL)),
    )
    for record in (
        RecallRequest(5, A, 2, 9),
        RecallOffer(5, A, 3, 8),
        RecallChoice(5, A, "b#8", 3, 8),
        RecallPart(5, A, tuple(map(PastMessage.of, past))),
    ):
        assert one.deliver(said(replay_history.control(record))) == record
    assert tuple(each.message() for each in record.messages) == past
    assert one.offset == 0


def test_our_own_messages_are_reported_as_sent() -> None:
    row = replay_history.rows(SinkRows("q", 0, 1), 7, [b"r"])[0]
    for travelling, meant in (
        (b"x", b"x"),
        (replay_history.plain(b"\xf5x"), b"\xf5x"),
        (row, b"r"),
    ):
        assert replay_history.stripped(said(travelling)).payload == meant


@given(st.binary(max_size=60), st.integers(0, 5))
def test_hostile_payloads_are_counted_and_no_more(rest: bytes, kind: int) -> None:
    one = begun()
    found = one.deliver(said(bytes((MARK, kind)) + rest))
    assert one.malformed_count == (found is None)
    assert one.offset == isinstance(found, Message)
    assert delivered(one, b"next") == [(one.offset, b"next")]


@given(st.binary(max_size=80))
def test_a_state_that_is_none_is_refused(state: bytes) -> None:
    one = begun()
    before = one.state()
    try:
        one.adopt(state)
    except Misuse as error:
        assert "replayable=" in str(error)
        assert one.state() == before
    else:
        assert one.state() == state


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        (SinkRows("", 0, 0), 0),
        (SinkRows("q" * 201, 0, 0), 0),
        (SinkRows("q", -1, 0), 0),
        (SinkRows("q", 0, 0), -1),
    ],
)
def test_identities_that_cannot_be_written(rows: SinkRows, first: int) -> None:
    with pytest.raises(Misuse):
        replay_history.rows(rows, first, [b""])
