"""Codecs round-trip; hostile bytes raise `BadPacket` and nothing else."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.errors import BadPacket
from unisono.model import Address, Burst, Member
from unisono.parts.admission import Terms
from unisono.parts.codec import FRONTS_MAX, ROW_COUNT, PacketCodec, PacketTrain
from unisono.wire import (
    ENVELOPE_BYTES,
    FRONT_BYTES,
    SUM_BYTES,
    Envelope,
    are_sound,
    crc32,
    cut,
    open_batch,
    seal,
    seal_batch,
    tag_of,
    unseal,
)

hosts = st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
members = st.builds(
    Member,
    names,
    st.builds(Address, hosts, st.integers(0, 65535)),
    st.integers(0, 2**63 - 1),
)

G = Terms("g")


@given(st.integers(0, 255), st.integers(0, 2**64 - 1), st.binary(max_size=300))
def test_what_is_sealed_opens(kind: int, life: int, body: bytes) -> None:
    packet = seal(4, kind, tag_of("g"), life, body)
    assert len(packet) == ENVELOPE_BYTES + len(body)
    envelope = unseal(packet, 4, tag_of("g"))
    assert (envelope.kind, envelope.life, bytes(envelope.body)) == (kind, life, body)


@given(st.binary(min_size=1, max_size=80), st.data())
def test_one_flipped_bit_is_noticed(body: bytes, data: st.DataObject) -> None:
    packet = bytearray(seal(4, 5, tag_of("g"), 9, body))
    bit = data.draw(st.integers(0, len(packet) * 8 - 1))
    packet[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadPacket):
        unseal(packet, 4, tag_of("g"))


@given(st.binary(max_size=2000), st.integers(0, 2**32 - 1))
def test_the_checksum_equals_its_slow_twin(data: bytes, begun: int) -> None:
    assert crc32(data, begun) == zlib.crc32(data, begun)


@given(st.binary(max_size=40), st.integers(0, 90), st.integers(1, 60), st.integers(0, 60_000))
def test_what_is_sealed_together_is_sealed_alike(
    head: bytes, length: int, count: int, first: int
) -> None:
    pieces = [bytes([n]) * length for n in range(count)]
    packets = seal_batch(4, 5, tag_of("g"), 9, head, pieces, first)
    singly = [
        seal(4, 5, tag_of("g"), 9, head + (first + n).to_bytes(2, "big") + piece)
        for n, piece in enumerate(pieces)
    ]
    assert packets == b"".join(singly)


@given(st.integers(0, 3), st.integers(1, 70), st.integers(0, 100), st.integers(0, 100), st.binary())
def test_fields_are_cut_apart_as_slices_would(
    more: int, length: int, times: int, start: int, rest: bytes
) -> None:
    octets = bytes(range(256)) * 40 + rest
    found = cut(octets, start, length, times + 64 * more if length < 20 else times)
    assert found == [octets[start + n * length :][:length] for n in range(len(found))]


@given(st.lists(st.tuples(st.sampled_from((5, 5, 5, 6, 7)), st.sampled_from((b"one", b"two")),
                          st.integers(0, 65_535)), max_size=12),
       st.integers(0, 5), st.data())  # fmt: skip
def test_a_batch_is_opened_as_each_packet_alone_would_be(
    told: list[tuple[int, bytes, int]], octets: int, data: st.DataObject
) -> None:
    packets = [
        bytearray(seal(4, kind, G.tag, 9, head + index.to_bytes(2, "big") + b"rest"))
        for kind, head, index in told
    ]
    for packet in packets:
        if data.draw(st.integers(0, 9), label="mangled") == 0:
            at = data.draw(st.integers(0, len(packet) - 1))
            packet[at] ^= data.draw(st.integers(0, 255))
    if packets and data.draw(st.booleans(), label="the last is cut short"):
        packets[-1] = packets[-1][: data.draw(st.integers(1, len(packets[-1])))]
    size = len(packets[0]) if packets else 1
    one, many = PacketCodec(4, {5: "five", 6: "six"}, G), PacketCodec(4, {5: "five", 6: "six"}, G)
    alone = list(one.admit(packets))
    burst = Burst(memoryview(b"".join(packets)), size)
    together: list[Envelope] = []
    for opened in many.admit_batch(burst, octets):
        if isinstance(opened, PacketTrain):
            found = list(opened.envelopes())
            assert len({(kind, life, bytes(body[:octets])) for kind, life, body in found}) == 1
            together += found
        else:
            together.append(opened)
    assert together == alone
    assert {name: n for name, n in many.counts.items() if n} == one.counts


def test_an_admitted_sender_is_checked_again() -> None:
    codec = PacketCodec(4, {5: "five"}, G)
    good = seal(4, 5, G.tag, 9, b"body")
    assert [bytes(each.body) for each in codec.admit([good, good])] == [b"body", b"body"]
    broken = bytearray(good)
    broken[-1] ^= 1
    front = good[:FRONT_BYTES]
    for packet in (broken, front, front + bytes(3), front + bytes(4), good[1:]):
        assert not list(codec.admit([packet]))
    assert codec.counts == {"in.five": 2, "drop.corrupt": 2, "drop.short": 2, "drop.foreign": 1}
    for life in range(3 * FRONTS_MAX):
        assert [each.life for each in codec.admit([seal(4, 5, tag_of("g"), life, b"")])] == [life]
    assert len(codec._fronts) <= FRONTS_MAX


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=12), st.data())
def test_any_error_in_a_burst_is_noticed_by_one_checksum(
    bodies: list[bytes], data: st.DataObject
) -> None:
    packets = bytearray().join(seal(4, 5, G.tag, 9, body) for body in bodies)
    assert are_sound(packets)
    at = data.draw(st.integers(0, len(packets) - 1))
    for more in range(data.draw(st.integers(1, 4), label="octets in a row")):
        packets[(at + more) % len(packets)] ^= data.draw(st.integers(more == 0, 255))
    assert not are_sound(packets)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=12))
def test_packets_that_are_cut_apart_in_the_wrong_place_are_not_taken(lengths: list[int]) -> None:
    """As a whole they are sound, but only the first of those that follow a longer one, or a shorter
    one, is where it seems to be."""
    packets = [seal(4, 5, G.tag, 9, b"head\0\0" + bytes(length)) for length in lengths]
    burst = Burst(memoryview(b"".join(packets)), len(packets[0]))
    known = {bytes(packet[FRONT_BYTES:-SUM_BYTES]) for packet in packets}
    for opened in PacketCodec(4, {5: "five"}, G).admit_batch(burst, 4):
        for _, _, body in opened.envelopes() if isinstance(opened, PacketTrain) else (opened,):
            assert bytes(body) in known


def test_packets_of_which_none_is_like_its_neighbour_cost_no_more_than_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []

    def counted(packets: memoryview, size: int, octets: int) -> object:
        looked_at.append(len(packets) // size)
        return open_batch(packets, size, octets)

    monkeypatch.setattr("unisono.parts.codec.open_batch", counted)
    bodies = [bytes([n % 7, n % 3]) + bytes(20) for n in range(600)]
    packets = b"".join(seal(4, 5, G.tag, 9, body) for body in bodies)
    burst = Burst(memoryview(packets), len(packets) // 600)
    assert len(list(PacketCodec(4, {5: "five"}, G).admit_batch(burst, 2))) == 600
    assert not looked_at
    alike = seal_batch(4, 5, G.tag, 9, b"head", [bytes(9)] * 600)
    burst = Burst(memoryview(alike), len(alike) // 600)
    found = list(PacketCodec(4, {5: "five"}, G).admit_batch(burst, 4))
    assert len(found) == -(-600 // ROW_COUNT) and max(looked_at) == ROW_COUNT


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"", "short"),
        (seal(4, 5, tag_of("g"), 9, b"")[:-1], "short"),
        (b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", "foreign"),
        (b"UN\x01" + seal(4, 5, tag_of("g"), 9, b"x")[3:], "version"),
        (seal(4, 5, tag_of("g"), 9, b"x") + b"y", "corrupt"),
        (seal(3, 5, tag_of("g"), 9, b"x"), "protocol"),
        (seal(4, 5, tag_of("other"), 9, b"x"), "group"),
        (seal(4, 5, tag_of("g") ^ 1, 9, b"x"), "terms"),
        (seal(3, 5, tag_of("other"), 9, b"x"), "group"),
    ],
)
def test_foreign_files_are_recognised(packet: bytes, reason: str) -> None:
    with pytest.raises(BadPacket) as caught:
        unseal(packet, 4, tag_of("g"))
    assert caught.value.reason == reason
