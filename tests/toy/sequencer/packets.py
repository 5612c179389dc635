"""The packets of the sequencer protocol, declared field by field."""

from __future__ import annotations

from typing import Final, NamedTuple

from unisono.fields import U64, Incarnation
from unisono.model import Member
from unisono.parts.links import LinkBeat, LinkData
from unisono.parts.packet_set import PacketSet
from unisono.parts.state_transfer import TransferPiece, TransferRequest

VIEW, BYE = 4, 8
"""Flags of a chunk: a view from the sequencer, a farewell from a member."""


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


class Stop(NamedTuple):
    """The addressee is not admitted, or was removed."""

    key: U64
    reason: str
    superseded_by: Incarnation = 0

    def label(self) -> str:
        return f"refuse: {self.reason}"


class RosterEntry(NamedTuple):
    member: Member
    number: U64
    """Of its last message ordered before."""


class Roster(NamedTuple):
    """The payload of a VIEW chunk."""

    seq: U64
    """Messages ordered before it."""
    members: tuple[RosterEntry, ...]
    left: tuple[U64, ...]
    """Keys of the members that left; the others that are missing failed."""


PACKETS: Final = PacketSet(
    200, JoinRequest, Welcome, Stop, LinkData, LinkBeat, TransferRequest, TransferPiece
)
