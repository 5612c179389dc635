"""The contract between a protocol and its world: events in, effects out.

A world (the simulator, or the asyncio driver) owns time, randomness and packets. It passes a core
one event at a time and performs the returned effects **in the order given**. The same events at the
same times always yield the same effects.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, TypeAlias, TypeVar, dataclass_transform

from unisono.model import Address, Member, Message, Packets, Service, ServiceLevel, View
from unisono.requests import GroupCommand

Timer: TypeAlias = Hashable
"""A member of the protocol's timer enumeration, or a tuple that begins with one."""


DEFAULT_PROTOCOL: Final = "ring"
"""The protocol of a group that chooses none: a total order, and no roles to assign."""

SLEPT_US: Final = 10_000
"""A process whose timer expires this late was suspended: pending packets are read first."""


class Cause(Enum):
    """Why a member stopped, or why a request was denied."""

    STOPPED = "stopped"
    """Any other reason."""
    EXCLUDED = "excluded"
    """The others continue without it."""
    REFUSED = "refused"
    """Not admitted, or a request that cannot be granted."""
    UNREADABLE = "unreadable"
    """Its key is not that of the others, or they have none."""
    TOO_FEW = "too_few"
    """The minimum size is not met."""
    ATOMICITY_VIOLATED = "atomicity_violated"
    """Some members delivered what others can no longer get."""
    MEMORY_LOST = "memory_lost"
    """A majority has lost its records."""
    SUPERSEDED = "superseded"
    """A later incarnation of the name is known, for example because the clock was set back: join
    again with a higher one."""


T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def frequent(kind: type[T]) -> type[T]:
    """A frozen dataclass for values made several times a step. Only the type checker enforces it:
    at run time that would triple the cost of making one."""
    return dataclass(slots=True, unsafe_hash=True)(kind)


# -- events: facts ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """The application joins."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The application leaves; `Depart` follows once the others need nothing from it."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The process restarted after a crash; the records of earlier incarnations, oldest first."""

    stable: tuple[bytes, ...] = ()
    more: bool = False
    """Another `Restart` with further records follows."""


@frequent
class Received:
    """A burst of datagrams from one source, unchecked."""

    source: Address
    packets: Packets


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The network answered a `Probe`: no process listens at this address. The answer may be late or
    wrong; a single one proves nothing."""

    address: Address


@frequent
class Expired:
    """An armed timer expired."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class Multicast:
    """The application multicasts these messages, in this order, within `send_credit()`."""

    messages: Sequence[bytes]
    service: ServiceLevel = Service.CAUSAL


@dataclass(frozen=True, slots=True)
class Congested:
    """The application's queue is full (`on`) or has capacity again. A congested core withholds
    deliveries, which in time slows the senders, and has no `send_credit()`; it keeps answering
    packets, so that it is not suspected."""

    on: bool


@dataclass(frozen=True, slots=True)
class Captured:
    """The application's state at the position of `Capture(key)` in its stream."""

    key: Hashable
    state: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A request that `ProtocolSpec.requests` lists, such as a lock or a vote. One `Answer` follows,
    after the view if the group changes."""

    what: GroupCommand
    key: int = 0
    """Returned in the `Answer`."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The application has processed these delivered messages."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Persisted:
    """The record with this key is on stable storage."""

    key: Hashable


# fmt: off
Event: TypeAlias = (
    Join | Leave | Restart | Received | Unreachable | Expired | Multicast | Congested | Captured
    | Request | Acknowledged | Persisted
)
# fmt: on


# -- effects: requests --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Everyone:
    """The group's multicast address, or the configured peers. Also reaches processes that are not
    members, and possibly the sender."""


EVERYONE: Final = Everyone()

Target: TypeAlias = Everyone | tuple[Address, ...]


@frequent
class Send:
    """Send each packet to each target. Adjacent packets of one length leave as one burst."""

    to: Target
    packets: Packets


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the network whether a process listens at these addresses. It may answer `Unreachable`; no
    answer means nothing. A listening process does not notice."""

    to: tuple[Address, ...]


@frequent
class Arm:
    """Let `timer` expire after this long; an armed timer is reset."""

    timer: Timer
    after_us: int


@frequent
class Disarm:
    """Cancel the timer, if armed."""

    timer: Timer


@frequent
class Deliver:
    """Deliver these messages to the application, in this order."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Stabilize:
    """Report to the application that these messages are as resilient as requested."""

    messages: Sequence[Message]
    holders: tuple[Member, ...] = ()
    """Members known to hold them; empty if the protocol does not report it."""


@dataclass(frozen=True, slots=True)
class FailStability:
    """Report to the application that these messages will not be as resilient as requested."""

    messages: Sequence[Message]
    cause: Cause


@dataclass(frozen=True, slots=True)
class Install:
    """Deliver the view to the application."""

    view: View


@dataclass(frozen=True, slots=True)
class Capture:
    """Request the application's state as of this position in its stream."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class Adopt:
    """Replace the application's state by the group's; the messages that follow it come next."""

    state: bytes


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the record to stable storage; later effects wait until it is safe."""

    record: bytes
    key: Hashable = None
    """If not None, `Persisted(key)` reports that the record is safe."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Replace all records on stable storage by this one, atomically."""

    record: bytes
    key: Hashable = None


@dataclass(frozen=True, slots=True)
class Reach:
    """Multicasts from now on cross at most this many routers."""

    hops: int


@dataclass(frozen=True, slots=True)
class Warn:
    """The member continues but cannot work for now, for this reason; an empty text revokes it."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a `Request`."""

    what: str
    """The request's name."""
    cause: Cause | None = None
    """Why it was denied; None if granted."""
    detail: str = ""
    key: int = 0
    """Of the request."""


@dataclass(frozen=True, slots=True)
class Depart:
    """The member has left cleanly; the core is finished."""

    view: str = ""
    """That of those that went on without it, where it agreed to one."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The member stops for this reason; the core is finished. The process may join again as a new
    incarnation."""

    reason: str
    cause: Cause = Cause.STOPPED
    known: int = 0
    """With SUPERSEDED, the incarnation that the group knows: the next one has to be higher."""
    view: str = ""
    """With EXCLUDED, the view of those that went on, where it is known."""
    founding: str = ""
    """And the view with which their group was founded."""


# fmt: off
Effect: TypeAlias = (
    Send | Probe | Arm | Disarm | Deliver | Stabilize | FailStability | Install | Capture | Adopt
    | Persist | Checkpoint | Reach | Warn | Answer | Depart | Fail
)
# fmt: on


# -- the machine --------------------------------------------------------------------------------


class Core(Protocol):
    """A member, as its protocol has it. Pure: no clock, randomness, socket, file or log.

    Messages of an incarnation are numbered from 1 in the order of its multicasts. A message is
    delivered after the `Install` of its view.
    """

    @property
    def me(self) -> Member: ...

    @property
    def counts(self) -> dict[str, int]:
        """Monotonic counters: `in.<kind>`, `out.<kind>`, `drop.<reason>`, `nak`, `repair`."""

    def step(self, now_us: int, event: Event) -> list[Effect]: ...

    def send_credit(self) -> int:
        """Payload bytes that may be multicast now; 0 while the window is full."""

    def held(self) -> Mapping[Member, int]:
        """By sender, the number up to which all its messages are here, delivered or not; at least
        those delivered. Called once a view, so it need not be fast."""

    def transition_counts(self) -> Mapping[str, int]:
        """How often each arrow was followed, by its name."""


@dataclass(frozen=True, slots=True)
class CoreConfig:
    """What a core is made with. All its randomness comes from the seed."""

    me: Member
    group: str
    seed: int
    packet_bytes_max: int = 1400
    """Size of a datagram that the path carries unfragmented."""
    message_bytes_max: int = 64 << 20
    """Larger messages are rejected."""
    window_bytes_max: int = 4 << 20
    """Bytes sent and not yet received by all; beyond them `send_credit()` is 0."""
    with_state: bool = False
    """The application transfers its state to joiners (`Capture`, `Adopt`)."""
    durable: bool = False
    """Records survive a crash."""
    member: bool = True
    """False for a sender outside the group, where the protocol has such."""
    options: Mapping[str, int] = field(default_factory=dict)
    """The protocol's parameters, in the units their names end with."""
    terms: Mapping[str, str] = field(default_factory=dict)
    """Options of the world that must be the same at all members."""
    clusters: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)
    """Where the group spans clusters joined by wide links: by name, the processes of each.
    `EVERYONE` then reaches the own cluster."""


class CoreFactory(Protocol):
    """Makes a protocol's core."""

    def __call__(self, config: CoreConfig, /) -> Core: ...
