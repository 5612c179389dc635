"""A packet of rmcast in a few words, for those who look at a trace."""

from __future__ import annotations

from unisono.errors import BadPacket
from unisono.model import Buffer
from unisono.protocols.rmcast.control import Add, Bye, read_control
from unisono.protocols.rmcast.packets import (
    CONTROL,
    KINDS,
    PROTOCOL,
    Announce,
    Beat,
    Data,
    Packet,
    Refuse,
    Seek,
    StatePiece,
    StateRequest,
    WelcomePart,
    read,
)
from unisono.wire import Reader, unseal


def label(packet: Buffer) -> str:
    """`data @5d2f01c9.4-7`, `nak @5d2f01c9.5`: a stream is named by its member's key, which who
    reads the whole trace can turn into a name. What is no packet of ours has no words."""
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
        case Data():
            return _of_data(packet)
        case Beat(expels=expels) if expels:
            return "expel"
        case Beat(probes=True):
            return "probe"
        case Beat(asks=asks):
            return " ".join(("nak", *(_stream(*ask) for ask in asks))) if asks else "beat"
        case Seek():
            word = "withdraw" if packet.withdrawn else "seek"
            return f"{word} for {packet.member.name}" if packet.forwarded else word
        case Announce():
            return "announce"
        case WelcomePart(parts=1):
            return "welcome"
        case WelcomePart():
            return f"welcome {packet.part + 1} of {packet.parts}"
        case Refuse():
            return f"refuse: {packet.reason}"
        case StateRequest():
            return f"state-ask from {packet.offset}"
        case StatePiece():
            last = packet.offset + max(len(packet.piece) - 1, 0)
            return f"state {_range(packet.offset, last)} of {packet.total}"


def _of_data(data: Data) -> str:
    said = f"data {_stream(data.origin, data.first, data.first + len(data.chunks) - 1)}"
    for chunk in data.chunks:
        if chunk.flags & CONTROL:
            order = read_control(chunk.payload)
            if isinstance(order, Add):
                return f"{said} add {order.member.name}"
            return f"{said} bye" if isinstance(order, Bye) else f"{said} after"
    return said


def _stream(key: int, first: int, last: int) -> str:
    return f"@{key:08x}.{_range(first, last)}"


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"
