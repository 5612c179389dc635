"""Vertices of several packets, put together as the packets arrive."""

from __future__ import annotations

from typing import Final

from unisono.errors import BadPacket
from unisono.layout import decode, encode
from unisono.parts.turn import IncomingTurn, Turn
from unisono.protocols.transis.graph import Vertex
from unisono.protocols.transis.packets import VertexContent, VertexPiece

INCOMING_MAX: Final = 256
"""Vertices of which packets are missing; the oldest is forgotten, and requested again."""


def turn_of(vertex: Vertex, by: int, piece_bytes: int) -> Turn:
    """A vertex as the member of this rank cuts it into packets."""
    content = encode(VertexContent(vertex.acks, vertex.payload))
    return Turn(vertex.index, vertex.sender, by, content, piece_bytes)


class VertexAssembly:
    """Incomplete vertices of one configuration."""

    def __init__(self) -> None:
        self._incoming: dict[tuple[int, int], IncomingTurn] = {}
        self._growing: set[tuple[int, int]] = set()
        """Those of which something came since `gaps` was last asked for: more may be on its way."""

    def take(self, packet: VertexPiece, is_requested: bool = False) -> Vertex | None:
        """The vertex, once all of it is here; `BadPacket` if it is none. Members may cut it into
        packets of other sizes: one that was requested replaces what was not enough."""
        key = packet.sender, packet.number
        again = packet.by != packet.sender
        found = self._incoming.get(key)
        if found is not None and len(found.pieces) != packet.of:
            if not is_requested and not found.gives_way(packet.of, again):
                raise BadPacket("contradicted")
            del self._incoming[key]
            found = None
        if packet.of == 1:
            return _vertex(*key, bytes(packet.pieces[0]))
        if found is None:
            if len(self._incoming) >= INCOMING_MAX:
                del self._incoming[next(iter(self._incoming))]
            found = IncomingTurn(packet.sender, 0, [None] * packet.of, packet.of)
            self._incoming[key] = found
        found.is_repair &= again
        found.take(packet.at, packet.pieces)
        if found.missing:
            self._growing.add(key)
            return None
        del self._incoming[key]
        whole = found.turn(packet.number)
        if whole is None:
            raise BadPacket("malformed")
        return _vertex(*key, whole.content)

    def forget(self, sender: int, index: int) -> None:
        """It is here, by another way."""
        self._incoming.pop((sender, index), None)

    def gaps(self) -> list[tuple[int, int, int, int]]:
        """Of those that no longer grow, rank and index of the vertex, and the first and last packet
        of each range that is missing."""
        growing, self._growing = self._growing, set()
        return [
            (*key, first, last)
            for key, found in self._incoming.items()
            if key not in growing
            for first, last in found.gaps(len(found.pieces) - 1)
        ]

    def __len__(self) -> int:
        return len(self._incoming)

    def indices(self, sender: int, first: int, last: int) -> list[int]:
        """Of this sender's, those from one index to another; found by what is here, since a range
        that somebody claims may be of any length."""
        return sorted(
            index for its, index in self._incoming if its == sender and first <= index <= last
        )


def _vertex(sender: int, index: int, content: bytes) -> Vertex:
    found = decode(VertexContent, content)
    return Vertex(sender, index, found.acks, found.payload)
