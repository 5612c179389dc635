"""The packets of the ring: what each carries, to bytes and back.

[RNG-18] The paper's header is (protocolID, version, sender, mid, s, k, code, len, coordinator). Of
these protocolID, code and coordinator stand in the envelope, which every datagram has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.model import Buffer, Member
from unisono.parts.codec import PacketTrain
from unisono.protocols.ring.codes import RESEND_DATA, TOKEN_BC, Code
from unisono.wire import Envelope, FieldLayout, Reader, Writer, read_once, tag_of

PROTOCOL: Final = 3
STALE_REASON: Final = "the ring has gone on without this member"
LOST_REASON: Final = (
    "too many members lost their memory at once: what was said may be lost; the group begins anew"
)
NUMBER_MAX: Final = 1 << 62
ROUND_MAX: Final = 1 << 31
TURN_PACKETS_MAX: Final = 8192
"""No turn has more."""
WHOLE: Final = 0xFFFF
"""As the last packet of a range: up to the end of the turn."""

#                         version sender origin local  s    k   len
HEADER: Final = FieldLayout("IQQQQQI")
HEADER_BYTES: Final = HEADER.octets
#                          of flags index
TURN: Final = FieldLayout("HBH")
TURN_BYTES: Final = TURN.octets
PIECE_AT: Final = HEADER_BYTES + TURN_BYTES
"""Where a packet's piece of the turn begins."""
ALIKE_BYTES: Final = PIECE_AT - 2
"""What packets of a turn begin with that are of one length; their index follows."""
INDEX: Final = FieldLayout("H")
RANGE_BYTES: Final = 8 + 2 + 2
STATE: Final = FieldLayout("QQ")
STATE_BYTES: Final = STATE.octets


def key_of(member: Member) -> int:
    """The short name under which packets speak of a member."""
    return tag_of(f"{member.name}|{member.address}|{member.incarnation}")


# Deviates [RNG Version]: the paper's is a number that rises with each change of R. Two coordinators
# may count to the same one, so here it names its coordinator and rises with each attempt.
class Version(NamedTuple):
    """[RNG Version] of a ring: rises with each attempt to form one, and names who formed it, so
    that no two rings have the same."""

    number: int
    leader: int
    """The coordinator's key."""

    def __str__(self) -> str:
        return f"{self.number}-{self.leader & 0xFFFFFF:06x}"


NO_VERSION: Final = Version(0, 0)
NO_TRUNK: Final = Version(0, 1)
"""Of a group that was let begin by the operator's word."""
Rank: TypeAlias = tuple[Version, Version]


def rank_of(version: Version, trunk: Version) -> Rank:
    """What R1 compares of two rings: how far the majority went, then the version. Where a part was
    let go on without a majority, its trunk is the last ring before that."""
    return (trunk if trunk > NO_VERSION else version), version


class Header(NamedTuple):
    version: Version
    sender: int
    origin: int = 0
    """mid.sid: whose message it is; another than the sender's for a delegate."""
    local: int = 0
    """mid.ls: that one's count."""
    s: int = 0
    """The turn; in a control packet, the last that its sender has."""
    k: int = 0
    """The safety parameter."""

    def octets(self, length: int) -> bytes:
        version = self.version.number
        return HEADER.pack(version, self.sender, self.origin, self.local, self.s, self.k, length)


class Flag:
    """Bits of a turn."""

    WANTED: Final = 1
    """Somebody waits for the token."""
    SAFE: Final = 2
    """Something in it asks for atomicity."""
    ACK: Final = 4
    """Acknowledge it to the next holder."""
    EARLY: Final = 8
    """A NULL that was said while the turn before it was still coming in. Its header's `local` is
    the last turn that its holder has, with all before it."""
    PARTED: Final = 32
    """Of a ring that goes on by the operator's word, or comes after one that did."""
    LONE: Final = 16
    """Said after a silence, and all its speaker had to say: nobody waits for the token."""


class TurnPacket(NamedTuple):
    """Packets of turn `header.s` from number `at` on, of `of`: TOKEN_BC, or again as RESEND_DATA.
    Those of one burst that follow each other are heard as one."""

    header: Header
    at: int
    of: int
    flags: int
    pieces: Sequence[Buffer]
    again: bool = False


class Control(NamedTuple):
    """A packet that is all header: FAST_ACK, RESUME, RESUME_RQU, NEWTR_ACK, TS_ALIVE_*, RELEASE."""

    code: Code
    header: Header


class Bits:
    """What a process says of itself when it asks or answers."""

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

    code: Code
    header: Header
    attempt: int
    """The number of the version that is to be formed; in an answer, the one answered."""
    bits: int
    member: Member
    seen: int = 0
    """The highest number that it has heard of."""
    other: Member | None = None
    """In an answer: the coordinator of the ring that it is in, or whom it has promised."""
    trunk: Version = NO_VERSION
    """Of its version, where that is of a part that was let go on: the last ring before that."""

    @property
    def rank(self) -> Rank:
        return rank_of(self.header.version, self.trunk)

    def has(self, bit: int) -> bool:
        return bool(self.bits & bit)

    def body(self) -> bytes:
        out = Writer().u32(self.attempt).u8(self.bits).u32(self.seen)
        out.u32(self.trunk.number).u64(self.trunk.leader)
        out.member(self.member).u8(self.other is not None)
        return (out.member(self.other) if self.other else out).done()


class Abort(NamedTuple):
    header: Header
    attempt: int


class CoordRequest(NamedTuple):
    header: Header
    suspect: int


class RingPart(NamedTuple):
    """NEWTR_BC: a part of the new ring's description, since it may be larger than a packet."""

    header: Header
    at: int
    of: int
    piece: Buffer


class Delegate(NamedTuple):
    """DATA_BC_RQU: a run of messages for the holder to multicast; none is only *I want it*."""

    header: Header
    piece: Buffer


Range: TypeAlias = tuple[int, int, int]
"""Of a turn, from one packet to another."""


class ResendRequest(NamedTuple):
    header: Header
    ranges: tuple[Range, ...]


class Rejection(NamedTuple):
    """STALE and REFUSE: with the reason."""

    code: Code
    header: Header
    reason: str
    member: Member
    known: int = 0
    """Where it is for its number: the incarnation of its name that is known."""


class StateRequest(NamedTuple):
    header: Header
    offset: int
    pieces: int


class StatePiece(NamedTuple):
    header: Header
    total: int
    offset: int
    piece: Buffer


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
    """How many it stands for."""
    return len(packet.pieces) if isinstance(packet, TurnPacket) else 1


def code_of(packet: Packet) -> Code:
    if isinstance(packet, TurnPacket):
        return RESEND_DATA if packet.again else TOKEN_BC
    if isinstance(packet, (Control, MemberRecord, Rejection)):
        return packet.code
    return _CODES[type(packet)]


_CODE: Final = {code.value: code for code in Code}

_CODES: Final[dict[type, Code]] = {
    Abort: Code.ABORT_BC_RQU,
    CoordRequest: Code.COORD_RQU,
    RingPart: Code.NEWTR_BC,
    Delegate: Code.DATA_BC_RQU,
    ResendRequest: Code.RESEND_RQU,
    StateRequest: Code.STATE_ASK,
    StatePiece: Code.STATE,
}


def heard(opened: Envelope | PacketTrain, drop: Callable[[str, int], None]) -> Sequence[Packet]:
    """A packet, or some that begin alike: those of a turn that follow each other are one."""
    if isinstance(opened, PacketTrain) and opened.first.kind in (TOKEN_BC, RESEND_DATA):
        return _tokens(opened, drop)
    found: list[Packet] = []
    for kind, life, body in opened.envelopes() if isinstance(opened, PacketTrain) else (opened,):
        try:
            found.append(read_once(read, kind, life, body))
        except BadPacket as bad:
            drop(bad.reason, 1)
    return found


def _tokens(alike: PacketTrain, drop: Callable[[str, int], None]) -> list[TurnPacket]:
    kind, life, body = alike.first
    try:
        header, _, of, flags, _, again = _begun(kind, life, bytes(body[:ALIKE_BYTES]), len(body))
    except BadPacket as bad:
        drop(bad.reason, len(alike.indices))
        return []
    found: list[TurnPacket] = []
    for first, pieces in alike.rows():
        if first + len(pieces) <= of:
            found.append(TurnPacket(header, first, of, flags, pieces, again))
        else:
            drop("malformed", len(pieces))
    return found


@lru_cache(maxsize=16)
def _begun(kind: int, life: int, head: bytes, octets: int) -> TurnPacket:
    """What packets of a turn that begin so, and are so long, have in common: read once for all."""
    front = memoryview(head + bytes(2))
    count, flags, _ = TURN.read(front, HEADER_BYTES)
    header = _header(life, front, octets)
    if not 0 < count <= TURN_PACKETS_MAX:
        raise BadPacket("malformed")
    return TurnPacket(header, 0, count, flags, (), kind == RESEND_DATA)


def _header(life: int, body: memoryview, octets: int) -> Header:
    """Numbers so large that reckoning with them would overflow a field are nobody's."""
    number, sender, origin, local, s, k, length = HEADER.read(body)
    if length != octets:
        raise BadPacket("length")
    if max(s, k, local) > NUMBER_MAX or number > ROUND_MAX:
        raise BadPacket("malformed")
    return Header(Version(number, life), sender, origin, local, s, k)


def read(kind: int, life: int, body: memoryview) -> Packet:
    """The packet, or `BadPacket`."""
    code = _CODE[kind]
    if code is TOKEN_BC or code is RESEND_DATA:
        header, _, of, flags, _, again = _begun(kind, life, bytes(body[:ALIKE_BYTES]), len(body))
        (index,) = INDEX.read(body, ALIKE_BYTES)
        if index >= of:
            raise BadPacket("malformed")
        return TurnPacket(header, index, of, flags, [body[PIECE_AT:]], again)
    header = _header(life, body, len(body))
    rest = body[HEADER_BYTES:]
    if code is Code.DATA_BC_RQU:
        return Delegate(header, rest)
    if code is Code.STATE:
        total, offset = STATE.read(rest)
        return StatePiece(header, total, offset, rest[STATE_BYTES:])
    return _read_small(code, header, Reader(rest))


def _read_small(code: Code, header: Header, reader: Reader) -> Packet:
    packet: Packet
    if code in PERSONS:
        attempt, bits, seen = reader.u32(), reader.u8(), reader.u32()
        trunk = Version(reader.u32(), reader.u64())
        if max(attempt, seen, trunk.number) > ROUND_MAX or trunk > header.version:
            raise BadPacket("malformed")
        member = reader.member()
        other = reader.member() if reader.u8() else None
        if key_of(member) != header.sender:
            raise BadPacket("malformed")
        packet = MemberRecord(code, header, attempt, bits, member, seen, other, trunk)
    elif code is Code.ABORT_BC_RQU:
        packet = Abort(header, reader.u32())
    elif code is Code.COORD_RQU:
        packet = CoordRequest(header, reader.u64())
    elif code is Code.NEWTR_BC:
        index, count = reader.u8(), reader.u8()
        if index >= count:
            raise BadPacket("malformed")
        packet = RingPart(header, index, count, reader.raw(reader.left()))
    elif code is Code.RESEND_RQU:
        flat = reader.rows("QHH")
        ranges = tuple((flat[i], flat[i + 1], flat[i + 2]) for i in range(0, len(flat), 3))
        packet = ResendRequest(header, ranges)
    elif code is Code.STALE or code is Code.REFUSE:
        packet = Rejection(code, header, reader.text(), reader.member(), reader.incarnation())
    elif code is Code.STATE_ASK:
        packet = StateRequest(header, reader.u64(), reader.u16())
    else:
        packet = Control(code, header)
    reader.done()
    return packet
