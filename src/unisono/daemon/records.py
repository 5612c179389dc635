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

VERSION: Final = 4
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
    closed: bool = False


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
    RecordKind.STATE: StateFields,
    RecordKind.LOST: DaemonLost,
    RecordKind.LOCK: ClientLock,
}


_KINDS: Final = {record: kind for kind, record in RECORDS.items()}


def encoded(record: Any) -> bytes:
    """One of `RECORDS` as it is multicast. Its first field is the client's number, but for a
    state, whose key has it."""
    number = 0 if isinstance(record, StateFields) else record[0]
    return encode(RecordFront(VERSION, _KINDS[type(record)], number)) + encode(record)


def read(data: Buffer) -> Record:
    """The record, or `BadPacket`."""
    (_, kind, number), body = decode_front(RecordFront, data)
    if kind not in RECORDS:
        raise BadPacket("kind")
    if kind == RecordKind.STATE:
        failed, key, state = decode(StateFields, body)
        to, requested_seq = decode(StateKey, key)
        return ClientState(to, requested_seq, state, failed)
    found = decode(RECORDS[kind], body, number)
    if isinstance(found, MulticastFields):
        submit = decode(SubmitFrame, found.submit)
        messages = len(lengths_of(submit.bundle))
        return ClientMulticast(number, found.before, found.stranger, submit, messages)
    record: Record = found
    return record
