"""What daemons multicast in the ring: a client joined, left, died, sent messages, gave its state; a
daemon is lost. The sender of a record is the daemon that the client is connected to."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from unisono.client.frames import SubmitFrame, lengths_of
from unisono.errors import BadPacket
from unisono.fields import U8, U64, Blob, Given, Incarnation, Rest, bounded, text
from unisono.layout import decode, decode_front, encode
from unisono.model import Buffer, Member

VERSION: Final = 2
HEAD_BYTES_MAX: Final = 1024
"""What a record may have before a client's frame."""


class RecordKind(IntEnum):
    JOIN = 1
    LEAVE = 2
    GONE = 3
    SAID = 4
    STATE = 5
    LOST = 6


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
    fed: bool = False


class ClientLeft(NamedTuple):
    number: Given[int]


class ClientDied(NamedTuple):
    number: Given[int]
    why: str


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
    """Messages that it had sent before these."""
    stranger: Stranger | None
    submit: SubmitFrame
    messages: int
    """How many these are."""


class StateKey(NamedTuple):
    """Identifies a state: the client that it is for, and the sequence number at which it was
    requested. A daemon sends it to the client that gives the state, which returns it."""

    to: ClientKey
    asked: U64


class StateFields(NamedTuple):
    """A `ClientState` on the wire."""

    failed: bool
    key: Blob
    state: Rest


class ClientState(NamedTuple):
    """The state for a client that waits for it, as of the sequence number of the request."""

    to: ClientKey
    asked: int
    state: Buffer
    failed: bool


class DaemonLost(NamedTuple):
    """A daemon is no longer in the ring's view, nor are its clients up to this number. Those that
    it has when it is back have higher ones."""

    last: Given[int]
    daemon: Member


Record: TypeAlias = (
    ClientJoined | ClientLeft | ClientDied | ClientMulticast | ClientState | DaemonLost
)
RECORDS: Final[dict[int, type[Any]]] = {
    RecordKind.JOIN: ClientJoined,
    RecordKind.LEAVE: ClientLeft,
    RecordKind.GONE: ClientDied,
    RecordKind.SAID: MulticastFields,
    RecordKind.LOST: DaemonLost,
}


def _record(kind: RecordKind, number: int, fields: Any) -> bytes:
    return encode(RecordFront(VERSION, kind, number)) + encode(fields)


def joined(record: ClientJoined) -> bytes:
    return _record(RecordKind.JOIN, record.number, record)


def left(number: int) -> bytes:
    return _record(RecordKind.LEAVE, number, ClientLeft(number))


def gone(number: int, why: str) -> bytes:
    return _record(RecordKind.GONE, number, ClientDied(number, why[:200]))


def said(number: int, before: int, stranger: Stranger | None, submit: Buffer) -> bytes:
    fields = MulticastFields(number, before, stranger, submit)
    return _record(RecordKind.SAID, number, fields)


def state_key(to: ClientKey, asked: int) -> bytes:
    return encode(StateKey(to, asked))


def given(key: bytes, state: Buffer, failed: bool) -> bytes:
    return _record(RecordKind.STATE, 0, StateFields(failed, key, state))


def lost(daemon: Member, last: int) -> bytes:
    return _record(RecordKind.LOST, last, DaemonLost(last, daemon))


def read(data: Buffer) -> Record:
    """The record, or `BadPacket`."""
    (_, kind, number), body = decode_front(RecordFront, data)
    if kind == RecordKind.STATE:
        failed, encoded, state = decode(StateFields, body)
        to, asked = decode(StateKey, encoded)
        return ClientState(to, asked, state, failed)
    if kind not in RECORDS:
        raise BadPacket("kind")
    found = decode(RECORDS[kind], body, number)
    if isinstance(found, MulticastFields):
        submit = decode(SubmitFrame, found.submit)
        messages = len(lengths_of(submit.bundle))
        return ClientMulticast(number, found.before, found.stranger, submit, messages)
    record: Record = found
    return record
