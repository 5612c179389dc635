"""MTP's words for its packets: short, telling, and never an exception."""

from __future__ import annotations

from random import Random

import pytest

from tests.mtp.theatre import batch_of
from unisono.draw.labels import DATA, JOIN, NAK, QUIET, REFUSAL, STATE, TOKEN, category
from unisono.model import Address, Member
from unisono.protocols import offers
from unisono.protocols.mtp.batch import MembershipChange
from unisono.protocols.mtp.labels import label
from unisono.protocols.mtp.packets import (
    PROTOCOL,
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
from unisono.wire import FRONT_BYTES, SUM_BYTES, seal

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
    "empty 7": (PacketKind.EMPTY, Empty(H, ballot=1, stable=3, master=A).body(HEADER)),
    "empty 5.0-5.3": (PacketKind.EMPTY, Empty(H, 5, 4).body(HEADER)),
    "empty 5.0 end": (PacketKind.EMPTY, Empty(H, 5, 1, ended=True).body(HEADER)),
    "request": (PacketKind.REQUEST, TokenRequest(H, 1, 4).body(HEADER)),
    "grant 6": (PacketKind.GRANT, Grant(H, 1, 6, (A.address,)).body(HEADER)),
    "nak 5.1-5.3": (PacketKind.NAK, Nak(H, ((5, 1, 3),)).body(HEADER)),
    "nak 5.1 6.0 on": (PacketKind.NAK, Nak(H, ((5, 1, 1), (6, 0, WHOLE))).body(HEADER)),
    "nak 5 status": (PacketKind.NAK, Nak(H, ((5, WHOLE, WHOLE),)).body(HEADER)),
    "deny 5 6": (PacketKind.DENY, Deny(H, (5, 6)).body(HEADER)),
    "report": (PacketKind.REPORT, Report(H).body(HEADER)),
    "report losing": (PacketKind.REPORT, Report(H, Pressure.LOSING).body(HEADER)),
    "leave": (PacketKind.LEAVE, LeaveRequest(H).body(HEADER)),
    "expel": (PacketKind.EXPEL, Expel(H, KEY).body(HEADER)),
    "join": (PacketKind.JOIN, JoinRequest(A, True).body()),
    "confirm 12": (PacketKind.CONFIRM, Confirm(H, KEY, 12, True, 1, A).body(HEADER)),
    "refuse: full": (PacketKind.REFUSE, Refuse(KEY, False, "full").body()),
    "roster-ask from 0": (PacketKind.STATE_ASK, StateRequest(H, 0, 0, 4).body(HEADER)),
    "state-ask from 20": (PacketKind.STATE_ASK, StateRequest(H, 1, 20, 4).body(HEADER)),
    "state-taken": (PacketKind.STATE_ASK, StateRequest(H, 1, 90, 0).body(HEADER)),
    "roster 0-4 of 5": (PacketKind.STATE, StatePiece(H, 0, 5, 0, b"12345").body(HEADER)),
    "state 20-24 of 90": (PacketKind.STATE, StatePiece(H, 1, 90, 20, b"12345").body(HEADER)),
    "state 0 of 0": (PacketKind.STATE, StatePiece(H, 1, 0, 0, b"").body(HEADER)),
    "seat": (PacketKind.SEAT, ReplicaSeat(1, 3, A, 9, 3, 17, True, 0, 0).body()),
    "propose 3.17": (PacketKind.PROPOSE, Propose(H, 3, 17, b"value").body(HEADER)),
    "ack 3.17": (PacketKind.ACK, Ack(H, 2, 3, 17).body(HEADER)),
    "stand 5": (PacketKind.STAND, Stand(H, 2, 5).body(HEADER)),
    "support 5": (PacketKind.SUPPORT, Support(H, 3, 5, 3, 17, b"value").body(HEADER)),
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
    assert offers()["mtp"].label is label


@pytest.mark.parametrize(
    ("drawn_as", "words"),
    [
        (DATA, "data 5.0 end view"),
        (NAK, "nak 5 status"),
        (REFUSAL, "deny 5 6"),
        (REFUSAL, "expel"),
        (TOKEN, "request"),
        (TOKEN, "grant 6"),
        (TOKEN, "propose 3.17"),
        (TOKEN, "ack 3.17"),
        (JOIN, "join"),
        (JOIN, "confirm 12"),
        (JOIN, "stand 5"),
        (STATE, "roster-ask from 0"),
        (STATE, "state 20-24 of 90"),
        (QUIET, "empty 5.0-5.3"),
        (QUIET, "report losing"),
        (QUIET, "seat"),
    ],
)
def test_the_words_choose_how_it_is_drawn(drawn_as: str, words: str) -> None:
    assert words in PACKETS and category(words, "mtp") == drawn_as


def test_what_is_no_packet_has_no_words() -> None:
    good, dice = packet("report"), Random(3)
    assert label(b"") == label(good[:20]) == label(good[:-1]) == label(b"\0" * 60) == ""
    assert label(seal(PROTOCOL, 99, 77, 1, b"")) == "", "no such kind"
    assert label(seal(PROTOCOL + 1, PacketKind.REPORT, 77, 1, good[FRONT_BYTES:-SUM_BYTES])) == ""
    for words in PACKETS:
        for _ in range(200):
            kind, body = PACKETS[words]
            bad = bytearray(body)
            bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
            label(seal(PROTOCOL, kind, 77, 1, bad[: dice.randrange(len(bad) + 1)]))
