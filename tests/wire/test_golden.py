"""The wire format does not change by accident: packets recorded from simulated runs, of every kind,
still read as they did, and are written again byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.forging import WIRES
from unisono import protocols

LINES = (Path(__file__).parent / "golden_packets.txt").read_text().splitlines()


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split(" ", 2)[2][:30])
def test_a_recorded_packet_reads_as_it_did(line: str) -> None:
    protocol, data, label = line.split(" ", 2)
    packet = bytes.fromhex(data)
    assert protocols.spec(protocol).label(packet) == label
    wire = WIRES[protocol]
    envelope, read = wire.read(packet)
    assert wire.write(read) == bytes(envelope.body)


def test_packets_of_every_kind_were_recorded() -> None:
    found: dict[str, set[int]] = {name: set() for name in WIRES}
    for line in LINES:
        protocol, data, _ = line.split(" ", 2)
        found[protocol].add(bytes.fromhex(data)[4])
    assert found == {name: set(wire.kinds) for name, wire in WIRES.items()}
