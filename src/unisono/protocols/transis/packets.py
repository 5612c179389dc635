"""The packets of Transis, declared field by field.

The life of the envelope is the configuration's identifier: packets of others are not taken, and
tell that another component is there. Packets about a change of configurations have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.fields import U16, U32, U64, Bit, Incarnation, Rest, bounded
from unisono.layout import HOST_CHARS_MAX, decode, layout_of, size_of
from unisono.model import Buffer, Member
from unisono.parts.codec import PacketTrain
from unisono.parts.labels import number_range
from unisono.parts.packet_set import PacketSet
from unisono.parts.state_transfer import TransferPiece, TransferRequest
from unisono.protocols.transis.parameters import MEMBERS_MAX, VERTEX_PACKETS_MAX
from unisono.protocols.transis.primary import ATTEMPTS_MAX, NUMBER_MAX
from unisono.wire import Envelope

PROTOCOL: Final = 6
INDEX_MAX: Final = (1 << 32) - 1
INDEX_RENEWED: Final = INDEX_MAX - (1 << 24)
"""A configuration of which a member has come so far makes way for the next."""
STAMP_MAX: Final = 1 << 62
NAME_CHARS_MAX: Final = 64
WHOLE: Final = 0xFFFF
"""As the last packet that is asked for: up to the end of the vertex."""
VERTEX: Final = 1
"""The kind of `VertexFront`."""


Stamp: TypeAlias = Annotated[int, bounded("Q", 0, STAMP_MAX)]
PrimaryNumber: TypeAlias = Annotated[int, bounded("Q", 0, NUMBER_MAX)]


class VertexFront(NamedTuple):
    """What precedes a piece of a vertex in its packet."""

    sender: Annotated[int, bounded("H", 0, MEMBERS_MAX - 1)]
    """Its rank in the configuration."""
    number: Annotated[int, bounded("I", 1, INDEX_MAX)]
    of: Annotated[int, bounded("H", 1, VERTEX_PACKETS_MAX)]
    by: U16
    """The rank of who sends the packet, which may answer for another [TRA-3]."""
    at: U16


FRONT: Final = layout_of(VertexFront)
PIECE_AT: Final = size_of(VertexFront)
HEAD_BYTES: Final = PIECE_AT - 2
"""What the packets of a vertex have in common; their index follows."""


# Deviates [TRA §3 piggybacked]: one vector of acknowledgments a burst. The paper's are of each
# message.
class VertexContent(NamedTuple):
    """A vertex, put together: positive acknowledgments for its burst, and its messages [TRA-1]."""

    acks: tuple[U32, ...]
    payload: Rest


class VertexPiece(NamedTuple):
    """Packets of a vertex from `at` on, of `of`; those of one burst that follow each other."""

    life: int
    sender: int
    number: int
    of: int
    by: int
    at: int
    pieces: Sequence[Buffer]

    def label(self) -> str:
        last = self.at + len(self.pieces)
        part = "" if self.of == 1 else f" {number_range(self.at + 1, last)}/{self.of}"
        return f"vertex {self.sender}.{self.number}{part}"


class VertexNak(NamedTuple):
    """[TRA-3] Asks for vertices. Whoever has them may answer."""

    life: U64
    sender: U64
    ranges: tuple[tuple[U16, U32, U32], ...]
    """Rank, first and last index of vertices."""
    parts: tuple[tuple[U16, U32, U16, U16], ...] = ()
    """Rank and index of a vertex, the first and last of its packets."""

    def label(self) -> str:
        ranges = " ".join(f"{rank}.{number_range(a, b)}" for rank, a, b in self.ranges)
        parts = " ".join(f"{rank}.{index}" for rank, index, _, _ in self.parts)
        return f"nak {ranges} {parts}".rstrip()


class Suggest(NamedTuple):
    """[TRA-12] The first stage: the membership set that its sender suggests."""

    sender: Member
    stamp: Stamp
    """Of the sender's attempt: it has no other suggestion in force."""
    revision: U32
    """Later suggestions of the sender have higher ones."""
    proposed: tuple[tuple[U64, Stamp], ...]
    """Keys and stamps of the set, in order."""
    failed: tuple[U64, ...]
    """Those that it does not want."""

    def label(self) -> str:
        return f"suggest {len(self.proposed)}"


class ComponentAnnounce(NamedTuple):
    """[TRA-16] To a process of another component: we are here."""

    sender: Member
    stamp: Stamp
    to: U64 = 0
    """Key of the process that this answers; 0 is anyone."""
    echo: Stamp = 0
    """The last stamp received from it, which proves that both hear each other now."""

    def label(self) -> str:
        return "announce"


class KnownPrimary(NamedTuple):
    """A primary component that its sender knows, or attempted."""

    number: PrimaryNumber
    members: U64
    """By bit, those of the names of its `VoterMemory`."""


class VoterMemory(NamedTuple):
    """What its sender remembers of primary components [TRA-18]."""

    votes: Bit
    """It has durable storage."""
    has_formed: Bit
    """The first of `sessions` has formed; the others may have."""
    highest: PrimaryNumber
    names: tuple[U64, ...]
    """Digests of the names of processes, in order."""
    sessions: tuple[KnownPrimary, ...]


NO_VOTE: Final = VoterMemory(False, False, 0, (), ())


class Agree(NamedTuple):
    """[TRA-12] The second stage: what its sender brings along into the set of this identifier."""

    life: U64
    sender: Member
    former: U64
    """The sender's configuration; 0 is none."""
    received: tuple[U32, ...]
    """By rank in that one, the last vertex up to which all are with the sender."""
    sent: U64
    """The number of its last message in these."""
    recovered: Bit
    """It holds all that any of that configuration in the set holds."""
    is_new: Bit
    """It has shown no view to its application."""
    leaving: Bit
    installed: Bit = False
    """It has installed the configuration: it saw that all are recovered."""
    memory: VoterMemory = NO_VOTE
    history: U64 = 0
    """The number of the last primary component that its sender was in."""

    def label(self) -> str:
        return "recovered" if self.recovered else "agree"


def agree_bytes(sites: int) -> int:
    """The most that so many members say, each with a name, who all vote."""
    names = NAME_CHARS_MAX + HOST_CHARS_MAX + sites * (size_of(U32) + size_of(U64))
    return size_of(Agree) + names + (ATTEMPTS_MAX + 1) * size_of(KnownPrimary)


class Refuse(NamedTuple):
    """A process with a later incarnation of the name is known."""

    key: U64
    reason: str
    known: Incarnation

    def label(self) -> str:
        return "refuse"


PACKETS: Final = PacketSet(
    PROTOCOL,
    VertexFront,
    VertexNak,
    Suggest,
    ComponentAnnounce,
    Agree,
    Refuse,
    TransferRequest,
    TransferPiece,
)
KINDS: Final = {**PACKETS.names, VERTEX: "vertex", 2: "nak", 4: "announce"}


@lru_cache(maxsize=16)
def _front(head: bytes) -> tuple[int, int, int, int]:
    (sender, number, of, by, _), _ = FRONT.read(memoryview(head + bytes(2)), 0)
    return sender, number, of, by


def _read_vertex(life: int, body: memoryview) -> VertexPiece:
    if len(body) < PIECE_AT:
        raise BadPacket("malformed")
    sender, number, of, by = _front(bytes(body[:HEAD_BYTES]))
    at = int.from_bytes(body[HEAD_BYTES:PIECE_AT], "big")
    if at >= of:
        raise BadPacket("malformed")
    return VertexPiece(life, sender, number, of, by, at, (body[PIECE_AT:],))


def read_all(opened: Envelope | PacketTrain, drop: Callable[[str, int], None]) -> list[Any]:
    """The packet; of a train, runs of packets of one vertex are one."""
    if isinstance(opened, PacketTrain) and opened.first.kind == VERTEX:
        _, life, body = opened.first
        try:
            sender, number, of, by = _front(bytes(body[:HEAD_BYTES]))
        except BadPacket as bad:
            drop(bad.reason, len(opened.indices))
            return []
        found: list[Any] = []
        for at, pieces in opened.rows():
            if at + len(pieces) <= of:
                found.append(VertexPiece(life, sender, number, of, by, at, pieces))
            else:
                drop("malformed", len(pieces))
        return found
    found = []
    for envelope in opened.envelopes() if isinstance(opened, PacketTrain) else (opened,):
        try:
            found.append(read(envelope))
        except BadPacket as bad:
            drop(bad.reason, 1)
    return found


def read(envelope: Envelope) -> Any:
    if envelope.kind == VERTEX:
        return _read_vertex(envelope.life, envelope.body)
    return decode(PACKETS.records[envelope.kind - 1], envelope.body)
