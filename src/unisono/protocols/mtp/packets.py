"""The packets of MTP, declared field by field.

Every packet of a web begins with the same header; requests to join have none yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.fields import (
    INCARNATION_MAX,
    U8,
    U16,
    U32,
    U64,
    Blob,
    Given,
    Incarnation,
    Rest,
    When,
    bounded,
    fixed,
    table,
)
from unisono.layout import field_of, layout_of, size_of
from unisono.model import Address, Buffer, Member
from unisono.parts.identity import key_of as key_of
from unisono.protocols.mtp.agreement import MessageStatus
from unisono.protocols.mtp.batch import Form

PROTOCOL: Final = 1
WHOLE: Final = 0xFFFFFFFF
"""As the last packet of a range: to the end of the message. As the first too: only the status is
requested."""
NUMBER_MAX: Final = 1 << 62
COUNT_MAX: Final = 1 << 31
"""Hostile beyond these. What is computed from smaller numbers still fits its field."""
ROSTER, STATE = 0, 1
"""What a joiner pulls: the members, and the application's state."""

Number: TypeAlias = Annotated[int, bounded("Q", 0, NUMBER_MAX - 1)]
MessageNumber: TypeAlias = Annotated[int, bounded("Q", 1, NUMBER_MAX - 1)]
Count: TypeAlias = Annotated[int, bounded("I", 0, COUNT_MAX - 1)]
Ballot: TypeAlias = Number
BALLOTS_AHEAD_MAX: Final = 1 << 32
"""A ballot further ahead than this is nobody's: replicas that are cut off do not stand so often."""


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


# -- the header -----------------------------------------------------------------------------------

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


class Header(NamedTuple):
    """[MTP 3.3] In every packet: the parameters, the statuses of the last t messages, the next
    number. The statuses are those of the t messages before `base`, two bits each."""

    sender: U64
    base: Number
    bits: U64
    next: Number
    taken: Number
    """The sender has all numbers below this: delivered, skipped, or, while it waits for the state,
    buffered."""
    heartbeat_us: U32
    window: U16
    retention: U8
    t: Annotated[int, bounded("B", 1, 32)]

    @property
    def last(self) -> tuple[MessageStatus, ...]:
        return statuses_of(self.bits, self.t)

    def is_valid(self) -> bool:
        return bool(statuses_of(self.bits, self.t))


HEADER: Final = layout_of(Header)
HEADER_BYTES: Final = size_of(Header)


def write_header(header: Header) -> bytes:
    return HEADER.pack(*header)


class DataFront(NamedTuple):
    """A data packet on the wire, before its piece of the message."""

    origin: U64
    number: MessageNumber
    end: bool
    upper: Annotated[int, bounded("H", 0, (COUNT_MAX >> 16) - 1)]
    """Of the packet's number, whose lower half stands last: see `ALIKE_BYTES`."""
    lower: U16


DATA: Final = layout_of(DataFront)
DATA_BYTES: Final = size_of(DataFront)
ALIKE_BYTES: Final = HEADER_BYTES + DATA_BYTES - 2
"""Packets of a message that leave together begin with the same bytes, but its last; the lower half
of their number follows."""


def _range(requested: tuple[int, int, int]) -> str:
    number, first, last = requested
    if first == WHOLE:
        return f"{number} status"
    if last == WHOLE:
        return f"{number}.{first} on"
    return f"{number}.{first}" if first == last else f"{number}.{first}-{number}.{last}"


class Data(NamedTuple):
    """Packet p of message m, sent by `origin`. Consecutive ones of a burst are received as one."""

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

    @staticmethod
    def read(header: Header, rest: memoryview) -> Data:
        (origin, number, end, upper, lower), at = DATA.read(rest, 0)
        return Data(header, origin, number, upper << 16 | lower, end, [rest[at:]])

    def label(self) -> str:
        change = self.packet == 0 and bytes(self.piece[:1]) == bytes((Form.CHANGE,))
        return f"data {self.number}.{self.packet}{' end' * self.end}{' view' * change}"


class Empty(NamedTuple):
    """[MTP 3.3] No data, only the sender's progress: a token holder's message and how many of its
    packets left; the master's ballot, and what every member has."""

    header: Given[Header]
    number: Number = 0
    packets: Count = 0
    ended: bool = False
    ballot: Ballot = 0
    stable: Annotated[Number, When("ballot")] = 0
    master: Annotated[Member | None, When("ballot")] = None
    """The leader under this ballot."""

    def label(self) -> str:
        if not self.number:
            return f"empty {self.header.base}"
        last = max(self.packets - 1, 0)
        return f"empty {_range((self.number, 0, last))}{' end' * self.ended}"


class TokenRequest(NamedTuple):
    header: Given[Header]
    request: U32
    packets: U32
    """About how many packets will be sent."""


def granted_to(key: int, request: int) -> int:
    """A request's number that is no other member's, and back: a copied grant is none elsewhere."""
    return request ^ key & 0xFFFF_FFFF


class Grant(NamedTuple):
    """The token: `header.base` is the message's number."""

    header: Given[Header]
    request: U32
    number: MessageNumber
    audience: Annotated[tuple[Address, ...], table(field_of(Address), bounded("H", 0, 256))] = ()
    """Where to send; none is the web's multicast address."""

    def label(self) -> str:
        return f"grant {self.number}"


Range: TypeAlias = tuple[U64, U32, U32]
"""Of a message, from one packet to another."""
RANGE_BYTES: Final = size_of(Range)


class Nak(NamedTuple):
    header: Given[Header]
    ranges: tuple[Range, ...]

    def label(self) -> str:
        return " ".join(("nak", *map(_range, self.ranges)))


class Deny(NamedTuple):
    """Data or statuses of these messages are no longer held."""

    header: Given[Header]
    numbers: tuple[U64, ...]

    def label(self) -> str:
        return " ".join(("deny", *map(str, self.numbers)))


# -- members --------------------------------------------------------------------------------------


class Pressure(IntEnum):
    """What a consumer wants of the parameters."""

    CALM = 0
    LOSING = 1
    """Packets were missing: a smaller window, a longer retention."""
    FULL = 2
    """The application is slow: a smaller window, a longer heartbeat."""


class Report(NamedTuple):
    """[MTP 4, 5.3] A member to the master: it is alive, what it wants, and its suspects."""

    header: Given[Header]
    pressure: Pressure = Pressure.CALM
    suspects: tuple[U64, ...] = ()

    def label(self) -> str:
        return f"report {self.pressure.name.lower()}" if self.pressure else "report"


class LeaveRequest(NamedTuple):
    header: Given[Header]


class Expel(NamedTuple):
    """The receiver is no member of this web, or no longer."""

    header: Given[Header]
    key: U64
    stateless: bool = False
    """Only if it still waits for the roster or the state: nobody has them for it any more."""


class JoinRequest(NamedTuple):
    member: Member
    wants_state: bool
    withdrawn: bool = False
    """It gave up."""

    def label(self) -> str:
        return "withdraw" if self.withdrawn else "join"


class Confirm(NamedTuple):
    """[MTP 3.4] The receiver is a member: it accepts messages after the view at `first`."""

    header: Given[Header]
    key: U64
    first: Number
    gives_state: bool
    ballot: Ballot
    master: Member

    def label(self) -> str:
        return f"confirm {self.first}"


class Refuse(NamedTuple):
    key: U64
    final: bool
    reason: str
    known: Incarnation = 0
    """If it is refused for its incarnation: the one of this name that is known."""

    def label(self) -> str:
        return f"refuse: {self.reason}"


class StateRequest(NamedTuple):
    header: Given[Header]
    what: U8
    offset: U64
    pieces: U16

    def label(self) -> str:
        what = "roster" if self.what == ROSTER else "state"
        return f"{what}-ask from {self.offset}" if self.pieces else f"{what}-taken"


class StatePiece(NamedTuple):
    header: Given[Header]
    what: U8
    total: U64
    offset: U64
    piece: Rest

    def label(self) -> str:
        what = "roster" if self.what == ROSTER else "state"
        last = self.offset + max(len(self.piece) - 1, 0)
        span = f"{self.offset}" if last == self.offset else f"{self.offset}-{last}"
        return f"{what} {span} of {self.total}"


STATE_BYTES: Final = size_of(StatePiece)


# -- the master's replicas ------------------------------------------------------------------------

FORGOTTEN_BITS: Final = 16
FORGOTTEN_MAX: Final = (1 << FORGOTTEN_BITS) - 1
"""How often one incarnation of a replica is known to forget."""


def _load_life(incarnation: int, forgotten: int) -> int:
    if incarnation > INCARNATION_MAX:
        raise BadPacket("malformed")
    return incarnation << FORGOTTEN_BITS | forgotten


_LIFE: Final = fixed(
    "(incarnation, u16 times forgotten)", "QH", _load_life, lambda life: divmod(life, 1 << 16)
)
ReplicaLife: TypeAlias = Annotated[int, _LIFE]
"""Rises whenever a replica forgets: its incarnation, and 16 bits that count."""


class ReplicaSeat(NamedTuple):
    """A master replica to the others: its rank, in which web, under which ballot."""

    rank: U8
    masters: U8
    member: Member
    web: U64
    """0 is none: it remembers nothing."""
    ballot: Ballot
    version: Number
    leads: bool
    asks: U32
    """Above 0: a request to all that remember, answered with this number as the echo."""
    echo: U32
    life: ReplicaLife = 0

    def is_valid(self) -> bool:
        return 1 <= self.rank <= self.masters


class Propose(NamedTuple):
    header: Given[Header]
    ballot: Ballot
    version: Number
    value: Blob

    def label(self) -> str:
        return f"propose {self.ballot}.{self.version}"


class Ack(NamedTuple):
    """The highest version held under this ballot; a higher ballot than requested is a refusal."""

    header: Given[Header]
    rank: U8
    ballot: Ballot
    version: Number

    def label(self) -> str:
        return f"ack {self.ballot}.{self.version}"


class Stand(NamedTuple):
    header: Given[Header]
    rank: U8
    ballot: Ballot

    def label(self) -> str:
        return f"stand {self.ballot}"


class Support(NamedTuple):
    header: Given[Header]
    rank: U8
    ballot: Ballot
    accepted: Ballot
    """The ballot under which the value was accepted."""
    version: Number
    value: Blob
    lives: tuple[ReplicaLife, ...] = ()
    """Rank by rank, the latest life that the supporter knows, its own included."""

    def label(self) -> str:
        return f"support {self.ballot}"
