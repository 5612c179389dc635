"""Plain values of Python as bytes: equal values are equal bytes, whatever the order of a set."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, Final

from unisono.errors import BadPacket, Misuse

_PLAIN: Final = (str, int, float, bool, type(None))
_KINDS: Final[dict[type, str]] = {tuple: "t", set: "s", frozenset: "f", dict: "d", bytes: "b"}


def encode_value(value: object, what: str) -> bytes:
    """`Misuse` if it is not made of None, bool, int, float, str, bytes, list, tuple, set,
    frozenset and dict."""
    try:
        return json.dumps(_packed(value, what), separators=(",", ":")).encode()
    except (RecursionError, UnicodeEncodeError, ValueError) as error:
        if isinstance(error, Misuse):
            raise
        raise Misuse(f"{what} cannot be encoded: {error}") from None


def decode_value(encoded: bytes) -> Any:
    """What `encode_value` made; `BadPacket` of anything else."""
    try:
        return _unpacked(json.loads(encoded))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadPacket("malformed") from None


def _packed(value: Any, what: str) -> Any:
    kind: type = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [_packed(each, what) for each in value]
    if kind is tuple:
        content: Any = [_packed(each, what) for each in value]
    elif kind in (set, frozenset):
        content = sorted((_packed(each, what) for each in value), key=json.dumps)
    elif kind is dict:
        content = [[_packed(key, what), _packed(each, what)] for key, each in value.items()]
    elif kind is bytes:
        content = b64encode(value).decode()
    else:
        raise Misuse(
            f"{what} has a {kind.__name__}: use None, bool, int, float, str, bytes, list, tuple,"
            " set, frozenset or dict; a class may have `snapshot` and `restore` of its own"
        )
    return {_KINDS[kind]: content}


def _unpacked(packed: Any) -> Any:
    if isinstance(packed, list):
        return [_unpacked(each) for each in packed]
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "b":
        return b64decode(content, validate=True)
    if kind == "d":
        return {_unpacked(key): _unpacked(each) for key, each in content}
    return {"t": tuple, "s": set, "f": frozenset}[kind](_unpacked(each) for each in content)
