"""The labels of packets: short, with the packet's kind and numbers, and never an exception."""

from __future__ import annotations

from random import Random

import pytest

from tests.draw import mtp_packets, rmcast_packets
from tests.rmp.stage import Stage
from unisono.draw.labels import DATA, JOIN, NAK, OTHER, QUIET, REFUSAL, STATE, TOKEN, category
from unisono.model import Service
from unisono.protocols import specs
from unisono.protocols.mtp.packets import PacketKind as MtpKind
from unisono.protocols.rmcast.packets import PacketKind as RmcastKind
from unisono.wire import FRONT_BYTES, SUM_BYTES, seal

SAMPLES = {"mtp": mtp_packets.PACKETS, "rmcast": rmcast_packets.PACKETS}
KINDS = {"mtp": MtpKind, "rmcast": RmcastKind}
EACH = [(protocol, label) for protocol, packets in SAMPLES.items() for label in packets]


def packet(protocol: str, label: str) -> bytes:
    kind, body = SAMPLES[protocol][label]
    return seal(specs()[protocol].wire_number, kind, 77, 1, body)


@pytest.mark.parametrize(("protocol", "label"), EACH)
def test_a_packet_has_its_label(protocol: str, label: str) -> None:
    label_of = specs()[protocol].label
    assert label_of(packet(protocol, label)) == label
    assert label_of(memoryview(bytearray(packet(protocol, label)))) == label


@pytest.mark.parametrize("protocol", SAMPLES)
def test_every_kind_of_packet_is_among_the_samples(protocol: str) -> None:
    assert {kind for kind, _ in SAMPLES[protocol].values()} == set(KINDS[protocol])


def test_every_packet_of_a_run_of_rmp_has_a_category() -> None:
    stage = Stage("a", "b", "c", detect_us=200_000)
    stage.multicast("a", b"x", service=Service.UNRELIABLE)
    stage.kill("c")
    stage.run(3_000_000)
    words = {label.split()[0] for _, _, label in stage.packets}
    assert {"best-effort", "new-list", "announce", "confirm"} < words
    assert {word for word in words if category(word, "rmp") == OTHER} == set()


@pytest.mark.parametrize(
    ("drawn_as", "label"),
    [
        (DATA, "data 5.0 end view"),
        (NAK, "nak 5 status"),
        (REFUSAL, "deny 5 6"),
        (REFUSAL, "expel"),
        (TOKEN, "request"),
        (TOKEN, "grant 6"),
        (TOKEN, "propose 3.17"),
        (TOKEN, "ack 3.17"),
        (JOIN, "join"),
        (JOIN, "confirm 12"),
        (JOIN, "stand 5"),
        (STATE, "roster-ask from 0"),
        (STATE, "state 20-24 of 90"),
        (QUIET, "empty 5.0-5.3"),
        (QUIET, "report losing"),
        (QUIET, "seat"),
    ],
)
def test_a_label_decides_how_a_packet_is_drawn(drawn_as: str, label: str) -> None:
    assert label in SAMPLES["mtp"] and category(label, "mtp") == drawn_as


@pytest.mark.parametrize(("protocol", "some"), [("mtp", "report"), ("rmcast", "beat")])
def test_bytes_that_are_no_packet_have_no_label(protocol: str, some: str) -> None:
    label_of, number = specs()[protocol].label, specs()[protocol].wire_number
    good, dice = packet(protocol, some), Random(3)
    for bad in (b"", good[:20], good[:-1], b"\0" * 60):
        assert label_of(bad) == ""
    assert label_of(seal(number, 99, 77, 1, b"")) == "", "no such kind"
    kind, _ = SAMPLES[protocol][some]
    assert label_of(seal(number + 1, kind, 77, 1, good[FRONT_BYTES:-SUM_BYTES])) == ""
    for kind, body in SAMPLES[protocol].values():
        for _ in range(200):
            damaged = bytearray(body)
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
            label_of(seal(number, kind, 77, 1, damaged[: dice.randrange(len(damaged) + 1)]))
