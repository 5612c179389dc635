"""The frames of the local socket: they come back as they were; hostile bytes are refused."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.client import frames
from unisono.client.frame_splitter import FrameSplitter
from unisono.client.frames import (
    BundleReader,
    FrameKind,
    HelloFrame,
    JoinFrame,
    PlacedFrame,
    ShedFrame,
    StateFrame,
    SubmitFrame,
    WelcomeFrame,
    framed,
)
from unisono.errors import BadPacket
from unisono.layout import decode
from unisono.model import Address, Member, Resilient, Service, View

names = st.text("abc.-", min_size=1, max_size=64)
levels = st.sampled_from([*Service, Resilient(0), Resilient(3), Resilient(Resilient.ALL)])
members = st.builds(
    Member,
    names,
    st.builds(Address, st.just("127.0.0.1"), st.integers(0, 65535)),
    st.integers(0, 2**31 - 1),
)
payloads = st.lists(st.binary(max_size=50), min_size=1, max_size=20)


def body_of(data: bytes) -> tuple[int, memoryview]:
    ((kind, body),) = FrameSplitter(1 << 20).feed(data)
    return kind, body


@given(st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(1, 400), max_size=50))
def test_frames_are_split_correctly_wherever_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(frames.frame(FrameKind.ADOPT, body) for body in bodies)
    cutter, found = FrameSplitter(1 << 20), []
    for length in [*cuts, len(stream)]:
        piece, stream = stream[:length], stream[length:]
        found += [(kind, bytes(body)) for kind, body in cutter.feed(piece)]
    assert found == [(FrameKind.ADOPT, body) for body in bodies]


def test_a_frame_over_the_bound_is_refused_before_it_is_complete() -> None:
    for data in (b"\0\0\0\0\1", b"\0\0\x04\x01\1", b"GET / HTTP/1.1\r\n"):
        with pytest.raises(BadPacket, match="frame_length"):
            list(FrameSplitter(1024).feed(data))


@given(levels, st.lists(names, min_size=1, max_size=5, unique=True), payloads)
def test_a_submit_frame_round_trips(level: Any, groups: list[str], messages: list[bytes]) -> None:
    kind, body = body_of(frames.submit(frames.submit_head(level, groups), messages))
    found = decode(SubmitFrame, body)
    assert kind == FrameKind.SUBMIT
    assert (found.level, found.groups) == (level, tuple(groups))
    assert frames.lengths_of(found.bundle) == tuple(map(len, messages))


@given(members, levels, st.integers(1, 2**60), st.integers(0, 2**60), payloads)
def test_a_bundle_round_trips_as_messages(
    sender: Member, level: Any, number: int, seq: int, messages: list[bytes]
) -> None:
    bundle = frames.bundle_of(messages)
    data = frames.deliver(
        FrameKind.DELIVER,
        frames.member_bytes(sender),
        number,
        seq,
        *frames.level_code(level),
        bundle,
    )
    found = list(BundleReader().run(body_of(data)[1], "v").messages())
    assert [message.payload for message in found] == messages
    assert [message.number for message in found] == list(range(number, number + len(messages)))
    assert {message.sender for message in found} == {sender}
    assert {message.service for message in found} == {level}
    assert found[-1].seq == (seq + len(messages) - 1 if seq else None)


@given(st.lists(members, min_size=2, max_size=6, unique=True), st.integers(1, 99))
def test_a_view_round_trips_whole_or_as_a_change(who: list[Member], seq: int) -> None:
    before = View(tuple(who[:-1]), "1")
    after = View((*who[1:],), "2", (who[-1],), (who[0],), seq, detail="why")
    for whole in (True, False):
        data = body_of(frames.view(after, whole))[1]
        assert frames.read_view(data, before) == after
    with pytest.raises(BadPacket):
        frames.read_view(body_of(frames.view(after, whole=False))[1], None)


def test_all_other_frames_round_trip() -> None:
    assert decode(HelloFrame, body_of(frames.hello("a", 7))[1])[2:] == ("a", 7)
    for join in (JoinFrame("g", True, False), JoinFrame("g", True, True, True, "x", True)):
        assert decode(JoinFrame, body_of(framed(join))[1]) == join
    placed = PlacedFrame(7, 2, 0, ("g", "h"))
    assert decode(PlacedFrame, body_of(framed(placed))[1]) == placed
    told = WelcomeFrame(
        "d", Address("::1", 1), "mtp", Service.AGREED, True, (Service.FIFO, Service.AGREED), 99
    )
    assert decode(WelcomeFrame, body_of(framed(told))[1]) == told
    assert frames.read_bye(body_of(frames.bye("x" * 2000))[1]) == "x" * 1000
    assert decode(ShedFrame, body_of(framed(ShedFrame(5)))[1]) == (5,)
    state = StateFrame(False, b"k", b"state")
    assert decode(StateFrame, body_of(framed(state))[1]) == state


READERS: list[Any] = [
    *(partial(decode, record) for record in frames.FRAMES.values()),
    frames.read_bye,
    frames.lengths_of,
    lambda body: frames.read_view(body, None),
    lambda body: BundleReader().run(body, ""),
]


@given(st.binary(max_size=120), st.sampled_from(READERS))
def test_hostile_bytes_are_refused_and_nothing_else(data: bytes, read: Any) -> None:
    for each in (data, frames.MAGIC + data, b"\4\0\0\0\0\1" + data):
        with contextlib.suppress(BadPacket):
            read(memoryview(each))


@given(st.lists(st.integers(0, 90_000), max_size=30))
def test_bundles_are_bounded_and_lose_nothing(sizes: list[int]) -> None:
    messages = [bytes(size) for size in sizes]
    bundles = list(frames.bundles(messages))
    assert [each for bundle in bundles for each in bundle] == messages
    for bundle in bundles:
        assert len(bundle) == 1 or sum(map(len, bundle)) <= frames.BUNDLE_BYTES
    empty = list(frames.bundles([b""] * 10_000))
    assert max(map(len, empty)) <= frames.BUNDLE_COUNT_MAX
