"""Calls, answers and acknowledgments as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, Final, NamedTuple

from unisono.errors import BadPacket
from unisono.fields import (
    U16,
    U16_COUNT,
    U32,
    U32_COUNT,
    U64,
    Bit,
    Blob,
    Rest,
    bounded,
    data,
    table,
)
from unisono.layout import decode, encode, field_of, size_of
from unisono.model import Address, Buffer, Member
from unisono.services.calls.result import CallFailure, Reason

MARK: Final = b"\0unisono.rpc/1"
"""Begins the payload of a call. Messages of the application that begin so are escaped."""
_CALL: Final = MARK + b"C"
_PROBE: Final = MARK + b"P"
_ESCAPED: Final = MARK + b"E"

DATAGRAM_BYTES_MAX: Final = 1400
PIECES_MAX: Final = 0xFFFF
"""Of one answer."""
TEXT_CHARS_MAX: Final = 1000
_ANSWERS_MAGIC: Final = int.from_bytes(b"UsRA", "big")
_ACK_MAGIC: Final = int.from_bytes(b"UsRK", "big")


class CallHead(NamedTuple):
    """What calls of one caller have in common."""

    token: U64
    """Identifies the caller: its answers carry it."""
    timeout_ms: U32
    """After this time no caller waits for an answer."""
    answer_bytes_max: U32
    outside: Bit
    """The caller is not a member: answers come with the view."""
    reply_to: Address | None
    """The caller's socket."""
    reply_group: str
    """The caller's own group at the daemons, if it has no socket."""


class CallFields(NamedTuple):
    """A call, as it is multicast."""

    head: Blob
    number: U64
    """The caller's count."""
    payload: Rest


class CallMessage(NamedTuple):
    """A call, as it is delivered."""

    head: CallHead
    number: int
    payload: Buffer


class ProbeFields(NamedTuple):
    """A probe, as it is multicast."""

    head: Blob
    numbers: tuple[U64, ...]


class ProbeMessage(NamedTuple):
    """Whether these calls are missing at a member. It is ordered after them, so a member that has
    not executed one of them when the probe is delivered never will."""

    head: CallHead
    numbers: tuple[int, ...]


class ReplyKind(IntEnum):
    ANSWER = 1
    FAILURE = 2
    """The reason and a text."""
    MEMBERS = 3
    """The view in which the call was delivered."""
    GONE = 4
    """The reason, and a member that is no longer in the view."""


class AnswerRecord(NamedTuple):
    """An answer or a piece of one, or another report about a call."""

    call: U64
    kind: ReplyKind
    piece: U16
    pieces: U16
    body: Annotated[Buffer, data(U32_COUNT)]

    def is_valid(self) -> bool:
        return self.piece < self.pieces and (self.pieces == 1 or len(self.body) > 0)


class AnswerPacket(NamedTuple):
    """Records of one member for one caller: a datagram, or a message to the caller's own group."""

    magic: Annotated[int, bounded("I", _ANSWERS_MAGIC, _ANSWERS_MAGIC, "foreign", "UsRA")]
    token: U64
    number: U32
    """To acknowledge; 0 in a message."""
    sender: Member
    records: Annotated[tuple[AnswerRecord, ...], table(field_of(AnswerRecord), U16_COUNT)]


class AckPacket(NamedTuple):
    """The datagrams with these numbers have arrived."""

    magic: Annotated[int, bounded("I", _ACK_MAGIC, _ACK_MAGIC, "foreign", "UsRK")]
    token: U64
    sender: Member
    """Of the acknowledged datagrams."""
    numbers: tuple[U32, ...]


class ViewMembers(NamedTuple):
    members: tuple[Member, ...]


class Departure(NamedTuple):
    reason: Reason
    member: Member


class FailureBody(NamedTuple):
    reason: Reason
    text: Rest


RECORD_BYTES: Final = size_of(AnswerRecord)
"""Of a record with an empty body."""


# Heads recur with each call of a caller, so both ways are remembered.


@lru_cache(maxsize=256)
def _head_bytes(head: CallHead) -> bytes:
    return encode(head)


@lru_cache(maxsize=1024)
def _head_of(data: bytes) -> CallHead:
    return decode(CallHead, data)


def call_payload(head: CallHead, number: int, payload: Buffer) -> bytes:
    return _CALL + encode(CallFields(_head_bytes(head), number, payload))


def probe_payload(head: CallHead, numbers: tuple[int, ...]) -> bytes:
    return _PROBE + encode(ProbeFields(_head_bytes(head), numbers))


def escaped(payload: Buffer) -> Buffer:
    """A message of the application, such that no member takes it for a call."""
    return _ESCAPED + bytes(payload) if bytes(payload[: len(MARK)]) == MARK else payload


def plain(payload: bytes) -> bytes | None:
    """The application's own message; None for a call."""
    if not payload.startswith(MARK):
        return payload
    return payload[len(_ESCAPED) :] if payload.startswith(_ESCAPED) else None


def unescaped(payload: bytes) -> bytes | CallMessage | ProbeMessage:
    """A payload that begins with `MARK`: a call, a probe, or a message of the application.
    `BadPacket` if it is none of these."""
    if payload.startswith(_CALL):
        head, number, rest = decode(CallFields, memoryview(payload)[len(_CALL) :])
        return CallMessage(_head_of(bytes(head)), number, rest)
    if payload.startswith(_PROBE):
        probe = decode(ProbeFields, memoryview(payload)[len(_PROBE) :])
        return ProbeMessage(_head_of(bytes(probe.head)), probe.numbers)
    found = plain(payload)
    if found is None:
        raise BadPacket("kind")
    return found


def answer_packet(token: int, number: int, sender: Member, records: list[AnswerRecord]) -> bytes:
    return encode(AnswerPacket(_ANSWERS_MAGIC, token, number, sender, tuple(records)))


def ack_packet(token: int, sender: Member, numbers: list[int]) -> bytes:
    return encode(AckPacket(_ACK_MAGIC, token, sender, tuple(numbers)))


def read_datagram(packet: Buffer) -> AnswerPacket | AckPacket:
    if bytes(packet[:4]) == b"UsRK":
        return decode(AckPacket, packet)
    return decode(AnswerPacket, packet)


def answer_record(call: int, body: Buffer) -> AnswerRecord:
    return AnswerRecord(call, ReplyKind.ANSWER, 0, 1, body)


def failure_record(call: int, failure: CallFailure) -> AnswerRecord:
    text = failure.text[:TEXT_CHARS_MAX].encode(errors="replace")
    return AnswerRecord(call, ReplyKind.FAILURE, 0, 1, encode(FailureBody(failure.reason, text)))


def members_record(call: int, members: tuple[Member, ...]) -> AnswerRecord:
    return AnswerRecord(call, ReplyKind.MEMBERS, 0, 1, encode(ViewMembers(members)))


def departure_record(call: int, reason: Reason, member: Member) -> AnswerRecord:
    return AnswerRecord(call, ReplyKind.GONE, 0, 1, encode(Departure(reason, member)))


def read_failure(body: Buffer) -> CallFailure:
    reason, text = decode(FailureBody, body)
    return CallFailure(reason, bytes(text).decode(errors="replace"))


def bundles_of(records: list[AnswerRecord], bytes_max: int) -> Iterator[list[AnswerRecord]]:
    """The records in bundles of at most this many bytes; a larger record is alone."""
    bundle: list[AnswerRecord] = []
    nbytes = 0
    for record in records:
        size = len(record.body) + RECORD_BYTES
        if bundle and nbytes + size > bytes_max:
            yield bundle
            bundle, nbytes = [], 0
        bundle.append(record)
        nbytes += size
    if bundle:
        yield bundle


def pieces_of(record: AnswerRecord, bytes_max: int) -> list[AnswerRecord]:
    """The record, cut into pieces with at most this much body each."""
    body = memoryview(record.body)
    if len(body) <= bytes_max:
        return [record]
    starts = range(0, len(body), bytes_max)
    return [
        AnswerRecord(record.call, record.kind, at, len(starts), body[start : start + bytes_max])
        for at, start in enumerate(starts)
    ]
