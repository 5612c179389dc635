"""Vertices of several packets, and packets that contradict each other."""

from __future__ import annotations

import pytest

from unisono.errors import BadPacket
from unisono.parts.turn import Turn
from unisono.protocols.transis.assembly import VertexAssembly, turn_of
from unisono.protocols.transis.graph import Vertex
from unisono.protocols.transis.packets import VertexPiece

VERTEX = Vertex(1, 7, (0, 6), b"payload " * 20)
THEIRS, OTHERS = 1, 0


def piece(at: int, by: int = THEIRS, nbytes: int = 40) -> VertexPiece:
    """As a member cuts it whose packets have room for this much."""
    turn: Turn = turn_of(VERTEX, by, nbytes)
    return VertexPiece(9, 1, 7, turn.count, by, at, turn.pieces(range(at, at + 1)))


def test_a_packet_with_another_count_replaces_nothing_that_its_sender_sent() -> None:
    assembly = VertexAssembly()
    count = piece(0).of
    for at in range(count - 1):
        assert assembly.take(piece(at)) is None
    forged = piece(0)._replace(of=count + 1)
    again = piece(0, by=OTHERS)._replace(of=1, pieces=(b"forged",))
    for packet in (forged, again):
        with pytest.raises(BadPacket, match="contradicted"):
            assembly.take(packet)
    assert assembly.take(piece(count - 1)) == VERTEX


def test_of_what_others_send_again_the_last_counts() -> None:
    assembly = VertexAssembly()
    assembly.take(piece(0, by=OTHERS)._replace(of=9))
    count = piece(0).of
    found = [assembly.take(piece(at, by=OTHERS)) for at in range(count)]
    assert found[-1] == VERTEX


def test_what_was_requested_comes_in_packets_of_any_size() -> None:
    """The sender is gone after its first packet; who answers cuts the vertex otherwise."""
    for nbytes in (25, 60, 1000):
        assembly = VertexAssembly()
        assembly.take(piece(0))
        count = piece(0, nbytes=nbytes).of
        found = [assembly.take(piece(at, OTHERS, nbytes), True) for at in range(count)]
        assert found[-1] == VERTEX


def test_only_what_is_missing_of_a_vertex_that_no_longer_comes_is_requested() -> None:
    assembly = VertexAssembly()
    count = piece(0).of
    assert count == 5
    assembly.take(piece(0))
    assembly.take(piece(2))
    assert assembly.gaps() == [], "more may be on its way"
    assert assembly.gaps() == [(1, 7, 1, 1), (1, 7, 3, 4)]
    assembly.take(piece(3))
    assert assembly.gaps() == []
    assert assembly.gaps() == [(1, 7, 1, 1), (1, 7, 4, 4)]
