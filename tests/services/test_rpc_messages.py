"""Calls and answers as bytes: they round-trip, and hostile bytes raise only `BadPacket`."""

from __future__ import annotations

import contextlib
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.errors import BadPacket, Misuse
from unisono.model import Address, Member, View
from unisono.services.calls.answering import Answering
from unisono.services.calls.limits import RpcLimits
from unisono.services.calls.messages import (
    DATAGRAM_BYTES_MAX,
    MARK,
    AckPacket,
    AnswerPacket,
    AnswerRecord,
    CallHead,
    CallMessage,
    ReplyKind,
    ack_packet,
    answer_packet,
    answer_record,
    call_payload,
    departure_record,
    escaped,
    pieces_of,
    plain,
    read_datagram,
    read_failure,
    unescaped,
)
from unisono.services.calls.reply_sender import ReplySender
from unisono.services.calls.result import Answers, Reason
from unisono.services.calls.table import CallTable

A = Member("a", Address("10.0.0.1", 4000), 1)
B = Member("b", Address("10.0.0.2", 4000), 2)
TO = Address("10.0.0.1", 5000)

u64 = st.integers(0, (1 << 64) - 1)
u32 = st.integers(0, (1 << 32) - 1)


@given(u64, u32, u32, st.booleans(), st.sampled_from([None, TO]), u64, st.binary())
def test_a_call_round_trips(
    token: int,
    timeout_ms: int,
    most: int,
    outside: bool,
    to: Address | None,
    number: int,
    payload: bytes,
) -> None:
    head = CallHead(token, timeout_ms, most, outside, to, "reply.x")
    found = unescaped(call_payload(head, number, payload))
    assert isinstance(found, CallMessage)
    assert (found.head, found.number, bytes(found.payload)) == (head, number, payload)
    assert plain(call_payload(head, number, payload)) is None


@given(st.binary() | st.binary().map(lambda tail: MARK + tail))
def test_a_message_of_the_application_is_never_taken_for_a_call(payload: bytes) -> None:
    assert plain(bytes(escaped(payload))) == payload


@given(
    st.binary(max_size=200)
    | st.binary(max_size=200).map(lambda tail: b"UsRA" + tail)
    | st.binary(max_size=200).map(lambda tail: b"UsRK" + tail)
)
def test_hostile_datagrams_raise_bad_packet_alone(packet: bytes) -> None:
    with contextlib.suppress(BadPacket):
        read_datagram(packet)


@given(st.binary(max_size=200))
def test_hostile_calls_raise_bad_packet_alone(tail: bytes) -> None:
    with contextlib.suppress(BadPacket):
        unescaped(MARK + b"C" + tail)


@given(st.lists(st.tuples(st.sampled_from(list(ReplyKind)), st.binary(max_size=40)), max_size=5))
def test_hostile_records_change_nothing_but_counts(records: list[tuple[ReplyKind, bytes]]) -> None:
    counts: Counter[str] = Counter()
    table = CallTable(7, RpcLimits(), counts)
    call = table.begin(Answers.ALL, (A, B))
    table.take(B, [AnswerRecord(call.number, kind, 0, 1, body) for kind, body in records])


@given(st.integers(0, 5000), st.integers(1, 1400))
def test_pieces_join_to_the_answer(size: int, most: int) -> None:
    body = bytes(n % 251 for n in range(size))
    pieces = pieces_of(answer_record(1, body), most)
    assert b"".join(bytes(piece.body) for piece in pieces) == body
    assert all(len(piece.body) <= most and piece.is_valid() for piece in pieces)


def test_a_token_that_is_not_ours_is_dropped() -> None:
    counts: Counter[str] = Counter()
    table = CallTable(7, RpcLimits(), counts)
    call = table.begin(Answers.ONE, (A,))
    packet = read_datagram(answer_packet(8, 1, B, [answer_record(call.number, b"x")]))
    assert isinstance(packet, AnswerPacket) and not table.receive(packet)
    assert not call.complete and counts["drop.token"] == 1


def test_a_departure_reported_by_another_fails_the_departed() -> None:
    table = CallTable(7, RpcLimits(), Counter())
    call = table.begin(Answers.ALL, ())
    table.take(A, [departure_record(call.number, Reason.LEFT, B)])
    call.deliver((A, B))
    call.answer(A, b"x")
    assert call.complete and call.result().failures[B].reason is Reason.LEFT


# -- the reply sender ----------------------------------------------------------------------


def sender(**limits: int) -> tuple[ReplySender, Counter[str]]:
    counts: Counter[str] = Counter()
    return ReplySender(RpcLimits(**limits), counts), counts


def acknowledgment(*packets: bytes) -> AckPacket:
    numbers = [read_datagram(packet).number for packet in packets]  # type: ignore[union-attr]
    found = read_datagram(ack_packet(7, B, numbers))
    assert isinstance(found, AckPacket)
    return found


def test_answers_are_retransmitted_ever_more_rarely_until_they_expire() -> None:
    replies, counts = sender()
    replies.post(TO, 7, B, answer_record(1, b"x"), expires_us=10_000_000)
    ((to, packet),) = replies.flush(0)
    assert to == TO
    times = [0]
    while (next_us := replies.next_us()) is not None:
        times.append(next_us)
        assert replies.retransmit(next_us) in ([(TO, packet)], [])
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == sorted(gaps) and gaps[-1] <= 1_000_000
    assert times[-1] >= 10_000_000 and counts["drop.reply_expired"] == 1
    assert not replies.in_flight


def test_an_acknowledged_answer_is_not_sent_again() -> None:
    replies, _ = sender()
    replies.post(TO, 7, B, answer_record(1, b"x"), 10_000_000)
    ((_, packet),) = replies.flush(0)
    assert replies.acknowledge(acknowledgment(packet), 500) == []
    assert replies.next_us() is None and not replies.in_flight
    assert replies.acknowledge(acknowledgment(packet), 600) == [], "twice is no harm"


def test_a_late_acknowledgment_meets_no_later_datagram() -> None:
    replies, _ = sender(links_count_max=1)
    packets = []
    for number in (1, 2):
        replies.post(TO, 7, B, answer_record(number, b"x"), 10_000_000)
        packets += [packet for _, packet in replies.flush(0)]
        if number == 1:
            replies.acknowledge(acknowledgment(packets[0]), 1)
            replies.post(TO, 8, B, answer_record(1, b"x"), 1)  # takes the place of the idle link
            replies.flush(1)
            replies.retransmit(100_000)
    replies.acknowledge(acknowledgment(packets[0]), 200_000)
    assert replies.in_flight, "the second answer is still to be acknowledged"


def test_no_more_than_a_window_is_in_flight_and_datagrams_fit() -> None:
    replies, _ = sender()
    replies.post(TO, 7, B, answer_record(1, bytes(500_000)), 10_000_000)
    sent = [packet for _, packet in replies.flush(0)]
    assert len(sent) == 64 and all(len(packet) <= DATAGRAM_BYTES_MAX for packet in sent)
    more = replies.acknowledge(acknowledgment(*sent[:10]), 100)
    assert len(more) == 10


def test_an_answer_of_too_many_pieces_is_a_failure_and_blocks_no_other() -> None:
    replies, _ = sender()
    long_named = B._replace(name="n" * 400)
    replies.post(TO, 7, long_named, answer_record(1, bytes(64 << 20)), 10_000_000)
    replies.post(TO, 8, B, answer_record(2, b"x"), 10_000_000)
    large, small = (read_datagram(packet) for _, packet in replies.flush(0))
    assert isinstance(large, AnswerPacket) and isinstance(small, AnswerPacket)
    assert read_failure(large.records[0].body).reason is Reason.TOO_LARGE
    assert bytes(small.records[0].body) == b"x"


def test_answers_that_expire_before_the_window_opens_are_not_sent() -> None:
    replies, counts = sender()
    replies.post(TO, 7, B, answer_record(1, bytes(500_000)), expires_us=1_000_000)
    replies.flush(0)
    assert replies.retransmit(2_000_000) == [] and not replies.in_flight
    assert counts["out.answers"] == 64 and counts["drop.reply_expired"] > 300


def test_a_remembered_outside_call_does_not_keep_its_payload() -> None:
    answering = Answering(RpcLimits(), Counter())
    head = CallHead(7, 1_000, 100, True, None, "reply.x")
    answering.install(View((A, B), "1"), A, 0)
    answering.deliver(CallMessage(head, 1, bytes(1 << 20)), 0)
    ((call, _, _),) = answering.install(View((A,), "2"), A, 1)
    assert call.number == 1 and not call.payload


def test_links_are_bounded() -> None:
    replies, counts = sender(links_count_max=2)
    for token in range(3):
        replies.post(TO, token, B, answer_record(1, b"x"), 10_000_000)
    assert len(replies.flush(0)) == 2 and counts["drop.reply_links"] == 1


@pytest.mark.parametrize("name", RpcLimits.__dataclass_fields__)
def test_bounds_are_checked(name: str) -> None:
    for value in (0, -1, 1 << 32):
        with pytest.raises(Misuse, match=name):
            RpcLimits(**{name: value})
