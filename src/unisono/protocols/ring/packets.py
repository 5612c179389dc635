"""The packets of the ring, declared field by field.

[RNG-18] The paper's header is (protocolID, version, sender, mid, s, k, code, len, coordinator). Of
these protocolID, code and coordinator stand in the envelope, which every datagram has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.fields import U8, U16, U32, U64, Given, Incarnation, Rest, bounded
from unisono.layout import decode, layout_of, size_of
from unisono.model import Buffer, Member
from unisono.parts.codec import PacketTrain
from unisono.parts.identity import key_of as key_of
from unisono.protocols.ring.codes import RESEND_DATA, TOKEN_BC, Code
from unisono.wire import Envelope, read_once

PROTOCOL: Final = 3
STALE_REASON: Final = "the ring has gone on without this member"
LOST_REASON: Final = (
    "too many members lost their memory at once: what was said may be lost; the group begins anew"
)
NUMBER_MAX: Final = 1 << 62
ROUND_MAX: Final = 1 << 62
ROUNDS_AHEAD_MAX: Final = 1 << 32
"""A version further ahead of all that was accepted or promised here is nobody's: no group makes so
many attempts while one of its members is away, and none counts so far by such steps."""
TURN_PACKETS_MAX: Final = 8192
"""No turn has more."""
WHOLE: Final = 0xFFFF
"""As the last packet of a range: up to the end of the turn."""

Number: TypeAlias = Annotated[int, bounded("Q", 0, NUMBER_MAX)]
Round: TypeAlias = Annotated[int, bounded("Q", 0, ROUND_MAX)]
"""The number of a version. Hostile beyond these bounds: arithmetic would overflow a field."""


# Deviates [RNG Version]: the paper's is a number that rises with each change of R. Two coordinators
# may count to the same one, so here it names its coordinator and rises with each attempt.
class Version(NamedTuple):
    """[RNG Version] of a ring: rises with each attempt to form one, and names its coordinator, so
    that no two rings have the same."""

    number: Round
    leader: U64
    """The coordinator's key."""

    def __str__(self) -> str:
        return f"{self.number}-{self.leader & 0xFFFFFF:06x}"


NO_VERSION: Final = Version(0, 0)
NO_TRUNK: Final = Version(0, 1)
"""Of a group that began by the operator's command."""
Rank: TypeAlias = tuple[Version, Version]


def rank_of(version: Version, trunk: Version) -> Rank:
    """What R1 compares of two rings: how far the majority went, then the version. Where a component
    continued without a majority, its trunk is the last ring before that."""
    return (trunk if trunk > NO_VERSION else version), version


class WireHeader(NamedTuple):
    """The header on the wire; the version's leader stands in the envelope."""

    number: Round
    sender: U64
    origin: U64
    local: Number
    s: Number
    k: Number
    length: U32
    """Of the packet's body."""


HEADER: Final = layout_of(WireHeader)
HEADER_BYTES: Final = size_of(WireHeader)


class Header(NamedTuple):
    version: Version
    sender: int
    origin: int = 0
    """mid.sid: the originator; another than the sender for a delegate."""
    local: int = 0
    """mid.ls: the originator's count."""
    s: int = 0
    """The turn; in a control packet, the last that its sender has."""
    k: int = 0
    """The safety parameter."""

    def packed(self, length: int) -> bytes:
        version = self.version.number
        return HEADER.pack(version, self.sender, self.origin, self.local, self.s, self.k, length)


NO_HEADER: Final = Header(NO_VERSION, 0)
"""In a packet that is yet to be sealed."""


class Flag:
    """Bits of a turn."""

    WANTED: Final = 1
    """A member waits for the token."""
    SAFE: Final = 2
    """It has a message that requires atomicity."""
    ACK: Final = 4
    """Acknowledge it to the next holder."""
    EARLY: Final = 8
    """A NULL sent while the turn before it was still arriving. Its header's `local` is
    the last turn that its holder has, with all before it."""
    PARTED: Final = 32
    """Of a ring that continues at an operator's request, or follows one that did."""
    LONE: Final = 16
    """Sent after a pause, with nothing to follow: no member waits for the token."""


class TurnFront(NamedTuple):
    """What follows the header in a packet of a turn, before its piece."""

    of: Annotated[int, bounded("H", 1, TURN_PACKETS_MAX)]
    flags: U8
    at: U16


TURN: Final = layout_of(TurnFront)
TURN_BYTES: Final = size_of(TurnFront)
PIECE_AT: Final = HEADER_BYTES + TURN_BYTES
"""Where a packet's piece of the turn begins."""
ALIKE_BYTES: Final = PIECE_AT - 2
"""Packets of a turn that have one length begin with the same bytes; their index follows."""


class TurnPacket(NamedTuple):
    """Packets of turn `header.s` from number `at` on, of `of`: TOKEN_BC, or again as RESEND_DATA.
    Consecutive ones of a burst are received as one."""

    header: Header
    at: int
    of: int
    flags: int
    pieces: Sequence[Buffer]
    again: bool = False


class Control(NamedTuple):
    """A packet that is all header: FAST_ACK, RESUME, RESUME_RQU, NEWTR_ACK, TS_ALIVE_*, RELEASE."""

    code: Given[Code]
    header: Given[Header]


class Bits:
    """What a process reports of itself in a request or an answer."""

    MEMORY: Final = 1
    """It has the messages and the state of its version."""
    STATE: Final = 2
    """It wants the application's state."""
    LEAVING: Final = 4
    OVERRIDE: Final = 8
    """[RNG-13] Its operator wants the part it is in to go on."""
    IN_FORCE: Final = 16
    """It is in normal operation; in RSP_POS: the ring of its version has been in force."""
    AT_TOKEN: Final = 32
    """It invites as the holder of the token."""
    VOTES: Final = 64
    """It has been on a ring in force, or has its records, or never had a past."""
    INSIDE: Final = 128
    """It has shown its application a view: what it delivered is not to be lost."""


class MemberRecord(NamedTuple):
    """A process presents itself: MEMBER_JOIN, REF_INV_BC, RSP_POS, RSP_NEG, QUIT, RING_INFO."""

    code: Given[Code]
    header: Given[Header]
    attempt: Round
    """The number of the version that is to be formed; in an answer, the one answered."""
    bits: U8
    seen: Round
    """The highest number that it knows."""
    trunk: Version
    """Of its version, where a component continued without a majority: the last ring before that."""
    member: Member
    other: Member | None = None
    """In an answer: the coordinator of its ring, or the one that it has promised to follow."""

    @property
    def rank(self) -> Rank:
        return rank_of(self.header.version, self.trunk)

    def has(self, bit: int) -> bool:
        return bool(self.bits & bit)

    def is_valid(self) -> bool:
        return self.trunk <= self.header.version and key_of(self.member) == self.header.sender


class Abort(NamedTuple):
    header: Given[Header]
    attempt: Round


class CoordRequest(NamedTuple):
    header: Given[Header]
    suspect: U64


class RingPart(NamedTuple):
    """NEWTR_BC: a part of the new ring's description, since it may be larger than a packet."""

    header: Given[Header]
    at: U8
    of: U8
    piece: Rest

    def is_valid(self) -> bool:
        return self.at < self.of


class Delegate(NamedTuple):
    """DATA_BC_RQU: a run of messages for the holder to multicast; none only requests the token."""

    header: Given[Header]
    piece: Rest


Range: TypeAlias = tuple[U64, U16, U16]
"""Of a turn, from one packet to another."""
RANGE_BYTES: Final = size_of(Range)


class ResendRequest(NamedTuple):
    header: Given[Header]
    ranges: tuple[Range, ...]


class Rejection(NamedTuple):
    """STALE and REFUSE: with the reason."""

    code: Given[Code]
    header: Given[Header]
    reason: str
    member: Member
    known: Incarnation = 0
    """If it is rejected for its incarnation: the one of its name that is known."""
    founding: Version = NO_VERSION
    """The first ring of the sender's group."""


class StateRequest(NamedTuple):
    header: Given[Header]
    offset: U64
    pieces: U16


class StatePiece(NamedTuple):
    header: Given[Header]
    total: U64
    offset: U64
    piece: Rest


STATE_BYTES: Final = size_of(StatePiece)

Packet: TypeAlias = (
    TurnPacket
    | Control
    | MemberRecord
    | Abort
    | CoordRequest
    | RingPart
    | Delegate
    | ResendRequest
    | Rejection
    | StateRequest
    | StatePiece
)

PERSONS: Final = frozenset(
    (
        Code.MEMBER_JOIN,
        Code.REF_INV_BC,
        Code.RSP_POS,
        Code.RSP_NEG,
        Code.QUIT,
        Code.RING_INFO,
    )
)


def count_of(packet: Packet) -> int:
    """How many datagrams it stands for."""
    return len(packet.pieces) if isinstance(packet, TurnPacket) else 1


_CODE: Final = {code.value: code for code in Code}
BY_CODE: Final[dict[Code, type[Any]]] = {
    Code.ABORT_BC_RQU: Abort,
    Code.COORD_RQU: CoordRequest,
    Code.NEWTR_BC: RingPart,
    Code.DATA_BC_RQU: Delegate,
    Code.RESEND_RQU: ResendRequest,
    Code.STATE_ASK: StateRequest,
    Code.STATE: StatePiece,
}
WITH_CODE: Final[dict[Code, type[Any]]] = {
    **dict.fromkeys(PERSONS, MemberRecord),
    Code.STALE: Rejection,
    Code.REFUSE: Rejection,
}
"""Packets that several codes share; what is in neither table is all header."""
_CODES: Final = {kind: code for code, kind in BY_CODE.items()}


def code_of(packet: Packet) -> Code:
    kind = type(packet)
    if kind is TurnPacket:
        return RESEND_DATA if packet.again else TOKEN_BC  # type: ignore[union-attr]
    code = _CODES.get(kind)
    return code if code is not None else packet.code  # type: ignore[union-attr]


def read_packets(
    opened: Envelope | PacketTrain, drop: Callable[[str, int], None]
) -> Sequence[Packet]:
    """The packets of an envelope or a train; consecutive ones of a turn are one."""
    if type(opened) is Envelope:
        try:
            return (read_once(read, *opened),)
        except BadPacket as bad:
            drop(bad.reason, 1)
            return ()
    assert type(opened) is PacketTrain
    if opened.first.kind in (TOKEN_BC, RESEND_DATA):
        return _turn_packets(opened, drop)
    return [packet for each in opened.envelopes() for packet in read_packets(each, drop)]


def _turn_packets(train: PacketTrain, drop: Callable[[str, int], None]) -> list[TurnPacket]:
    kind, life, body = train.first
    try:
        header, _, of, flags, _, again = _begun(kind, life, bytes(body[:ALIKE_BYTES]), len(body))
    except BadPacket as bad:
        drop(bad.reason, len(train.indices))
        return []
    found: list[TurnPacket] = []
    for first, pieces in train.rows():
        if first + len(pieces) <= of:
            found.append(TurnPacket(header, first, of, flags, pieces, again))
        else:
            drop("malformed", len(pieces))
    return found


@lru_cache(maxsize=16)
def _begun(kind: int, life: int, head: bytes, nbytes: int) -> TurnPacket:
    """What packets of a turn with the same first bytes and length have in common: read once."""
    front = memoryview(head + bytes(2))
    (count, flags, _), _ = TURN.read(front, HEADER_BYTES)
    header = _header(life, front, nbytes)
    return TurnPacket(header, 0, count, flags, (), kind == RESEND_DATA)


def _header(life: int, body: memoryview, nbytes: int) -> Header:
    (round_, sender, origin, local, s, k, length), _ = HEADER.read(body, 0)
    if length != nbytes:
        raise BadPacket("length")
    return Header(Version(round_, life), sender, origin, local, s, k)


def read(kind: int, life: int, body: memoryview) -> Packet:
    """The packet, or `BadPacket`."""
    code = _CODE[kind]
    if code is TOKEN_BC or code is RESEND_DATA:
        size = len(body)
        header, _, of, flags, _, again = _begun(kind, life, bytes(body[:ALIKE_BYTES]), size)
        index = int.from_bytes(body[ALIKE_BYTES:PIECE_AT], "big")
        if index >= of or size < PIECE_AT:
            raise BadPacket("malformed")
        return TurnPacket(header, index, of, flags, [body[PIECE_AT:]], again)
    header = _header(life, body, len(body))
    packet: Packet
    if code in BY_CODE:
        packet = decode(BY_CODE[code], body[HEADER_BYTES:], header)
    else:
        packet = decode(WITH_CODE.get(code, Control), body[HEADER_BYTES:], code, header)
    return packet
