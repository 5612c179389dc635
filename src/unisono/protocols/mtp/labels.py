"""A packet of MTP in a few words, for those who look at a trace."""

from __future__ import annotations

from unisono.errors import BadPacket
from unisono.model import Buffer
from unisono.protocols.mtp.batch import Form
from unisono.protocols.mtp.packets import (
    KINDS,
    PROTOCOL,
    WHOLE,
    Ack,
    Confirm,
    Data,
    Deny,
    Empty,
    Expel,
    Grant,
    JoinRequest,
    LeaveRequest,
    Nak,
    Packet,
    Pressure,
    Propose,
    Range,
    Refuse,
    ReplicaSeat,
    Report,
    Stand,
    StatePiece,
    StateRequest,
    Support,
    TokenRequest,
)
from unisono.protocols.mtp.reading import read
from unisono.protocols.mtp.state import ROSTER
from unisono.wire import Reader, unseal


def label(packet: Buffer) -> str:
    """`data 5.0`, `nak 5.1-5.3`, `grant 6`: messages by their number, packets after the dot. What
    is no packet of ours has no words."""
    try:
        front = Reader(packet)
        front.raw(6)
        # Who traces a packet may be of any group: the packet's own is taken for right.
        envelope = unseal(packet, PROTOCOL, front.u64())
        if envelope.kind not in KINDS:
            return ""
        return _words(read(envelope.kind, envelope.body))
    except BadPacket:
        return ""


def _words(packet: Packet) -> str:
    match packet:
        case Data() | Empty() | Grant() | TokenRequest() | Nak() | Deny():
            return _of_messages(packet)
        case Propose() | Ack():
            return f"{'ack' if isinstance(packet, Ack) else 'propose'} {_version(packet)}"
        case Stand() | Support():
            return f"{'stand' if isinstance(packet, Stand) else 'support'} {packet.ballot}"
        case ReplicaSeat():
            return "seat"
        case Report(pressure=pressure):
            return f"report {pressure.name.lower()}" if pressure is not Pressure.CALM else "report"
        case StateRequest() | StatePiece():
            return _of_state(packet)
        case _:
            return _at_the_door(packet)


def _of_messages(packet: Data | Empty | Grant | TokenRequest | Nak | Deny) -> str:
    match packet:
        case Data():
            said = f"data {packet.number}.{packet.packet}{' end' * packet.end}"
            first = bytes(packet.piece[:1]) if packet.packet == 0 else b""
            return f"{said} view" if first == bytes((Form.CHANGE,)) else said
        case Empty(number=0):
            return f"empty {packet.header.base}"
        case Empty():
            last = max(packet.packets - 1, 0)
            return f"empty {_range((packet.number, 0, last))}{' end' * packet.ended}"
        case Grant():
            return f"grant {packet.number}"
        case TokenRequest():
            return "request"
        case Nak():
            return " ".join(("nak", *map(_range, packet.ranges)))
        case Deny():
            return " ".join(("deny", *map(str, packet.numbers)))


def _range(asked: Range) -> str:
    number, first, last = asked
    if first == WHOLE:
        return f"{number} status"
    if last == WHOLE:
        return f"{number}.{first} on"
    return f"{number}.{first}" if first == last else f"{number}.{first}-{number}.{last}"


def _version(packet: Propose | Ack) -> str:
    return f"{packet.ballot}.{packet.version}"


def _of_state(packet: StateRequest | StatePiece) -> str:
    what = "roster" if packet.what == ROSTER else "state"
    if isinstance(packet, StateRequest):
        return f"{what}-ask from {packet.offset}" if packet.pieces else f"{what}-taken"
    last = packet.offset + max(len(packet.piece) - 1, 0)
    octets = f"{packet.offset}" if last == packet.offset else f"{packet.offset}-{last}"
    return f"{what} {octets} of {packet.total}"


def _at_the_door(packet: JoinRequest | Confirm | Refuse | LeaveRequest | Expel) -> str:
    match packet:
        case JoinRequest():
            return "withdraw" if packet.withdrawn else "join"
        case Confirm():
            return f"confirm {packet.first}"
        case Refuse():
            return f"refuse: {packet.reason}"
        case LeaveRequest():
            return "leave"
        case Expel():
            return "expel"
