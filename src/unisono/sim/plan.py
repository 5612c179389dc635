"""The plan: all that decides a simulated run. The same plan is the same run, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

from unisono.errors import Misuse
from unisono.model import Member, Resilient, Service, ServiceLevel, level_named
from unisono.sim.applications import ApplicationSpec
from unisono.sim.programs import ProgramSpec
from unisono.spec import ProtocolSpec
from unisono.trace.record import Sink

SECOND_US: Final = 1_000_000
NODES_MAX: Final = 64
MESSAGES_MAX: Final = 1_000_000
DELAYS: Final = ("constant", "uniform", "exponential", "lognormal")
PROFILES: Final = ("none", "loss", "crash", "partition", "mild", "chaos")

KINDS: Final = {
    "crash": "dies and comes back as a new incarnation; its storage survives if it is durable",
    "amnesia": "dies and comes back as a new incarnation without its storage, no longer durable",
    "torn": "dies while a record is written: that record is lost, those before it are not",
    "setback": "dies and comes back with its clock set back: as a lower incarnation",
    "pause": "stops for a while and comes back believing nothing happened",
    "leave": "leaves cleanly, and joins again later as a new incarnation",
    "slow": "its application stops reading for a while",
    "full": "its disk takes no record for a while: a process that has to write one stops",
    "request": "its application requests `what` of the protocol",
    "drift": "its clock runs fast, or slow, by `ppm` for a while",
    "jump": "its clock jumps ahead by `for_us`",
    "stand": "its clock stands still for a while",
    "namesake": "another process, elsewhere, wants to join under its name",
    "block": "packets from `nodes` to `to` are lost; the other direction works",
    "split": "packets between `nodes` and `to` are lost, both ways",
    "isolate": "packets between each of `nodes` and all others are lost, both ways",
    "flap": "as `split`, but the links go down and up again every `every_us`",
    "rotate": "`nodes` are cut off in pairs, and in other pairs every `every_us`",
}
"""Every kind of scheduled fault, with what it means."""

AIMED: Final = ("crash", "amnesia", "torn", "setback", "pause", "isolate")
"""Kinds that may wait for a view, an arrow or an effect."""

WRITES: Final = ("Persist", "Checkpoint")
"""Effects that write to stable storage: only these can be torn."""

EFFECTS: Final = ("Send", "Arm", "Deliver", "Install", *WRITES, "Stabilize")
"""Effects at which a fault may strike: before one, or after it."""

SinkMaker: TypeAlias = Callable[[Member], Sink]


def dice(seed: int, *purpose: object) -> Random:
    """Separate dice for each purpose, so that editing one fault leaves the others as drawn."""
    return Random("/".join(map(str, (seed, *purpose))))


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """How one direction between two nodes behaves. Rates are in parts per million packets."""

    delay: str = "uniform"
    delay_us: int = 200
    """The least delay."""
    spread_us: int = 300
    """Uniform: the width. Exponential: the mean of the tail. Lognormal: its median."""
    loss_ppm: int = 0
    burst_ppm: int = 0
    """Burst loss [Gilbert-Elliott]: how often a good link turns bad."""
    burst_end_ppm: int = 100_000
    """How often a bad link turns good again."""
    burst_loss_ppm: int = 800_000
    """Loss while it is bad."""
    duplicate_ppm: int = 0
    reorder_ppm: int = 0
    reorder_us: int = 5_000
    """The most that a reordered packet is held back; all others keep their order."""
    hold_ppm: int = 0
    """How often a packet is held back for long, so that it arrives in another view."""
    hold_us: int = 1_000_000
    """The most that it is held back; the least is a tenth of this."""
    corrupt_ppm: int = 0
    """One to eight bits flipped, or the packet cut short, or made longer."""
    bytes_per_s: int = 0
    """Bandwidth; 0 is without limit."""
    queue_bytes: int = 65_536
    """What may wait for the bandwidth; packets beyond it are dropped and counted."""


CALM: Final = LinkPlan()


@dataclass(frozen=True, slots=True)
class Router:
    """A link that all nodes behind it share, on the way in and, with a separate queue, on the way
    out. A burst for several of them crosses it once; then each one's own link follows."""

    behind: tuple[int, ...]
    link: LinkPlan = CALM


@dataclass(frozen=True, slots=True)
class FaultEvent:
    """One fault: its kind, time, duration and nodes.

    With `at_view`, `at_arrow` or `at_effect` it is aimed: from `at_us` on it waits until one of
    `nodes` comes to that point, and strikes that one, there, between two effects of a step.
    """

    kind: str
    at_us: int
    for_us: int
    nodes: tuple[int, ...]
    to: tuple[int, ...] = ()
    """The other side of a `block`, `split` or `flap`."""
    every_us: int = 0
    """Of a `flap` or `rotate`: how long each state lasts."""
    ppm: int = 0
    """Of a `drift`: how much too fast the clock runs, in parts per million."""
    what: str = ""
    """Of a `request`: its name and arguments, such as `lock number=7`."""
    at_view: int = 0
    """Strike when this many views were installed, right after the last one."""
    at_arrow: str = ""
    """Strike when an arrow is taken whose name holds this text, `done` effects later: a whole name
    as in `transition_counts()`, or `--> STATE`."""
    at_effect: str = ""
    """Strike before or after an effect: `before Persist`, `after Send`."""
    nth: int = 1
    """Of an arrow or effect: at which of them."""
    done: int = 0
    """Of an arrow: how many effects of its step are performed before the fault."""

    @property
    def aimed(self) -> bool:
        return bool(self.at_view or self.at_arrow or self.at_effect)

    def __str__(self) -> str:
        other = f" / {list(self.to)}" if self.to else ""
        text = f"{self.at_us / 1e6:.3f}s {self.kind} {list(self.nodes)}{other}"
        if self.for_us:
            text += f" for {self.for_us / 1e6:.3f}s"
        if self.every_us:
            text += f" every {self.every_us / 1e6:.3f}s"
        text += f" of {self.what}" if self.what else f" of {self.ppm} ppm" if self.ppm else ""
        if self.at_view:
            text += f" at view {self.at_view}"
        if self.at_arrow or self.at_effect:
            text += f" at {self.nth}. {self.at_arrow or self.at_effect}"
        return text


@dataclass(frozen=True, slots=True)
class Clock:
    """How a node's clock stands to the world's: fast (or slow) by `ppm`, ahead by `offset_us`."""

    ppm: int = 0
    offset_us: int = 0


TRUE: Final = Clock()


@dataclass(frozen=True, slots=True)
class Weather:
    """All that the seed and the profile decide, made explicit so that it can be edited."""

    fault_us: int = 3 * SECOND_US
    """How long the faults last; then all heals."""
    link: LinkPlan = CALM
    links: tuple[tuple[int, int, LinkPlan], ...] = ()
    """Directed pairs that behave unlike the rest."""
    schedule: tuple[FaultEvent, ...] = ()
    clocks: tuple[Clock, ...] = ()
    """By node; the others have true clocks."""
    starts_us: tuple[int, ...] = ()
    """When each node first joins; the others join at once."""
    packet_bytes_max: int = 1400
    window_bytes_max: int = 1 << 18
    burst_max: int = 4
    """The application multicasts one to this many messages at a time."""
    large_ppm: int = 50_000
    """How often a message is large: up to `large_packets` packets."""
    large_packets: int = 5
    with_state: bool = True
    loopback: bool = False
    """Whether a node receives its own multicast packets."""
    routers: tuple[Router, ...] = ()
    """A node is behind one of them, or behind none."""
    services: tuple[ServiceLevel, ...] = ()
    """The service level of a burst is one of these; without any, the plan's service."""
    durable: tuple[bool, ...] = ()
    """By node: whether its records survive a crash. The others are durable."""
    clusters: tuple[tuple[int, ...], ...] = ()
    """The nodes of each cluster, if the group spans clusters: multicasts reach the own one."""
    parts: tuple[tuple[int, ...], ...] = ()
    """The run ends partitioned into these and into single nodes; without any, all heals."""

    @property
    def forgetful(self) -> bool:
        """Some may come back without their state."""
        return any(
            event.kind in ("crash", "amnesia", "torn", "setback", "leave")
            for event in self.schedule
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run: protocol, nodes, seed and faults."""

    protocol: str
    nodes: int = 5
    seed: int = 1
    faults: str = "chaos"
    messages: int = 200
    service: ServiceLevel | None = None
    """The service level of all messages; by default those of the weather, or the strongest that the
    protocol offers."""
    options: Mapping[str, int] = field(default_factory=dict)
    progress_us: int = 30 * SECOND_US
    """After healing, everyone must be together and have delivered the probes within this."""
    steps_per_s_max: int = 20_000
    """More events than this, per node and virtual second, is a livelock."""
    weather: Weather | None = None
    """Drawn from the seed and the profile unless given."""
    spec: ProtocolSpec | None = None
    """The protocol itself, where it is not in the catalogue."""
    trace: str | Path | None = None
    """The directory that gets the trace files."""
    sink: SinkMaker | None = None
    """Also gets the rows of each process."""
    detail: bool = False
    """Trace protocol work too."""
    sealed: bool = False
    """All packets are sealed with the group's key."""
    clusters: int = 0
    """The nodes are in so many clusters, with wide links between them; 0 is one network."""
    application: ApplicationSpec | None = None
    """What the nodes run instead of the usual load. Only from Python: no plan file names it."""
    program: ProgramSpec | None = None
    """What the nodes run instead: the same program as in the real world. It brings its own load."""

    @property
    def schedule(self) -> tuple[FaultEvent, ...]:
        return self.weather.schedule if self.weather else ()

    @property
    def run_name(self) -> str:
        return f"{self.protocol}-{self.faults}-{self.nodes}-{self.seed}"

    @property
    def replay(self) -> str:
        """The line that runs this again."""
        if self.application is not None:
            return (
                f"run(Plan(protocol={self.protocol!r}, nodes={self.nodes}, seed={self.seed}, "
                f"faults={self.faults!r}, messages={self.messages}, application=…))"
            )
        if self.weather is not None:
            return "unisono sim --plan FILE"
        line = f"unisono sim --protocol {self.protocol} --nodes {self.nodes} --seed {self.seed} "
        if self.program is not None:
            line += f"--app {self.program.name} --faults {self.faults}"
        else:
            line += f"--faults {self.faults} --messages {self.messages}"
        if self.service is not None:
            line += f" --service {service_name(self.service)}"
        if self.sealed:
            line += " --sealed"
        if self.clusters:
            line += f" --clusters {self.clusters}"
        return line + "".join(
            f" --option {name}={value}" for name, value in sorted(self.options.items())
        )


def node_name(index: int) -> str:
    return chr(97 + index) if index < 26 else f"n{index + 1}"


def service_name(service: ServiceLevel) -> str:
    if isinstance(service, Resilient):
        return f"resilient:{service.k}"
    return service.name.lower()


def service_of(name: str) -> ServiceLevel:
    """The level of this name: `causal`, `agreed`, `resilient:2` or, as `join` has it,
    `resilient(2)` …"""
    if (found := level_named(name)) is not None:
        return found
    if name.lower().startswith("resilient"):
        raise Misuse(f"service {name!r}: write resilient:K with K a whole number, majority or all")
    known = ", ".join(each.lower() for each in Service.__members__)
    raise Misuse(f"unknown service {name!r}: write one of {known}, resilient:K")
