"""Bytes to packets: hostile bytes raise `BadPacket`, and nothing else. And packets in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from unisono.errors import BadPacket
from unisono.model import Address
from unisono.parts.codec import PacketTrain
from unisono.protocols.mtp.packets import (
    COUNT_MAX,
    DATA,
    DATA_BYTES,
    FORGOTTEN_BITS,
    HEADER,
    HEADER_BYTES,
    NUMBER_MAX,
    STATE,
    STATE_BYTES,
    Ack,
    Confirm,
    Data,
    Deny,
    Empty,
    Expel,
    Grant,
    Header,
    InWeb,
    JoinRequest,
    LeaveRequest,
    Nak,
    Packet,
    PacketKind,
    Pressure,
    Propose,
    Refuse,
    ReplicaSeat,
    Report,
    Stand,
    StatePiece,
    StateRequest,
    Support,
    TokenRequest,
    statuses_of,
)
from unisono.wire import INCARNATION_MAX, Envelope, Reader, read_once


def _read_header(body: memoryview) -> tuple[Header, memoryview]:
    header = Header(*HEADER.read(body))
    if not 1 <= header.t <= 32 or header.base | header.next | header.taken >= NUMBER_MAX:
        raise BadPacket("malformed")
    statuses_of(header.bits, header.t)
    return header, body[HEADER_BYTES:]


def _number(reader: Reader) -> int:
    value = reader.u64()
    if value >= NUMBER_MAX:
        raise BadPacket("malformed")
    return value


def _count(reader: Reader) -> int:
    value = reader.u32()
    if value >= COUNT_MAX:
        raise BadPacket("malformed")
    return value


def _flag(reader: Reader) -> bool:
    value = reader.u8()
    if value > 1:
        raise BadPacket("malformed")
    return bool(value)


def _data(body: memoryview) -> Data:
    header, rest = _read_header(body)
    origin, number, end, upper, lower = DATA.read(rest)
    packet = upper << 16 | lower
    if end > 1 or not 0 < number < NUMBER_MAX or packet >= COUNT_MAX:
        raise BadPacket("malformed")
    return Data(header, origin, number, packet, bool(end), [rest[DATA_BYTES:]])


def _empty(h: Header, r: Reader) -> Empty:
    number, packets, ended, ballot = _number(r), _count(r), _flag(r), _count(r)
    if not ballot:
        return Empty(h, number, packets, ended)
    return Empty(h, number, packets, ended, ballot, _number(r), r.member())


def _request(h: Header, r: Reader) -> TokenRequest:
    return TokenRequest(h, r.u32(), r.u32())


def _grant(h: Header, r: Reader) -> Grant:
    request, number, count = r.u32(), _number(r), r.u16()
    if number == 0 or count > 256:
        raise BadPacket("malformed")
    return Grant(h, request, number, tuple(Address(r.text(), r.u16()) for _ in range(count)))


def _nak(h: Header, r: Reader) -> Nak:
    flat = r.rows("QII")
    ranges = tuple((flat[i], flat[i + 1], flat[i + 2]) for i in range(0, len(flat), 3))
    return Nak(h, ranges)


def _report(h: Header, r: Reader) -> Report:
    pressure = r.u8()
    if pressure > Pressure.FULL:
        raise BadPacket("malformed")
    return Report(h, Pressure(pressure), r.rows("Q"))


def _confirm(h: Header, r: Reader) -> Confirm:
    return Confirm(h, r.u64(), _number(r), _flag(r), _count(r), r.member())


def _state_ask(h: Header, r: Reader) -> StateRequest:
    return StateRequest(h, r.u8(), r.u64(), r.u16())


def _state(body: memoryview) -> StatePiece:
    header, rest = _read_header(body)
    what, total, offset = STATE.read(rest)
    return StatePiece(header, what, total, offset, rest[STATE_BYTES:])


def _propose(h: Header, r: Reader) -> Propose:
    return Propose(h, _count(r), _number(r), r.blob())


def _ack(h: Header, r: Reader) -> Ack:
    return Ack(h, r.u8(), _count(r), _number(r))


def _stand(h: Header, r: Reader) -> Stand:
    return Stand(h, r.u8(), _count(r))


def _support(h: Header, r: Reader) -> Support:
    said = (r.u8(), _count(r), _count(r), _number(r), r.blob())
    halves = r.rows("QH")
    return Support(h, *said, tuple(map(_life, halves[::2], halves[1::2])))


def _life(incarnation: int, forgotten: int) -> int:
    if incarnation > INCARNATION_MAX:
        raise BadPacket("malformed")
    return incarnation << FORGOTTEN_BITS | forgotten


_IN_WEB: Final[dict[int, Callable[[Header, Reader], InWeb]]] = {
    PacketKind.EMPTY: _empty,
    PacketKind.REQUEST: _request,
    PacketKind.GRANT: _grant,
    PacketKind.NAK: _nak,
    PacketKind.DENY: lambda h, r: Deny(h, r.rows("Q")),
    PacketKind.REPORT: _report,
    PacketKind.LEAVE: lambda h, r: LeaveRequest(h),
    PacketKind.EXPEL: lambda h, r: Expel(h, r.u64(), _flag(r)),
    PacketKind.CONFIRM: _confirm,
    PacketKind.STATE_ASK: _state_ask,
    PacketKind.PROPOSE: _propose,
    PacketKind.ACK: _ack,
    PacketKind.STAND: _stand,
    PacketKind.SUPPORT: _support,
}


_DATA: Final = PacketKind.DATA.value
_STATE: Final = PacketKind.STATE.value


def heard(opened: Envelope | PacketTrain, drop: Callable[[str], None]) -> Sequence[Packet]:
    """A packet, or some that begin alike: those of a message that follow each other are one."""
    if isinstance(opened, PacketTrain) and (rows := _rows(opened)):
        return rows
    found: list[Packet] = []
    for kind, _, body in opened.envelopes() if isinstance(opened, PacketTrain) else (opened,):
        try:
            found.append(read_once(read, kind, body))
        except BadPacket as bad:
            drop(bad.reason)
    return found


def _rows(alike: PacketTrain) -> Sequence[Data]:
    """Packets of a message, row by row; none where they are of another kind, or say that it ends,
    and are looked at one by one."""
    if alike.first.kind != PacketKind.DATA:
        return []
    try:
        data = _data(alike.first.body)
    except BadPacket:
        return []
    upper = data.packet & ~0xFFFF
    rows = () if data.end else alike.rows()
    return [data._replace(packet=upper | index, pieces=pieces) for index, pieces in rows]


def read(kind: int, body: memoryview) -> Packet:
    """The packet of this kind. Bytes that are none raise `BadPacket`, and nothing else."""
    if kind == _DATA:
        return _data(body)
    if kind == _STATE:
        return _state(body)
    packet: Packet
    if kind in _IN_WEB:
        header, rest = _read_header(body)
        reader = Reader(rest)
        packet = _IN_WEB[kind](header, reader)
    else:
        reader = Reader(body)
        if kind == PacketKind.JOIN:
            packet = JoinRequest(reader.member(), _flag(reader), _flag(reader))
        elif kind == PacketKind.REFUSE:
            packet = Refuse(reader.u64(), _flag(reader), reader.text(), reader.incarnation())
        else:
            packet = ReplicaSeat(
                reader.u8(),
                reader.u8(),
                reader.member(),
                reader.u64(),
                _count(reader),
                _number(reader),
                _flag(reader),
                reader.u32(),
                reader.u32(),
                _life(reader.u64(), reader.u16()),
            )
            if not 1 <= packet.rank <= packet.masters:
                raise BadPacket("malformed")
    reader.done()
    return packet
