"""The wire format does not change by accident: packets recorded from simulated runs, of every kind,
still read as they did, and are written again byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unisono import protocols
from unisono.layout import encode
from unisono.protocols.mtp import packets as mtp
from unisono.protocols.mtp.reading import FROM_OUTSIDE
from unisono.protocols.mtp.reading import read as read_mtp
from unisono.protocols.ring import packets as ring
from unisono.protocols.ring.codes import KINDS as ring_kinds
from unisono.protocols.rmcast import packets as rmcast
from unisono.wire import Envelope, group_of, unseal

LINES = (Path(__file__).parent / "golden_packets.txt").read_text().splitlines()
NUMBERS = {"mtp": 1, "ring": 3, "rmcast": 4}


def rmcast_again(envelope: Envelope) -> bytes:
    packet = rmcast.read(envelope.kind, envelope.body)
    if isinstance(packet, rmcast.Data):
        header = rmcast.write_header(packet.header)
        return rmcast.Data.body(header, packet.origin, packet.first, packet.chunks)
    if isinstance(packet, rmcast.Beat | rmcast.StateRequest | rmcast.StatePiece):
        return rmcast.write_header(packet.header) + encode(packet)
    return encode(packet)


def mtp_again(envelope: Envelope) -> bytes:
    packet = read_mtp(envelope.kind, envelope.body)
    if isinstance(packet, FROM_OUTSIDE):
        return encode(packet)
    header = mtp.write_header(packet.header)
    if isinstance(packet, mtp.Data):
        _, origin, number, first, end, pieces = packet
        return mtp.Data.body(header, origin, number, first, end, pieces[0])
    return header + encode(packet)


def ring_again(envelope: Envelope) -> bytes:
    packet = ring.read(*envelope)
    front = packet.header.packed(len(envelope.body))
    if isinstance(packet, ring.TurnPacket):
        pieces = b"".join(packet.pieces)
        return front + encode(ring.TurnFront(packet.of, packet.flags, packet.at)) + pieces
    return front + encode(packet)


AGAIN: dict[str, Callable[[Envelope], bytes]] = {
    "rmcast": rmcast_again,
    "mtp": mtp_again,
    "ring": ring_again,
}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split(" ", 2)[2][:30])
def test_a_recorded_packet_reads_as_it_did(line: str) -> None:
    protocol, data, label = line.split(" ", 2)
    packet = bytes.fromhex(data)
    assert protocols.spec(protocol).label(packet) == label
    envelope = unseal(packet, NUMBERS[protocol], group_of(packet))
    assert AGAIN[protocol](envelope) == bytes(envelope.body)


def test_packets_of_every_kind_were_recorded() -> None:
    found: dict[str, set[int]] = {name: set() for name in NUMBERS}
    for line in LINES:
        protocol, data, _ = line.split(" ", 2)
        found[protocol].add(bytes.fromhex(data)[4])
    assert found == {"rmcast": set(rmcast.KINDS), "mtp": set(mtp.KINDS), "ring": set(ring_kinds)}
