"""The ring's words for its packets: the paper's names in short, and never an exception."""

from __future__ import annotations

from random import Random

import pytest

from unisono.draw.labels import DATA, JOIN, NAK, QUIET, REFUSAL, REPAIR, STATE, TOKEN, category
from unisono.layout import encode
from unisono.model import Address, Member
from unisono.parts.turn import MORE, OriginRun, write_runs
from unisono.protocols import specs
from unisono.protocols.ring import packets
from unisono.protocols.ring.codes import KINDS, Code
from unisono.protocols.ring.labels import label
from unisono.protocols.ring.packets import (
    HEADER_BYTES,
    NO_VERSION,
    PROTOCOL,
    TURN,
    WHOLE,
    Bits,
    Header,
    MemberRecord,
    Version,
    key_of,
)
from unisono.wire import FRONT_BYTES, SUM_BYTES, seal

A = Member("a", Address("10.0.0.1", 7000), 1)
KEY = key_of(A)
VERSION = Version(5, KEY)
HEADER = Header(VERSION, KEY, KEY, 0, 12, 11)


def person(code: Code) -> bytes:
    return encode(MemberRecord(code, HEADER, 6, Bits.MEMORY, 6, NO_VERSION, A, A))


def turn(at: int, of: int, piece: bytes) -> bytes:
    return TURN.pack(of, 0, at) + piece


def ranges(*asked: tuple[int, int, int]) -> bytes:
    return encode(packets.ResendRequest(HEADER, asked))


def run(first: int, *marks: int) -> bytes:
    return write_runs([OriginRun.of(KEY, first, marks, [b"x"] * len(marks))])


def told(reason: str) -> bytes:
    return encode(packets.Rejection(Code.STALE, HEADER, reason, A))


PACKETS = {
    "token 12": (Code.TOKEN_BC, turn(0, 1, run(1, 4))),
    "token 12 null": (Code.TOKEN_BC, turn(0, 1, b"")),
    "token 12.0": (Code.TOKEN_BC, turn(0, 3, b"xxx")),
    "token 12.2 end": (Code.TOKEN_BC, turn(2, 3, b"x")),
    "resend 12": (Code.RESEND_DATA, turn(0, 1, run(1, 4))),
    "resend 12 null": (Code.RESEND_DATA, turn(0, 1, b"")),
    "resend 12.3": (Code.RESEND_DATA, turn(3, 5, b"x")),
    "ask 12": (Code.RESEND_RQU, ranges((12, 0, WHOLE))),
    "ask 12.3-12.5": (Code.RESEND_RQU, ranges((12, 3, 5))),
    "ask 12.3 13.1 on 14": (Code.RESEND_RQU, ranges((12, 3, 3), (13, 1, WHOLE), (14, 0, WHOLE))),
    "delegate 4": (Code.DATA_BC_RQU, run(4, 4)),
    "delegate 4-6": (Code.DATA_BC_RQU, run(4, 4, 4, 5)),
    "delegate 7": (Code.DATA_BC_RQU, run(7, 4 | MORE)),
    "delegate": (Code.DATA_BC_RQU, b""),
    "fast_ack 12": (Code.FAST_ACK, b""),
    "alive?": (Code.TS_ALIVE_RQU, b""),
    "alive": (Code.TS_ALIVE_RSP, b""),
    "resume 5": (Code.RESUME, b""),
    "resume? 5": (Code.RESUME_RQU, b""),
    "newtr_ack 5": (Code.NEWTR_ACK, b""),
    "release": (Code.RELEASE, b""),
    "join": (Code.MEMBER_JOIN, person(Code.MEMBER_JOIN)),
    "invite 6": (Code.REF_INV_BC, person(Code.REF_INV_BC)),
    "pos 6 s=12": (Code.RSP_POS, person(Code.RSP_POS)),
    "neg 6": (Code.RSP_NEG, person(Code.RSP_NEG)),
    "info 5 s=12": (Code.RING_INFO, person(Code.RING_INFO)),
    "quit": (Code.QUIT, person(Code.QUIT)),
    "abort 6": (Code.ABORT_BC_RQU, encode(packets.Abort(HEADER, 6))),
    "coord": (Code.COORD_RQU, encode(packets.CoordRequest(HEADER, KEY))),
    "newtr 5": (Code.NEWTR_BC, encode(packets.RingPart(HEADER, 0, 1, b"ring"))),
    "newtr 5.1": (Code.NEWTR_BC, encode(packets.RingPart(HEADER, 1, 2, b"ring"))),
    "stale: gone": (Code.STALE, told("gone")),
    "refuse: full": (Code.REFUSE, told("full")),
    "state_ask from 20": (Code.STATE_ASK, encode(packets.StateRequest(HEADER, 20, 4))),
    "state 20-24 of 90": (Code.STATE, encode(packets.StatePiece(HEADER, 90, 20, b"12345"))),
    "state 0 of 0": (Code.STATE, encode(packets.StatePiece(HEADER, 0, 0, b""))),
}


def body(words: str) -> bytes:
    rest = PACKETS[words][1]
    return HEADER.packed(HEADER_BYTES + len(rest)) + rest


def packet(words: str) -> bytes:
    return seal(PROTOCOL, PACKETS[words][0], 77, VERSION.leader, body(words))


@pytest.mark.parametrize("words", PACKETS)
def test_each_packet_has_its_label(words: str) -> None:
    assert label(packet(words)) == words
    assert label(memoryview(bytearray(packet(words)))) == words


def test_every_kind_of_packet_is_shown_here() -> None:
    assert {code.value for code, _ in PACKETS.values()} == set(KINDS)


def test_the_catalogue_has_the_labels() -> None:
    assert specs()["ring"].label is label


@pytest.mark.parametrize(
    ("drawn_as", "words"),
    [
        (TOKEN, "token 12"),
        (QUIET, "token 12 null"),
        (TOKEN, "fast_ack 12"),
        (DATA, "delegate 4-6"),
        (REPAIR, "resend 12.3"),
        (NAK, "ask 12.3-12.5"),
        (JOIN, "join"),
        (JOIN, "invite 6"),
        (JOIN, "pos 6 s=12"),
        (JOIN, "coord"),
        (JOIN, "newtr 5"),
        (JOIN, "newtr_ack 5"),
        (JOIN, "resume 5"),
        (JOIN, "quit"),
        (STATE, "state_ask from 20"),
        (STATE, "state 20-24 of 90"),
        (QUIET, "alive?"),
        (QUIET, "alive"),
        (REFUSAL, "neg 6"),
        (REFUSAL, "stale: gone"),
        (REFUSAL, "refuse: full"),
    ],
)
def test_the_labels_choose_how_it_is_drawn(drawn_as: str, words: str) -> None:
    assert words in PACKETS and category(words, "ring") == drawn_as


def test_what_is_no_packet_has_no_label() -> None:
    good, dice = packet("alive"), Random(3)
    assert label(b"") == label(good[:20]) == label(good[:-1]) == label(b"\0" * 60) == ""
    for kind in (0, Code.E_ACK, Code.RB_DATA_RQU, 99):
        assert label(seal(PROTOCOL, kind, 77, 1, body("alive"))) == "", "no such kind on the wire"
    assert label(seal(PROTOCOL + 1, Code.RESUME, 77, 1, good[FRONT_BYTES:-SUM_BYTES])) == ""
    for words, (code, _) in PACKETS.items():
        for _ in range(100):
            rest = bytearray(PACKETS[words][1])
            for _ in range(dice.randrange(3)):
                if rest:
                    rest[dice.randrange(len(rest))] ^= 1 << dice.randrange(8)
            rest = rest[: dice.randrange(len(rest) + 1)]
            whole = HEADER.packed(HEADER_BYTES + len(rest)) + bytes(rest)
            label(seal(PROTOCOL, code, 77, VERSION.leader, whole))
