"""Packets of every kind of rmcast, by their labels."""

from __future__ import annotations

from unisono.layout import encode
from unisono.model import Address, Member
from unisono.protocols.rmcast.control import Add, Bye, write_control
from unisono.protocols.rmcast.packets import (
    CONTROL,
    FIRST,
    LAST,
    Announce,
    Beat,
    Data,
    Header,
    MessagePart,
    PacketKind,
    Refuse,
    Seek,
    StatePiece,
    StateRequest,
    WelcomePart,
    write_header,
)

A = Member("a", Address("10.0.0.1", 7000), 1)
KEY = 0x5D2F01C9
HEADER = write_header(Header(KEY, {}))


def chunks(count: int, payload: bytes = b"x", flags: int = FIRST | LAST) -> list[MessagePart]:
    return [MessagePart(flags, 3, payload, 1, ())] * count


PACKETS = {
    "data @5d2f01c9.4": (PacketKind.DATA, Data.body(HEADER, KEY, 4, chunks(1))),
    "data @5d2f01c9.4-6": (PacketKind.DATA, Data.body(HEADER, KEY, 4, chunks(3))),
    "data @5d2f01c9.1 add a": (
        PacketKind.DATA,
        Data.body(HEADER, KEY, 1, chunks(1, write_control(Add(A, 1)), CONTROL)),
    ),
    "data @5d2f01c9.9 bye": (
        PacketKind.DATA,
        Data.body(HEADER, KEY, 9, chunks(1, write_control(Bye()), CONTROL)),
    ),
    "beat": (PacketKind.BEAT, HEADER + encode(Beat(Header(KEY, {})))),
    "expel": (PacketKind.BEAT, HEADER + encode(Beat(Header(KEY, {}), expels=KEY))),
    "nak @5d2f01c9.5-7 @00000001.2": (
        PacketKind.BEAT,
        HEADER + encode(Beat(Header(KEY, {}), asks=((KEY, 5, 7), (1, 2, 2)))),
    ),
    "seek": (PacketKind.SEEK, encode(Seek(A, True))),
    "seek for a": (PacketKind.SEEK, encode(Seek(A, True, forwarded=True))),
    "announce": (PacketKind.ANNOUNCE, encode(Announce(A, 3, 1))),
    "welcome": (PacketKind.WELCOME, encode(WelcomePart(1, 2, 0, 1, b"x"))),
    "welcome 2 of 3": (PacketKind.WELCOME, encode(WelcomePart(1, 2, 1, 3, b"x"))),
    "refuse: full": (PacketKind.REFUSE, encode(Refuse(1, "full"))),
    "state-ask from 20": (
        PacketKind.STATE_ASK,
        HEADER + encode(StateRequest(Header(KEY, {}), 20, 4)),
    ),
    "state 20-24 of 90": (
        PacketKind.STATE,
        HEADER + encode(StatePiece(Header(KEY, {}), 5, 90, 20, memoryview(b"12345"))),
    ),
    "state 0 of 0": (
        PacketKind.STATE,
        HEADER + encode(StatePiece(Header(KEY, {}), 5, 0, 0, memoryview(b""))),
    ),
}
