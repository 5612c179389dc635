"""Packets of a burst are sealed and received together, as if each had arrived alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from mmap import mmap
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unisono.layout import encode
from unisono.model import Buffer, Burst, Packets
from unisono.net.send_path import runs
from unisono.parts.admission import Terms
from unisono.parts.codec import PacketCodec, PacketTrain
from unisono.parts.packing import sliced
from unisono.protocols.mtp.data_packets import BURST, SealedMessage, sealed_one_by_one
from unisono.protocols.mtp.message_receiver import IncomingMessage, MessageReceiver
from unisono.protocols.mtp.message_sender import Held, MessageSender
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packets import (
    ALIKE_BYTES,
    KINDS,
    PROTOCOL,
    Data,
    Header,
    PacketKind,
    StatePiece,
    write_header,
)
from unisono.protocols.mtp.reading import Packet, read, read_packets
from unisono.sim import campaign
from unisono.wire import Envelope

H = Header(7, 5, 0, 6, 3, 10_000, 256, 3, 4)
HEADER = write_header(H)
BAD = write_header(H._replace(t=0))
PACE = Pacing(10_000, 256, 3)


def write(number: int) -> bytes:
    return HEADER


def codec() -> PacketCodec:
    return PacketCodec(PROTOCOL, KINDS, Terms("g"))


def one_by_one(packets: list[Packet]) -> list[tuple[Any, ...]]:
    """The same as if no two had come together."""
    found: list[tuple[Any, ...]] = []
    for packet in packets:
        if not isinstance(packet, Data):
            found.append(tuple(packet))
            continue
        head, origin, number, first, end, pieces = packet
        for at, piece in enumerate(pieces, first):
            found.append((head, origin, number, at, end, bytes(piece)))
    return found


# -- sealed ---------------------------------------------------------------------------------------


@given(st.integers(1, 120), st.integers(0, 30), st.data())
def test_packets_sealed_together_are_what_each_alone_would_be(
    count: int, shorter: int, data: st.DataObject
) -> None:
    slices = sliced([Random(count).randbytes(count * 31 - shorter)], 31)
    outlet = MessageSender(codec(), PACE, 0)
    held = Held(7, 5, slices)
    start = data.draw(st.integers(0, len(slices) - 1))
    row = range(start, data.draw(st.integers(start + 1, len(slices))))
    packets = outlet._packets(held, row, write)
    assert [bytes(p) for p in packets] == [outlet._packet(held, p, write) for p in row]
    assert len(packets) == len(row)
    assert [len(burst) for burst in packets.each()][:-1] == [BURST] * ((len(row) - 1) // BURST)


@given(st.integers(1, 120), st.integers(0, 0x1FFFF), st.integers(0, 30), st.booleans())
def test_a_send_is_a_value_that_seals_the_same_packets_at_any_time(
    count: int, first: int, shorter: int, ends: bool
) -> None:
    size = count * 31 - (shorter if ends else 0)
    slices = tuple(sliced([Random(count).randbytes(size)], 31))
    message = SealedMessage(9, 8, HEADER, 7, 5, first, slices, ends)
    slow = sealed_one_by_one(message)
    for _ in range(2):
        assert [bytes(packet) for burst in message for packet in burst] == slow


def test_a_row_ends_where_the_upper_half_of_its_numbers_does() -> None:
    slices: list[Buffer] = [b"x"] * (0x10000 + 30)
    outlet = MessageSender(codec(), PACE, 0)
    held, row = Held(7, 5, slices), range(0xFFF0, 0x10000 + 30)
    packets = [bytes(packet) for packet in outlet._packets(held, row, write)]
    assert packets == [outlet._packet(held, p, write) for p in row]
    found = [p for opened in codec().admit(packets) for p in read_packets(opened, str)]
    assert [packet.packet for packet in found if isinstance(packet, Data)] == list(row)


# -- opened ---------------------------------------------------------------------------------------

bodies = st.tuples(
    st.sampled_from((HEADER, HEADER, HEADER, HEADER, BAD)),
    st.sampled_from((5, 5, 5, 6)),
    st.sampled_from((0, 1, 2, 3, 4, 5, 6, 0xFFFF, 0x10000, 0x10001)) | st.integers(0, 2**32 - 1),
    st.sampled_from((False, False, False, True)),
)


@given(st.lists(bodies, max_size=24), st.booleans(), st.booleans())
@settings(max_examples=300)
def test_a_burst_is_received_as_its_packets_would_be(
    told: list[tuple[bytes, int, int, bool]], in_order: bool, short: bool
) -> None:
    if in_order:
        told = sorted(told, key=lambda row: row[1:])
    ours = codec()
    packets = [
        ours.seal(PacketKind.DATA, Data.body(header, 7, number, packet, end, b"piece"))
        for header, number, packet, end in told
    ]
    state = HEADER + encode(StatePiece(H, 0, 9, 0, b"x" * (len(packets[0]) if packets else 9)))
    packets.insert(len(packets) // 2, ours.seal(PacketKind.STATE, state))
    size = len(packets[0])
    packets = [packet for packet in packets if len(packet) == size]
    if short:
        packets.append(ours.seal(PacketKind.DATA, Data.body(HEADER, 7, 5, 9, True, b"p")))
    alone, together = codec(), codec()
    expected = [p for opened in alone.admit(packets) for p in read_packets(opened, alone.drop)]
    burst = Burst(memoryview(b"".join(packets)), size)
    opened = list(together.admit_batch(burst, ALIKE_BYTES))
    found = [packet for each in opened for packet in read_packets(each, together.drop)]
    assert one_by_one(found) == one_by_one(expected)
    assert together.counts == alone.counts
    assert all(len(p.pieces) == 1 for p in found if isinstance(p, Data) and p.end)


def test_packets_of_another_kind_that_begin_alike_are_read_one_by_one() -> None:
    ours = codec()
    state = [HEADER + encode(StatePiece(H, 1, 900, at, bytes(20))) for at in (0, 0)]
    packets = [ours.seal(PacketKind.STATE, body) for body in state]
    burst = Burst(memoryview(b"".join(packets)), len(packets[0]))
    (opened,) = codec().admit_batch(burst, ALIKE_BYTES)
    assert isinstance(opened, PacketTrain)
    assert list(read_packets(opened, str)) == [
        read(PacketKind.STATE, memoryview(body)) for body in state
    ]


# -- taken ----------------------------------------------------------------------------------------


def state_of(inlet: MessageReceiver, ours: PacketCodec) -> tuple[object, ...]:
    def told(message: IncomingMessage) -> tuple[object, ...]:
        window = message.window
        here = [(n, window.get(n)) for n in range(1, window.highest + 1)]
        heard_of = (message.origin, message.packets, message.ended, message.nbytes, message.whole)
        times = (message.heard_us, message.due_us, message.asked_us, message.asked_packets)
        return here, window.received, heard_of, times

    messages = {number: told(message) for number, message in inlet.incoming.items()}
    return messages, inlet.nbytes, inlet._lost, inlet._taken, inlet._answer_us, ours.counts


rows = st.tuples(
    st.just("row"),
    st.integers(1, 2),
    st.integers(0, 24),
    st.integers(1, 9),
    st.sampled_from((7, 7, 7, 7, 8)),
)
ends = st.tuples(st.just("end"), st.integers(1, 2), st.integers(10, 26))
empties = st.tuples(st.just("hear"), st.integers(1, 2), st.integers(0, 30), st.booleans())
asks = st.tuples(st.just("ask"), st.integers(1, 2))


@given(st.lists(rows | rows | rows | ends | empties | asks, max_size=30))
@example([("hear", 1, 10, True), ("row", 1, 7, 6, 7)]).via("a row over the end")
@example([("row", 1, 0, 4, 7), ("row", 1, 2, 4, 7)]).via("some are here already")
@settings(max_examples=400)
def test_a_row_is_taken_as_its_packets_would_be(script: list[tuple[Any, ...]]) -> None:
    doors = codec(), codec()
    many, one = (MessageReceiver(its, PACE, 0, Random(1)) for its in doors)
    for now_us, step in enumerate(script, 1):
        match step:
            case "row", number, first, count, origin:
                pieces = [bytes([at]) * 3 for at in range(first, first + count)]
                row = Data(H, origin, number, first, False, pieces)
                whole = many.take(row, now_us) is not None
                singles = [
                    one.take(row._replace(packet=at, pieces=[piece]), now_us)
                    for at, piece in enumerate(pieces, first)
                ]
                assert whole == any(single is not None for single in singles)
            case "end", number, packet:
                end = Data(H, 7, number, packet, True, [b"end"])
                assert (many.take(end, now_us) is None) == (one.take(end, now_us) is None)
            case "hear", number, packets, ended:
                many.expect(number, 7, packets, ended, now_us)
                one.expect(number, 7, packets, ended, now_us)
            case "ask", number:
                for inlet in (many, one):
                    inlet.requested(inlet.at(number), now_us)
        assert state_of(many, doors[0]) == state_of(one, doors[1])


@pytest.mark.parametrize("seed", range(20))
def test_a_very_large_message_is_set_apart_and_is_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unisono.protocols.mtp.message_receiver.LARGE_BYTES", 30)
    monkeypatch.setattr("unisono.protocols.mtp.message_receiver.APART_PACKETS", 3)
    dice, inlet = Random(seed), MessageReceiver(codec(), PACE, 0, Random(1))
    pieces = [dice.randbytes(dice.choice((0, 5, 5, 5))) for _ in range(40)]
    rows = [(at, pieces[at : at + 4]) for at in range(0, 36, 4)]
    rows += [(at, pieces[at : at + 3]) for at in range(36, 39, 3)]
    if seed % 3:
        dice.shuffle(rows)
    for at, row in rows:
        inlet.take(Data(H, 7, 1, at, False, row), 1)
    message = inlet.take(Data(H, 7, 1, 39, True, pieces[39:]), 2)
    assert message is not None and message.apart
    assert list(map(bytes, message.slices())) == pieces
    held = {type(memoryview(piece).obj) for piece in message.slices()[: message.apart]}
    assert held == {mmap}


@pytest.mark.slow
def test_a_few_seeds_break_no_law_where_packets_arrive_in_bursts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The simulated world hands packets over as lists; sockets side by side in one buffer."""
    admit_batch, together = PacketCodec.admit_batch, Counter[str]()

    def in_bursts(
        self: PacketCodec, packets: Packets, octets: int
    ) -> Iterator[Envelope | PacketTrain]:
        for buffer, size, count in runs([bytes(packet) for packet in packets]):
            burst = Burst(memoryview(buffer), size) if count > 1 else [buffer]
            for opened in admit_batch(self, burst, octets):
                together["rows"] += isinstance(opened, PacketTrain)
                yield opened

    monkeypatch.setattr(PacketCodec, "admit_batch", in_bursts)
    summary = campaign("mtp", range(8), "mild", (3, 7), jobs=1)
    assert not summary.failures, "\n".join(each.replay for each in summary.failures)
    assert together["rows"] > 100, "else rows are not tested"
