"""Links carry two streams between two processes, whatever the network loses."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from unisono.core import CoreConfig, Effect, Send
from unisono.model import Address, Member
from unisono.parts.admission import Terms
from unisono.parts.codec import PacketCodec
from unisono.parts.links import BEATS, LinkBeat, LinkData, Links
from unisono.parts.packet_set import PacketSet

PACKETS = PacketSet(205, LinkData, LinkBeat)
DETECT_US = 1_000_000
BEAT_US = DETECT_US // BEATS


class Process:
    def __init__(self, name: str, port: int) -> None:
        self.me = Member(name, Address("127.0.0.1", port), 1)
        config = CoreConfig(self.me, "g", seed=1, packet_bytes_max=200)
        self.codec = PacketCodec(PACKETS.protocol, PACKETS.names, Terms.of(config, "test", {}))
        self.links = Links(config, self.codec, PACKETS, DETECT_US)
        self.got: list[bytes] = []

    def step(self, now_us: int, packets: list[bytes]) -> list[bytes]:
        """Take packets and messages, and report; the packets sent."""
        out: list[Effect] = []
        self.links.tick(now_us)
        for packet, _ in PACKETS.opened(self.codec, packets):
            assert self.links.hear(packet.sender)
            (self.links.take if isinstance(packet, LinkData) else self.links.answer)(packet, out)
        (link,) = self.links.peers.values()
        while (found := self.links.next_message(link.stream)) is not None:
            self.got.append(found[1])
        self.links.conclude(self.links.own.end, out)
        self.links.report(out)
        return [bytes(each) for sent in out if isinstance(sent, Send) for each in sent.packets]


def pair() -> tuple[Process, Process]:
    a, b = Process("a", 1), Process("b", 2)
    a.links.add(b.me)
    b.links.add(a.me)
    return a, b


@given(st.lists(st.binary(max_size=700), max_size=8), st.integers(0, 1 << 32))
def test_all_arrives_once_and_in_order_and_is_then_forgotten(
    messages: list[bytes], seed: int
) -> None:
    dice, (a, b) = Random(seed), pair()
    for number, message in enumerate(messages, 1):
        a.links.append(message, 0, 7, number, 0)
        b.links.append(message[::-1], 0, 8, number, 0)
    to_a: list[bytes] = []
    for beat in range(1, 200):
        to_b = [each for each in a.step(beat * BEAT_US, to_a) if dice.random() < 0.7]
        to_a = [each for each in b.step(beat * BEAT_US, to_b) if dice.random() < 0.7]
        done = len(a.got) == len(b.got) == len(messages)
        if done and a.links.own.nbytes == b.links.own.nbytes == 0:
            break
    assert b.got == messages
    assert a.got == [message[::-1] for message in messages]
    assert a.links.own.nbytes == b.links.own.nbytes == 0


def test_a_peer_that_falls_silent_is_reported_and_one_that_beats_is_not() -> None:
    a, b = pair()
    to_a: list[bytes] = []
    for beat in range(1, 3 * BEATS):
        to_a = b.step(beat * BEAT_US, a.step(beat * BEAT_US, to_a))
        assert a.links.silent() == b.links.silent() == []
    for beat in range(3 * BEATS, 6 * BEATS):
        a.step(beat * BEAT_US, [])
        a.links.silent()
    assert a.links.silent() == list(a.links.peers)


def test_packets_are_named_by_their_labels_or_records_and_hostile_ones_dropped() -> None:
    a, _ = pair()
    (packet,) = PACKETS.sealed(a.codec, [LinkBeat(1, 2, 3, ((4, 5), (7, 7)))])
    assert PACKETS.label(packet) == "nak 4-5 7"
    assert PACKETS.label(packet[:-1]) == ""
    ((found, _),) = PACKETS.opened(a.codec, [packet, a.codec.seal(1, b"x")])
    assert found == LinkBeat(1, 2, 3, ((4, 5), (7, 7)))
    assert a.codec.counts["drop.malformed"] == 1
