"""Messages of any lengths: what is sent is delivered, in as few rows as possible."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.core import CoreConfig
from unisono.errors import BadPacket
from unisono.model import VARIED, Address, Member, Service
from unisono.parts.pending import Pending
from unisono.parts.turn import (
    DIFFER,
    MORE,
    MessageGroup,
    OriginRun,
    Turn,
    read_runs,
    write_runs,
)
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packets import Delegate, Header, Version, key_of
from unisono.protocols.ring.send_queue import SendQueue
from unisono.wire import numbers

ME = Member("a", Address("10.0.0.1", 7000), 1)
KEY = key_of(ME)
payloads = st.one_of(
    st.binary(max_size=60),
    st.integers(0, 3_000).map(lambda octets: bytes(n % 251 for n in range(octets))),
)


def speech(turn_packets: int = 4, packet_bytes: int = 400) -> SendQueue:
    return SendQueue(CoreConfig(ME, "g", seed=0, packet_bytes_max=packet_bytes), KEY, turn_packets)


def refuse(reason: str) -> None:
    raise AssertionError(reason)


def hearing(drop: Callable[[str], None] = refuse) -> Ordering:
    ordering = Ordering(KEY, 1 << 20, drop)
    ordering._members = {KEY: ME}
    return ordering


def heard(ordering: Ordering, s: int, content: bytes) -> list[bytes]:
    told = ordering.read(Turn(s, KEY, 0, content, 300))
    found = [payload for span in told.runs for payload in span.payloads()]
    assert (told.count, told.nbytes) == (len(found), sum(map(len, found)))
    return found


@given(
    st.lists(st.lists(payloads, max_size=12), max_size=6),
    st.integers(1, 6),
    st.integers(200, 1_400),
)
def test_what_is_sent_is_delivered(
    said: list[list[bytes]], turn_packets: int, packet_bytes: int
) -> None:
    speaker, listener, found = speech(turn_packets, packet_bytes), hearing(), list[bytes]()
    for some in said:
        speaker.add(some, Service.AGREED)
    for s in range(1, 2_000):
        if not speaker.has_any():
            break
        content, _, _ = speaker.gather()
        speaker.note_turn(s)
        assert len(content) <= max(turn_packets, 4) * speaker.piece_bytes
        found += heard(listener, s, content)
        listener.window.put(s, Turn(s, KEY, 0, content, 300))
    assert found == [payload for some in said for payload in some]
    speaker.settle(1 << 30)
    assert speaker.send_credit() == speaker.window_bytes, "all that was counted is counted off"


@given(st.lists(payloads, min_size=1, max_size=40), st.integers(0, 40))
def test_a_delegated_message_is_delivered_once(said: list[bytes], known: int) -> None:
    asks, says, listener = speech(), speech(), hearing()
    asks.add(said, Service.AGREED)
    body = asks.delegate()
    if not body:
        assert len(said[0]) > 200, "what is large is not delegated"
        return
    says.take_delegate(Delegate(Header(Version(1, 1), KEY), memoryview(body)))
    content, _, _ = says.gather()
    listener.locals[KEY] = known
    found = heard(listener, 1, content)
    assert found == said[known : len(found) + known], "what is known is passed over"
    if not known:
        asks.note_ordered(len(found), 1)
        assert asks.ordered == len(found)


def test_many_of_unlike_lengths_are_one_row() -> None:
    speaker = speech(512, 1_400)
    for some in range(4):
        speaker.add([bytes(n % 97) for n in range(some, some + 100)], Service.AGREED)
    content, _, _ = speaker.gather()
    (run,) = read_runs(content)
    assert len(run.groups) == 1 and run.groups[0].mark & DIFFER
    assert run.groups[0].times == 400 == len(heard(hearing(), 1, content))


@pytest.mark.parametrize(
    ("group", "table"),
    [
        (MessageGroup(2, 6, int(Service.AGREED) | DIFFER), numbers([3, 4])),
        (MessageGroup(2, 6, int(Service.AGREED) | DIFFER), numbers([1 << 31, 1 << 31])),
    ],
)
def test_lengths_that_are_not_those_of_the_bytes_are_not_believed(
    group: MessageGroup, table: bytes
) -> None:
    content = write_runs([OriginRun(KEY, 1, [group], [table, bytes(6)])])
    drops: list[str] = []
    ordering = hearing(drops.append)
    assert not ordering.read(Turn(1, KEY, 0, content, 300)).runs
    assert drops == ["malformed"]
    assert ordering.seq == 0


@pytest.mark.parametrize(
    "group",
    [
        MessageGroup(2, 6, int(Service.AGREED) | DIFFER | MORE),
        MessageGroup(1, 6, int(Service.AGREED) | DIFFER | MORE),
        MessageGroup(2, 3, 64),
        MessageGroup(1 << 15, 1 << 31, int(Service.AGREED) | DIFFER),
    ],
)
def test_rows_that_no_member_writes_are_malformed(group: MessageGroup) -> None:
    with pytest.raises(BadPacket):
        read_runs(write_runs([OriginRun(KEY, 1, [group], [bytes(14)])]))


@given(st.lists(st.binary(max_size=9), max_size=9), st.integers(-3, 90), st.integers(0, 9))
def test_as_many_as_fit(messages: list[bytes], room: int, left: int) -> None:
    fit = Pending(messages, VARIED, 4).fit(room, left, 4)
    ends = list(accumulate(len(message) + 4 for message in messages))
    assert fit <= min(left, len(messages))
    if fit > 1:
        assert ends[fit - 1] <= room
    elif fit == 1:
        assert len(messages[0]) <= room
    if fit < min(left, len(messages)):
        assert ends[fit] > room


def test_as_many_of_thousands_fit() -> None:
    messages = [bytes(number % 7) for number in range(3000)]
    ends = list(accumulate(len(message) + 4 for message in messages))
    for room in (ends[511] - 1, ends[511], ends[512], ends[1600] + 1, ends[-1], ends[-1] - 1):
        wanted = sum(end <= room for end in ends)
        assert Pending(messages, VARIED, 4).fit(room, 5000, 4) == wanted
    assert Pending(messages, VARIED, 4).fit(1 << 20, 1000, 4) == 1000
