"""Sealed packets: one AEAD record each, or one record for a train of packets.

A record of a train is cut into as many packets as the train has; only the first begins with a
front. A train that left by one system call mostly arrives so, and is then opened by one call where
it lies: a tenth of the cost of sealing and opening its packets one by one.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.fields import U8, U16, U32, U64, Incarnation, Rest, array, raw
from unisono.layout import size_of
from unisono.model import Buffer
from unisono.sealing.keys import KEY_ID_BYTES, Aead

SINGLE, TRAIN, LOSS, CHALLENGE, HELLO, SIGNED_CHALLENGE, SIGNED_HELLO = 1, 2, 3, 4, 5, 6, 7
"""A packet; a train of them; a request to seal singly; who are you?; the answer; the same two of
members with identities."""
SESSION_BYTES: Final = 8
SALT_BYTES: Final = 16
TAG_BYTES: Final = 16
NONCE_BYTES: Final = 12
IDENTITY_BYTES: Final = 32
"""Of a key that signs, or of an exchange of keys; private or public."""
SIGNATURE_BYTES: Final = 64
SECRET_BYTES: Final = 32


class SealedFront(NamedTuple):
    """Before a sealed packet: authenticated, not encrypted."""

    magic: Annotated[bytes, raw(2)]
    kind: U8
    group: Annotated[bytes, raw(4)]
    key: Annotated[bytes, raw(KEY_ID_BYTES)]
    session: Annotated[bytes, raw(SESSION_BYTES)]
    counter: U64


class TrainFront(NamedTuple):
    """Behind the front of a train: authenticated too."""

    size: U16
    """Of the packets in it, but for a shorter last one."""
    nbytes: U32
    """Of the record and its front."""


class GreetingFront(NamedTuple):
    """Before a challenge and its answer, which are sealed with a key that the group shares."""

    magic: Annotated[bytes, raw(2)]
    kind: U8
    group: Annotated[bytes, raw(4)]
    key: Annotated[bytes, raw(KEY_ID_BYTES)]
    nonce: Annotated[bytes, raw(NONCE_BYTES)]


class SessionChallenge(NamedTuple):
    """Asks the process behind a session to prove that it is there, now."""

    session: Annotated[bytes, raw(SESSION_BYTES)]
    challenge: Annotated[bytes, raw(16)]


class SessionHello(NamedTuple):
    """The answer, with all that the key of the session is derived from."""

    challenge: Annotated[bytes, raw(16)]
    salt: Annotated[bytes, raw(SALT_BYTES)]
    """Its first bytes name the session."""
    counter: U64
    """Records sealed so far."""
    incarnation: Incarnation
    name: Rest


class SignedChallenge(NamedTuple):
    """A challenge by a member with an identity."""

    session: Annotated[bytes, raw(SESSION_BYTES)]
    challenge: Annotated[bytes, raw(16)]
    exchange: Annotated[bytes, raw(IDENTITY_BYTES)]
    """The X25519 key for which the secret is sealed in the answer."""
    signature: Annotated[bytes, raw(SIGNATURE_BYTES)]
    """With Ed25519, of all the rest, and zeros here."""
    name: Rest
    """Of the member that asks."""


class SignedHello(NamedTuple):
    """The answer of one with an identity."""

    challenge: Annotated[bytes, raw(16)]
    salt: Annotated[bytes, raw(SALT_BYTES)]
    counter: U64
    incarnation: Incarnation
    exchange: Annotated[bytes, raw(IDENTITY_BYTES)]
    secret: Annotated[bytes, raw(SECRET_BYTES + TAG_BYTES)]
    """The session's, sealed for the member that asked."""
    signature: Annotated[bytes, raw(SIGNATURE_BYTES)]
    name: Rest


Greeting: TypeAlias = SessionChallenge | SessionHello | SignedChallenge | SignedHello

FRONT_BYTES: Final = size_of(SealedFront)
TRAIN_FRONT_BYTES: Final = FRONT_BYTES + size_of(TrainFront)
GREETING_BYTES: Final = size_of(GreetingFront)
OVERHEAD_BYTES: Final = FRONT_BYTES + TAG_BYTES
"""The most that a packet grows."""
TRAIN_COUNT_MIN: Final = 4
"""Fewer packets are sealed singly: little is saved, and a lost one costs no other."""
TRAIN_COUNT_MAX: Final = 64
TRAIN_SIZE_MIN: Final = 64
"""Smaller packets may leave the last part of a record empty."""
TRAIN_BYTES_MAX: Final = 65_535


def nonce_of(counter: int) -> bytes:
    return counter.to_bytes(NONCE_BYTES, "big")


def may_be_train(nbytes: int, size: int, count: int) -> bool:
    """Whether so many packets are worth one record, and fit one."""
    if not (TRAIN_COUNT_MIN <= count <= TRAIN_COUNT_MAX and size >= TRAIN_SIZE_MIN):
        return False
    return TRAIN_FRONT_BYTES + nbytes + TAG_BYTES <= TRAIN_BYTES_MAX


def seal_train(
    key: Aead, front: bytes, counter: int, data: Buffer, size: int, count: int
) -> tuple[bytearray, int]:
    """The packets of a train, side by side, and the length of each but a shorter last one."""
    nbytes = TRAIN_FRONT_BYTES + len(data) + TAG_BYTES
    front += array("!HI", 1).pack(size, nbytes)
    made = bytearray(nbytes)
    made[:TRAIN_FRONT_BYTES] = front
    key.encrypt_into(nonce_of(counter), data, front, memoryview(made)[TRAIN_FRONT_BYTES:])
    return made, -(-nbytes // count)


def open_train(key: Aead, counter: int, packets: memoryview) -> memoryview:
    """What `seal_train` sealed, where it lies if that can be written; the error of the cipher if it
    is not that. Then the packets are as they were."""
    front, record = bytes(packets[:TRAIN_FRONT_BYTES]), packets[TRAIN_FRONT_BYTES:]
    nonce = nonce_of(counter)
    if record.readonly:
        return memoryview(key.decrypt(nonce, record, front))
    data, tag = record[:-TAG_BYTES], bytes(record[-TAG_BYTES:])
    try:
        key.decrypt_into(nonce, record, front, data)
    except Exception:
        # The cipher adds a stream of bits, and adding it again takes it away.
        key.encrypt_into(nonce, bytes(data), front, record)
        record[-TAG_BYTES:] = tag
        raise
    return data
