"""Messages that nobody looked at are the same as messages that somebody did."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.model import (
    VARIED,
    Address,
    Burst,
    Bursts,
    Member,
    Message,
    PayloadBatch,
    Service,
    View,
)
from unisono.net.stream import Stream, StreamBatch
from unisono.parts.message_runs import MessageRun, MessageRuns, unread
from unisono.parts.pending import Pending, enqueue

ME = Member("a", Address("127.0.0.1", 1), 1)


def spans(*shapes: tuple[int, int]) -> tuple[MessageRuns, list[Message]]:
    """Spans of so many messages of a length, and the messages they stand for. VARIED is a length
    of its own for each."""
    made: list[MessageRun] = []
    messages: list[Message] = []
    number = 1
    for times, length in shapes:
        varied = length == VARIED
        lengths = [n * 7 % 11 for n in range(times)] if varied else [length] * times
        nbytes = bytes(n % 251 for n in range(sum(lengths) + 3))
        made.append(
            MessageRun(
                ME, nbytes, 3, sum(lengths) if varied else length, times, number, "v", number,
                Service.AGREED, tuple(lengths) if varied else (),
            )
        )  # fmt: skip
        ends = list(accumulate(lengths, initial=3))
        messages += [
            Message(ME, nbytes[ends[n] : ends[n + 1]], number + n, "v", number + n, Service.AGREED)
            for n in range(times)
        ]
        number += times
    return MessageRuns(made), messages


shapes = st.lists(st.tuples(st.integers(1, 150), st.integers(VARIED, 9)), min_size=1, max_size=5)


@given(shapes, st.data())
def test_parted_or_looked_at_they_are_the_same(
    shape: list[tuple[int, int]], data: st.DataObject
) -> None:
    whole, messages = spans(*shape)
    assert whole.payloads() == [message.payload for message in messages]
    assert (len(whole), whole.nbytes) == (len(messages), sum(len(m.payload) for m in messages))
    count = data.draw(st.integers(0, len(messages)))
    first, rest = whole.parted(count)
    assert [*first] == messages[:count] and [*rest] == messages[count:]
    assert [*whole] == messages
    assert whole.payloads() == [message.payload for message in messages], "looked at"
    first, rest = whole.parted(count)
    assert [*first] == messages[:count] and [*rest] == messages[count:]


@given(st.lists(shapes, min_size=1, max_size=4), st.integers(1, 400), st.booleans())
def test_a_stream_returns_them_in_order_for_any_batch_size(
    chunks: list[list[tuple[int, int]]], count_max: int, singly: bool
) -> None:
    async def story() -> None:
        stream = Stream("block", 10_000, 1 << 20, lambda on: None, lambda reason: None)
        told: list[Message | View] = []
        for number, shape in enumerate(chunks):
            some, messages = spans(*shape)
            view = View((ME,), str(number))
            stream.put(view)
            stream.extend(some)
            told += [view, *messages]
        found: list[object] = []
        if singly:
            found += [await stream.next(), await stream.next()]
        while len(found) < len(told):
            batch = await stream.next_batch(count_max)
            assert 0 < len(batch) <= count_max
            said = [item for item in batch if isinstance(item, Message)]
            assert batch.payloads() == [message.payload for message in said]
            assert batch.notices() == [item for item in batch if not isinstance(item, Message)]
            found += batch
        assert found == told
        assert len(stream) == 0 and stream._bytes == 0

    asyncio.run(story())


def test_a_batch_is_a_sequence() -> None:
    batch = StreamBatch()
    some, messages = spans((3, 2))
    batch.add(some)
    batch.add((View((ME,), "v"),))
    assert len(batch) == 4 and batch[0] == messages[0] and batch[-1] == View((ME,), "v")
    assert batch[1:3] == messages[1:3] and repr(batch).startswith("Batch([Message(")


def test_bursts_are_made_one_after_the_other_and_once() -> None:
    made: list[int] = []

    def making() -> object:
        for n in range(3):
            made.append(n)
            yield Burst(memoryview(bytes([n]) * 5), 2)

    bursts = Bursts(9, making())  # type: ignore[arg-type]
    each = bursts.each()
    assert bytes(next(each).buffer) == bytes(5) and made == [0]
    assert [bytes(packet) for packet in bursts][:3] == [bytes(2), bytes(2), bytes(1)]
    assert len(list(bursts)) == len(bursts) == 9 and made == [0, 1, 2]
    assert bytes(bursts[8]) == bytes([2])


@pytest.mark.parametrize(("nbytes", "size", "count"), [(10, 3, 4), (9, 3, 3), (0, 3, 0), (2, 3, 1)])
def test_a_burst_is_cut_where_its_packets_end(nbytes: int, size: int, count: int) -> None:
    burst = Burst(memoryview(bytes(nbytes)), size)
    assert len(burst) == len(list(burst)) == count


@given(shapes, st.sets(st.integers(1, 800)), st.booleans())
def test_own_messages_are_found_one_by_one(
    shape: list[tuple[int, int]], asked: set[int], looked_at: bool
) -> None:
    whole, messages = spans(*shape)
    if looked_at:
        assert [*whole] == messages
    numbers = sorted(asked)
    slow = [(number, read()) for number, read in unread(messages, ME, numbers)]
    assert [(number, read()) for number, read in whole.of(ME, numbers)] == slow
    assert slow == [(m.number, m) for m in messages if m.number in asked]
    assert whole.of(None, numbers) == []


batches = st.lists(st.lists(st.binary(max_size=3), min_size=1, max_size=5), min_size=1)


@given(batches)
def test_payloads_are_measured_alike_at_once_and_piece_by_piece(parts: list[list[bytes]]) -> None:
    whole = PayloadBatch(payload for part in parts for payload in part)
    grown = PayloadBatch(parts[0])
    for part in parts[1:]:
        grown.add(PayloadBatch(part))
    lengths = {len(payload) for payload in whole}
    for found in (whole, grown):
        assert found == [payload for part in parts for payload in part]
        assert found.length == (min(lengths) if len(lengths) == 1 else VARIED)
        assert found.longest == max(map(len, found)) and found.nbytes == len(b"".join(found))


@given(batches, st.lists(st.sampled_from([Service.AGREED, Service.SAFE])))
def test_measured_payloads_are_queued_as_others_are(
    parts: list[list[bytes]], services: list[Service]
) -> None:
    fast: deque[Pending] = deque()
    slow: deque[Pending] = deque()
    for part, service in zip(parts, [*services, *[Service.AGREED] * len(parts)], strict=False):
        assert enqueue(fast, PayloadBatch(part), service) == enqueue(slow, tuple(part), service)
    assert fast == slow
