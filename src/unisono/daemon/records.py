"""What daemons multicast in the ring: a client joined, left, died, sent messages, gave its state; a
daemon is lost. The sender of a record is the daemon that the client is connected to."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from unisono.client.frames import SubmitFrame, lengths_of
from unisono.client.lock_frames import LockFrame
from unisono.errors import BadPacket
from unisono.fields import U8, U64, Blob, Given, Incarnation, Rest, bounded, text
from unisono.layout import decode, decode_front, encode
from unisono.model import Buffer, Member

VERSION: Final = 3
HEAD_BYTES_MAX: Final = 1024
"""Bytes of a record before a client's frame."""


class RecordKind(IntEnum):
    JOIN = 1
    LEAVE = 2
    DIED = 3
    MULTICAST = 4
    STATE = 5
    LOST = 6
    LOCK = 7


class RecordFront(NamedTuple):
    """Before each record."""

    version: Annotated[int, bounded("B", VERSION, VERSION, "version")]
    kind: U8
    number: U64
    """Of the client."""


class ClientKey(NamedTuple):
    """A client while it is connected: its daemon's incarnation, and its number there."""

    daemon: Member
    number: U64


class ClientJoined(NamedTuple):
    number: Given[int]
    group: str
    name: Annotated[str, text(bounded("H", 1, 65_535))]
    incarnation: Incarnation
    with_state: bool
    replayable: bool = False
    format: str = ""


class ClientLeft(NamedTuple):
    number: Given[int]


class ClientDied(NamedTuple):
    number: Given[int]
    reason: str


class Stranger(NamedTuple):
    """A client that is in no group."""

    name: Annotated[str, text(bounded("H", 1, 65_535))]
    incarnation: Incarnation


class MulticastFields(NamedTuple):
    """A `ClientMulticast` on the wire."""

    number: Given[int]
    before: U64
    stranger: Stranger | None
    submit: Rest
    """The body of the client's frame, as it came."""


class ClientMulticast(NamedTuple):
    number: int
    """Of the client."""
    before: int
    """Messages that the client sent before these."""
    stranger: Stranger | None
    submit: SubmitFrame
    messages: int
    """The number of messages."""


class StateKey(NamedTuple):
    """Identifies a state: the client that it is for, and the sequence number at which it was
    requested. A daemon sends it to the client that gives the state, which returns it."""

    to: ClientKey
    requested_seq: U64


class StateFields(NamedTuple):
    """A `ClientState` on the wire."""

    failed: bool
    key: Blob
    state: Rest


class ClientState(NamedTuple):
    """The state for a client that waits for it, as of the sequence number of the request."""

    to: ClientKey
    requested_seq: int
    state: Buffer
    failed: bool


class ClientLock(NamedTuple):
    """A client requests or releases a lock of its group."""

    number: Given[int]
    request: LockFrame


class DaemonLost(NamedTuple):
    """A daemon left the ring's view, and so did its clients up to this number. When it is back, its
    new clients have higher numbers."""

    last: Given[int]
    daemon: Member


Record: TypeAlias = (
    ClientJoined | ClientLeft | ClientDied | ClientMulticast | ClientState | ClientLock | DaemonLost
)
RECORDS: Final[dict[int, type[Any]]] = {
    RecordKind.JOIN: ClientJoined,
    RecordKind.LEAVE: ClientLeft,
    RecordKind.DIED: ClientDied,
    RecordKind.MULTICAST: MulticastFields,
    RecordKind.LOST: DaemonLost,
    RecordKind.LOCK: ClientLock,
}


def _record(kind: RecordKind, number: int, fields: Any) -> bytes:
    return encode(RecordFront(VERSION, kind, number)) + encode(fields)


def joined(record: ClientJoined) -> bytes:
    return _record(RecordKind.JOIN, record.number, record)


def left(number: int) -> bytes:
    return _record(RecordKind.LEAVE, number, ClientLeft(number))


def died(number: int, reason: str) -> bytes:
    return _record(RecordKind.DIED, number, ClientDied(number, reason[:200]))


def multicast(number: int, before: int, stranger: Stranger | None, submit: Buffer) -> bytes:
    fields = MulticastFields(number, before, stranger, submit)
    return _record(RecordKind.MULTICAST, number, fields)


def state_key(to: ClientKey, requested_seq: int) -> bytes:
    return encode(StateKey(to, requested_seq))


def state(key: bytes, state: Buffer, failed: bool) -> bytes:
    return _record(RecordKind.STATE, 0, StateFields(failed, key, state))


def lock(number: int, request: LockFrame) -> bytes:
    return _record(RecordKind.LOCK, number, ClientLock(number, request))


def daemon_lost(daemon: Member, last: int) -> bytes:
    return _record(RecordKind.LOST, last, DaemonLost(last, daemon))


def read(data: Buffer) -> Record:
    """The record, or `BadPacket`."""
    (_, kind, number), body = decode_front(RecordFront, data)
    if kind == RecordKind.STATE:
        failed, encoded, state = decode(StateFields, body)
        to, requested_seq = decode(StateKey, encoded)
        return ClientState(to, requested_seq, state, failed)
    if kind not in RECORDS:
        raise BadPacket("kind")
    found = decode(RECORDS[kind], body, number)
    if isinstance(found, MulticastFields):
        submit = decode(SubmitFrame, found.submit)
        messages = len(lengths_of(submit.bundle))
        return ClientMulticast(number, found.before, found.stranger, submit, messages)
    record: Record = found
    return record
