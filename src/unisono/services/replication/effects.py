"""What a replica is told, and what it asks for, beside `Persist`, `Warn` and `Fail` of the core.

As in a protocol, effects are performed in order: a record is durable before what follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from unisono.services.replication.records import DigestMessage, LogCheckpoint, Update

# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegularView:
    """A view begins with the replicas of these names."""

    id: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransitionalView:
    """What follows, up to the next view, may not be with all of the last one."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """This process is out of the group, and did not see the end of its last view."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """Updates of this replica wait to be sent."""


# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Post:
    """Multicast this as a safe message; lost if this process is out of the group."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Ordered:
    """These are green, from this position on."""

    first: int
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class SendGreens:
    """Multicast these green updates of the log, as `GreensMessage`."""

    component: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SendCheckpoint:
    """Multicast a checkpoint of this position of the effects, as `CheckpointPiece`."""

    component: str


@dataclass(frozen=True, slots=True)
class AdoptCheckpoint:
    """The application's state is replaced."""

    checkpoint: LogCheckpoint


@dataclass(frozen=True, slots=True)
class PrimaryChanged:
    """This replica is in the primary component of these members; with none, it is not."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StableUpTo:
    """These, who are the members there, have logged the order up to this position."""

    position: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompareDigest:
    """What another replica has at this position, if this one has been there."""

    sender: str
    told: DigestMessage


@dataclass(frozen=True, slots=True)
class TellSoon:
    """Call `tell` before long: this replica has logged more than the others know."""
