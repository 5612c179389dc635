"""Identities: members sign their greetings, and a list says whose signatures are accepted.

With identities the group's key alone opens nothing. Each session has a secret from which its key is
derived too; it is handed to a process that was asked by a signed challenge, sealed for the X25519
key in that challenge, and the answer is signed as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from unisono.errors import Misuse
from unisono.layout import encode
from unisono.sealing.keys import aead_of, bad_tag, derived, package
from unisono.sealing.records import (
    IDENTITY_BYTES,
    NONCE_BYTES,
    SECRET_BYTES,
    SIGNATURE_BYTES,
    SessionChallenge,
    SessionHello,
    SignedChallenge,
    SignedHello,
)

ALLOWED_COUNT_MAX: Final = 4096
_LINE: Final = re.compile(rf"(\S{{1,64}})\s+([0-9a-fA-F]{{{2 * IDENTITY_BYTES}}})")
_UNSIGNED: Final = bytes(SIGNATURE_BYTES)


class Identity(NamedTuple):
    """A member's name, and the Ed25519 key with which it signs."""

    name: str
    private: bytes

    def public(self) -> bytes:
        """What the list of allowed members has of it."""
        made: bytes = _signing(self.private).public_key().public_bytes_raw()
        return made


Allowed = Mapping[str, bytes]
"""Public keys by member's name."""


def read_identity(text: str, where: str) -> Identity:
    """One line: the member's name and its private key."""
    found = list(_named_keys(text, f"identity {where}").items())
    if len(found) != 1:
        raise Misuse(f"identity {where} has {len(found)} lines: write one, NAME and a private key")
    return Identity(*found[0])


def read_allowed(text: str, where: str) -> Allowed:
    """A line a member: its name and its public key."""
    found = _named_keys(text, f"list {where}")
    if not 0 < len(found) <= ALLOWED_COUNT_MAX:
        raise Misuse(f"list {where} has {len(found)} members: write 1 to {ALLOWED_COUNT_MAX}")
    return found


def named_key_text(name: str, key: bytes) -> str:
    """A line as both are read."""
    return f"{name} {key.hex()}\n"


def _named_keys(text: str, what: str) -> dict[str, bytes]:
    """Empty lines and comments (`#`) are skipped. Keys are not shown, they may be private."""
    found: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        match = _LINE.fullmatch(line)
        if match is None and line:
            raise Misuse(
                f"{what}, line {number}: write a member's name and {2 * IDENTITY_BYTES} hexadecimal"
                " digits, as `unisono key identity` prints them"
            )
        if match is not None and found.setdefault(match[1], key := bytes.fromhex(match[2])) != key:
            raise Misuse(f"{what}, line {number}: {match[1]} has another key above; keep one")
    return found


class Signer:
    """Signs the greetings of one incarnation, and checks those of others."""

    def __init__(
        self, identity: Identity, allowed: Allowed, group: str, entropy: Callable[[int], bytes]
    ) -> None:
        self._identity = identity
        self._purpose = b"unisono " + group.encode() + b"\0"
        self._private = _signing(identity.private)
        self._exchange = package("asymmetric.x25519").X25519PrivateKey.from_private_bytes(
            entropy(IDENTITY_BYTES)
        )
        self._public: bytes = self._exchange.public_key().public_bytes_raw()
        self._bad_tag = bad_tag()
        self.allowed = allowed

    def challenge(self, plain: SessionChallenge) -> SignedChallenge:
        mine = SignedChallenge(*plain, self._public, _UNSIGNED, self._identity.name.encode())
        return mine._replace(signature=self._signed(mine))

    def hello(self, plain: SessionHello, secret: bytes, asked: SignedChallenge) -> SignedHello:
        """The answer, with the session's secret for the one that asked; `ValueError` if its key
        for the exchange is none."""
        cipher = self._cipher(asked.exchange, plain.challenge, plain.salt)
        sealed = cipher.encrypt(bytes(NONCE_BYTES), secret, None)
        mine = SignedHello(*plain[:-1], self._public, sealed, _UNSIGNED, plain.name)
        return mine._replace(signature=self._signed(mine))

    def is_signed(self, greeting: SignedChallenge | SignedHello) -> bool:
        """By the key that the list has for its name."""
        key = self.allowed.get(bytes(greeting.name).decode(errors="replace"))
        if key is None:
            return False
        invalid = package("exceptions", "cryptography").InvalidSignature
        unsigned = greeting._replace(signature=_UNSIGNED)
        try:
            public = package("asymmetric.ed25519").Ed25519PublicKey.from_public_bytes(key)
            public.verify(bytes(greeting.signature), self._signed_text(unsigned))
        except (invalid, ValueError):
            return False
        return True

    def secret_of(self, hello: SignedHello) -> bytes | None:
        """The session's secret, if it was sealed for us."""
        try:
            cipher = self._cipher(hello.exchange, hello.challenge, hello.salt)
            opened: bytes = cipher.decrypt(bytes(NONCE_BYTES), bytes(hello.secret), None)
        except (self._bad_tag, ValueError):
            return None
        return opened if len(opened) == SECRET_BYTES else None

    def _cipher(self, public: bytes, challenge: bytes, salt: bytes) -> Any:
        """Of this exchange of keys, this challenge and this session: it seals one text."""
        theirs = package("asymmetric.x25519").X25519PublicKey.from_public_bytes(bytes(public))
        shared = self._exchange.exchange(theirs)
        return aead_of(derived(shared, bytes(challenge) + bytes(salt), self._purpose + b"secret"))

    def _signed(self, greeting: SignedChallenge | SignedHello) -> bytes:
        made: bytes = self._private.sign(self._signed_text(greeting))
        return made

    def _signed_text(self, greeting: SignedChallenge | SignedHello) -> bytes:
        return self._purpose + type(greeting).__name__.encode() + b"\0" + encode(greeting)


def _signing(private: bytes) -> Any:
    return package("asymmetric.ed25519").Ed25519PrivateKey.from_private_bytes(private)
