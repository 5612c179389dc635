"""What is multicast within a cluster, and what clusters multicast to each other."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.fields import U64, Bit, Blob, Rest, bounded
from unisono.layout import decode, encode
from unisono.model import Buffer, Member, Service

CLUSTERS_MAX: Final = 64
Level: TypeAlias = Annotated[int, bounded("B", 0, Service.AGREED)]


# -- within a cluster: the inputs of its replicas -------------------------------------------------


class Submit(NamedTuple):
    """A member's message for the whole group."""

    at_us: U64
    """The cluster's time, as far as the sender knows."""
    number: U64
    level: Level
    payload: Rest


class ForeignPacket(NamedTuple):
    """A packet of another cluster."""

    cluster: Annotated[int, bounded("B", 0, CLUSTERS_MAX - 1)]
    packet: Blob


class Relay(NamedTuple):
    """Packets that came over the wide link; without any, time has passed."""

    at_us: U64
    packets: tuple[ForeignPacket, ...]


class Backlog(NamedTuple):
    """The sender's application lags behind, or has caught up."""

    is_long: Bit


class HandOver(NamedTuple):
    """The application's state as of this view, for those that are new in it."""

    view: U64
    state: Rest


class Farewell(NamedTuple):
    """The sender leaves: the next view is without it."""


class Quit(NamedTuple):
    """The sender is the whole cluster, and leaves."""


# -- between clusters -----------------------------------------------------------------------------


class Said(NamedTuple):
    """A message of a member, delivered in the view in which its cluster passed it on."""

    sender: U64
    """Its key."""
    view: U64
    number: U64
    level: Level
    payload: Rest


class ReportedMember(NamedTuple):
    member: Member
    sent: U64
    """The number of its last message that precedes the report."""
    settled: Bit
    """It is in a view, and has its state."""


class ClusterReport(NamedTuple):
    """Who is in the sender's cluster, for the next view."""

    wide: U64
    """The tag of the view of clusters."""
    number: Annotated[int, bounded("I", 1, (1 << 32) - 1)]
    """Of the view of members within that."""
    former: U64
    """The tag of the view that the cluster is in; 0 is none."""
    members: tuple[ReportedMember, ...]
    left: tuple[U64, ...]
    """Keys of those that left of their own accord since then."""


class ForwardedState(NamedTuple):
    """As `HandOver`, for newcomers of other clusters."""

    view: U64
    state: Rest


ClusterMessage: TypeAlias = (
    Submit | Relay | Backlog | HandOver | Farewell | Quit | Said | ClusterReport | ForwardedState
)
KINDS: Final[tuple[type[ClusterMessage], ...]] = (
    *(Submit, Relay, Backlog, HandOver, Farewell, Quit),
    *(Said, ClusterReport, ForwardedState),
)


def written(message: ClusterMessage) -> bytes:
    return bytes((KINDS.index(type(message)),)) + encode(message)


def read(payload: Buffer) -> ClusterMessage:
    if not payload or payload[0] >= len(KINDS):
        raise BadPacket("malformed")
    return decode(KINDS[payload[0]], memoryview(payload)[1:])
