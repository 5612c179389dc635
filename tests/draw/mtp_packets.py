"""Packets of every kind of MTP, by their labels."""

from __future__ import annotations

from tests.mtp.harness import batch_of
from unisono.layout import encode
from unisono.model import Address, Member
from unisono.protocols.mtp.batch import MembershipChange
from unisono.protocols.mtp.packets import (
    WHOLE,
    Ack,
    Confirm,
    Data,
    Deny,
    Empty,
    Expel,
    Grant,
    Header,
    JoinRequest,
    LeaveRequest,
    Nak,
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
    write_header,
)

A = Member("a", Address("10.0.0.1", 7000), 1)
KEY = 0x5D2F01C9
H = Header(KEY, 7, 0, 7, 5, 10_000, 256, 3, 8)
HEADER = write_header(H)
(SAID,) = batch_of(1, [b"x"], b"\4").slices(100)
(CHANGED,) = MembershipChange(((A, True),)).slices(100)

PACKETS = {
    "data 5.0": (PacketKind.DATA, Data.body(HEADER, KEY, 5, 0, False, SAID)),
    "data 5.3 end": (PacketKind.DATA, Data.body(HEADER, KEY, 5, 3, True, b"\1x")),
    "data 5.0 end view": (PacketKind.DATA, Data.body(HEADER, KEY, 5, 0, True, CHANGED)),
    "data 5.1": (PacketKind.DATA, Data.body(HEADER, KEY, 5, 1, False, b"")),
    "empty 7": (PacketKind.EMPTY, HEADER + encode(Empty(H, ballot=1, stable=3, master=A))),
    "empty 5.0-5.3": (PacketKind.EMPTY, HEADER + encode(Empty(H, 5, 4))),
    "empty 5.0 end": (PacketKind.EMPTY, HEADER + encode(Empty(H, 5, 1, ended=True))),
    "request": (PacketKind.REQUEST, HEADER + encode(TokenRequest(H, 1, 4))),
    "grant 6": (PacketKind.GRANT, HEADER + encode(Grant(H, 1, 6, (A.address,)))),
    "nak 5.1-5.3": (PacketKind.NAK, HEADER + encode(Nak(H, ((5, 1, 3),)))),
    "nak 5.1 6.0 on": (PacketKind.NAK, HEADER + encode(Nak(H, ((5, 1, 1), (6, 0, WHOLE))))),
    "nak 5 status": (PacketKind.NAK, HEADER + encode(Nak(H, ((5, WHOLE, WHOLE),)))),
    "deny 5 6": (PacketKind.DENY, HEADER + encode(Deny(H, (5, 6)))),
    "report": (PacketKind.REPORT, HEADER + encode(Report(H))),
    "report losing": (PacketKind.REPORT, HEADER + encode(Report(H, Pressure.LOSING))),
    "leave": (PacketKind.LEAVE, HEADER + encode(LeaveRequest(H))),
    "expel": (PacketKind.EXPEL, HEADER + encode(Expel(H, KEY))),
    "join": (PacketKind.JOIN, encode(JoinRequest(A, True))),
    "confirm 12": (PacketKind.CONFIRM, HEADER + encode(Confirm(H, KEY, 12, True, 1, A))),
    "refuse: full": (PacketKind.REFUSE, encode(Refuse(KEY, False, "full"))),
    "roster-ask from 0": (PacketKind.STATE_ASK, HEADER + encode(StateRequest(H, 0, 0, 4))),
    "state-ask from 20": (PacketKind.STATE_ASK, HEADER + encode(StateRequest(H, 1, 20, 4))),
    "state-taken": (PacketKind.STATE_ASK, HEADER + encode(StateRequest(H, 1, 90, 0))),
    "roster 0-4 of 5": (PacketKind.STATE, HEADER + encode(StatePiece(H, 0, 5, 0, b"12345"))),
    "state 20-24 of 90": (PacketKind.STATE, HEADER + encode(StatePiece(H, 1, 90, 20, b"12345"))),
    "state 0 of 0": (PacketKind.STATE, HEADER + encode(StatePiece(H, 1, 0, 0, b""))),
    "seat": (PacketKind.SEAT, encode(ReplicaSeat(1, 3, A, 9, 3, 17, True, 0, 0))),
    "propose 3.17": (PacketKind.PROPOSE, HEADER + encode(Propose(H, 3, 17, b"value"))),
    "ack 3.17": (PacketKind.ACK, HEADER + encode(Ack(H, 2, 3, 17))),
    "stand 5": (PacketKind.STAND, HEADER + encode(Stand(H, 2, 5))),
    "support 5": (PacketKind.SUPPORT, HEADER + encode(Support(H, 3, 5, 3, 17, b"value"))),
}
