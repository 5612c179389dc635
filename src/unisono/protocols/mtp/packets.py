"""The packets of MTP: what each carries, to bytes and back.

Every packet of a web begins with the same header; what asks to come in has none yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.model import Address, Buffer, Member
from unisono.protocols.mtp.agreement import MessageStatus
from unisono.wire import FieldLayout, Writer, tag_of

PROTOCOL: Final = 1
WHOLE: Final = 0xFFFFFFFF
"""As the last packet of a range: up to the end of the message. As the first as well: nothing but
the status is asked for."""
NUMBER_MAX: Final = 1 << 62
COUNT_MAX: Final = 1 << 31
"""Nobody counts so far. What is reckoned from smaller numbers still has room in a packet."""


class PacketKind(IntEnum):
    DATA = 1
    EMPTY = 2
    REQUEST = 3
    GRANT = 4
    NAK = 5
    DENY = 6
    REPORT = 7
    LEAVE = 8
    EXPEL = 9
    JOIN = 10
    CONFIRM = 11
    REFUSE = 12
    STATE_ASK = 13
    STATE = 14
    SEAT = 15
    PROPOSE = 16
    ACK = 17
    STAND = 18
    SUPPORT = 19


KINDS: Final = {kind.value: kind.name.lower() for kind in PacketKind}


def key_of(member: Member) -> int:
    """The short name under which packets speak of a member."""
    return tag_of(f"{member.name}|{member.address}|{member.incarnation}")


class Header(NamedTuple):
    """[MTP 3.3] In every packet: the parameters, the statuses of the last t messages, the next
    number. The statuses are those of the t messages before `base`, two bits each."""

    sender: int
    base: int
    bits: int
    next: int
    taken: int
    """The sender has all numbers below this: delivered, skipped, or, while it waits for the state,
    here."""
    heartbeat_us: int
    window: int
    retention: int
    t: int

    @property
    def last(self) -> tuple[MessageStatus, ...]:
        return statuses_of(self.bits, self.t)


HEADER: Final = FieldLayout("QQQQQIHBB")
HEADER_BYTES: Final = HEADER.octets
#                          origin number end, and the packet's upper and lower half
DATA: Final = FieldLayout("QQBHH")
DATA_BYTES: Final = DATA.octets
ALIKE_BYTES: Final = HEADER_BYTES + DATA_BYTES - 2
"""What packets of a message begin with that leave together, but its last; the lower half of their
number follows."""
STATE: Final = FieldLayout("BQQ")
STATE_BYTES: Final = STATE.octets
RANGE_BYTES: Final = 8 + 4 + 4

_statuses: dict[tuple[int, int], tuple[MessageStatus, ...]] = {}
_STATUS: Final = (MessageStatus.PENDING, MessageStatus.ACCEPTED, MessageStatus.REJECTED)


def statuses_of(bits: int, t: int) -> tuple[MessageStatus, ...]:
    known = _statuses.get((bits, t))
    if known is None:
        if any(bits >> 2 * k & 3 == 3 for k in range(t)) or bits >> 2 * t:
            raise BadPacket("malformed")
        known = tuple(_STATUS[bits >> 2 * k & 3] for k in range(t))
        if len(_statuses) < 4096:  # Bounded: hostile bits cannot fill the memory.
            _statuses[bits, t] = known
    return known


def bits_of(last: tuple[MessageStatus, ...]) -> int:
    bits = 0
    for status in reversed(last):
        bits = bits << 2 | status
    return bits


def write_header(header: Header) -> bytes:
    return HEADER.pack(*header)


class Data(NamedTuple):
    """Packet p of message m, said by `origin`. Those of one burst that follow each other are heard
    as one."""

    header: Header
    origin: int
    number: int
    packet: int
    """The first of them."""
    end: bool
    """It is the last of its message."""
    pieces: Sequence[Buffer]

    @property
    def piece(self) -> Buffer:
        return self.pieces[0]

    @staticmethod
    def head(header: bytes, origin: int, number: int, packet: int, end: bool) -> bytes:
        """What the packet begins with, before the lower half of its number."""
        return header + DATA.pack(origin, number, end, packet >> 16, 0)[:-2]

    @staticmethod
    def body(
        header: bytes, origin: int, number: int, packet: int, end: bool, piece: Buffer
    ) -> bytes:
        front = DATA.pack(origin, number, end, packet >> 16, packet & 0xFFFF)
        return b"".join((header, front, piece))


class Empty(NamedTuple):
    """[MTP 3.3] Nothing to say, but this is how far I am: a token holder's message and how many of
    its packets left; the master's ballot, and what every member has."""

    header: Header
    number: int = 0
    packets: int = 0
    ended: bool = False
    ballot: int = 0
    stable: int = 0
    master: Member | None = None
    """With a ballot, who leads under it."""

    def body(self, header: bytes) -> bytes:
        out = Writer().raw(header).u64(self.number).u32(self.packets).u8(self.ended)
        out.u32(self.ballot)
        return (out.u64(self.stable).member(self.master) if self.master else out).done()


class TokenRequest(NamedTuple):
    header: Header
    request: int
    packets: int
    """About so many packets will be sent."""

    def body(self, header: bytes) -> bytes:
        return Writer().raw(header).u32(self.request).u32(self.packets).done()


class Grant(NamedTuple):
    """The token: `header.base` is the message's number."""

    header: Header
    request: int
    number: int
    audience: tuple[Address, ...] = ()
    """Whom to send to; nobody named is the web's multicast address."""

    def body(self, header: bytes) -> bytes:
        out = Writer().raw(header).u32(self.request).u64(self.number).u16(len(self.audience))
        for address in self.audience:
            out.text(address.host).u16(address.port)
        return out.done()


Range = tuple[int, int, int]
"""Of a message, from one packet to another."""


class Nak(NamedTuple):
    header: Header
    ranges: tuple[Range, ...]

    def body(self, header: bytes) -> bytes:
        flat = tuple(value for each in self.ranges for value in each)
        return Writer().raw(header).rows("QII", 3, flat).done()


class Deny(NamedTuple):
    """Of these messages, data or statuses are no longer held."""

    header: Header
    numbers: tuple[int, ...]

    def body(self, header: bytes) -> bytes:
        return Writer().raw(header).rows("Q", 1, self.numbers).done()


class Pressure(IntEnum):
    """What a consumer wants of the parameters."""

    CALM = 0
    LOSING = 1
    """Packets were missing: a smaller window, a longer retention."""
    FULL = 2
    """The application is slow: a smaller window, a longer heartbeat."""


class Report(NamedTuple):
    """[MTP 4, 5.3] A member to the master: I am here, I want it so, and these seem to be gone."""

    header: Header
    pressure: Pressure = Pressure.CALM
    suspects: tuple[int, ...] = ()

    def body(self, header: bytes) -> bytes:
        return Writer().raw(header).u8(self.pressure).rows("Q", 1, self.suspects).done()


class LeaveRequest(NamedTuple):
    header: Header

    def body(self, header: bytes) -> bytes:
        return header


class Expel(NamedTuple):
    """You are no member of this web, or not any more."""

    header: Header
    key: int
    stateless: bool = False
    """Only if you still wait for the roster or the state: nobody has them for you any more."""

    def body(self, header: bytes) -> bytes:
        return Writer().raw(header).u64(self.key).u8(self.stateless).done()


class JoinRequest(NamedTuple):
    member: Member
    wants_state: bool
    withdrawn: bool = False
    """It gave up."""

    def body(self) -> bytes:
        return Writer().member(self.member).u8(self.wants_state).u8(self.withdrawn).done()


class Confirm(NamedTuple):
    """[MTP 3.4] You are in: accept messages after the view at `first`."""

    header: Header
    key: int
    first: int
    gives_state: bool
    ballot: int
    master: Member

    def body(self, header: bytes) -> bytes:
        out = Writer().raw(header).u64(self.key).u64(self.first).u8(self.gives_state)
        return out.u32(self.ballot).member(self.master).done()


class Refuse(NamedTuple):
    key: int
    final: bool
    reason: str
    known: int = 0
    """Where it is for its number: the incarnation of this name that is known."""

    def body(self) -> bytes:
        front = Writer().u64(self.key).u8(self.final).text(self.reason)
        return front.incarnation(self.known).done()


class StateRequest(NamedTuple):
    header: Header
    what: int
    offset: int
    pieces: int

    def body(self, header: bytes) -> bytes:
        out = Writer().raw(header).u8(self.what).u64(self.offset)
        return out.u16(self.pieces).done()


class StatePiece(NamedTuple):
    header: Header
    what: int
    total: int
    offset: int
    piece: Buffer

    def body(self, header: bytes) -> bytes:
        return b"".join((header, STATE.pack(self.what, self.total, self.offset), self.piece))


FORGOTTEN_BITS: Final = 16
FORGOTTEN_MAX: Final = (1 << FORGOTTEN_BITS) - 1
"""How often one incarnation of a replica is known to forget."""


class ReplicaSeat(NamedTuple):
    """A master replica to the others: who sits where, in which web, under which ballot."""

    rank: int
    masters: int
    member: Member
    web: int
    """0 is none: it remembers nothing."""
    ballot: int
    version: int
    leads: bool
    asks: int
    """Above 0 it wants to be told by all who remember, with this number as the echo."""
    echo: int
    life: int = 0
    """Rises whenever this replica forgets: its incarnation, and 16 bits that count."""

    def body(self) -> bytes:
        out = Writer().u8(self.rank).u8(self.masters).member(self.member).u64(self.web)
        out.u32(self.ballot).u64(self.version).u8(self.leads)
        out.u32(self.asks).u32(self.echo)
        return out.incarnation(self.life >> FORGOTTEN_BITS).u16(self.life & FORGOTTEN_MAX).done()


class Propose(NamedTuple):
    header: Header
    ballot: int
    version: int
    value: Buffer

    def body(self, header: bytes) -> bytes:
        out = Writer().raw(header).u32(self.ballot).u64(self.version)
        return out.blob(self.value).done()


class Ack(NamedTuple):
    """The highest version held under this ballot; a higher ballot than asked is a no."""

    header: Header
    rank: int
    ballot: int
    version: int

    def body(self, header: bytes) -> bytes:
        out = Writer().raw(header).u8(self.rank).u32(self.ballot)
        return out.u64(self.version).done()


class Stand(NamedTuple):
    header: Header
    rank: int
    ballot: int

    def body(self, header: bytes) -> bytes:
        return Writer().raw(header).u8(self.rank).u32(self.ballot).done()


class Support(NamedTuple):
    header: Header
    rank: int
    ballot: int
    accepted: int
    """The ballot under which the value was accepted."""
    version: int
    value: Buffer
    lives: tuple[int, ...] = ()
    """Rank by rank, the latest life that the supporter has heard of, its own included."""

    def body(self, header: bytes) -> bytes:
        out = Writer().raw(header).u8(self.rank).u32(self.ballot).u32(self.accepted)
        return out.u64(self.version).blob(self.value).rows("QH", 2, self._halves()).done()

    def _halves(self) -> list[int]:
        return [half for life in self.lives for half in divmod(life, FORGOTTEN_MAX + 1)]


OfCouncil = Propose | Ack | Stand | Support
InWeb = (
    Data
    | Empty
    | TokenRequest
    | Grant
    | Nak
    | Deny
    | Report
    | LeaveRequest
    | Expel
    | Confirm
    | StateRequest
    | StatePiece
    | Propose
    | Ack
    | Stand
    | Support
)
Packet = InWeb | JoinRequest | Refuse | ReplicaSeat
FROM_OUTSIDE: Final = (JoinRequest, Refuse, ReplicaSeat)
OF_COUNCIL: Final = (Propose, Ack, Stand, Support)


def count_of(packet: Packet) -> int:
    """How many it stands for."""
    return len(packet.pieces) if isinstance(packet, Data) else 1
