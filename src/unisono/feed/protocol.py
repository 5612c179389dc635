"""The protocol between a feed and its clients: frames of JSON and of Arrow.

A frame is its length, its kind and a body. A client sends `HELLO`, then one request at a time; the
rows of an answer are messages of Arrow's stream format, as the log holds them.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa

from unisono.errors import BadPacket, Misuse
from unisono.fields import U8, U32
from unisono.layout import layout_of, size_of

HELLO: Final = b"USOF\x01"
PORT: Final = 7420
REQUEST_BYTES_MAX: Final = 64 << 10
FRAME_BYTES_MAX: Final = 256 << 20
"""A batch may hold a message of the largest size, and more."""
ROWS_BYTES: Final = 1 << 20
"""Bytes of rows in one request; a larger row goes alone."""
ROWS_BYTES_MAX: Final = 128 << 20
ROWS_COUNT_MAX: Final = 65_536
COLUMNS_COUNT_MAX: Final = 64
INTAKE: Final = pa.schema([("payload", pa.binary())])


class FeedFront(NamedTuple):
    """Before each frame's body."""

    length: U32
    """Of kind and body."""
    kind: U8


_FRONT: Final = layout_of(FeedFront)
FRONT_BYTES: Final = size_of(FeedFront)


class FeedFrameKind(IntEnum):
    REQUEST = 1
    ANSWER = 2
    ROWS = 3
    END = 4
    REFUSED = 5


class Refusal(IntEnum):
    """Why a request is refused. Only the first two are the client's fault."""

    MISUSE = 1
    TRIMMED = 2
    AHEAD = 3
    """The feed has not reached the offset yet."""
    BUSY = 4
    AWAY = 5
    """The feed is not in its group at the moment."""
    BROKEN = 6


PASSING: Final = (Refusal.AHEAD, Refusal.BUSY, Refusal.AWAY)
"""Refusals after which a client retries."""


def front(kind: FeedFrameKind, nbytes: int) -> bytes:
    return _FRONT.pack(nbytes + 1, kind)


def frame(kind: FeedFrameKind, body: bytes) -> bytes:
    return front(kind, len(body)) + body


def json_frame(kind: FeedFrameKind, **what: Any) -> bytes:
    return frame(kind, json.dumps(what).encode())


def refusal(why: Refusal, text: str, **more: Any) -> bytes:
    return json_frame(FeedFrameKind.REFUSED, why=int(why), text=text, **more)


def front_read(data: bytes, bytes_max: int = FRAME_BYTES_MAX) -> tuple[FeedFrameKind, int]:
    """The kind and the length of the body."""
    (length, kind), _ = _FRONT.read(memoryview(data), 0)
    if not 1 <= length <= bytes_max + 1 or kind not in FeedFrameKind._value2member_map_:
        raise BadPacket("frame")
    return FeedFrameKind(kind), length - 1


def parse_json(body: bytes) -> dict[str, Any]:
    """The object of a JSON frame."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise BadPacket("json") from None
    if not isinstance(found, dict):
        raise BadPacket("json")
    return found


def number(request: dict[str, Any], key: str, most: int = (1 << 62) - 1) -> int:
    value = request.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise Misuse(f"{key}={value!r}: write a whole number from 0 to {most}")
    return value


def columns(request: dict[str, Any]) -> list[str] | None:
    """The columns that a reader wants; the others it gets as nulls. None for all."""
    names = request.get("columns")
    if names is None:
        return None
    if not isinstance(names, list) or len(names) > COLUMNS_COUNT_MAX:
        raise Misuse(f"columns: give a list of at most {COLUMNS_COUNT_MAX} names")
    return [name for name in names if isinstance(name, str)]


def addresses(text: str) -> list[tuple[str, int]]:
    """`tcp://host:port,host:port`, the scheme optional, as hosts and ports."""
    found = []
    for entry in text.strip().removeprefix("tcp://").split(","):
        host, colon, port = entry.strip().rpartition(":")
        if not colon:
            host, port = port, str(PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdigit() or not 0 <= int(port) < 1 << 16:
            raise Misuse(f"feed {text!r}: write HOST:PORT, or several with commas between them")
        found.append((host, int(port)))
    return found
