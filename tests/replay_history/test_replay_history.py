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


def heard(one: ReplayHistory, *payloads: bytes) -> list[tuple[int | None, bytes]]:
    told = [one.hear(said(payload)) for payload in payloads]
    return [(each.seq, each.payload) for each in told if isinstance(each, Message)]


def test_ordered_messages_have_places_from_one_on() -> None:
    one = begun()
    assert heard(one, b"x", b"", replay_history.plain(b"\xf5y")) == [
        (1, b"x"),
        (2, b""),
        (3, b"\xf5y"),
    ]
    assert one.see(VIEW).seq == 3


@pytest.mark.parametrize("service", [Service.RELIABLE, Service.CAUSAL])
def test_what_has_no_order_has_no_place(service: Service) -> None:
    one = begun()
    told = one.hear(said(replay_history.plain(b"\xf5x"), service=service))
    assert isinstance(told, Message) and (told.seq, told.payload) == (None, b"\xf5x")
    assert (
        one.hear(said(replay_history.rows(SinkRows("q", 0, 0), 0, [b"r"])[0], service=service))
        is None
    )
    assert (one.place, one.malformed_count) == (0, 1)


def test_resilient_messages_are_ordered() -> None:
    told = begun().hear(said(b"x", service=Resilient(Resilient.MAJORITY)))
    assert isinstance(told, Message) and told.seq == 1


def test_a_row_that_was_said_is_dropped_and_takes_no_place() -> None:
    one, whose = begun(), SinkRows("q", 3, 5)
    first = replay_history.rows(whose, 0, [b"r0", b"r1"])
    assert heard(one, *first) == [(1, b"r0"), (2, b"r1")]
    again = replay_history.rows(whose, 0, [b"r0", b"r1", b"r2"])
    assert heard(one, *again) == [(3, b"r2")]
    assert heard(one, *replay_history.rows(SinkRows("q", 3, 4), 7, [b"old epoch"])) == []
    assert heard(one, *replay_history.rows(SinkRows("q", 4, 4), 0, [b"its neighbour"])) == [
        (4, b"its neighbour")
    ]
    assert heard(one, *replay_history.rows(SinkRows("p", 3, 5), 0, [b"another query"])) == [
        (5, b"another query")
    ]
    assert heard(one, *replay_history.rows(SinkRows("q", 3, 6), 0, [b"next"])) == [(6, b"next")]
    assert one.repeated_count == 3


def test_who_joins_goes_on_where_the_other_is() -> None:
    one, two = begun(), ReplayHistory(1000)
    heard(one, b"x", *replay_history.rows(SinkRows("q", 0, 1), 0, [b"r0", b"r1"]))
    two.adopt(one.state())
    two.see(View((A, B), id="2"))
    assert (two.life, two.place) == (one.life, 3)
    more = replay_history.rows(SinkRows("q", 0, 1), 0, [b"r0", b"r1", b"r2"])
    assert heard(two, *more) == heard(one, *more) == [(4, b"r2")]
    assert two.state() == one.state()
    assert (two.first, two.last) == (4, 4) and two.messages(1, 9)[0].payload == b"r2"


def test_founders_of_one_view_found_one_life_and_another_view_another() -> None:
    assert begun().life == begun().life != ""
    other = ReplayHistory()
    other.see(View((A,), id="1"))
    assert other.life != begun().life


def test_a_group_founded_anew_counts_anew() -> None:
    one = begun()
    heard(one, b"x", *replay_history.rows(SinkRows("q", 0, 1), 0, [b"r"]))
    life = one.life
    one.begin()
    one.see(View((A,), id="9"))
    assert one.life != life and (one.place, one.first) == (0, 0)
    assert heard(one, *replay_history.rows(SinkRows("q", 0, 1), 0, [b"r"])) == [(1, b"r")]


def test_the_past_is_bounded() -> None:
    one = begun(retain_bytes=10 * (64 + 36))
    heard(one, *(bytes(36) for _ in range(25)))
    assert (one.first, one.last) == (16, 25)
    assert [each.seq for each in one.messages(1, 99)] == list(range(16, 26))
    assert [each.seq for each in one.messages(18, 19)] == [18, 19]
    assert one.messages(3, 9) == []
    heard(one, bytes(2000))
    assert (one.first, one.last) == (0, 0) and one.messages(1, 99) == []
    assert begun(0).messages(1, 9) == []


def test_the_past_does_not_outlive_a_jump() -> None:
    one, two = begun(), begun()
    heard(one, b"x", b"y")
    heard(two, b"x")
    two.adopt(one.state())
    assert two.messages(1, 2) == []


def test_only_so_many_writers_are_known() -> None:
    one = begun()
    for n in range(WRITERS_COUNT_MAX + 1):
        heard(one, *replay_history.rows(SinkRows("q", n, 1), 0, [b"r"]))
    place = one.place
    assert one.forgotten_count == 1
    heard(one, *replay_history.rows(SinkRows("q", 1, 1), 0, [b"r"]))
    assert one.place == place
    heard(one, *replay_history.rows(SinkRows("q", 0, 1), 0, [b"r"]))
    assert one.place == place + 1, "the one that wrote longest ago is forgotten, and no other"


def test_what_members_tell_each_other() -> None:
    one = begun()
    assert one.hear(said(replay_history.ask(5, 2, 9))) == RecallRequest(5, A, 2, 9)
    assert one.hear(said(replay_history.have(5, 3, 8))) == RecallOffer(5, A, 3, 8)
    assert one.hear(said(replay_history.want(5, "b#8", 3, 8))) == RecallChoice(5, A, "b#8", 3, 8)
    past = [
        Message(B, b"x" * 5, 3, "v", 4, Service.SAFE),
        Message(A, b"", 4, "", 5, Resilient(Resilient.ALL)),
    ]
    assert one.hear(said(replay_history.fill(5, past))) == RecallPart(5, tuple(past))
    assert one.place == 0


def test_our_own_are_told_as_we_said_them() -> None:
    row = replay_history.rows(SinkRows("q", 0, 1), 7, [b"r"])[0]
    for travelling, meant in (
        (b"x", b"x"),
        (replay_history.plain(b"\xf5x"), b"\xf5x"),
        (row, b"r"),
    ):
        assert replay_history.bare(said(travelling)).payload == meant


@given(st.binary(max_size=60), st.integers(0, 5))
def test_hostile_payloads_are_counted_and_no_more(rest: bytes, kind: int) -> None:
    one = begun()
    told = one.hear(said(bytes((MARK, kind)) + rest))
    assert one.malformed_count == (told is None)
    assert one.place == isinstance(told, Message)
    assert heard(one, b"next") == [(one.place, b"next")]


@given(st.binary(max_size=80))
def test_a_state_that_is_none_is_refused(state: bytes) -> None:
    one = begun()
    before = one.state()
    try:
        one.adopt(state)
    except Misuse as error:
        assert "fed=" in str(error)
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
