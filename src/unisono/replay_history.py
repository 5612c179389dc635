"""The history of a replayable group: offsets of its messages, and each row of a sink once.

Every ordered message has an *offset*, 1, 2, 3 and so on, the same at all members and for later
joiners. Rows that a restarted sink sends again are dropped by every member at the same offset.
Recent messages are kept, so that a member that was away can recall what it missed.

Pure: takes what the group delivers, in order, and returns what the application reads. Every member
of the group keeps a history; a joiner adopts that of another member.

Payloads travel unchanged, except those that begin with `MARK`: the next byte is their kind. An
application's own payload that begins with `MARK` is marked as plain.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket, Misuse
from unisono.fields import U32, U32_COUNT, U64, Given, Rest, data, fixed, table
from unisono.layout import decode, encode, field_of
from unisono.model import (
    Buffer,
    Member,
    Message,
    Resilient,
    Service,
    ServiceLevel,
    View,
    is_ordered,
)

MARK: Final = 0xF5
"""No UTF-8 text begins with this byte."""
PLAIN, ROW, REQUEST, OFFER, CHOICE, PART = range(6)

HEADER_BYTES_MAX: Final = 1024
"""An upper bound of every header."""
QUERY_BYTES_MAX: Final = 200
WRITERS_COUNT_MAX: Final = 32_768
"""Partitions of queries whose last row is known; beyond, the least recent is forgotten, so that its
repeated rows are no longer dropped. Counted."""
PART_BYTES: Final = 60_000
"""Bytes of recalled messages in one message of the group, but at least one of them."""
NO_OFFSET: Final = 0


class SinkRows(NamedTuple):
    """The source of rows: a query's partition, in one of its epochs."""

    query: str
    partition: int
    epoch: int


class SinkMessage(Message):
    """A message that is a row of a sink."""

    source: SinkRows | None = None
    row = 0

    @classmethod
    def of(cls, message: Message, source: SinkRows, row: int) -> SinkMessage:
        made = cls(*message)
        made.source, made.row = source, row
        return made


# -- on the wire, after MARK and the kind --------------------------------------------------------


class RowFields(NamedTuple):
    """A row of a sink."""

    query: str
    partition: U32
    epoch: U64
    row: U64
    payload: Rest


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
    """A recalled message."""

    sender: Member
    number: U64
    view: str
    offset: U64
    level: Annotated[ServiceLevel, _LEVEL]
    payload: Annotated[bytes, data(U32_COUNT, copied=True)]

    @staticmethod
    def of(message: Message) -> PastMessage:
        sender, payload, number, view, offset, level = message
        return PastMessage(sender, number, view, offset or NO_OFFSET, level, payload)

    def message(self) -> Message:
        sender, number, view, offset, level, payload = self
        return Message(sender, payload, number, view, offset, level)


class RecallRequest(NamedTuple):
    """A member requests messages at these offsets."""

    recall_id: U64
    member: Given[Member]
    first: U64
    last: U64


class RecallOffer(NamedTuple):
    """A member answers with the offsets it has; `first` is 0 if none."""

    recall_id: U64
    member: Given[Member]
    first: U64
    last: U64


class RecallChoice(NamedTuple):
    """The requester chooses this holder for these offsets."""

    recall_id: U64
    member: Given[Member]
    holder: str
    first: U64
    last: U64


class RecallPart(NamedTuple):
    """Recalled messages, from their holder."""

    recall_id: U64
    member: Given[Member]
    messages: Annotated[tuple[PastMessage, ...], table(field_of(PastMessage), U32_COUNT)]


Control: TypeAlias = RecallRequest | RecallOffer | RecallChoice | RecallPart
CONTROLS: Final[dict[int, type[Control]]] = {
    REQUEST: RecallRequest,
    OFFER: RecallOffer,
    CHOICE: RecallChoice,
    PART: RecallPart,
}
_CODES: Final = {record: bytes((MARK, code)) for code, record in CONTROLS.items()}

WriterRow: TypeAlias = tuple[str, U32, U64, U64]
"""Query, partition, last epoch and row."""
_INCARNATION: Final = fixed(
    "16 bytes",
    "QQ",
    lambda high, low: f"{high:016x}{low:016x}",
    lambda incarnation: divmod(int(incarnation or "0", 16), 1 << 64),
)


class HistoryFields(NamedTuple):
    """A history, for a member that joins."""

    incarnation: Annotated[str, _INCARNATION]
    offset: U64
    writers: Annotated[tuple[WriterRow, ...], table(field_of(WriterRow), U32_COUNT)]


@dataclass(slots=True)
class _Past:
    messages: deque[Message]
    nbytes: int = 0


class ReplayHistory:
    """The history at one member. `retain_bytes` bounds the payloads kept for recalls."""

    def __init__(self, retain_bytes: int = 0) -> None:
        self.incarnation = ""
        """Of the group, since its founding; 32 hexadecimal digits."""
        self.offset = NO_OFFSET
        """Of the last message."""
        self.repeated_count = 0
        """Rows dropped because they were delivered before."""
        self.malformed_count = 0
        self.forgotten_count = 0
        """Writers whose last row was forgotten."""
        self._retain_bytes = retain_bytes
        self._writers: dict[tuple[str, int], tuple[int, int]] = {}
        """By query and partition, the last epoch and row; the most recent writer is last."""
        self._past = _Past(deque())

    # -- what the group delivers ---------------------------------------------------------------

    def begin(self) -> None:
        """An incarnation of this member begins; unless a state follows, it founds the group."""
        self.incarnation = ""

    def see(self, view: View) -> View:
        """The view, with the offset of the last message before it as `seq`."""
        if not self.incarnation:
            self._found(view)
        return replace(view, seq=self.offset)

    def _found(self, view: View) -> None:
        """No state was transferred: the group is new. All founders have the same first view."""
        text = " ".join((view.id, *sorted(map(str, view.members))))
        self.incarnation = blake2b(text.encode(), digest_size=16).hexdigest()
        self.offset = NO_OFFSET
        self._writers.clear()
        self._past = _Past(deque())

    def deliver(self, message: Message) -> Message | Control | None:
        """The message with its offset; or a message of a recall; or None if it is dropped. Only
        ordered messages have offsets."""
        if not is_ordered(message.service):
            return self._deliver_unordered(message)
        payload = message.payload
        fields: RowFields | None = None
        if payload[:1] == b"\xf5":
            try:
                content = self._marked(message, memoryview(payload)[2:])
            except BadPacket:
                self.malformed_count += 1
                return None
            if isinstance(content, RowFields):
                fields, content = content, bytes(content.payload)
            if not isinstance(content, bytes):
                return content
            payload = content
        self.offset += 1
        sender, _, number, view, _, service = message
        numbered = Message(sender, payload, number, view, self.offset, service)
        if self._retain_bytes:
            self._keep(numbered)
        return numbered if fields is None else SinkMessage.of(numbered, *_source_of(fields))

    def _deliver_unordered(self, message: Message) -> Message | None:
        payload = message.payload
        if payload[:1] == b"\xf5":
            if payload[1:2] != bytes((PLAIN,)):
                self.malformed_count += 1
                return None
            payload = payload[2:]
        return message._replace(payload=payload, seq=None)

    def _marked(self, message: Message, body: memoryview) -> bytes | RowFields | Control | None:
        """The payload after the mark; or a row of a sink, or a message of a recall; or None if it
        is dropped."""
        kind = message.payload[1] if len(message.payload) > 1 else None
        if kind == PLAIN:
            return bytes(body)
        if kind == ROW:
            return self._row(decode(RowFields, body))
        if kind not in CONTROLS:
            raise BadPacket("malformed")
        return decode(CONTROLS[kind], body, message.sender)

    def _row(self, fields: RowFields) -> RowFields | None:
        query, partition, epoch, row, _ = fields
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
        return fields

    def writers(self) -> dict[tuple[str, int], tuple[int, int]]:
        """The last epoch and row of every partition that is known."""
        return dict(self._writers)

    def last_row(self, query: str, partition: int) -> tuple[int, int] | None:
        """The last epoch and row of this partition; None if unknown."""
        return self._writers.get((query, partition))

    # -- retention ----------------------------------------------------------------------------

    def _keep(self, message: Message) -> None:
        past = self._past
        past.messages.append(message)
        past.nbytes += len(message.payload) + 64
        while past.nbytes > self._retain_bytes:
            past.nbytes -= len(past.messages.popleft().payload) + 64

    @property
    def first(self) -> int:
        """The first offset that is still kept; `NO_OFFSET` if there is none."""
        kept = self._past.messages
        return kept[0].seq or NO_OFFSET if kept else NO_OFFSET

    @property
    def last(self) -> int:
        return self.offset if self._past.messages else NO_OFFSET

    def messages(self, first: int, last: int) -> list[Message]:
        """The kept messages at these offsets."""
        start = self.first
        if not start:
            return []
        kept = self._past.messages
        return [kept[at - start] for at in range(max(first, start), min(last, self.offset) + 1)]

    # -- state transfer -----------------------------------------------------------------------

    def state(self) -> bytes:
        """The history as of now."""
        writers = tuple((*key, *last) for key, last in self._writers.items())
        return encode(HistoryFields(self.incarnation, self.offset, writers))

    def adopt(self, state: Buffer) -> None:
        """Take over another member's history. `Misuse` if the state is none: that member has not
        set `replayable`."""
        try:
            incarnation, offset, rows = decode(HistoryFields, state)
        except BadPacket:
            raise Misuse(
                "the group is not replayable: join without replayable=, or set it at every member"
            ) from None
        if (incarnation, offset) != (self.incarnation, self.offset):
            # Messages in between are unknown here.
            self._past = _Past(deque())
        self.incarnation, self.offset = incarnation, offset
        self._writers = {(query, partition): (epoch, row) for query, partition, epoch, row in rows}


# -- payloads ------------------------------------------------------------------------------------


def plain(payload: bytes) -> bytes:
    """An application's payload as it travels."""
    return b"\xf5\0" + payload if payload[:1] == b"\xf5" else payload


def own_payload(payload: bytes) -> bytes | None:
    """The application's payload, if this is one of its messages."""
    if payload[:2] == b"\xf5\0":
        return payload[2:]
    return None if payload[:1] == b"\xf5" else payload


def rows(source: SinkRows, first_row: int, payloads: list[bytes]) -> list[bytes]:
    """A sink's rows as payloads, each with its identity."""
    query = source.query.encode()
    if not 1 <= len(query) <= QUERY_BYTES_MAX:
        raise Misuse(f"a query is named with 1 to {QUERY_BYTES_MAX} bytes, not {len(query)}")
    if not 0 <= source.partition < 1 << 32 or not 0 <= source.epoch < 1 << 64:
        raise Misuse(f"partition {source.partition} and epoch {source.epoch} must not be negative")
    if not 0 <= first_row <= first_row + len(payloads) < 1 << 64:
        raise Misuse(f"row {first_row} must not be negative")
    front = bytes((MARK, ROW)) + encode(RowFields(*source, 0, b""))[:-8]
    return [
        b"".join((front, (first_row + n).to_bytes(8, "big"), payload))
        for n, payload in enumerate(payloads)
    ]


def _source_of(fields: RowFields) -> tuple[SinkRows, int]:
    return SinkRows(*fields[:3]), fields.row


def control(record: Control) -> bytes:
    """A message of a recall."""
    return _CODES[type(record)] + encode(record)


def stripped(message: Message) -> Message:
    """A message as the application sent it, without an offset."""
    payload = message.payload
    if payload[:2] == b"\xf5\0":
        payload = payload[2:]
    elif payload[:2] == bytes((MARK, ROW)):
        payload = bytes(decode(RowFields, payload[2:]).payload)
    return message._replace(payload=payload, seq=None)
