"""The packets of rmcast, declared field by field.

Numbers of a stream count *chunks*, so that a large message is repaired fragment by fragment; an
acknowledgment names the last chunk of the last whole message delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.fields import (
    U8,
    U16,
    U16_COUNT,
    U32,
    U64,
    Bit,
    Blob,
    Field,
    Given,
    Incarnation,
    Rest,
    bounded,
    fixed,
    table,
)
from unisono.layout import decode, decode_front, encode, size_of
from unisono.model import Buffer, Member
from unisono.parts import identity
from unisono.parts.labels import labeller, number_range
from unisono.parts.packing import fragments, joined
from unisono.protocols.rmcast.control import Add, Rank, read_control

PROTOCOL: Final = 4
NUMBER_MAX: Final = 1 << 62
"""Larger numbers are hostile: no stream gets so far."""

FIRST, LAST, CONTROL = 1, 2, 4
"""Flags of a chunk: begins a message, ends one, is for the protocol and not the application."""

Number: TypeAlias = Annotated[int, bounded("Q", 0, NUMBER_MAX)]


class PacketKind(IntEnum):
    SEEK = 1
    WELCOME = 2
    REFUSE = 3
    ANNOUNCE = 4
    BEAT = 5
    DATA = 6
    STATE_ASK = 7
    STATE = 8


KINDS: Final = {kind.value: kind.name.lower() for kind in PacketKind}


class StreamStatus(IntEnum):
    """What a packet's sender holds of a member."""

    MEMBER = 0
    FAILED = 1
    LEFT = 2
    CLOSED = 3
    """Failed, and its last message is settled."""


MEMBER, FAILED, LEFT, CLOSED = StreamStatus
"""As globals: looking one up in its class takes ten times as long."""


def key_of(member: Member) -> int:
    """The key that stands for a member in packets."""
    return identity.key_of(member, bits=32)


# -- the header -----------------------------------------------------------------------------------


class AckEntry(NamedTuple):
    """A line of T_G and D_G: what the packet's sender received and delivered from one member.

    In its own line `delivered` counts what it multicast and `received` what it has sent of that.
    """

    delivered: int
    received: int
    status: StreamStatus


class Header(NamedTuple):
    """Carried by every packet of a member: timestamp, ack list and failed list in one table."""

    sender: int
    entries: dict[int, AckEntry]
    """Empty where the table would not have fitted: then it comes in a packet of its own."""


NO_HEADER: Final = Header(0, {})
STATUS_BITS: Final = 2
STATUS_MAX: Final = (1 << STATUS_BITS) - 1
_STATUSES: Final = tuple(StreamStatus)


class HeaderFields(NamedTuple):
    """A header as it is on the wire."""

    sender: U32
    entries: Annotated[
        tuple[int, ...],
        table(
            fixed("(key: u32, delivered: u64, 4 * apart + status: u32)", "IQI"),
            U16_COUNT,
            flat=True,
        ),
    ]
    """In line; `apart` is how far received is from delivered."""

    def is_valid(self) -> bool:
        return max(self.entries[1::3], default=0) <= NUMBER_MAX


def write_header(header: Header) -> bytes:
    flat: list[int] = []
    for key, (delivered, received, status) in header.entries.items():
        flat += (key, delivered, abs(received - delivered) << STATUS_BITS | status)
    return encode(HeaderFields(header.sender, tuple(flat)))


def read_header(body: memoryview) -> tuple[Header, memoryview]:
    """The header, and what follows it."""
    (sender, flat), rest = decode_front(HeaderFields, body)
    entries = {}
    for key, delivered, both in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        apart, status = both >> STATUS_BITS, _STATUSES[both & STATUS_MAX]
        received = max(delivered - apart, 0) if key == sender else delivered + apart
        entries[key] = AckEntry(delivered, received, status)
    return Header(sender, entries), rest


# -- before there is a header ---------------------------------------------------------------------


class Seek(NamedTuple):
    """A request to join, from a process that looks for its group."""

    member: Member
    wants_state: Bit
    forwarded: Bit = False
    withdrawn: Bit = False
    """It gave up."""
    echo: U64 = 0
    """The stamp of the last announcement received: proves that the seeker is alive now."""

    def label(self) -> str:
        word = "withdraw" if self.withdrawn else "seek"
        return f"{word} for {self.member.name}" if self.forwarded else word


class WelcomeEntry(NamedTuple):
    """A member, in a welcome."""

    member: Member
    status: StreamStatus
    rank: Rank
    delivered: Number
    message: Number
    """The application's count at `delivered`."""


class Welcome(NamedTuple):
    """The joiner is admitted: all members, and where their streams begin for it."""

    joiner: U32
    sponsor: U32
    changes: Number
    with_state: bool
    lines: tuple[WelcomeEntry, ...]
    tombs: Annotated[
        tuple[int, ...], table(fixed("(key: u32, last chunk: u64)", "IQ"), U16_COUNT, flat=True)
    ]
    """Key and last chunk in turn: streams that have ended."""


class WelcomePart(NamedTuple):
    """A welcome in pieces that fit the path: a large group is a long list."""

    joiner: U32
    stamp: U64
    """Distinguishes the parts of one welcome from those of another."""
    part: U8
    parts: U8
    piece: Rest

    def is_valid(self) -> bool:
        return self.part < self.parts

    def label(self) -> str:
        return "welcome" if self.parts == 1 else f"welcome {self.part + 1} of {self.parts}"


def welcome_parts(welcome: Welcome, bytes_max: int) -> list[bytes]:
    """The bodies of the packets that carry the welcome."""
    pieces = fragments(encode(welcome), bytes_max, bytes_max)
    return [
        encode(WelcomePart(welcome.joiner, welcome.changes, part, len(pieces), piece))
        for part, piece in enumerate(pieces)
    ]


class Refuse(NamedTuple):
    """The joiner is not admitted, and why."""

    joiner: U32
    reason: str
    final: bool = False
    """Trying again is of no use."""
    known: Incarnation = 0
    """If it is refused for its incarnation: the one of this name that is known."""

    def label(self) -> str:
        return f"refuse: {self.reason}"


class Announce(NamedTuple):
    """A component of the group, its size, and the member that leads it."""

    sponsor: Member
    size: U16
    life: U64
    forwarder: U32 = 0
    """The key of the member that forwarded it to its own component; it is not forwarded again."""
    stamp: U64 = 0
    """The sponsor's clock, echoed by seekers and by sponsors of other components."""
    echo: U64 = 0
    """The stamp of the announcement that this one answers: its component is there now."""

    def label(self) -> str:
        return "announce"


# -- behind a header ------------------------------------------------------------------------------

Ask: TypeAlias = tuple[U32, U64, U64]
"""Of this member's stream, from this chunk to that."""


class Beat(NamedTuple):
    """The heartbeat: the header, and requests for what is missing."""

    header: Given[Header]
    round: U8 = 0
    """How often the oldest request was sent before; from 1 on, any member that has it answers."""
    expels: U32 = 0
    """The key of a process that is no longer a member: it learns so. A key, since another
    incarnation may use its address now."""
    probes: bool = False
    """Nothing was received from the destination for a while: it answers at once."""
    asks: tuple[Ask, ...] = ()

    def is_valid(self) -> bool:
        return all(0 < first <= last for _, first, last in self.asks)

    def label(self) -> str:
        if self.expels or self.probes:
            return "expel" if self.expels else "probe"
        return " ".join(("nak", *(_stream(*ask) for ask in self.asks))) if self.asks else "beat"


Dep: TypeAlias = tuple[int, ...]


class MessagePart(NamedTuple):
    """A message, or a fragment of one, with what it must come after."""

    flags: int
    service: int
    payload: Buffer
    message: int
    """The number of the application's message; a control chunk repeats the last one."""
    deps: Dep
    """Key and chunk number in turn: D_G of the sender when it sent, without itself."""


_CHUNK: Final = fixed("", "HBB")
Chunk: TypeAlias = tuple[int, int, Buffer]
"""Flags, service and payload, on the wire."""


def _read_chunk(view: memoryview, at: int) -> tuple[Chunk, int]:
    (size, flags, service), at = _CHUNK.read(view, at)
    end = at + size
    if flags > 7 or service > 5 or end > len(view):
        raise BadPacket("malformed")
    return (flags, service, view[at:end]), end


def _write_chunk(chunk: Chunk, parts: list[Buffer]) -> None:
    flags, service, payload = chunk
    _CHUNK.write((len(payload), flags, service), parts)
    parts.append(payload)


CHUNK: Final = Field("(u16 length, u8 flags, u8 service, payload)", _read_chunk, _write_chunk)


class DataFields(NamedTuple):
    """A data packet on the wire: chunks of one run follow each other and have the same `deps`."""

    origin: U32
    first: Annotated[int, bounded("Q", 1, NUMBER_MAX)]
    message: Number
    """Of the first chunk."""
    deps: Annotated[Dep, table(fixed("(key: u32, chunk: u64)", "IQ"), U16_COUNT, flat=True)]
    chunks: Annotated[tuple[Chunk, ...], table(CHUNK, U16_COUNT)]

    def is_valid(self) -> bool:
        return bool(self.chunks)


class Data(NamedTuple):
    """m': messages of one stream in a row, sent first or sent again, behind a fresh header."""

    header: Header
    origin: int
    first: int
    chunks: tuple[MessagePart, ...]

    @staticmethod
    def body(header: bytes, origin: int, first: int, chunks: Sequence[MessagePart]) -> bytes:
        head = chunks[0]
        rows = tuple([(flags, service, payload) for flags, service, payload, _, _ in chunks])
        return header + encode(DataFields(origin, first, head.message, head.deps, rows))

    @staticmethod
    def read(body: memoryview, header: Header) -> Data:
        origin, first, message, deps, rows = decode(DataFields, body)
        chunks = []
        for index, (flags, service, payload) in enumerate(rows):
            if index and flags & FIRST and not flags & CONTROL:
                message += 1
            chunks.append(MessagePart(flags, service, payload, message, deps))
        return Data(header, origin, first, tuple(chunks))

    def label(self) -> str:
        last = self.first + len(self.chunks) - 1
        control = [chunk.payload for chunk in self.chunks if chunk.flags & CONTROL]
        words = read_control(control[0]).label() if control else ""
        return f"data {_stream(self.origin, self.first, last)} {words}".rstrip()


class StateRequest(NamedTuple):
    """A joiner requests the state, from this offset on."""

    header: Given[Header]
    offset: U64
    pieces: U16

    def label(self) -> str:
        return f"state-ask from {self.offset}"


class StatePiece(NamedTuple):
    """A piece of the state."""

    header: Given[Header]
    joiner: U32
    """The receiver: a state captured for an earlier incarnation at its address differs."""
    total: U64
    offset: U64
    piece: Blob

    def label(self) -> str:
        last = self.offset + max(len(self.piece) - 1, 0)
        return f"state {number_range(self.offset, last)} of {self.total}"


def additions(chunks: Iterable[MessagePart]) -> Iterator[Member]:
    """Members that control messages among these chunks of a stream add."""
    pieces: list[Buffer] = []
    for chunk in chunks:
        if not chunk.flags & CONTROL:
            continue
        pieces = [chunk.payload] if chunk.flags & FIRST else [*pieces, chunk.payload]
        if chunk.flags & LAST:
            try:
                order = read_control(joined(pieces))
            except BadPacket:
                continue
            if isinstance(order, Add):
                yield order.member


# -- all packets ----------------------------------------------------------------------------------

FromMember: TypeAlias = Beat | Data | StateRequest | StatePiece
Packet: TypeAlias = Seek | WelcomePart | Refuse | Announce | FromMember
WITHOUT_HEADER: Final[dict[int, type[Seek | WelcomePart | Refuse | Announce]]] = {
    PacketKind.SEEK: Seek,
    PacketKind.WELCOME: WelcomePart,
    PacketKind.REFUSE: Refuse,
    PacketKind.ANNOUNCE: Announce,
}
BEHIND_HEADER: Final[dict[int, type[Beat | StateRequest | StatePiece]]] = {
    PacketKind.BEAT: Beat,
    PacketKind.STATE_ASK: StateRequest,
    PacketKind.STATE: StatePiece,
}

HEADER_BYTES: Final = size_of(HeaderFields)
ENTRY_BYTES: Final = size_of(tuple[U32, U64, U32])
RUN_BYTES: Final = size_of(DataFields)
DEP_BYTES: Final = size_of(tuple[U32, U64])
RECORD_BYTES: Final = _CHUNK.least
BEAT_BYTES: Final = size_of(Beat)
ASK_BYTES: Final = size_of(Ask)
STATE_FRONT_BYTES: Final = size_of(StatePiece)
WELCOME_FRONT_BYTES: Final = size_of(WelcomePart)


def read(kind: int, body: memoryview) -> Packet:
    """The packet, or `BadPacket`."""
    if kind in WITHOUT_HEADER:
        return decode(WITHOUT_HEADER[kind], body)
    header, rest = read_header(body)
    if kind == PacketKind.DATA:
        return Data.read(rest, header)
    return decode(BEHIND_HEADER[kind], rest, header)


label: Final = labeller(PROTOCOL, KINDS, lambda found: read(found.kind, found.body).label())
"""`data @5d2f01c9.4-7`, `nak @5d2f01c9.5`: a stream is named by its member's key, which a reader of
the whole trace can turn into a name."""


def _stream(key: int, first: int, last: int) -> str:
    return f"@{key:08x}.{number_range(first, last)}"
