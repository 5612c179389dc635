"""The keys of a group: a keyring, and what is derived from its keys."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

from unisono.errors import Misuse

KEY_BYTES: Final = 16
KEY_ID_BYTES: Final = 4
KEYS_COUNT_MAX: Final = 16
_HEX: Final = re.compile(rf"[0-9a-fA-F]{{{2 * KEY_BYTES}}}")

Aead: TypeAlias = Any
"""An AES-128-GCM key, ready for use. The package that makes it is optional."""


class Keyring(NamedTuple):
    """The keys that are accepted. The first is in use: packets are sealed with it."""

    keys: tuple[bytes, ...]

    def installed(self, key: bytes) -> Keyring:
        """With this key too, not in use."""
        return Keyring(self.keys if key in self.keys else (*self.keys, key))

    def using(self, key: bytes) -> Keyring:
        """The same keys, this one in use."""
        if key not in self.keys:
            raise Misuse("the keyring does not have this key: install it at every member first")
        return Keyring((key, *(each for each in self.keys if each != key)))

    def without(self, key: bytes) -> Keyring:
        if key not in self.keys:
            raise Misuse("the keyring does not have this key: there is nothing to remove")
        if key == self.keys[0]:
            raise Misuse("this key is in use: use another at every member first")
        return Keyring(tuple(each for each in self.keys if each != key))


def key_of(text: str) -> bytes:
    """A key in hexadecimal digits."""
    if not _HEX.fullmatch(text):
        raise Misuse(
            f"a key is {2 * KEY_BYTES} hexadecimal digits, not {len(text)} characters:"
            " make one with `unisono key new FILE`"
        )
    return bytes.fromhex(text)


def read_keyring(text: str, where: str) -> Keyring:
    """A key a line, the one in use first; empty lines and comments (`#`) are skipped."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    try:
        keys = tuple(dict.fromkeys(key_of(line) for line in lines if line))
    except Misuse as error:
        raise Misuse(f"keyring {where}: {error}") from None
    if not 0 < len(keys) <= KEYS_COUNT_MAX:
        raise Misuse(
            f"keyring {where} has {len(keys)} keys: write 1 to {KEYS_COUNT_MAX}, one a line"
        )
    return Keyring(keys)


def keyring_text(keyring: Keyring) -> str:
    """As `read_keyring` reads it."""
    first, *others = (key.hex() for key in keyring.keys)
    return "".join((f"{first}  # in use\n", *(f"{key}\n" for key in others)))


def aead_of(key: bytes) -> Aead:
    return package("ciphers.aead").AESGCM(key)


def derived(key: bytes, salt: bytes, purpose: bytes, length: int = KEY_BYTES) -> bytes:
    """HKDF with SHA-256 [RFC 5869]."""
    sha256 = package("hashes").SHA256()
    hkdf = package("kdf.hkdf").HKDF(algorithm=sha256, length=length, salt=salt, info=purpose)
    made: bytes = hkdf.derive(key)
    return made


def key_id(key: bytes, group: str) -> bytes:
    """By which packets name the key; of another group, another."""
    return derived(key, b"", b"unisono id " + group.encode(), KEY_ID_BYTES)


def bad_tag() -> type[Exception]:
    """What opening a record raises whose tag does not fit."""
    kind: type[Exception] = package("exceptions", "cryptography").InvalidTag
    return kind


def package(module: str, within: str = "cryptography.hazmat.primitives") -> Any:
    """A module of the package that does the mathematics, which is optional."""
    try:
        return import_module(f"{within}.{module}")
    except ImportError:
        raise Misuse(
            "key= needs the package `cryptography`: install it with pip install 'unisono[seal]'"
        ) from None
