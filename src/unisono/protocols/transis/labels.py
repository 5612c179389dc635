"""Packet labels for traces. A vertex tells what it acknowledges, from which `unisono draw --graph`
draws the causal graph."""

from __future__ import annotations

from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.fields import U32
from unisono.layout import decode_front
from unisono.model import Buffer
from unisono.parts.labels import labeller, number_range
from unisono.parts.turn import MORE, RunHead, TurnHead
from unisono.protocols.transis.configuration import short_life
from unisono.protocols.transis.packets import KINDS, PROTOCOL, VertexPiece, read
from unisono.wire import Envelope


class VertexAcks(NamedTuple):
    """What the content of a vertex begins with."""

    acks: tuple[U32, ...]


def _described(envelope: Envelope) -> str:
    packet = read(envelope)
    text = str(packet.label())
    if isinstance(packet, VertexPiece) and packet.at == 0:
        text += f" in {short_life(packet.life)}{_content(packet.pieces[0])}"
    return text


def _content(piece: Buffer) -> str:
    """Its acknowledgments by rank, and the numbers of its messages. In a first packet of several
    these may be cut short."""
    try:
        (acks,), payload = decode_front(VertexAcks, piece)
    except BadPacket:
        return ""
    after = f" after {' '.join(map(str, acks))}"
    try:
        runs = decode_front(TurnHead, payload)[0].runs if payload else ()
    except BadPacket:
        return after
    return after + "".join(map(_messages, runs))


def _messages(run: RunHead) -> str:
    whole = sum(group.times for group in run.groups if not group.mark & MORE)
    return f" with {number_range(run.first, run.first + max(whole, 1) - 1)}"


label: Final = labeller(PROTOCOL, KINDS, _described)
"""A `ProtocolSpec.label`."""
