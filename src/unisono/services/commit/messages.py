"""What is said about actions: a request, a vote, and the notice of a failure, as bytes and back.
The outcome is never said."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from unisono.errors import Misuse

MARK: Final = b"unisono.action/1 "
"""How our payloads begin; whatever begins otherwise is not ours."""

NAME: Final = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
"""A member's name, as `join` takes it."""
KEY: Final = re.compile(r"[!-~]{1,96}")
"""What an action is known by: printable, without blanks."""

PARTICIPANTS_COUNT_MAX: Final = 64
OPERATIONS_BYTES_MAX: Final = 16 << 10
"""All operations of one action together."""
OBJECTION_LENGTH_MAX: Final = 200
PAYLOAD_BYTES_MAX: Final = 64 << 10
"""No word of ours is longer; what is longer is not read."""


class BadCommitMessage(ValueError):
    """It begins like ours and is none. All replicas find the same, and pass over it alike."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """The commit request: let these participants do these operations, all or none."""

    key: str
    operations: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Vote:
    """A participant's vote: its objection, or nothing for yes."""

    key: str
    objection: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Of a participant that a view shows gone: it will not vote, so this counts as its no."""

    key: str
    name: str
    reason: str


Word: TypeAlias = CommitRequest | Vote | Notice


def checked(ask: CommitRequest) -> CommitRequest:
    """The request, if it keeps to the bounds; else an error that names the bound."""
    if not KEY.fullmatch(ask.key):
        raise Misuse(f"key {ask.key!r}: write 1 to 96 printable characters without blanks")
    if not 1 <= len(ask.operations) <= PARTICIPANTS_COUNT_MAX:
        count = len(ask.operations)
        raise Misuse(f"an action has 1 to {PARTICIPANTS_COUNT_MAX} participants, not {count}")
    for name, operation in ask.operations.items():
        if not NAME.fullmatch(name):
            raise Misuse(f"participant {name!r}: write a member's name")
        if not isinstance(operation, bytes):
            raise Misuse(f"the operation of {name} must be bytes, not {type(operation).__name__}")
    octets = sum(map(len, ask.operations.values()))
    if octets > OPERATIONS_BYTES_MAX:
        raise Misuse(f"the operations have {octets} bytes, over {OPERATIONS_BYTES_MAX}")
    return ask


def written(word: Word) -> bytes:
    """The word as a payload."""
    if isinstance(word, CommitRequest):
        checked(word)
        told: dict[str, Any] = {"ask": word.key, "do": packed(word.operations)}
    elif isinstance(word, Vote):
        told = {"vote": word.key, "no": word.objection[:OBJECTION_LENGTH_MAX]}
    else:
        told = {"gone": word.name, "from": word.key, "why": word.reason[:OBJECTION_LENGTH_MAX]}
    return MARK + json.dumps(told, separators=(",", ":")).encode()


def read(payload: bytes) -> Word | None:
    """Decode a payload: None if it is not ours, `BadCommitMessage` if it is malformed."""
    if not payload.startswith(MARK):
        return None
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise BadCommitMessage("too long")
    try:
        told = json.loads(payload[len(MARK) :])
    except (ValueError, RecursionError):
        raise BadCommitMessage("not JSON") from None
    if not isinstance(told, dict):
        raise BadCommitMessage("not an object")
    if told.keys() == {"ask", "do"}:
        return _ask(told["ask"], told["do"])
    if told.keys() == {"vote", "no"}:
        return _vote(told["vote"], told["no"])
    if told.keys() == {"gone", "from", "why"}:
        return _notice(told["gone"], told["from"], told["why"])
    raise BadCommitMessage("neither request nor vote nor notice")


def _ask(key: object, operations: object) -> CommitRequest:
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


def _text(told: object, form: re.Pattern[str]) -> str:
    if not isinstance(told, str) or not form.fullmatch(told):
        raise BadCommitMessage("a name or key of the wrong shape")
    return told


def _short(told: object) -> str:
    if not isinstance(told, str) or len(told) > OBJECTION_LENGTH_MAX:
        raise BadCommitMessage("a reason of the wrong shape")
    return told


def packed(operations: Mapping[str, bytes]) -> dict[str, str]:
    """Operations as JSON has them."""
    return {name: b64encode(each).decode() for name, each in operations.items()}


def unpacked(told: Mapping[str, object]) -> dict[str, bytes]:
    """Operations back from JSON; `ValueError` where they are none."""
    found = {}
    for name, text in told.items():
        if not isinstance(text, str):
            raise ValueError("an operation of the wrong shape")
        found[name] = b64decode(text, validate=True)
    return found
