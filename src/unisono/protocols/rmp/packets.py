"""The packets of RMP, declared field by field.

The life of the envelope is the token ring identifier (TRID): packets of other rings are ignored
[RMP §3.3]. Packets of sites that are not on a ring have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.fields import U8, U16, U64, Bit, Rest, bounded, fixed
from unisono.layout import decode, layout_of, size_of
from unisono.model import Buffer, Member
from unisono.parts.codec import PacketTrain
from unisono.parts.identity import key_of
from unisono.parts.labels import number_range
from unisono.protocols.rmp.ordering import RANGES_MAX, BlockRange, TokenAck
from unisono.protocols.rmp.reform_packets import (
    NAMED_MAX,
    NUMBER_MAX,
    Accept,
    Fault,
    Number,
    Proposal,
    Resume,
    Sync,
)
from unisono.wire import Envelope, read_once

PROTOCOL: Final = 5
BLOCK_PACKETS_MAX: Final = 1024
PARTS_MAX: Final = 64
WHOLE: Final = 0xFFFF
"""As the last packet of a range: up to the end of the block."""

Vote: TypeAlias = Annotated[int, fixed("i16", "h")]


class PacketKind(IntEnum):
    DATA = 1
    ACK = 2
    NACK = 3
    CONFIRM = 4
    BEST_EFFORT = 5
    JOIN = 6
    WELCOME = 7
    REFUSE = 8
    STATE_ASK = 9
    STATE = 10
    FAULT = 11
    SYNC = 12
    NEW_LIST = 13
    ACCEPT = 14
    COMMIT = 15
    RESUME = 16
    ABORT = 17
    ANNOUNCE = 18
    EXPEL = 19
    GONE = 20


KINDS: Final = {kind.value: kind.name.lower() for kind in PacketKind}


# -- data -----------------------------------------------------------------------------------------


class BlockFront(NamedTuple):
    """What precedes a piece of a block in its packet."""

    sender: U64
    number: Annotated[int, bounded("Q", 1, NUMBER_MAX)]
    of: Annotated[int, bounded("H", 1, BLOCK_PACKETS_MAX)]
    resilience: Annotated[int, bounded("h", -2, (1 << 15) - 1, text="i16, at least -2")]
    at: U16


DATA: Final = layout_of(BlockFront)
PIECE_AT: Final = size_of(BlockFront)
DATA_BYTES: Final = PIECE_AT - 2
"""What the packets of a block have in common; their index follows."""


class Data(NamedTuple):
    """Packets of a block from index `at` on, of `of`; those of one burst that follow each other."""

    sender: int
    number: int
    at: int
    of: int
    resilience: int
    """k of its messages, as `Resilient` counts; 0: none was asked for."""
    pieces: Sequence[Buffer]

    def label(self) -> str:
        return (
            f"data {self.number} {number_range(self.at + 1, self.at + len(self.pieces))}/{self.of}"
        )


def _read_data(body: memoryview) -> Data:
    (source, number, of, k, index), at = DATA.read(body, 0)
    if index >= of:
        raise BadPacket("malformed")
    return Data(source, number, index, of, k, [body[at:]])


class BlockHead(NamedTuple):
    """What precedes the messages of a block."""

    after: U64
    """The slot up to which its source had delivered the order when it made the block: its messages
    may follow from what stands there."""


BLOCK_HEAD: Final = layout_of(BlockHead)
BLOCK_HEAD_BYTES: Final = size_of(BlockHead)


class BestEffort(NamedTuple):
    """Unreliable messages [RMP-6], neither acknowledged nor repaired: a run, as in a block."""

    sender: U64
    after: Number
    """The last block that its source sent before."""
    content: Rest

    def label(self) -> str:
        return "best-effort"


# -- order ----------------------------------------------------------------------------------------


class AckFields(NamedTuple):
    sender: U64
    """That sends it, perhaps for another."""
    site: U64
    timestamp: Number
    next_site: U64
    consumed: Number
    named: tuple[tuple[U64, Number, Number], ...]

    def is_valid(self) -> bool:
        if len(self.named) > RANGES_MAX:
            return False
        count = sum(last - first + 1 for _, first, last in self.named)
        return count <= NAMED_MAX and all(0 < first <= last for _, first, last in self.named)

    @staticmethod
    def of(sender: int, ack: TokenAck) -> AckFields:
        named = tuple(ack.named)
        return AckFields(sender, ack.site, ack.timestamp, ack.next_site, ack.consumed, named)

    def ack(self) -> TokenAck:
        named = tuple(BlockRange(*each) for each in self.named)
        return TokenAck(self.timestamp, self.site, self.next_site, named, self.consumed)

    def label(self) -> str:
        what = " ".join(f"{s & 0xFFF:03x}.{number_range(a, b)}" for s, a, b in self.named)
        return f"ack {self.timestamp} {what or 'null'}"


class Nack(NamedTuple):
    """[RMP-3] Asks for what fills empty slots. Any site that has it may answer."""

    sender: U64
    round: U8
    """How often it was asked for before."""
    acks: tuple[tuple[Number, Number], ...]
    """Slots."""
    blocks: tuple[tuple[U64, Number, U16, U16], ...]
    """Source, number, and which of its packets."""

    def label(self) -> str:
        slots = " ".join(number_range(a, b) for a, b in self.acks)
        blocks = " ".join(f"{s & 0xFFF:03x}.{n}" for s, n, _, _ in self.blocks)
        return f"nack {slots} {blocks}".rstrip()


class TokenAccepted(NamedTuple):
    """The token of the ACK with this timestamp was accepted."""

    sender: U64
    timestamp: Number

    def label(self) -> str:
        return f"confirm {self.timestamp}"


# -- membership -----------------------------------------------------------------------------------


class RingJoin(NamedTuple):
    member: Member
    vote: Vote
    wants_state: Bit
    withdrawn: Bit = False
    echo: U64 = 0
    """The stamp of the last announcement received: proves that the process is there now."""

    def label(self) -> str:
        return "withdraw" if self.withdrawn else "join"


class SourceMark(NamedTuple):
    """Where a source's stream stands at a timestamp."""

    source: U64
    block: Number
    """Its last block in the order."""
    message: Number
    """Its last message in those blocks."""


class MemberLine(NamedTuple):
    member: Member
    vote: Vote


class RingSnapshot(NamedTuple):
    """The ring at one timestamp, for a process that joins there."""

    timestamp: Number
    place: Number
    epoch: Number
    primary: Bit
    with_state: Bit
    hops: U8
    sponsor: U64
    lines: tuple[MemberLine, ...]
    locks: tuple[tuple[U8, tuple[U64, ...]], ...]
    """By number, the holder and those that wait."""
    marks: tuple[SourceMark, ...]
    unstable: tuple[tuple[Number, tuple[U64, ...]], ...]
    """The views since the last stable one."""
    name: U64
    trids: tuple[U64, ...]
    renewals: tuple[tuple[Number, U64], ...]
    """[RMP-16] The identifiers of the ring: see `state.TokenRing`."""

    def is_valid(self) -> bool:
        keys = {key_of(line.member) for line in self.lines}
        return bool(self.unstable) and self.sponsor in keys == {*self.unstable[-1][1]}


class Part(NamedTuple):
    """A piece of a welcome, which may be larger than a packet."""

    receiver: U64
    stamp: U64
    part: U8
    parts: U8
    piece: Rest

    def is_valid(self) -> bool:
        return self.part < self.parts <= PARTS_MAX

    def label(self) -> str:
        return f"welcome {self.part + 1}/{self.parts}"


class Refuse(NamedTuple):
    receiver: U64
    reason: str
    final: bool = False
    known: Annotated[int, bounded("Q", 0, (1 << 63) - 1)] = 0

    def label(self) -> str:
        return f"refuse: {self.reason}"


class RingAnnounce(NamedTuple):
    """A ring, its size, and its first site."""

    site: Member
    trid: U64
    epoch: Number
    size: U16
    primary: bool
    stamp: U64

    def label(self) -> str:
        return f"announce {self.size}"


class Gone(NamedTuple):
    """A site that has left needs nothing more."""

    sender: U64

    def label(self) -> str:
        return "gone"


class ExpelLeaver(NamedTuple):
    """The receiver has left, and what it still lacks is no longer kept."""

    sender: U64

    def label(self) -> str:
        return "expel"


class StateRequest(NamedTuple):
    sender: U64
    offset: U64
    pieces: U16

    def label(self) -> str:
        return f"state-ask {self.offset}"


class StatePiece(NamedTuple):
    sender: U64
    receiver: U64
    total: U64
    offset: U64
    piece: Rest

    def label(self) -> str:
        return f"state {self.offset}+{len(self.piece)}/{self.total}"


# -- all ------------------------------------------------------------------------------------------

Packet: TypeAlias = (
    Data
    | BestEffort
    | AckFields
    | Nack
    | TokenAccepted
    | RingJoin
    | Part
    | Refuse
    | RingAnnounce
    | ExpelLeaver
    | Gone
    | StateRequest
    | StatePiece
    | Fault
    | Sync
    | Proposal
    | Accept
    | Resume
)

FORMS: Final[dict[int, type]] = {
    PacketKind.BEST_EFFORT: BestEffort,
    PacketKind.ACK: AckFields,
    PacketKind.NACK: Nack,
    PacketKind.CONFIRM: TokenAccepted,
    PacketKind.JOIN: RingJoin,
    PacketKind.WELCOME: Part,
    PacketKind.REFUSE: Refuse,
    PacketKind.ANNOUNCE: RingAnnounce,
    PacketKind.EXPEL: ExpelLeaver,
    PacketKind.GONE: Gone,
    PacketKind.STATE_ASK: StateRequest,
    PacketKind.STATE: StatePiece,
    PacketKind.FAULT: Fault,
    PacketKind.SYNC: Sync,
    PacketKind.NEW_LIST: Proposal,
    PacketKind.ACCEPT: Accept,
    PacketKind.COMMIT: Proposal,
    PacketKind.RESUME: Resume,
    PacketKind.ABORT: Resume,
}
OUTSIDE: Final = frozenset(
    (PacketKind.JOIN, PacketKind.WELCOME, PacketKind.REFUSE, PacketKind.ANNOUNCE)
)
"""Of any TRID."""


def read(kind: int, body: memoryview) -> Packet:
    if kind == PacketKind.DATA:
        return _read_data(body)
    return decode(FORMS[kind], body)


def read_all(
    opened: Envelope | PacketTrain, drop: Callable[[str, int], None]
) -> list[tuple[int, int, Packet]]:
    """Kind, TRID and packet; of a train, runs of packets of one block are one."""
    if isinstance(opened, PacketTrain) and opened.first.kind == PacketKind.DATA:
        kind, trid, body = opened.first
        try:
            front = _read_data(body)
        except BadPacket as bad:
            drop(bad.reason, len(opened.indices))
            return []
        found: list[tuple[int, int, Packet]] = []
        for first, pieces in opened.rows():
            if first + len(pieces) <= front.of:
                found.append((kind, trid, front._replace(at=first, pieces=pieces)))
            else:
                drop("malformed", len(pieces))
        return found
    found = []
    for kind, trid, body in opened.envelopes() if isinstance(opened, PacketTrain) else (opened,):
        try:
            found.append((kind, trid, read_once(read, kind, body)))
        except BadPacket as bad:
            drop(bad.reason, 1)
    return found
