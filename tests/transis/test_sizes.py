"""What a member says of the largest group fits one packet, whatever it is called."""

from __future__ import annotations

import pytest

from unisono.config import PACKET_BYTES_MIN
from unisono.core import CoreConfig, Effect, Send
from unisono.layout import encode
from unisono.model import Address, Member
from unisono.parts.admission import Terms
from unisono.parts.codec import PacketCodec
from unisono.parts.core_clock import CoreClock
from unisono.parts.identity import key_of
from unisono.protocols.transis.configuration import Configuration
from unisono.protocols.transis.congestion import NetworkWindow
from unisono.protocols.transis.graph import Vertex
from unisono.protocols.transis.ordering import Ordering
from unisono.protocols.transis.packets import KINDS, PROTOCOL, Agree, VertexNak, VertexPiece
from unisono.protocols.transis.parameters import DEFAULTS, MEMBERS_MAX, Parameters
from unisono.protocols.transis.repair import RANGES_MAX, Repair
from unisono.protocols.transis.state import LocalMember, PacketSender
from unisono.protocols.transis.suggestion import FAILED_MIN, Suggestion, members_that_fit
from unisono.wire import ENVELOPE_BYTES

HOST = "fe80:1111:2222:3333:4444:5555:6666:7777%" + "e" * 24
ME = Member("m" * 64, Address(HOST, 65535), (1 << 63) - 1)


@pytest.mark.parametrize("packet_bytes_max", [PACKET_BYTES_MIN, 600, 1400, 9000])
def test_a_suggestion_and_an_agreement_fit(packet_bytes_max: int) -> None:
    packet_bytes = packet_bytes_max - ENVELOPE_BYTES
    count = min(MEMBERS_MAX, members_that_fit(packet_bytes))
    suggestion = Suggestion(ME, count)
    suggestion.begin(dict.fromkeys(range(1, count), 1 << 30))
    suggestion.fail(range(1000, 2000))
    packet = suggestion.packet(packet_bytes)
    assert len(packet.proposed) == count and key_of(ME) in dict(packet.proposed)
    assert len(packet.failed) >= FAILED_MIN
    assert len(encode(packet)) <= packet_bytes
    agree = Agree(1, ME, 1, (1,) * count, 1, False, False, False)
    assert len(encode(agree)) <= packet_bytes


def test_a_request_fits_the_least_packet() -> None:
    nak = VertexNak(1, 1, ((1, 1, 1),) * RANGES_MAX, ((1, 1, 1, 1),) * RANGES_MAX)
    assert len(encode(nak)) <= PACKET_BYTES_MIN - ENVELOPE_BYTES


def test_a_gap_full_of_incomplete_vertices_is_requested_in_packets_that_fit() -> None:
    members = (Member("a", Address("127.0.0.1", 1), 1), Member("b", Address("127.0.0.1", 2), 1))
    config = CoreConfig(members[0], "g", 1, packet_bytes_max=PACKET_BYTES_MIN)
    local = LocalMember(members[0], clock := CoreClock(1))
    local.enter(Configuration(7, 1, members, {key_of(each): 1 for each in members}))
    codec = PacketCodec(PROTOCOL, KINDS, Terms.of(config, "transis", DEFAULTS))
    outgoing = PacketSender(codec, clock)
    window = NetworkWindow(1 << 20)
    repair = Repair(config, Parameters.of({}), local, codec, outgoing, window, lambda rank: False)
    ordering = Ordering(local.configuration, 0, (0, 0), False, codec.drop)
    for index in range(2, 300, 2):
        repair.assembly.take(VertexPiece(7, 1, index, 2, 1, 0, (b"half",)))
    repair.assembly.gaps()  # No more of them comes.
    ordering.add(Vertex(1, 300, (0, 299), b""))
    out: list[Effect] = []
    repair.ask(ordering, out)
    (send,) = out
    assert isinstance(send, Send)
    assert all(len(packet) <= PACKET_BYTES_MIN for packet in send.packets)
