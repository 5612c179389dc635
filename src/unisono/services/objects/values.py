"""What operations and states are made of, as bytes: JSON, and bytes in it."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from unisono.errors import BadPacket, Misuse

Value: TypeAlias = Any
"""None, booleans, numbers, texts, bytes, and lists and dictionaries of them, with texts as keys."""

BYTES: Final = "~b"
"""The one key of a dictionary that stands for bytes; other keys that begin so are escaped."""
DEPTH_MAX: Final = 64


def encoded(value: Value) -> bytes:
    """`Misuse` if it is not a value. Tuples become lists."""
    return json.dumps(_packed(value, 0), separators=(",", ":"), allow_nan=False).encode()


def decoded(payload: bytes) -> Value:
    """`BadPacket` if it is none."""
    try:
        if b'"~' not in payload:
            return json.loads(payload)
        return json.loads(payload, object_hook=_unpacked)
    except (ValueError, RecursionError):
        raise BadPacket("bad") from None


def _packed(value: Value, depth: int) -> Any:
    kind = type(value)
    if kind is str or kind is int or value is None or kind is bool:
        return value
    if depth > DEPTH_MAX:
        raise Misuse(f"a value is nested more than {DEPTH_MAX} deep: make it flatter")
    if kind is list or isinstance(value, tuple):
        return [_packed(each, depth + 1) for each in value]
    if kind is dict:
        return {_key(key): _packed(each, depth + 1) for key, each in value.items()}
    if kind is bytes:
        return {BYTES: value.hex()}
    if kind is float and value == value and abs(value) != float("inf"):
        return value
    raise Misuse(
        f"{value!r} is no value of a shared object: use None, booleans, finite numbers, texts,"
        " bytes, and lists and dictionaries of them"
    )


def _key(key: object) -> str:
    if type(key) is not str:
        raise Misuse(f"a key of a dictionary is a text, not {key!r}")
    return f"~{key}" if key.startswith("~") else key


def _unpacked(found: dict[str, Any]) -> Any:
    if len(found) == 1 and BYTES in found:
        return bytes.fromhex(found[BYTES])
    return {key[1:] if key.startswith("~") else key: value for key, value in found.items()}
