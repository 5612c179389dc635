"""The packets of rmcast: what each carries, to bytes and back.

Numbers of a stream count *chunks*, so that a large message is repaired fragment by fragment; an
acknowledgment names the last chunk of the last whole message delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.model import Buffer, Member
from unisono.parts.packing import fragments
from unisono.wire import Reader, Writer, tag_of

PROTOCOL: Final = 4
HEADER_BYTES: Final = 4 + 2
ENTRY_BYTES: Final = 4 + 8 + 4
RUN_BYTES: Final = 4 + 8 + 8 + 2
DEP_BYTES: Final = 4 + 8
RECORD_BYTES: Final = 2 + 1 + 1
BEAT_BYTES: Final = 1 + 4 + 1 + 2
ASK_BYTES: Final = 4 + 8 + 8
STATE_FRONT_BYTES: Final = 4 + 8 + 8 + 2

FIRST, LAST, CONTROL = 1, 2, 4
"""What a chunk is: begins a message, ends one, speaks to the protocol, not the application."""


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
"""By themselves: to look one up in its class takes ten times as long."""


def key_of(member: Member) -> int:
    """The short name under which headers speak of a member."""
    return tag_of(f"{member.name}|{member.address}|{member.incarnation}") & 0xFFFFFFFF


class AckEntry(NamedTuple):
    """A line of T_G and D_G: what the packet's sender received and delivered from one member.

    In its own line `delivered` counts what it said and `received` what it has sent of that.
    """

    delivered: int
    received: int
    status: StreamStatus


class Header(NamedTuple):
    """Carried by every packet of a member: timestamp, ack list and failed list in one table."""

    sender: int
    entries: dict[int, AckEntry]
    """None where the table would not have fitted: then it comes in a packet of its own."""


Dep = tuple[int, ...]


class MessagePart(NamedTuple):
    """A message, or a fragment of one, with what it must come after."""

    flags: int
    service: int
    payload: memoryview | bytes
    message: int
    """The number of the application's message; a control chunk repeats the last one."""
    deps: Dep
    """Key and chunk number in turn: D_G of the sender when it sent, without itself."""


Ask = tuple[int, int, int]
"""Of this member's stream, from this chunk to that."""


@dataclass(frozen=True, slots=True)
class Seek:
    """Is there a group? I would like in."""

    member: Member
    wants_state: bool
    forwarded: bool = False
    echo: int = 0
    """The stamp of the last announcement heard: shows that the seeker is alive now."""
    withdrawn: bool = False
    """Not any more: it gave up."""

    def body(self) -> bytes:
        flags = self.wants_state | self.forwarded << 1 | self.withdrawn << 2
        return Writer().member(self.member).u8(flags).u64(self.echo).done()

    @staticmethod
    def read(reader: Reader) -> Seek:
        member, flags = reader.member(), reader.u8()
        return Seek(member, bool(flags & 1), bool(flags & 2), reader.u64(), bool(flags & 4))


class WelcomeEntry(NamedTuple):
    """A member as the welcome tells of it."""

    member: Member
    status: StreamStatus
    rank: int
    delivered: int
    message: int
    """The application's count at `delivered`."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """You are in: here is everybody, and where you begin."""

    joiner: int
    sponsor: int
    changes: int
    with_state: bool
    lines: tuple[WelcomeEntry, ...]
    tombs: tuple[int, ...]
    """Key and last chunk in turn: streams that have ended."""

    def body(self) -> bytes:
        writer = Writer().u32(self.joiner).u32(self.sponsor).u64(self.changes).u8(self.with_state)
        writer.u16(len(self.lines))
        for line in self.lines:
            writer.member(line.member).u8(line.status).u32(line.rank)
            writer.u64(line.delivered).u64(line.message)
        return writer.rows("IQ", 2, self.tombs).done()

    @staticmethod
    def read(reader: Reader) -> Welcome:
        joiner, sponsor, changes = reader.u32(), reader.u32(), _number(reader.u64())
        with_state, count = bool(reader.u8()), reader.u16()
        lines = []
        for _ in range(count):
            member, status, rank = reader.member(), _status(reader.u8()), rank_of(reader.u32())
            lines.append(
                WelcomeEntry(member, status, rank, _number(reader.u64()), _number(reader.u64()))
            )
        return Welcome(joiner, sponsor, changes, with_state, tuple(lines), reader.rows("IQ"))


@dataclass(frozen=True, slots=True)
class WelcomePart:
    """A welcome in pieces that fit the path: a large group is a long list."""

    joiner: int
    stamp: int
    """Tells the parts of one welcome from those of another."""
    part: int
    parts: int
    piece: Buffer

    def body(self) -> bytes:
        front = Writer().u32(self.joiner).u64(self.stamp).u8(self.part).u8(self.parts)
        return front.raw(self.piece).done()

    @staticmethod
    def read(reader: Reader) -> WelcomePart:
        joiner, stamp, part, parts = reader.u32(), reader.u64(), reader.u8(), reader.u8()
        if part >= parts:
            raise BadPacket("malformed")
        return WelcomePart(joiner, stamp, part, parts, reader.raw(reader.left()))


def welcome_parts(welcome: Welcome, bytes_max: int) -> list[bytes]:
    """The bodies of the packets that carry the welcome."""
    pieces = fragments(welcome.body(), bytes_max, bytes_max)
    return [
        WelcomePart(welcome.joiner, welcome.changes, part, len(pieces), piece).body()
        for part, piece in enumerate(pieces)
    ]


@dataclass(frozen=True, slots=True)
class Refuse:
    """You cannot come in, and why."""

    joiner: int
    reason: str
    final: bool = False
    """Asking again is of no use."""
    known: int = 0
    """Where it is for its number: the incarnation of this name that is known."""

    def body(self) -> bytes:
        front = Writer().u32(self.joiner).text(self.reason).u8(self.final)
        return front.incarnation(self.known).done()

    @staticmethod
    def read(reader: Reader) -> Refuse:
        return Refuse(reader.u32(), reader.text(), bool(reader.u8()), reader.incarnation())


@dataclass(frozen=True, slots=True)
class Announce:
    """A part of the group is here: so large, and led by this member."""

    sponsor: Member
    size: int
    life: int
    forwarder: int = 0
    """The key of the member that passed it on to those of its own part, and stops."""
    stamp: int = 0
    """The sponsor's clock, which a seeker and another part's sponsor echo."""
    echo: int = 0
    """The stamp of the announcement that this one answers: shows that its part is there now."""

    def body(self) -> bytes:
        front = Writer().member(self.sponsor).u16(self.size).u64(self.life).u32(self.forwarder)
        return front.u64(self.stamp).u64(self.echo).done()

    @staticmethod
    def read(reader: Reader) -> Announce:
        sponsor, size, life = reader.member(), reader.u16(), reader.u64()
        return Announce(sponsor, size, life, reader.u32(), reader.u64(), reader.u64())


@dataclass(frozen=True, slots=True)
class Beat:
    """The heartbeat: the header, and requests for what is missing."""

    header: Header
    asks: tuple[Ask, ...] = ()
    round: int = 0
    """How often the oldest of them was asked before; from 1 on, whoever has it answers."""
    expels: int = 0
    """Sent to one that is not a member any more, so that it learns so: the key of the life that is
    meant, since another may live at its address now."""
    probes: bool = False
    """Nothing was heard of the receiver for a while: it answers at once."""

    def body(self, header: bytes) -> bytes:
        flat = [value for ask in self.asks for value in ask]
        return (
            Writer()
            .raw(header)
            .u8(min(self.round, 255))
            .u32(self.expels)
            .u8(self.probes)
            .rows("IQQ", 3, flat)
            .done()
        )

    @staticmethod
    def read(reader: Reader) -> Beat:
        header, rounds, expels = read_header(reader), reader.u8(), reader.u32()
        probes = bool(reader.u8())
        flat = reader.rows("IQQ")
        asks = tuple(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
        if any(first > last or first == 0 for _, first, last in asks):
            raise BadPacket("malformed")
        return Beat(header, asks, rounds, expels, probes)


@dataclass(frozen=True, slots=True)
class Data:
    """m': messages of one stream in a row, sent first or sent again, behind a fresh header."""

    header: Header
    origin: int
    first: int
    chunks: tuple[MessagePart, ...]

    @staticmethod
    def body(header: bytes, origin: int, first: int, chunks: Sequence[MessagePart]) -> bytes:
        """Chunks of one run have the same `deps` and follow each other."""
        head = chunks[0]
        writer = Writer().raw(header).u32(origin).u64(first)
        writer.u64(head.message).rows("IQ", 2, head.deps).u16(len(chunks))
        for chunk in chunks:
            writer.u16(len(chunk.payload)).u8(chunk.flags).u8(chunk.service).raw(chunk.payload)
        return writer.done()

    @staticmethod
    def read(reader: Reader) -> Data:
        header, origin, first, message = (
            read_header(reader),
            reader.u32(),
            reader.u64(),
            reader.u64(),
        )
        deps, count = reader.rows("IQ"), reader.u16()
        if not first or not count or first > NUMBER_MAX or message > NUMBER_MAX:
            raise BadPacket("malformed")
        chunks = []
        for index in range(count):
            octets, flags, service = reader.u16(), reader.u8(), reader.u8()
            if flags > 7 or service > 5:
                raise BadPacket("malformed")
            if index and flags & FIRST and not flags & CONTROL:
                message += 1
            chunks.append(MessagePart(flags, service, reader.raw(octets), message, deps))
        return Data(header, origin, first, tuple(chunks))


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Send me the state, from this offset on."""

    header: Header
    offset: int
    count: int

    def body(self, header: bytes) -> bytes:
        return Writer().raw(header).u64(self.offset).u16(self.count).done()

    @staticmethod
    def read(reader: Reader) -> StateRequest:
        return StateRequest(read_header(reader), reader.u64(), reader.u16())


@dataclass(frozen=True, slots=True)
class StatePiece:
    """A piece of the state."""

    header: Header
    joiner: int
    """Whose state it is: what was captured for a former life at its address is another one."""
    total: int
    offset: int
    piece: memoryview

    def body(self, header: bytes) -> bytes:
        front = Writer().raw(header).u32(self.joiner).u64(self.total).u64(self.offset)
        return front.blob(self.piece).done()

    @staticmethod
    def read(reader: Reader) -> StatePiece:
        header, joiner = read_header(reader), reader.u32()
        return StatePiece(header, joiner, reader.u64(), reader.u64(), reader.blob())


FromMember = Beat | Data | StateRequest | StatePiece
Packet = Seek | WelcomePart | Refuse | Announce | Beat | Data | StateRequest | StatePiece
NO_HEADER: Final = Header(0, {})

_READERS: Final[dict[int, Callable[[Reader], Packet]]] = {
    PacketKind.SEEK: Seek.read,
    PacketKind.WELCOME: WelcomePart.read,
    PacketKind.REFUSE: Refuse.read,
    PacketKind.ANNOUNCE: Announce.read,
    PacketKind.BEAT: Beat.read,
    PacketKind.DATA: Data.read,
    PacketKind.STATE_ASK: StateRequest.read,
    PacketKind.STATE: StatePiece.read,
}


def read(kind: int, body: memoryview) -> Packet:
    """The packet, or `BadPacket`."""
    reader = Reader(body)
    packet = _READERS[kind](reader)
    reader.done()
    return packet


def write_header(header: Header) -> bytes:
    flat: list[int] = []
    for key, (delivered, received, status) in header.entries.items():
        flat += (key, delivered, abs(received - delivered) << STATUS_BITS | status)
    return Writer().u32(header.sender).rows("IQI", 3, flat).done()


def read_header(reader: Reader) -> Header:
    sender, flat = reader.u32(), reader.rows("IQI")
    entries = {}
    for i in range(0, len(flat), 3):
        key, delivered, both = flat[i : i + 3]
        _number(delivered)
        apart, status = both >> STATUS_BITS, _STATUSES[both & STATUS_MAX]
        received = max(delivered - apart, 0) if key == sender else delivered + apart
        entries[key] = AckEntry(delivered, received, status)
    return Header(sender, entries)


STATUS_BITS: Final = 2
STATUS_MAX: Final = (1 << STATUS_BITS) - 1
"""How far delivered and received are apart shares its field with the status."""
RANK_MAX: Final = 1 << 31


def rank_of(value: int) -> int:
    if value > RANK_MAX:
        raise BadPacket("malformed")
    return value


NUMBER_MAX: Final = 1 << 62
"""No stream gets so far; who says so is not one of us."""


def _number(value: int) -> int:
    if value > NUMBER_MAX:
        raise BadPacket("malformed")
    return value


_STATUSES: Final = tuple(StreamStatus)


def _status(value: int) -> StreamStatus:
    if value >= len(_STATUSES):
        raise BadPacket("malformed")
    return _STATUSES[value]
