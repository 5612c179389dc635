"""The contract between a protocol and its world: events in, effects out.

A world (the simulator, or the asyncio driver) owns time, randomness and packets. It passes a core
one event at a time and performs the returned effects **in the order given**. The same events at the
same times always yield the same effects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, TypeAlias, TypeVar, dataclass_transform

from unisono.model import Address, Buffer, Member, Message, Packets, Service, ServiceLevel, View

Timer: TypeAlias = Hashable
"""A member of the protocol's timer enumeration, or a tuple that begins with one."""


DEFAULT_PROTOCOL: Final = "ring"
"""The protocol of a group that chooses none: a total order, and no roles to assign."""

GO_ON: Final = "go_on"
"""The `Request` by which an operator lets a minority of the group continue."""

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
    """A request specific to the protocol, listed in `ProtocolSpec.requests`: a lock, a vote on the
    minimum size, permission for a minority to continue. An `Answer` follows, and a view if the
    group changes."""

    what: str
    arguments: Mapping[str, int | str | bytes] = field(default_factory=dict)


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
    cause: Cause | None = None
    """Why it was denied; None if granted."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Depart:
    """The member has left cleanly; the core is finished."""


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


# fmt: off
Effect: TypeAlias = (
    Send | Probe | Arm | Disarm | Deliver | Stabilize | Install | Capture | Adopt | Persist
    | Checkpoint | Reach | Warn | Answer | Depart | Fail
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


class CoreFactory(Protocol):
    """Makes a protocol's core."""

    def __call__(self, config: CoreConfig, /) -> Core: ...


def no_text(subject: object) -> str:
    """The default label and advice: none. No lambda, so that a spec can be sent to workers."""
    return ""


def _no_quorum(options: Mapping[str, int]) -> int:
    return 0


def _same_options(index: int, count: int, options: Mapping[str, int]) -> Mapping[str, int]:
    return options


@dataclass(frozen=True, slots=True)
class ProcessRole:
    """A process of a partition that never heals."""

    options: Mapping[str, int]
    inside: bool = True
    """It is in the views of its part, does not leave, and was not excluded since the cut."""
    known: bool = True
    """Its name was in a view of the group."""
    durable: bool = True
    """Its records survive a crash."""


def _any_part(part: Sequence[ProcessRole], forgetful: bool) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ProtocolSpec:
    """All that the rest of the tree knows of a protocol: its entry in the catalogue."""

    name: str
    make: CoreFactory
    title: str
    services: tuple[Service, ...]
    laws: tuple[str, ...]
    options: Mapping[str, int]
    """Its parameters, with their defaults."""
    on_split: str
    """What happens when the network partitions, in a few words."""
    wire_number: int = 0
    """The protocol number in the envelope of its packets, unique in the catalogue."""
    resilient: bool = False
    """Whether it offers `Resilient(k)`."""
    requests: tuple[str, ...] = ()
    """The requests it takes."""
    label: Callable[[Buffer], str] = no_text
    """A sealed packet as a short label for traces, such as `nak 5.2-5.4`. Never raises: empty for
    bytes that are not a packet."""
    assign_roles: Callable[[int, int, Mapping[str, int]], Mapping[str, int]] = _same_options
    """Index of a process, number of processes and shared options to the options of that process,
    where a group is started as a whole and its protocol assigns roles or needs its size."""
    quorum: Callable[[Mapping[str, int]], int] = _no_quorum
    """Options to the minimum size of a view: 1 if one partition continues, however small, and 0 if
    any may."""
    advice: Callable[[Mapping[str, int]], str] = no_text
    """Options to a sentence: what to do when no member admits the process."""
    may_continue: Callable[[Sequence[ProcessRole], bool], bool] = _any_part
    """Whether a partition with these processes must continue without the others. The flag: some
    processes may have restarted without their records."""
    arrows: tuple[str, ...] = ()
    """The arrows of its figures, by name: simulated faults are aimed at them."""
    swarm: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Values of options that a simulated run with faults chooses from."""
    chaos: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    """The same for runs with chaos; None leaves the option unset."""
    token_arrow: str = ""
    """A regular expression of the arrows by which a member gets the token, to measure its rotation;
    empty for a protocol without a token."""
    packet_categories: Mapping[str, str] = field(default_factory=dict)
    """By category of `draw.labels`, first words of labels that only this protocol uses."""
    presets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Named sets of options: for a kind of network, or those of the paper."""
