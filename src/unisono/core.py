"""The contract: events in, effects out. A protocol is a pure machine behind this one door.

A world (the simulator, or the asyncio driver) owns time, dice and packets. It tells a core what
happened, one event at a time, and performs the effects that come back **in the order given**.
The same events at the same times always bring the same effects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, TypeAlias, TypeVar, dataclass_transform

from unisono.model import Address, Buffer, Member, Message, Packets, Service, ServiceLevel, View

Timer: TypeAlias = Hashable
"""A member of a protocol's own timer enumeration, or a tuple that begins with one."""


SLEPT_US: Final = 10_000
"""Who is told of a timer so late has slept: what came meanwhile is to be heard first."""


class Cause(Enum):
    """Why a member stopped, or was denied what it asked for, as a value."""

    STOPPED = "stopped"
    """For another reason, or the world's."""
    EXCLUDED = "excluded"
    """Others went on without it."""
    REFUSED = "refused"
    """At the door, or a request that cannot be granted."""
    TOO_FEW = "too_few"
    """The minimum size is not met."""
    ATOMICITY_VIOLATED = "atomicity_violated"
    """Some have what others can no longer get."""
    MEMORY_LOST = "memory_lost"
    """A majority no longer remembers what it had promised."""
    SUPERSEDED = "superseded"
    """A later life of the same name is known, as where a clock was set back: come back with a
    higher incarnation."""


T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def frequent(kind: type[T]) -> type[T]:
    """A frozen dataclass, for those that are made several times a step. That nobody writes to them
    is for the type checker to see: to look at run time makes each cost three times as much."""
    return dataclass(slots=True, unsafe_hash=True)(kind)


# -- events: facts ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """The application wants in."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The application wants out, cleanly: `Depart` answers when all is handed over."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The process came back after a crash with these records of its former lives (oldest first)."""

    stable: tuple[bytes, ...] = ()
    more: bool = False
    """They come in pieces, and another `Restart` with the next of them follows."""


@frequent
class Received:
    """A burst of datagrams from one source. The core judges them; the world only carried them."""

    source: Address
    packets: Packets


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The network answers a `Probe`: no process listens at this address. It may be late, or wrong:
    one answer alone proves nothing."""

    address: Address


@frequent
class Expired:
    """A timer that was armed has run out."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class Multicast:
    """The application says these, in this order. Only given while `room()` allows."""

    messages: Sequence[bytes]
    service: ServiceLevel = Service.CAUSAL


@dataclass(frozen=True, slots=True)
class Congested:
    """The application's queue is full (`on`) or has room again. A congested core withholds
    deliveries, which in time slows the senders, and has no `room()` for more of our own; it goes
    on answering so that nobody removes it."""

    on: bool


@dataclass(frozen=True, slots=True)
class Captured:
    """The application's state at the place where `Capture(key)` stood in its stream."""

    key: Hashable
    state: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """The application asks for something that only its protocol knows: a lock, a vote on the least
    size, a wider scope, leave for a minority to go on. `Answer` answers, and where the group
    changes by it, a view. Only given for requests that `ProtocolSpec.requests` lists."""

    what: str
    arguments: Mapping[str, int | str | bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The application has acted on these messages, which had been delivered to it."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Persisted:
    """The record that was persisted with this key is safe."""

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
    """The group's multicast address, or the list of peers where there is no multicast. Also
    reaches those that are not members yet, and may reach the sender itself."""


EVERYONE: Final = Everyone()

Target: TypeAlias = Everyone | tuple[Address, ...]


@frequent
class Send:
    """Send each packet to each target. Packets of equal length side by side leave as one burst."""

    to: Target
    packets: Packets


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the network whether a process still listens at these addresses. Where none does, it may
    answer with `Unreachable`; no answer means nothing. A process that listens notices nothing."""

    to: tuple[Address, ...]


@frequent
class Arm:
    """Expire `timer` after this long; an armed timer of the same name is set anew."""

    timer: Timer
    after_us: int


@frequent
class Disarm:
    """Forget the timer, if it is armed."""

    timer: Timer


@frequent
class Deliver:
    """Hand these to the application, in this order."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Stabilize:
    """Report to the application that these messages are as resilient as requested."""

    messages: Sequence[Message]
    holders: tuple[Member, ...] = ()
    """Members that are known to hold them; empty: the protocol does not say."""


@dataclass(frozen=True, slots=True)
class Install:
    """Put the view into the application's stream."""

    view: View


@dataclass(frozen=True, slots=True)
class Capture:
    """Ask the application for its state as it is at this place of its stream."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class Adopt:
    """Give the application the group's state, before the messages that follow it."""

    state: bytes


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the record to stable storage; what follows in the list waits until it is safe."""

    record: bytes
    key: Hashable = None
    """Unless it is None, `Persisted(key)` says when the record is safe."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Write the record to stable storage in place of all before it. After a crash there are either
    those or this one."""

    record: bytes
    key: Hashable = None
    """As in `Persist`."""


@dataclass(frozen=True, slots=True)
class Reach:
    """From now on multicasts travel over so many routers."""

    hops: int


@dataclass(frozen=True, slots=True)
class Warn:
    """The member goes on, but somebody should know this: it cannot do its work for now, and
    why. An empty text takes the last one back."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell the application what became of its `Request`."""

    what: str
    cause: Cause | None = None
    """Why it was denied; None: it was granted."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Depart:
    """The clean leave is done; the core is finished."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The member stops here and is finished; the application is told the reason. It may join
    again as a new incarnation."""

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
    """A protocol's member. Pure: no clock, dice, socket, file or log of its own.

    The n-th message that the application multicasts in this life has the number n, whatever the
    protocol. Messages are delivered with the `Install`ed view they belong to already in place.
    """

    @property
    def me(self) -> Member: ...

    @property
    def counts(self) -> dict[str, int]:
        """What happened so far, by name: `in.<kind>`, `out.<kind>`, `drop.<reason>`, `nak`,
        `repair`. Only ever rises; the world reads it at any time."""

    def step(self, now_us: int, event: Event) -> list[Effect]: ...

    def send_credit(self) -> int:
        """How many more payload bytes may be multicast now; 0 is a full window."""

    def held(self) -> Mapping[Member, int]:
        """By sender, the number up to which all its messages are here without a gap, delivered or
        not. Those delivered are the least; asked for once a view, so it need not be fast."""

    def transition_counts(self) -> Mapping[str, int]:
        """How often each arrow of the figure was followed."""


@dataclass(frozen=True, slots=True)
class CoreConfig:
    """All a core is born with. Time and dice are the world's: a clock value and a seed."""

    me: Member
    group: str
    seed: int
    packet_bytes_max: int = 1400
    """Payload of a datagram: what the path carries unfragmented."""
    message_bytes_max: int = 64 << 20
    """A larger message is refused with an error that names this limit."""
    window_bytes_max: int = 4 << 20
    """Sent and not yet received by all; beyond it `room()` is 0 and senders wait."""
    with_state: bool = False
    """The application hands its state to those who join (`Capture`, `Adopt`)."""
    durable: bool = False
    """The world keeps records over a crash."""
    member: bool = True
    """False: a sender that is not a member, where the protocol has such."""
    options: Mapping[str, int] = field(default_factory=dict)
    """The protocol's own parameters, in the units their names end with."""
    terms: Mapping[str, str] = field(default_factory=dict)
    """What else all members must have alike: options of the world that the protocol does not
    know."""


class CoreFactory(Protocol):
    """How a protocol's core is born."""

    def __call__(self, setting: CoreConfig) -> Core: ...


def no_label(packet: Buffer) -> str:
    """For a protocol that has no words for its packets."""
    return ""


def same_options(index: int, count: int, options: Mapping[str, int]) -> Mapping[str, int]:
    """For a protocol in which nobody has a role beforehand."""
    return options


def no_quorum(options: Mapping[str, int]) -> int:
    """For a protocol in which any part may go on."""
    return 0


@dataclass(frozen=True, slots=True)
class ProcessRole:
    """One of a part of a group that is cut off for good."""

    options: Mapping[str, int]
    inside: bool = True
    """It is in the views of its part, does not leave, and was not excluded since the cut."""
    known: bool = True
    """Its name was in a view of the group, whoever installed it."""
    durable: bool = True
    """It keeps records over a crash."""


def any_part(part: Sequence[ProcessRole], forgetful: bool) -> bool:
    """For a protocol in which each part goes on as a group of its own."""
    return True


def no_advice(options: Mapping[str, int]) -> str:
    """For a protocol in which anybody may begin a group."""
    return ""


@dataclass(frozen=True, slots=True)
class ProtocolSpec:
    """A protocol's line in the catalogue: what it is, what it offers, which laws it keeps."""

    name: str
    make: CoreFactory
    title: str
    services: tuple[Service, ...]
    laws: tuple[str, ...]
    options: Mapping[str, int]
    """The parameters it takes, with their defaults."""
    on_split: str
    """What happens when the network splits, in a few words."""
    resilient: bool = False
    """Whether `Resilient(k)` may be asked for."""
    requests: tuple[str, ...] = ()
    """What the application may `Request`."""
    label: Callable[[Buffer], str] = no_label
    """A sealed packet in a few words, as `nak 5.2-5.4`, for those who look at a trace. Never
    raises: bytes that are no packet have no words."""
    assign_roles: Callable[[int, int, Mapping[str, int]], Mapping[str, int]] = same_options
    """The options of the n-th process (from 0) of a group that is started as a whole, given how
    many it has and the options that all share: for protocols in which a process is told its role,
    or the size of the group, beforehand."""
    quorum: Callable[[Mapping[str, int]], int] = no_quorum
    """How many members a view has at least, given a process's options: 1 where one part goes on,
    however small, and 0 where any part may."""
    advice: Callable[[Mapping[str, int]], str] = no_advice
    """What to do, in a sentence, when a process with these options was let in by nobody."""
    may_continue: Callable[[Sequence[ProcessRole], bool], bool] = any_part
    """Whether a part of a group, given its processes, is to go on when it can reach nobody else for
    good; and whether some may have come back without what they knew."""
    arrows: tuple[str, ...] = ()
    """The arrows of its figures, as `walked()` names them: simulated faults are aimed at them."""
    swarm: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """What a simulated run with faults draws of the options, where its plan does not set them."""
    chaos: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    """The same, for runs of chaos alone; None leaves the option as it is."""
    presets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Options that go together, by name: for a kind of network, or those of the paper."""
