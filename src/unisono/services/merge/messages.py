"""The messages of a reconciliation as payloads. Each is of one view and one attempt in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

APPLICATION: Final = b"\0"
"""Begins a payload of the application."""
SERVICE: Final = b"\1"
"""Begins one of ours."""
REASON_LENGTH_MAX: Final = 200
MEMBERS_COUNT_MAX: Final = 1024
PIECE_BYTES_MAX: Final = 16 << 10
HEAD_BYTES_MAX: Final = 16 << 10


class BadMergeMessage(ValueError):
    """A payload that is malformed. All members ignore it."""


@dataclass(frozen=True, slots=True)
class Present:
    """A component: its members, as places among the sorted members of the view."""

    view: str
    attempt: int
    members: tuple[int, ...]
    is_new: bool = False
    """It was in no view before this one."""
    source: str = ""
    """Of a new one, the component whose state it was handed; empty if none."""


@dataclass(frozen=True, slots=True)
class ComponentPiece:
    """The state of the sender's component, from `offset` on."""

    view: str
    attempt: int
    total: int
    offset: int
    piece: bytes = b""


@dataclass(frozen=True, slots=True)
class Computed:
    """The sender holds the reconciled state with this digest."""

    view: str
    attempt: int
    digest: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """The sender cannot go on with it."""

    view: str
    attempt: int
    cause: str
    reason: str


@dataclass(frozen=True, slots=True)
class Again:
    """Begin this attempt."""

    view: str
    attempt: int


MergeMessage: TypeAlias = Present | ComponentPiece | Computed | Abandon | Again
_KINDS: Final = {
    kind.__name__: kind for kind in (Present, ComponentPiece, Computed, Abandon, Again)
}
_TYPES: Final = {"str": str, "int": int, "bool": bool, "tuple[int, ...]": list}


def encoded(message: MergeMessage) -> bytes:
    """As a payload: a head in one line, then the piece of a state."""
    piece = message.piece if isinstance(message, ComponentPiece) else b""
    head: list[Any] = [type(message).__name__]
    head += [getattr(message, each.name) for each in fields(message) if each.name != "piece"]
    return SERVICE + json.dumps(head, separators=(",", ":")).encode() + b"\n" + piece


def read(payload: bytes) -> MergeMessage:
    """What `encoded` made; `BadMergeMessage` of anything else."""
    line, _, piece = payload[len(SERVICE) :].partition(b"\n")
    if len(line) > HEAD_BYTES_MAX or len(piece) > PIECE_BYTES_MAX:
        raise BadMergeMessage("too long")
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        raise BadMergeMessage("not JSON") from None
    if not isinstance(head, list) or not head or not isinstance(head[0], str):
        raise BadMergeMessage("not a list with a name")
    kind = _KINDS.get(head[0])
    if kind is None:
        raise BadMergeMessage("of no kind")
    wanted = [each for each in fields(kind) if each.name != "piece"]
    if len(head) != len(wanted) + 1:
        raise BadMergeMessage("of the wrong length")
    values: dict[str, Any] = {}
    for field, value in zip(wanted, head[1:], strict=True):
        if type(value) is not _TYPES[str(field.type)]:
            raise BadMergeMessage(f"{field.name} of the wrong type")
        if type(value) is int and not 0 <= value < 1 << 32:
            raise BadMergeMessage(f"{field.name} out of range")
        values[field.name] = tuple(value) if isinstance(value, list) else value
    places = values.get("members", ())
    if len(places) > MEMBERS_COUNT_MAX or any(type(each) is not int for each in places):
        raise BadMergeMessage("members of the wrong shape")
    if kind is ComponentPiece:
        values["piece"] = piece
    elif piece:
        raise BadMergeMessage("a piece where none belongs")
    found: MergeMessage = kind(**values)
    return found
