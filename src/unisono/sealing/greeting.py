"""Challenge and response: a session is believed once its process answers, now.

Packets of a former process are authentic too, and could be replayed to one that does not remember
them. So a process that meets a session asks who it is; the answer holds what the session's key is
derived from, and the challenge. Both are sealed with a key that is derived from the group's alone.
A challenge is a keyed hash of the session, its address and the time: nothing is kept for one under
way, and an answer counts from the address that was asked. Members with identities sign both
(`unisono.sealing.identity`).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.layout import decode, decode_front, encode
from unisono.model import Address, Buffer
from unisono.sealing.identity import Signer
from unisono.sealing.keys import Aead, aead_of, derived, key_id
from unisono.sealing.records import (
    CHALLENGE,
    GREETING_BYTES,
    HELLO,
    NONCE_BYTES,
    SESSION_BYTES,
    SIGNED_CHALLENGE,
    SIGNED_HELLO,
    TAG_BYTES,
    Greeting,
    GreetingFront,
    SessionChallenge,
    SessionHello,
    SignedChallenge,
    SignedHello,
)
from unisono.wire import SEALED

SLOT_US: Final = 4_000_000
"""A challenge may be answered in the time slot in which it was made, and in the next."""
CHALLENGE_BYTES: Final = GREETING_BYTES + 24 + TAG_BYTES
"""Of one without an identity; with one it is up to four times as long."""
KINDS: Final[dict[int, type[Greeting]]] = {
    CHALLENGE: SessionChallenge,
    HELLO: SessionHello,
    SIGNED_CHALLENGE: SignedChallenge,
    SIGNED_HELLO: SignedHello,
}

Entropy = Callable[[int], bytes]
"""So many random bytes."""


class GroupKey(NamedTuple):
    """A key of the keyring, and what all members derive from it."""

    key: bytes
    id: bytes
    greeting: Aead


def group_key(key: bytes, group: str) -> GroupKey:
    greeting = derived(key, b"", b"unisono greeting " + group.encode())
    return GroupKey(key, key_id(key, group), aead_of(greeting))


def session_key(
    key: bytes, group: str, name: bytes, incarnation: int, salt: bytes, secret: bytes = b""
) -> Aead:
    """Of one incarnation of one member, and of one salt: nonces are counted from 0."""
    purpose = b"\0".join((b"unisono session", group.encode(), name, b"%d" % incarnation))
    return aead_of(derived(key + secret, salt, purpose))


class Greetings:
    """Makes and checks challenges, and their answers."""

    def __init__(self, group_tag: bytes, entropy: Entropy, signer: Signer | None = None) -> None:
        self._group_tag = group_tag
        self._entropy = entropy
        self._signer = signer
        self._secret = entropy(32)

    def challenge(self, key: GroupKey, session: bytes, source: Address, now_us: int) -> bytes:
        """A packet that asks who is behind the session, at this address."""
        challenge = self._of(session, source, now_us // SLOT_US)
        asked = SessionChallenge(session, challenge)
        if self._signer is None:
            return self._sealed(key, CHALLENGE, asked)
        return self._sealed(key, SIGNED_CHALLENGE, self._signer.challenge(asked))

    def hello(
        self,
        key: GroupKey,
        hello: SessionHello,
        secret: bytes,
        asked: SessionChallenge | SignedChallenge,
    ) -> bytes:
        """The answer; `ValueError` if nothing can be sealed for the one that asked."""
        if self._signer is None or isinstance(asked, SessionChallenge):
            return self._sealed(key, HELLO, hello)
        return self._sealed(key, SIGNED_HELLO, self._signer.hello(hello, secret, asked))

    def is_answered(self, hello: SessionHello | SignedHello, source: Address, now_us: int) -> bool:
        session, slot = hello.salt[:SESSION_BYTES], now_us // SLOT_US
        return hello.challenge in (self._of(session, source, at) for at in (slot, slot - 1))

    def _of(self, session: bytes, source: Address, slot: int) -> bytes:
        asked = b"%s %s %d" % (session, str(source).encode(), slot)
        return blake2b(asked, digest_size=16, key=self._secret).digest()

    def _sealed(self, key: GroupKey, kind: int, body: Greeting) -> bytes:
        nonce = self._entropy(NONCE_BYTES)
        front = encode(GreetingFront(SEALED, kind, self._group_tag, key.id, nonce))
        return front + bytes(key.greeting.encrypt(nonce, encode(body), front))


def open_greeting(key: GroupKey, packet: Buffer) -> Greeting:
    """`BadPacket` if it is malformed; the error of the cipher if its tag is wrong."""
    front, body = decode_front(GreetingFront, packet)
    data = key.greeting.decrypt(front.nonce, body, bytes(packet[:GREETING_BYTES]))
    if front.kind not in KINDS:
        raise BadPacket("malformed")
    return decode(KINDS[front.kind], data)
