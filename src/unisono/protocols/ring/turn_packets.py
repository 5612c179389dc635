"""Fast path: the packets of a turn of many, sealed a burst at a time while they are sent.

`SealedTurn` holds the values from which the packets follow and nothing else, so that a `Send` stays
a value: the packets are the same whenever, and however often, they are made. `sealed_one_by_one`
is its slow twin, and a property test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from unisono.model import Burst, Bursts
from unisono.parts.codec import PacketCodec
from unisono.parts.turn import Turn
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.packets import ALIKE_BYTES, PIECE_AT, PROTOCOL, TURN, Header
from unisono.wire import ENVELOPE_BYTES, seal, seal_batch

BURST: Final = 44
"""Packets sealed at once: as many as one call sends at the usual packet size."""


@dataclass(frozen=True, slots=True)
class SealedTurn:
    """Some packets of a turn. All have one length but the last of the turn."""

    group: int
    code: Code
    header: Header
    turn: Turn
    indices: range
    leader: int

    def __iter__(self) -> Iterator[Burst]:
        turn, indices = self.turn, self.indices
        size = ENVELOPE_BYTES + PIECE_AT + turn.piece_bytes
        whole = min(indices.stop, len(turn.content) // turn.piece_bytes)
        rows = [range(at, min(at + BURST, whole)) for at in range(indices.start, whole, BURST)]
        if whole < indices.stop:
            rows.append(range(whole, indices.stop))
        for row in rows:
            pieces = turn.pieces(row)
            front = self.header.packed(PIECE_AT + len(pieces[0]))
            head = (front + TURN.pack(turn.count, turn.flags, 0))[:ALIKE_BYTES]
            packets = seal_batch(
                PROTOCOL, self.code, self.group, self.leader, head, pieces, row.start
            )
            yield Burst(memoryview(packets), size)


def sealed_turn(
    codec: PacketCodec, code: Code, header: Header, turn: Turn, indices: range, leader: int
) -> Bursts:
    return Bursts(len(indices), SealedTurn(codec.group, code, header, turn, indices, leader))


def sealed_one_by_one(each: SealedTurn) -> list[bytes]:
    """The slow twin."""
    turn, packets = each.turn, []
    for index in each.indices:
        piece = turn.content[index * turn.piece_bytes :][: turn.piece_bytes]
        front = each.header.packed(PIECE_AT + len(piece))
        body = front + TURN.pack(turn.count, turn.flags, index) + piece
        packets.append(seal(PROTOCOL, each.code, each.group, each.leader, body))
    return packets
