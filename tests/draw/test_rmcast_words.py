"""rmcast's words for its packets: short, telling, and never an exception."""

from __future__ import annotations

from random import Random

import pytest

from unisono.model import Address, Member
from unisono.protocols import offers
from unisono.protocols.rmcast.control import Add, Bye
from unisono.protocols.rmcast.labels import label
from unisono.protocols.rmcast.packets import (
    CONTROL,
    FIRST,
    LAST,
    PROTOCOL,
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
from unisono.wire import FRONT_BYTES, SUM_BYTES, seal

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
        Data.body(HEADER, KEY, 1, chunks(1, Add(A, 1).payload(), CONTROL)),
    ),
    "data @5d2f01c9.9 bye": (
        PacketKind.DATA,
        Data.body(HEADER, KEY, 9, chunks(1, Bye().payload(), CONTROL)),
    ),
    "beat": (PacketKind.BEAT, Beat(Header(KEY, {})).body(HEADER)),
    "expel": (PacketKind.BEAT, Beat(Header(KEY, {}), expels=KEY).body(HEADER)),
    "nak @5d2f01c9.5-7 @00000001.2": (
        PacketKind.BEAT,
        Beat(Header(KEY, {}), ((KEY, 5, 7), (1, 2, 2))).body(HEADER),
    ),
    "seek": (PacketKind.SEEK, Seek(A, True).body()),
    "seek for a": (PacketKind.SEEK, Seek(A, True, forwarded=True).body()),
    "announce": (PacketKind.ANNOUNCE, Announce(A, 3, 1).body()),
    "welcome": (PacketKind.WELCOME, WelcomePart(1, 2, 0, 1, b"x").body()),
    "welcome 2 of 3": (PacketKind.WELCOME, WelcomePart(1, 2, 1, 3, b"x").body()),
    "refuse: full": (PacketKind.REFUSE, Refuse(1, "full").body()),
    "state-ask from 20": (PacketKind.STATE_ASK, StateRequest(Header(KEY, {}), 20, 4).body(HEADER)),
    "state 20-24 of 90": (
        PacketKind.STATE,
        StatePiece(Header(KEY, {}), 5, 90, 20, memoryview(b"12345")).body(HEADER),
    ),
    "state 0 of 0": (
        PacketKind.STATE,
        StatePiece(Header(KEY, {}), 5, 0, 0, memoryview(b"")).body(HEADER),
    ),
}


def packet(words: str) -> bytes:
    kind, body = PACKETS[words]
    return seal(PROTOCOL, kind, 77, 1, body)


@pytest.mark.parametrize("words", PACKETS)
def test_a_packet_has_its_words(words: str) -> None:
    assert label(packet(words)) == words
    assert label(memoryview(bytearray(packet(words)))) == words


def test_every_kind_of_packet_is_shown_here() -> None:
    assert {kind for kind, _ in PACKETS.values()} == set(PacketKind)


def test_the_catalogue_has_the_words() -> None:
    assert offers()["rmcast"].label is label


def test_what_is_no_packet_has_no_words() -> None:
    good, dice = packet("beat"), Random(3)
    assert label(b"") == label(good[:20]) == label(good[:-1]) == label(b"\0" * 60) == ""
    assert label(seal(PROTOCOL, 99, 77, 1, b"")) == "", "no such kind"
    assert label(seal(PROTOCOL + 1, PacketKind.BEAT, 77, 1, good[FRONT_BYTES:-SUM_BYTES])) == ""
    for words in PACKETS:
        for _ in range(200):
            kind, body = PACKETS[words]
            bad = bytearray(body)
            bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
            label(seal(PROTOCOL, kind, 77, 1, bad[: dice.randrange(len(bad) + 1)]))
