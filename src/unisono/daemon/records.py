"""What daemons say to each other in the ring: a client came, left, died, said something, gave its
state; a daemon is lost. To bytes and back; the sender is the daemon that the client is at."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from unisono.client.frames import SubmitFrame, lengths_of, read_submit
from unisono.errors import BadPacket
from unisono.model import Buffer, Member
from unisono.wire import FieldLayout, Reader, Writer

VERSION: Final = 2
_FRONT: Final = FieldLayout("BBQ")
_SAID: Final = FieldLayout("BBQQB")
HEAD_BYTES_MAX: Final = 1024
"""What a record may have before a client's frame."""


class RecordKind(IntEnum):
    JOIN = 1
    LEAVE = 2
    GONE = 3
    SAID = 4
    STATE = 5
    LOST = 6


class ClientKey(NamedTuple):
    """A client for as long as it is connected: its daemon's life, and its number there."""

    daemon: Member
    number: int


class ClientJoined(NamedTuple):
    number: int
    group: str
    name: str
    incarnation: int
    with_state: bool
    fed: bool


class ClientLeft(NamedTuple):
    number: int


class ClientDied(NamedTuple):
    number: int
    why: str


class ClientMulticast(NamedTuple):
    number: int
    """Of the client."""
    before: int
    """How many messages it had said before these."""
    stranger: tuple[str, int] | None
    """Name and incarnation of a client that is in no group."""
    submit: SubmitFrame
    messages: int
    """How many these are."""


class ClientState(NamedTuple):
    """The state for a client that waits for it, as it was at the place where it was asked for."""

    to: ClientKey
    asked: int
    state: memoryview
    failed: bool


class DaemonLost(NamedTuple):
    """A daemon is not in the ring's view any more, and neither are its clients up to this number.
    Those that it has when it comes back have higher ones."""

    daemon: Member
    last: int


Record: TypeAlias = (
    ClientJoined | ClientLeft | ClientDied | ClientMulticast | ClientState | DaemonLost
)


def _front(kind: RecordKind, number: int) -> bytes:
    return _FRONT.pack(VERSION, kind, number)


def joined(
    number: int, group: str, name: str, incarnation: int, with_state: bool, fed: bool = False
) -> bytes:
    writer = Writer().raw(_front(RecordKind.JOIN, number)).text(group).text(name)
    return writer.incarnation(incarnation).u8(with_state).u8(fed).done()


def left(number: int) -> bytes:
    return _front(RecordKind.LEAVE, number)


def gone(number: int, why: str) -> bytes:
    return Writer().raw(_front(RecordKind.GONE, number)).text(why[:200]).done()


def said(number: int, before: int, stranger: tuple[str, int] | None, submit: Buffer) -> bytes:
    """`submit` is the body of the client's frame, as it came."""
    head = _SAID.pack(VERSION, RecordKind.SAID, number, before, stranger is not None)
    if stranger is None:
        return head + submit
    name, incarnation = stranger
    return Writer().raw(head).text(name).incarnation(incarnation).raw(submit).done()


def state_key(to: ClientKey, asked: int) -> bytes:
    """Whom a state is for: what a daemon asks its client with, and the client answers with."""
    return Writer().member(to.daemon).u64(to.number).u64(asked).done()


def given(key: bytes, state: Buffer, failed: bool) -> bytes:
    writer = Writer().raw(_front(RecordKind.STATE, 0)).u8(failed).blob(key)
    return writer.raw(state).done()


def lost(daemon: Member, last: int) -> bytes:
    return Writer().raw(_front(RecordKind.LOST, last)).member(daemon).done()


def _read_given(reader: Reader) -> ClientState:
    failed, inner = bool(reader.u8()), Reader(reader.blob())
    to, asked = ClientKey(inner.member(), inner.u64()), inner.u64()
    inner.done()
    return ClientState(to, asked, reader.raw(reader.left()), failed)


def _named(reader: Reader) -> tuple[str, int]:
    name, incarnation = reader.text(), reader.incarnation()
    if not name:
        raise BadPacket("malformed")
    return name, incarnation


def read(octets: Buffer) -> Record:
    """What is no record raises `BadPacket`."""
    body = memoryview(octets)
    version, kind, number = _FRONT.read(body)
    if version != VERSION:
        raise BadPacket("version")
    if kind == RecordKind.SAID:
        _, _, _, before, strange = _SAID.read(body)
        reader = Reader(body[_SAID.octets :])
        stranger = _named(reader) if strange else None
        submit = read_submit(reader.raw(reader.left()))
        return ClientMulticast(number, before, stranger, submit, len(lengths_of(submit.bundle)))
    reader = Reader(body[_FRONT.octets :])
    found: Record
    if kind == RecordKind.JOIN:
        group = reader.text()
        found = ClientJoined(number, group, *_named(reader), bool(reader.u8()), bool(reader.u8()))
    elif kind == RecordKind.LEAVE:
        found = ClientLeft(number)
    elif kind == RecordKind.GONE:
        found = ClientDied(number, reader.text())
    elif kind == RecordKind.LOST:
        found = DaemonLost(reader.member(), number)
    elif kind == RecordKind.STATE:
        return _read_given(reader)
    else:
        raise BadPacket("kind")
    reader.done()
    return found
