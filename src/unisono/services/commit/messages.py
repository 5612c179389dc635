"""The messages of an action as bytes: request, vote, and notice of a failure. None has the outcome:
each member derives it."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from unisono.errors import Misuse

MARK: Final = b"unisono.action/1 "
"""Begins each payload; others are ignored."""

NAME: Final = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
"""A member's name, as `join` takes it."""
KEY: Final = re.compile(r"[!-~]{1,96}")
"""Identifies an action: printable, without blanks."""

PARTICIPANTS_COUNT_MAX: Final = 64
OPERATIONS_BYTES_MAX: Final = 16 << 10
"""All operations of one action together."""
OBJECTION_LENGTH_MAX: Final = 200
PAYLOAD_BYTES_MAX: Final = 64 << 10
"""Longer payloads are not read."""


class BadCommitMessage(ValueError):
    """A payload with the mark that is malformed. All replicas ignore it."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Participants are to execute these operations, all or none."""

    key: str
    operations: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Vote:
    """A participant's vote: its objection; empty for yes."""

    key: str
    objection: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """A participant is no longer in the view: counts as its no."""

    key: str
    name: str
    reason: str


CommitMessage: TypeAlias = CommitRequest | Vote | Notice


def checked(request: CommitRequest) -> CommitRequest:
    """The request, or `Misuse` that names the bound it exceeds."""
    if not KEY.fullmatch(request.key):
        raise Misuse(f"key {request.key!r}: write 1 to 96 printable characters without blanks")
    if not 1 <= len(request.operations) <= PARTICIPANTS_COUNT_MAX:
        count = len(request.operations)
        raise Misuse(f"an action has 1 to {PARTICIPANTS_COUNT_MAX} participants, not {count}")
    for name, operation in request.operations.items():
        if not NAME.fullmatch(name):
            raise Misuse(f"participant {name!r}: write a member's name")
        if not isinstance(operation, bytes):
            raise Misuse(f"the operation of {name} must be bytes, not {type(operation).__name__}")
    nbytes = sum(map(len, request.operations.values()))
    if nbytes > OPERATIONS_BYTES_MAX:
        raise Misuse(f"the operations have {nbytes} bytes, over {OPERATIONS_BYTES_MAX}")
    return request


def encoded(message: CommitMessage) -> bytes:
    """As a payload."""
    if isinstance(message, CommitRequest):
        checked(message)
        fields: dict[str, Any] = {"ask": message.key, "do": packed(message.operations)}
    elif isinstance(message, Vote):
        fields = {"vote": message.key, "no": message.objection[:OBJECTION_LENGTH_MAX]}
    else:
        fields = {
            "gone": message.name,
            "from": message.key,
            "why": message.reason[:OBJECTION_LENGTH_MAX],
        }
    return MARK + json.dumps(fields, separators=(",", ":")).encode()


def read(payload: bytes) -> CommitMessage | None:
    """Decode a payload: None without the mark, `BadCommitMessage` if it is malformed."""
    if not payload.startswith(MARK):
        return None
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise BadCommitMessage("too long")
    try:
        fields = json.loads(payload[len(MARK) :])
    except (ValueError, RecursionError):
        raise BadCommitMessage("not JSON") from None
    if not isinstance(fields, dict):
        raise BadCommitMessage("not an object")
    if fields.keys() == {"ask", "do"}:
        return _request(fields["ask"], fields["do"])
    if fields.keys() == {"vote", "no"}:
        return _vote(fields["vote"], fields["no"])
    if fields.keys() == {"gone", "from", "why"}:
        return _notice(fields["gone"], fields["from"], fields["why"])
    raise BadCommitMessage("neither request nor vote nor notice")


def _request(key: object, operations: object) -> CommitRequest:
    if not isinstance(key, str) or not isinstance(operations, dict):
        raise BadCommitMessage("a request of the wrong shape")
    try:
        return checked(CommitRequest(key, unpacked(operations)))
    except ValueError as error:
        raise BadCommitMessage(str(error)) from None


def _vote(key: object, objection: object) -> Vote:
    return Vote(_text(key, KEY), _short(objection))


def _notice(name: object, key: object, reason: object) -> Notice:
    return Notice(_text(key, KEY), _text(name, NAME), _short(reason))


def _text(fields: object, form: re.Pattern[str]) -> str:
    if not isinstance(fields, str) or not form.fullmatch(fields):
        raise BadCommitMessage("a name or key of the wrong shape")
    return fields


def _short(fields: object) -> str:
    if not isinstance(fields, str) or len(fields) > OBJECTION_LENGTH_MAX:
        raise BadCommitMessage("a reason of the wrong shape")
    return fields


def packed(operations: Mapping[str, bytes]) -> dict[str, str]:
    """Operations for JSON."""
    return {name: b64encode(each).decode() for name, each in operations.items()}


def unpacked(fields: Mapping[str, object]) -> dict[str, bytes]:
    """Operations from JSON, or `ValueError`."""
    found = {}
    for name, text in fields.items():
        if not isinstance(text, str):
            raise ValueError("an operation of the wrong shape")
        found[name] = b64decode(text, validate=True)
    return found
