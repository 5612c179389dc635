"""The packets of RMP, declared field by field.

The life of the envelope is the token ring identifier (TRID): packets of other rings are ignored
[RMP §3.3]. Packets of sites that are not on a ring have none.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.fields import U8, U16, U64, Bit, Rest, bounded, fixed
from unisono.layout import decode
from unisono.model import Member
from unisono.parts.codec import PacketTrain
from unisono.parts.identity import key_of
from unisono.parts.labels import number_range
from unisono.protocols.rmp.data_packets import (
    BestEffort,
    Data,
    Uniform,
    read_data,
    read_train,
    read_uniform,
)
from unisono.protocols.rmp.ordering import RANGES_MAX, BlockRange, TokenAck
from unisono.protocols.rmp.reform_packets import (
    NAMED_MAX,
    Accept,
    Fault,
    Number,
    Proposal,
    Resume,
    Sync,
)
from unisono.wire import Envelope, read_once

PROTOCOL: Final = 5
PARTS_MAX: Final = 64

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
    UNIFORM = 21


KINDS: Final = {kind.value: kind.name.lower() for kind in PacketKind}


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
    | Uniform
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
QUIET: Final = frozenset((PacketKind.DATA, PacketKind.BEST_EFFORT, PacketKind.UNIFORM))
"""What they bring may be delivered, and has no other consequence while no slot waits for it."""
DATA_FORMS: Final[dict[int, Callable[[memoryview], Data | Uniform]]] = {
    PacketKind.DATA: read_data,
    PacketKind.UNIFORM: read_uniform,
}
"""Of which several may come as one train."""


def read(kind: int, body: memoryview) -> Packet:
    if (read_one := DATA_FORMS.get(kind)) is not None:
        return read_one(body)
    return decode(FORMS[kind], body)


def read_all(
    opened: Envelope | PacketTrain, drop: Callable[[str, int], None]
) -> list[tuple[int, int, Packet]]:
    """Kind, TRID and packet; of a train, runs of packets of one block are one."""
    if isinstance(opened, PacketTrain) and opened.first.kind in DATA_FORMS:
        kind, trid, body = opened.first
        try:
            front = DATA_FORMS[kind](body)
        except BadPacket as bad:
            drop(bad.reason, len(opened.indices))
            return []
        return [(kind, trid, packet) for packet in read_train(opened, front, drop)]
    found: list[tuple[int, int, Packet]] = []
    for kind, trid, body in opened.envelopes() if isinstance(opened, PacketTrain) else (opened,):
        try:
            found.append((kind, trid, read_once(read, kind, body)))
        except BadPacket as bad:
            drop(bad.reason, 1)
    return found
