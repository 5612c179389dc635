"""All packets of MTP, and datagrams to packets; hostile bytes raise only `BadPacket`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from unisono.errors import BadPacket
from unisono.layout import decode
from unisono.parts.codec import PacketTrain
from unisono.parts.labels import labeller
from unisono.protocols.mtp.packets import (
    HEADER,
    KINDS,
    PROTOCOL,
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
    PacketKind,
    Propose,
    Refuse,
    ReplicaSeat,
    Report,
    Stand,
    StatePiece,
    StateRequest,
    Support,
    TokenRequest,
)
from unisono.wire import Envelope, read_once

OfMessages: TypeAlias = Data | Empty | TokenRequest | Grant | Nak | Deny
OfMembers: TypeAlias = Report | LeaveRequest | Expel | Confirm | StateRequest | StatePiece
OfCouncil: TypeAlias = Propose | Ack | Stand | Support
WithHeader: TypeAlias = OfMessages | OfMembers | OfCouncil
Packet: TypeAlias = WithHeader | JoinRequest | Refuse | ReplicaSeat
FROM_OUTSIDE: Final = (JoinRequest, Refuse, ReplicaSeat)
OF_COUNCIL: Final = (Propose, Ack, Stand, Support)
WITHOUT_HEADER: Final[dict[int, Any]] = {
    PacketKind.JOIN: JoinRequest,
    PacketKind.REFUSE: Refuse,
    PacketKind.SEAT: ReplicaSeat,
}
BEHIND_HEADER: Final[dict[int, Any]] = {
    PacketKind.EMPTY: Empty,
    PacketKind.REQUEST: TokenRequest,
    PacketKind.GRANT: Grant,
    PacketKind.NAK: Nak,
    PacketKind.DENY: Deny,
    PacketKind.REPORT: Report,
    PacketKind.LEAVE: LeaveRequest,
    PacketKind.EXPEL: Expel,
    PacketKind.CONFIRM: Confirm,
    PacketKind.STATE_ASK: StateRequest,
    PacketKind.STATE: StatePiece,
    PacketKind.PROPOSE: Propose,
    PacketKind.ACK: Ack,
    PacketKind.STAND: Stand,
    PacketKind.SUPPORT: Support,
}
_DATA: Final = PacketKind.DATA.value


def count_of(packet: Packet) -> int:
    """How many datagrams it stands for."""
    return len(packet.pieces) if isinstance(packet, Data) else 1


def read(kind: int, body: memoryview) -> Packet:
    """The packet of this kind, or `BadPacket`."""
    packet: Packet
    if kind in WITHOUT_HEADER:
        packet = decode(WITHOUT_HEADER[kind], body)
        return packet
    header, at = HEADER.read(body, 0)
    if kind == _DATA:
        return Data.read(header, body[at:])
    packet = decode(BEHIND_HEADER[kind], body[at:], header)
    return packet


def read_packets(opened: Envelope | PacketTrain, drop: Callable[[str], None]) -> Sequence[Packet]:
    """The packets of an envelope or a train; consecutive ones of a message are one."""
    if isinstance(opened, PacketTrain) and (rows := _rows(opened)):
        return rows
    found: list[Packet] = []
    for kind, _, body in opened.envelopes() if isinstance(opened, PacketTrain) else (opened,):
        try:
            found.append(read_once(read, kind, body))
        except BadPacket as bad:
            drop(bad.reason)
    return found


def _rows(train: PacketTrain) -> Sequence[Data]:
    """Packets of a message, row by row; none where they are of another kind or the message ends:
    then they are read one by one."""
    if train.first.kind != _DATA:
        return []
    try:
        data = read(_DATA, train.first.body)
    except BadPacket:
        return []
    assert isinstance(data, Data)
    upper = data.packet & ~0xFFFF
    rows = () if data.end else train.rows()
    return [data._replace(packet=upper | index, pieces=pieces) for index, pieces in rows]


def _describe(envelope: Envelope) -> str:
    packet = read(envelope.kind, envelope.body)
    named: Callable[[], str] | None = getattr(packet, "label", None)
    return KINDS[envelope.kind] if named is None else named()


label: Final = labeller(PROTOCOL, KINDS, _describe)
"""`data 5.0`, `nak 5.1-5.3`, `grant 6`: messages by their number, packets after the dot."""
