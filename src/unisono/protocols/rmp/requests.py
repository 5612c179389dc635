"""Requests to change the group's state, as they travel in the order."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, NamedTuple

from unisono.errors import BadPacket, Misuse
from unisono.fields import U64, fixed
from unisono.layout import decode, encode
from unisono.model import Buffer
from unisono.protocols.rmp.group_state import (
    AddMember,
    ChangeRequest,
    Entry,
    GroupRequest,
    MemberRequest,
    RemoveMember,
    RenewTrid,
    Summon,
)
from unisono.protocols.rmp.packets import MemberLine
from unisono.requests import AcquireLock, LimitScope, ReleaseLock, VoteSize

REQUESTS: Final = (AcquireLock, ReleaseLock, VoteSize, LimitScope)
"""What an application may request."""


class RequestKind(IntEnum):
    ADD = 1
    REMOVE = 2
    LOCK = 3
    UNLOCK = 4
    VOTE = 5
    SCOPE = 6
    SUMMON = 7
    LOCK_OR_WAIT = 8
    RENEW = 9


class RequestFields(NamedTuple):
    kind: RequestKind
    key: U64
    """Of a member; of a renewal, the identifier."""
    number: Annotated[int, fixed("i32", "i")] = 0
    line: MemberLine | None = None


def write_request(request: ChangeRequest) -> bytes:
    match request:
        case AddMember(key, (member, vote)):
            fields = RequestFields(RequestKind.ADD, key, 0, MemberLine(member, vote))
        case RemoveMember(key):
            fields = RequestFields(RequestKind.REMOVE, key)
        case Summon(key):
            fields = RequestFields(RequestKind.SUMMON, key)
        case RenewTrid(trid):
            fields = RequestFields(RequestKind.RENEW, trid)
        case MemberRequest(key, what):
            fields = RequestFields(_kind_of(what), key, _number_of(what))
    return encode(fields)


def _kind_of(what: GroupRequest) -> RequestKind:
    match what:
        case AcquireLock():
            return RequestKind.LOCK_OR_WAIT if what.wait else RequestKind.LOCK
        case ReleaseLock():
            return RequestKind.UNLOCK
        case VoteSize():
            return RequestKind.VOTE
        case LimitScope():
            return RequestKind.SCOPE


def _number_of(what: GroupRequest) -> int:
    match what:
        case AcquireLock() | ReleaseLock():
            return what.number
        case VoteSize():
            return what.minimum
        case LimitScope():
            return what.hops


def read_request(data: Buffer) -> ChangeRequest | None:
    """None for bytes that are no request."""
    try:
        kind, key, number, line = decode(RequestFields, data)
        return _request(kind, key, number, line)
    except (BadPacket, Misuse):
        return None


def _request(
    kind: RequestKind, key: int, number: int, line: MemberLine | None
) -> ChangeRequest | None:
    match kind:
        case RequestKind.ADD:
            return AddMember(key, Entry(line.member, line.vote)) if line is not None else None
        case RequestKind.REMOVE:
            return RemoveMember(key)
        case RequestKind.SUMMON:
            return Summon(key)
        case RequestKind.RENEW:
            return RenewTrid(key)
        case RequestKind.LOCK:
            return MemberRequest(key, AcquireLock(number))
        case RequestKind.LOCK_OR_WAIT:
            return MemberRequest(key, AcquireLock(number, wait=True))
        case RequestKind.UNLOCK:
            return MemberRequest(key, ReleaseLock(number))
        case RequestKind.VOTE:
            return MemberRequest(key, VoteSize(number))
        case RequestKind.SCOPE:
            return MemberRequest(key, LimitScope(number))
