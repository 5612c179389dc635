"""The packets of the sequencer protocol, declared field by field."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, Final, NamedTuple

from unisono.fields import U8, U64, Blob, Incarnation, bounded
from unisono.layout import decode, size_of
from unisono.model import Member
from unisono.parts.labels import labeller, number_range
from unisono.parts.state_transfer import TransferPiece, TransferRequest
from unisono.wire import ENVELOPE_BYTES, Envelope

PROTOCOL: Final = 200
VIEW, BYE = 4, 8
"""Flags beside FIRST and LAST: a view from the sequencer, a farewell from a member."""


class PacketKind(IntEnum):
    JOIN = 1
    WELCOME = 2
    STOP = 3
    DATA = 4
    BEAT = 5
    STATE_REQUEST = 6
    STATE = 7


KINDS: Final = {kind.value: kind.name.lower() for kind in PacketKind}


class JoinRequest(NamedTuple):
    member: Member

    def label(self) -> str:
        return "join"


class Welcome(NamedTuple):
    joiner: U64
    sequencer: Member
    first: U64
    """The chunk of the order with which the joiner begins: the view that adds it."""
    with_state: bool

    def label(self) -> str:
        return "welcome"


class Stop(NamedTuple):
    """The addressee is not admitted, or was removed."""

    key: U64
    reason: str
    superseded_by: Incarnation = 0

    def label(self) -> str:
        return f"refuse: {self.reason}"


class Chunk(NamedTuple):
    """A message or a fragment of one; the sequencer orders it as its sender submitted it."""

    flags: U8
    origin: U64
    number: U64
    """The sender's count of messages."""
    service: Annotated[int, bounded("B", 0, 5)]
    payload: Blob


class Data(NamedTuple):
    """Chunks in a row: of the order, or of a member's submissions."""

    sender: U64
    first: U64
    chunks: tuple[Chunk, ...]

    def label(self) -> str:
        return f"data {number_range(self.first, self.first + len(self.chunks) - 1)}"


class Beat(NamedTuple):
    """A heartbeat: what was sent, what was delivered, and the ranges that are missing."""

    sender: U64
    sent: U64
    delivered: U64
    missing: tuple[tuple[U64, U64], ...] = ()

    def label(self) -> str:
        ranges = (number_range(first, last) for first, last in self.missing)
        return " ".join(("nak" if self.missing else "beat", *ranges))


class Roster(NamedTuple):
    """The payload of a VIEW chunk."""

    seq: U64
    """Messages ordered before it."""
    members: tuple[RosterEntry, ...]
    left: tuple[U64, ...]
    """Keys of the members that left; the others that are missing failed."""


class RosterEntry(NamedTuple):
    member: Member
    number: U64
    """Of its last message ordered before."""


Packet = JoinRequest | Welcome | Stop | Data | Beat | TransferRequest | TransferPiece
CLASSES: Final = (JoinRequest, Welcome, Stop, Data, Beat, TransferRequest, TransferPiece)
CLASS_OF: Final[dict[int, Any]] = dict(zip(KINDS, CLASSES, strict=True))
KIND_OF: Final = {packet: kind for kind, packet in CLASS_OF.items()}
CHUNK_BYTES: Final = size_of(Chunk)
DATA_BYTES: Final = ENVELOPE_BYTES + size_of(Data)


def read(envelope: Envelope) -> Packet:
    """The packet, or `BadPacket`."""
    packet: Packet = decode(CLASS_OF[envelope.kind], envelope.body)
    return packet


label: Final = labeller(PROTOCOL, KINDS, lambda envelope: read(envelope).label())
"""`data 5-7`, `nak 5`: what a trace and its drawing show of a packet."""
