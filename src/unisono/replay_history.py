"""The chronicle of a fed group: the places of its messages, and each row of a sink only once.

A group that feeds others (a log, a Spark stream) needs more than an order: every ordered message
has a *place*, 1, 2, 3 and so on, which is the same at all members and for all who come later. What
a sink says again after it was restarted is dropped by every member at the same place. And a while
of the past is kept, so that who was away can be told what it missed.

Pure: it is told what the group delivers, in order, and answers with what the application is to
see. All members of the group must keep one; a joiner gets the state of another.

Payloads are as the application gave them, but for those that begin with `MARK`: after it stands
what they are. An application's own payload that begins so is marked as plain.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket, Misuse
from unisono.fields import U32, U32_COUNT, U64, Rest, data, fixed, table
from unisono.layout import decode, encode, field_of
from unisono.model import Buffer, Member, Message, Resilient, Service, ServiceLevel, View

MARK: Final = 0xF5
"""No text begins with this octet."""
PLAIN, ROW, ASK, HAVE, WANT, FILL = range(6)

HEADER_BYTES_MAX: Final = 1024
"""More than any header here takes."""
QUERY_BYTES_MAX: Final = 200
WRITERS_COUNT_MAX: Final = 32_768
"""Queries and partitions of which the last row is known; beyond, who wrote longest ago is
forgotten, and could say again what it said. It is counted."""
FILL_BYTES: Final = 60_000
"""So much of the past is told in one message, and at least one message of it."""
NO_PLACE: Final = 0


class SinkRows(NamedTuple):
    """Whose rows: a query's partition, in one of its epochs."""

    query: str
    partition: int
    epoch: int


class RecallRequest(NamedTuple):
    """Someone asks who still has these places."""

    ask: int
    who: Member
    first: int
    last: int


class RecallOffer(NamedTuple):
    """A member answers with what it has of them; `first` is 0 when it has nothing."""

    ask: int
    who: Member
    first: int
    last: int


class RecallChoice(NamedTuple):
    """The asker wants these from this member."""

    ask: int
    who: Member
    holder: str
    first: int
    last: int


class RecallPart(NamedTuple):
    """A part of the past, for who asked."""

    ask: int
    messages: tuple[Message, ...]


Control: TypeAlias = RecallRequest | RecallOffer | RecallChoice | RecallPart


# -- on the wire, after MARK and the kind --------------------------------------------------------


class RowFields(NamedTuple):
    """A row of a sink."""

    query: str
    partition: U32
    epoch: U64
    row: U64
    payload: Rest


class RangeFields(NamedTuple):
    """A `RecallRequest` or a `RecallOffer`."""

    ask: U64
    first: U64
    last: U64


class ChoiceFields(NamedTuple):
    """A `RecallChoice`."""

    ask: U64
    holder: str
    first: U64
    last: U64


def _load_level(code: int, k: int) -> ServiceLevel:
    if code == _RESILIENT:
        return Resilient(k - (1 << 32) if k >= 1 << 31 else k)
    if code not in Service._value2member_map_:
        raise BadPacket("malformed")
    return Service(code)


def _dump_level(level: ServiceLevel) -> tuple[int, int]:
    return (_RESILIENT, level.k & 0xFFFFFFFF) if isinstance(level, Resilient) else (level, 0)


_RESILIENT: Final = 16
_LEVEL: Final = fixed("level (u8: 0 to 5, or 16 resilient; i32: k)", "BI", _load_level, _dump_level)


class PastMessage(NamedTuple):
    """A message of the past."""

    sender: Member
    number: U64
    view: str
    place: U64
    level: Annotated[ServiceLevel, _LEVEL]
    payload: Annotated[bytes, data(U32_COUNT, copied=True)]

    def message(self) -> Message:
        sender, number, view, place, level, payload = self
        return Message(sender, payload, number, view, place, level)


class PartFields(NamedTuple):
    """A `RecallPart`."""

    ask: U64
    messages: Annotated[tuple[PastMessage, ...], table(field_of(PastMessage), U32_COUNT)]


WriterRow: TypeAlias = tuple[str, U32, U64, U64]
"""Query, partition, last epoch and row."""
_LIFE: Final = fixed(
    "16 bytes",
    "QQ",
    lambda high, low: f"{high:016x}{low:016x}",
    lambda life: divmod(int(life or "0", 16), 1 << 64),
)


class HistoryFields(NamedTuple):
    """A history, for a member that joins."""

    life: Annotated[str, _LIFE]
    place: U64
    writers: Annotated[tuple[WriterRow, ...], table(field_of(WriterRow), U32_COUNT)]


@dataclass(slots=True)
class _Past:
    messages: deque[Message]
    octets: int = 0


class ReplayHistory:
    """One member's. `retain_bytes` bounds what is kept of the past, by its payloads."""

    def __init__(self, retain_bytes: int = 0) -> None:
        self.life = ""
        """Of the group, from its founding on; 32 hexadecimal digits."""
        self.place = NO_PLACE
        """Of the last message."""
        self.repeated_count = 0
        """Rows that were dropped because they had been said before."""
        self.malformed_count = 0
        self.forgotten_count = 0
        """Writers of whom the last row is not known any more."""
        self._retain_bytes = retain_bytes
        self._writers: dict[tuple[str, int], tuple[int, int]] = {}
        """By query and partition, the last epoch and row; who wrote last stands last."""
        self._past = _Past(deque())

    # -- what the group tells -----------------------------------------------------------------

    def begin(self) -> None:
        """A life of this member begins; unless a state follows, it founds the group."""
        self.life = ""

    def see(self, view: View) -> View:
        """The view, with the number of messages before it as its place."""
        if not self.life:
            self._found(view)
        return replace(view, seq=self.place)

    def _found(self, view: View) -> None:
        """Nobody gave a state: the group is new. All founders have the same first view."""
        named = " ".join((view.id, *sorted(map(str, view.members))))
        self.life = blake2b(named.encode(), digest_size=16).hexdigest()
        self.place = NO_PLACE
        self._writers.clear()
        self._past = _Past(deque())

    def hear(self, message: Message) -> Message | Control | None:
        """The message with its place; or what members tell each other; or nothing, when it is
        dropped. Only ordered messages have places."""
        if not is_ordered(message.service):
            return self._unordered(message)
        payload = message.payload
        if payload[:1] == b"\xf5":
            try:
                told = self._marked(message, memoryview(payload)[2:])
            except BadPacket:
                self.malformed_count += 1
                return None
            if not isinstance(told, bytes):
                return told
            payload = told
        self.place += 1
        sender, _, number, view, _, service = message
        placed = Message(sender, payload, number, view, self.place, service)
        if self._retain_bytes:
            self._keep(placed)
        return placed

    def _unordered(self, message: Message) -> Message | None:
        payload = message.payload
        if payload[:1] == b"\xf5":
            if payload[1:2] != bytes((PLAIN,)):
                self.malformed_count += 1
                return None
            payload = payload[2:]
        return message._replace(payload=payload, seq=None)

    def _marked(self, message: Message, body: memoryview) -> bytes | Control | None:
        """The payload that is meant; or something else than a message, or nothing."""
        kind = message.payload[1:2]
        if kind == bytes((PLAIN,)):
            return bytes(body)
        if kind == bytes((ROW,)):
            return self._row(decode(RowFields, body))
        if kind in (bytes((ASK,)), bytes((HAVE,))):
            ask, first, last = decode(RangeFields, body)
            asks = kind == bytes((ASK,))
            return (RecallRequest if asks else RecallOffer)(ask, message.sender, first, last)
        if kind == bytes((WANT,)):
            ask, holder, first, last = decode(ChoiceFields, body)
            return RecallChoice(ask, message.sender, holder, first, last)
        if kind == bytes((FILL,)):
            ask, past = decode(PartFields, body)
            return RecallPart(ask, tuple(each.message() for each in past))
        raise BadPacket("malformed")

    def _row(self, fields: RowFields) -> bytes | None:
        query, partition, epoch, row, payload = fields
        key = (query, partition)
        last = self._writers.pop(key, None)
        if last is not None and (epoch, row) <= last:
            self._writers[key] = last
            self.repeated_count += 1
            return None
        self._writers[key] = (epoch, row)
        if len(self._writers) > WRITERS_COUNT_MAX:
            del self._writers[next(iter(self._writers))]
            self.forgotten_count += 1
        return bytes(payload)

    def heard(self, query: str, partition: int) -> tuple[int, int] | None:
        """The last epoch and row of this partition; nothing when none is known."""
        return self._writers.get((query, partition))

    # -- the past -----------------------------------------------------------------------------

    def _keep(self, message: Message) -> None:
        past = self._past
        past.messages.append(message)
        past.octets += len(message.payload) + 64
        while past.octets > self._retain_bytes:
            past.octets -= len(past.messages.popleft().payload) + 64

    @property
    def first(self) -> int:
        """The first place that is still kept; `NO_PLACE` when there is none."""
        kept = self._past.messages
        return kept[0].seq or NO_PLACE if kept else NO_PLACE

    @property
    def last(self) -> int:
        return self.place if self._past.messages else NO_PLACE

    def messages(self, first: int, last: int) -> list[Message]:
        """What is kept with these places."""
        start = self.first
        if not start:
            return []
        kept = self._past.messages
        return [kept[at - start] for at in range(max(first, start), min(last, self.place) + 1)]

    # -- for those who join -------------------------------------------------------------------

    def state(self) -> bytes:
        """As it is at this place."""
        writers = tuple((*key, *last) for key, last in self._writers.items())
        return encode(HistoryFields(self.life, self.place, writers))

    def adopt(self, state: Buffer) -> None:
        """Take over another's. `Misuse` when it is none: a member is not fed as this one is."""
        try:
            life, place, rows = decode(HistoryFields, state)
        except BadPacket:
            raise Misuse("the group is not fed: join it without fed=, or all with fed=") from None
        if (life, place) != (self.life, self.place):
            # What was said in between is not known here.
            self._past = _Past(deque())
        self.life, self.place = life, place
        self._writers = {(query, partition): (epoch, row) for query, partition, epoch, row in rows}


def is_ordered(service: ServiceLevel) -> bool:
    """Whether all members deliver such messages in one order."""
    return isinstance(service, Resilient) or service >= Service.AGREED


# -- payloads ------------------------------------------------------------------------------------


def plain(payload: bytes) -> bytes:
    """What an application says, as it travels."""
    return b"\xf5\0" + payload if payload[:1] == b"\xf5" else payload


def plainly(payload: bytes) -> bytes | None:
    """What an application said, if this is one of its messages."""
    if payload[:2] == b"\xf5\0":
        return payload[2:]
    return None if payload[:1] == b"\xf5" else payload


def rows(whose: SinkRows, first_row: int, payloads: list[bytes]) -> list[bytes]:
    """What a sink says, each row with its identity."""
    query = whose.query.encode()
    if not 1 <= len(query) <= QUERY_BYTES_MAX:
        raise Misuse(f"a query is named with 1 to {QUERY_BYTES_MAX} bytes, not {len(query)}")
    if not 0 <= whose.partition < 1 << 32 or not 0 <= whose.epoch < 1 << 64:
        raise Misuse(f"partition {whose.partition} and epoch {whose.epoch} must not be negative")
    if not 0 <= first_row <= first_row + len(payloads) < 1 << 64:
        raise Misuse(f"row {first_row} must not be negative")
    front = bytes((MARK, ROW)) + encode(RowFields(*whose, 0, b""))[:-8]
    return [
        b"".join((front, (first_row + n).to_bytes(8, "big"), payload))
        for n, payload in enumerate(payloads)
    ]


def ask(number: int, first: int, last: int) -> bytes:
    return bytes((MARK, ASK)) + encode(RangeFields(number, first, last))


def have(number: int, first: int, last: int) -> bytes:
    return bytes((MARK, HAVE)) + encode(RangeFields(number, first, last))


def want(number: int, holder: str, first: int, last: int) -> bytes:
    return bytes((MARK, WANT)) + encode(ChoiceFields(number, holder, first, last))


def fill(number: int, messages: list[Message]) -> bytes:
    past = tuple(
        PastMessage(m.sender, m.number, m.view, m.seq or NO_PLACE, m.service, m.payload)
        for m in messages
    )
    return bytes((MARK, FILL)) + encode(PartFields(number, past))


def bare(message: Message) -> Message:
    """One of our own that is told again, as the application said it; it has no place here."""
    payload = message.payload
    if payload[:2] == b"\xf5\0":
        payload = payload[2:]
    elif payload[:2] == bytes((MARK, ROW)):
        payload = bytes(decode(RowFields, payload[2:]).payload)
    return message._replace(payload=payload, seq=None)
