"""What replicas tell each other, and what each writes to its log: one layout for both."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.fields import U32_COUNT, U64, data, table
from unisono.layout import decode, encode, field_of

Octets: TypeAlias = Annotated[bytes, data(U32_COUNT, copied=True)]
"""Bytes of any length."""


class UpdateKind(IntEnum):
    """What an update is for."""

    APPLICATION = 0
    ADD = 1
    """Its content is the name of a new member of the replication group."""
    REMOVE = 2
    """Its content is the name of a member that is taken out."""
    MARK = 3
    """Nothing: a strict query waits until it is green."""


class Update(NamedTuple):
    """An update as it is ordered."""

    submitter: str
    number: U64
    """Among those of its submitter, from 1."""
    kind: UpdateKind
    content: Octets


class IdRun(NamedTuple):
    """Updates of one submitter with adjacent numbers."""

    submitter: str
    first: U64
    last: U64


class Line(NamedTuple):
    """A name and a number."""

    name: str
    number: U64


class Primary(NamedTuple):
    """A primary component: its place among all that followed each other, and its attempt."""

    place: U64
    attempt: U64
    component: str
    names: tuple[str, ...]


class Vulnerable(NamedTuple):
    """An attempt to install the component after `place`, of which this member does not know whether
    another has completed it and gone on."""

    place: U64
    attempt: U64
    component: str
    """In which it was made. Two attempts may have one number, if a member of the first crashed
    before it had recorded it."""
    names: tuple[str, ...]
    heard: tuple[str, ...]
    """Those whose knowledge of it has been exchanged; with all of them it is no danger."""


class VotingState(NamedTuple):
    """What a member must remember to take part in the choice of a primary component."""

    primary: Primary
    lost: tuple[str, ...]
    """Those that an operator has said, since then, will never return."""
    attempt: U64
    vulnerable: Vulnerable | None
    yellow: tuple[IdRun, ...] | None
    """In order; None if this member knows nothing of the end of the last primary component."""
    instances: tuple[Line, ...]
    """The logs that the members are known to have: another one under a name has lost the first."""


# -- records of the log ----------------------------------------------------------------------------


class RedRecord(NamedTuple):
    """Updates that are logged; their position is not known."""

    updates: Annotated[tuple[Update, ...], table(field_of(Update), U32_COUNT)]


class GreenRecord(NamedTuple):
    """The next updates of the green order, which are not logged yet."""

    updates: Annotated[tuple[Update, ...], table(field_of(Update), U32_COUNT)]


class GreenRunsRecord(NamedTuple):
    """The next updates of the green order, which are logged as red ones."""

    runs: Annotated[tuple[IdRun, ...], table(field_of(IdRun), U32_COUNT)]


class VotingRecord(NamedTuple):
    """Replaces the last."""

    vote: VotingState


class LogCheckpoint(NamedTuple):
    """The green order up to a position, as its effect."""

    position: U64
    cuts: tuple[Line, ...]
    """By submitter, the number of its last update up to there."""
    members: tuple[str, ...]
    state: Octets


class CheckpointRecord(NamedTuple):
    """The state from which a replay begins; green updates of the log follow it."""

    checkpoint: LogCheckpoint


class KeptRecord(NamedTuple):
    """Green updates before the checkpoint, up to its position, that others may lack."""

    updates: Annotated[tuple[Update, ...], table(field_of(Update), U32_COUNT)]


class IdentityRecord(NamedTuple):
    """Begins each log."""

    version: U64
    group: str
    name: str
    instance: U64
    members: tuple[str, ...]
    """With which the group began."""


# -- messages --------------------------------------------------------------------------------------


class UpdatesMessage(NamedTuple):
    """New updates of the sender."""

    component: str
    line: U64
    """Up to this position the sender has logged the green order."""
    updates: Annotated[tuple[Update, ...], table(field_of(Update), U32_COUNT)]


class LineMessage(NamedTuple):
    """The sender has logged the green order, and acted upon it, up to this position."""

    line: U64


class StateMessage(NamedTuple):
    """[FTO §3] What a member knows when a component begins."""

    component: str
    green: U64
    base: U64
    """Its log has the green updates after this position; before, it has a checkpoint."""
    line: U64
    cuts: tuple[Line, ...]
    """By submitter, the number up to which it has all updates, red or green."""
    greens: tuple[Line, ...]
    """By submitter, the number of its last green update."""
    members: tuple[str, ...]
    instance: U64
    vote: VotingState


class AttemptMessage(NamedTuple):
    """[FTO §3] *Create primary component*: the sender has recorded the attempt."""

    component: str


class GreensMessage(NamedTuple):
    """Green updates from this position on, sent again."""

    component: str
    first: U64
    updates: Annotated[tuple[Update, ...], table(field_of(Update), U32_COUNT)]


class RedsMessage(NamedTuple):
    """Red updates, sent again."""

    component: str
    updates: Annotated[tuple[Update, ...], table(field_of(Update), U32_COUNT)]


class CheckpointPiece(NamedTuple):
    """A part of a checkpoint, for those whose log ends before the sender's begins."""

    component: str
    total: U64
    offset: U64
    piece: Octets


class SentAgainMessage(NamedTuple):
    """The sender has sent all that it had to send again."""

    component: str


class ForgetMessage(NamedTuple):
    """An operator says that this member will never return: nobody waits for what it knows."""

    component: str
    name: str


class DigestMessage(NamedTuple):
    """The state of the sender's machine at this position."""

    position: U64
    digest: Octets
    since: str
    """What was applied since the position that was compared before."""


RECORDS: Final = (
    RedRecord, GreenRecord, GreenRunsRecord, VotingRecord, CheckpointRecord, KeptRecord,
    IdentityRecord,
)  # fmt: skip
MESSAGES: Final = (
    UpdatesMessage, LineMessage, StateMessage, AttemptMessage, GreensMessage, RedsMessage,
    CheckpointPiece, SentAgainMessage, ForgetMessage, DigestMessage,
)  # fmt: skip
_RECORD_KINDS: Final = {kind: bytes((at,)) for at, kind in enumerate(RECORDS)}
_MESSAGE_KINDS: Final = {kind: bytes((at,)) for at, kind in enumerate(MESSAGES)}


def record_bytes(record: Any) -> bytes:
    return _RECORD_KINDS[type(record)] + encode(record)


def read_record(record: bytes) -> Any:
    """What `record_bytes` made; `BadPacket` of anything else."""
    return _read(RECORDS, record)


def message_bytes(message: Any) -> bytes:
    return _MESSAGE_KINDS[type(message)] + encode(message)


def read_message(payload: bytes) -> Any:
    """What `message_bytes` made; `BadPacket` of anything else."""
    return _read(MESSAGES, payload)


def _read(kinds: tuple[type[Any], ...], encoded: bytes) -> Any:
    if not encoded or encoded[0] >= len(kinds):
        raise BadPacket("unknown")
    return decode(kinds[encoded[0]], memoryview(encoded)[1:])


def runs_of(updates: list[Update]) -> tuple[IdRun, ...]:
    """Their identities, in order."""
    runs: list[IdRun] = []
    for update in updates:
        if runs and runs[-1].submitter == update.submitter and runs[-1].last == update.number - 1:
            runs[-1] = runs[-1]._replace(last=update.number)
        else:
            runs.append(IdRun(update.submitter, update.number, update.number))
    return tuple(runs)
