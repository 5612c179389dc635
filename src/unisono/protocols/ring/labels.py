"""Labels of the ring's packets, for traces and drawings."""

from __future__ import annotations

from typing import Final

from unisono.parts.labels import labeller
from unisono.parts.turn import MORE, read_runs
from unisono.protocols.ring.codes import KINDS, Code
from unisono.protocols.ring.packets import (
    PROTOCOL,
    WHOLE,
    Abort,
    Control,
    CoordRequest,
    Delegate,
    MemberRecord,
    Packet,
    Range,
    Rejection,
    ResendRequest,
    RingPart,
    StatePiece,
    StateRequest,
    TurnPacket,
    read,
)


def _label(packet: Packet) -> str:
    match packet:
        case TurnPacket():
            return _of_turn(packet)
        case Delegate():
            return _of_delegate(packet)
        case ResendRequest():
            return " ".join(("ask", *map(_range, packet.ranges)))
        case Control():
            return _of_control(packet)
        case MemberRecord():
            return _of_member_record(packet)
        case RingPart():
            part = f".{packet.at}" if packet.of > 1 else ""
            return f"newtr {packet.header.version.number}{part}"
        case Abort():
            return f"abort {packet.attempt}"
        case CoordRequest():
            return "coord"
        case Rejection():
            return f"{'stale' if packet.code is Code.STALE else 'refuse'}: {packet.reason}"
        case StateRequest() | StatePiece():
            return _of_state(packet)


def _of_turn(packet: TurnPacket) -> str:
    kind = "resend" if packet.again else "token"
    if packet.of > 1:
        return f"{kind} {packet.header.s}.{packet.at}{' end' * (packet.at + 1 == packet.of)}"
    return f"{kind} {packet.header.s}{'' if packet.pieces[0] else ' null'}"


def _of_delegate(packet: Delegate) -> str:
    """With the originator's numbers; without any it only requests the token."""
    runs = read_runs(packet.piece)
    if not runs:
        return "delegate"
    first = runs[0].first
    last = first + max(0, sum(group.times for group in runs[0].groups if not group.mark & MORE) - 1)
    return f"delegate {first}" if first == last else f"delegate {first}-{last}"


def _range(requested: Range) -> str:
    s, first, last = requested
    if last == WHOLE:
        return f"{s}.{first} on" if first else f"{s}"
    return f"{s}.{first}" if first == last else f"{s}.{first}-{s}.{last}"


def _of_control(packet: Control) -> str:
    header = packet.header
    match packet.code:
        case Code.FAST_ACK:
            return f"fast_ack {header.s}"
        case Code.TS_ALIVE_RQU:
            return "alive?"
        case Code.TS_ALIVE_RSP:
            return "alive"
        case Code.RESUME_RQU:
            return f"resume? {header.version.number}"
        case Code.RELEASE:
            return "release"
        case _:
            return f"{packet.code.name.lower()} {header.version.number}"


def _of_member_record(packet: MemberRecord) -> str:
    match packet.code:
        case Code.REF_INV_BC:
            return f"invite {packet.attempt}"
        case Code.RSP_POS:
            return f"pos {packet.attempt} s={packet.header.s}"
        case Code.RSP_NEG:
            return f"neg {packet.attempt}"
        case Code.RING_INFO:
            return f"info {packet.header.version.number} s={packet.header.s}"
        case Code.MEMBER_JOIN:
            return "join"
        case _:
            return packet.code.name.lower()


def _of_state(packet: StateRequest | StatePiece) -> str:
    if isinstance(packet, StateRequest):
        return f"state_ask from {packet.offset}"
    last = packet.offset + max(len(packet.piece) - 1, 0)
    span = f"{packet.offset}" if last == packet.offset else f"{packet.offset}-{last}"
    return f"state {span} of {packet.total}"


label: Final = labeller(PROTOCOL, KINDS, lambda envelope: _label(read(*envelope)))
"""`token 12`, `resend 12.3`, `invite 5`: turns by S, their packets after the dot, rings by the
number of their version."""
