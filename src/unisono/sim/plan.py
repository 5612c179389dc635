"""The plan: all that decides a simulated run. The same plan is the same run, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

from unisono.core import Offer
from unisono.errors import Misuse
from unisono.model import Member, Resilient, Service, ServiceLevel, level_named
from unisono.sim.acting import Play
from unisono.trace.record import Sink

SECOND_US: Final = 1_000_000
NODES_MAX: Final = 64
MESSAGES_MAX: Final = 1_000_000
DELAYS: Final = ("constant", "uniform", "exponential", "lognormal")
PROFILES: Final = ("none", "loss", "crash", "partition", "chaos")

KINDS: Final = {
    "crash": "dies and comes back as a new incarnation; its stable storage survives",
    "amnesia": "dies and comes back as a new incarnation; its stable storage is lost",
    "pause": "stops for a while and comes back believing nothing happened",
    "leave": "leaves cleanly, and joins again later as a new incarnation",
    "slow": "its application stops reading for a while",
    "block": "packets from `nodes` to `to` are lost; the other direction works",
    "split": "packets between `nodes` and `to` are lost, both ways",
}
"""Every kind of scheduled fault, with what it means."""

SinkMaker: TypeAlias = Callable[[Member], Sink]


def dice(seed: int, *words: object) -> Random:
    """Dice of their own for each purpose, so that editing one fault leaves the others as drawn."""
    return Random("/".join(map(str, (seed, *words))))


@dataclass(frozen=True, slots=True)
class Link:
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
    corrupt_ppm: int = 0
    """One to eight bits flipped, or the packet cut short, or made longer."""
    octets_per_s: int = 0
    """Bandwidth; 0 is without limit."""
    queue_octets: int = 65_536
    """What may wait for the bandwidth; packets beyond it are dropped and counted."""


CALM: Final = Link()


@dataclass(frozen=True, slots=True)
class Router:
    """A link that all nodes behind it share, on the way in and, with a queue of its own, on the
    way out. A burst for several of them crosses it once; then each one's own link follows."""

    behind: tuple[int, ...]
    link: Link = CALM


@dataclass(frozen=True, slots=True)
class FaultEvent:
    """One fault at one time: what, when, for how long, to whom."""

    kind: str
    at_us: int
    for_us: int
    nodes: tuple[int, ...]
    to: tuple[int, ...] = ()
    """The other side of a `block` or `split`."""

    def __str__(self) -> str:
        other = f" / {list(self.to)}" if self.to else ""
        return f"{self.at_us / 1e6:.3f}s {self.kind} {list(self.nodes)}{other}" + (
            f" for {self.for_us / 1e6:.3f}s"
        )


@dataclass(frozen=True, slots=True)
class Clock:
    """How a node's clock stands to the world's: fast (or slow) by `ppm`, ahead by `offset_us`."""

    ppm: int = 0
    offset_us: int = 0

    def local(self, world_us: int) -> int:
        return world_us + self.offset_us + world_us * self.ppm // 1_000_000

    def world(self, local_us: int) -> int:
        """The first world time at which the clock shows at least this."""
        return -(-(local_us - self.offset_us) * 1_000_000 // (1_000_000 + self.ppm))


TRUE: Final = Clock()


@dataclass(frozen=True, slots=True)
class Weather:
    """All that the seed and the profile decide, made explicit so that it can be edited."""

    fault_us: int = 3 * SECOND_US
    """How long the faults last; then all heals."""
    link: Link = CALM
    links: tuple[tuple[int, int, Link], ...] = ()
    """Directed pairs that behave unlike the rest."""
    schedule: tuple[FaultEvent, ...] = ()
    clocks: tuple[Clock, ...] = ()
    """By node; who is not named has a true clock."""
    starts_us: tuple[int, ...] = ()
    """When each node first joins; who is not named joins at once."""
    packet_octets_max: int = 1400
    window_octets_max: int = 1 << 18
    burst_max: int = 4
    """The application multicasts one to this many messages at a time."""
    large_ppm: int = 50_000
    """How often a message is large: up to `large_packets` packets."""
    large_packets: int = 5
    with_state: bool = True
    loopback: bool = False
    """Whether a node hears its own multicast packets."""
    routers: tuple[Router, ...] = ()
    """A node is behind one of them, or behind none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run: who, how many, which seed, which faults."""

    protocol: str
    nodes: int = 5
    seed: int = 1
    faults: str = "chaos"
    messages: int = 200
    service: ServiceLevel | None = None
    """What the messages ask for; the strongest that the protocol offers unless given."""
    options: Mapping[str, int] = field(default_factory=dict)
    progress_us: int = 30 * SECOND_US
    """After healing, everyone must be together and have delivered the probes within this."""
    steps_per_s_max: int = 20_000
    """More events than this, per node and virtual second, is a livelock."""
    weather: Weather | None = None
    """Drawn from the seed and the profile unless given."""
    offer: Offer | None = None
    """The protocol itself, where it is not in the catalogue."""
    trace: str | Path | None = None
    """The directory that gets the trace files."""
    sink: SinkMaker | None = None
    """Gets the rows of each life as well."""
    detail: bool = False
    """Trace protocol work too."""
    application: Play | None = None
    """What the nodes do instead of the usual talk. Brought from Python: no plan file names it."""

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
        line = (
            f"unisono sim --protocol {self.protocol} --nodes {self.nodes} --seed {self.seed} "
            f"--faults {self.faults} --messages {self.messages}"
        )
        if self.service is not None:
            line += f" --service {service_name(self.service)}"
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


def check_plan(plan: Plan) -> None:
    """Refuse a plan that cannot be run, with a line that says what to write instead."""
    if not 1 <= plan.nodes <= NODES_MAX:
        raise Misuse(f"nodes must be 1 to {NODES_MAX}, not {plan.nodes}")
    if plan.faults not in PROFILES:
        raise Misuse(f"unknown faults {plan.faults!r}: write one of {', '.join(PROFILES)}")
    if not 0 <= plan.messages <= MESSAGES_MAX:
        raise Misuse(f"messages must be 0 to {MESSAGES_MAX}, not {plan.messages}")
    if plan.seed < 0:
        raise Misuse(f"seed must not be negative, not {plan.seed}")
    if plan.progress_us <= 0 or plan.steps_per_s_max <= 0:
        raise Misuse("progress_us and steps_per_s_max must be above 0")
    if plan.weather is not None:
        _check_weather(plan.weather, plan.nodes)


def _check_weather(weather: Weather, nodes: int) -> None:
    if not 0 <= weather.fault_us <= 3600 * SECOND_US:
        raise Misuse("weather: fault_us must be 0 to an hour")
    for name in ("packet_octets_max", "window_octets_max", "burst_max", "large_packets"):
        if getattr(weather, name) <= 0:
            raise Misuse(f"weather: {name} must be above 0")
    for link in (
        weather.link,
        *(each for _, _, each in weather.links),
        *(router.link for router in weather.routers),
    ):
        check_link(link)
    _check_routers(weather.routers, nodes)
    for source, target, _ in weather.links:
        _check_nodes("links", (source, target), nodes)
    for clock in weather.clocks:
        if abs(clock.ppm) >= 1_000_000:
            raise Misuse(f"clock: ppm must be within a million, not {clock.ppm}")
    if any(start < 0 for start in weather.starts_us):
        raise Misuse("weather: starts_us must not be negative")
    for event in weather.schedule:
        if event.kind not in KINDS:
            raise Misuse(f"unknown fault {event.kind!r}: write one of {', '.join(KINDS)}")
        if event.at_us < 0 or event.for_us < 0:
            raise Misuse(f"fault {event.kind!r}: at_us and for_us must not be negative")
        if event.kind in ("block", "split") and not event.to:
            raise Misuse(f"fault {event.kind!r}: name the other side in `to`")
        _check_nodes(f"fault {event.kind!r}", (*event.nodes, *event.to), nodes)


def _check_routers(routers: tuple[Router, ...], nodes: int) -> None:
    seen: set[int] = set()
    for router in routers:
        if not router.behind:
            raise Misuse("router: name the nodes behind it in `behind`")
        _check_nodes("router", router.behind, nodes)
        for node in router.behind:
            if node in seen:
                raise Misuse(f"router: node {node} is named twice; it can be behind one router")
            seen.add(node)


def _check_nodes(where: str, indices: tuple[int, ...], nodes: int) -> None:
    for index in indices:
        if not 0 <= index < nodes:
            raise Misuse(f"{where}: node {index} is not one of 0 to {nodes - 1}")


def check_link(link: Link) -> None:
    if link.delay not in DELAYS:
        raise Misuse(f"unknown delay {link.delay!r}: write one of {', '.join(DELAYS)}")
    for name in Link.__dataclass_fields__:
        value = getattr(link, name)
        if name != "delay" and value < 0:
            raise Misuse(f"link: {name} must not be negative, not {value}")
        if name.endswith("_ppm") and value > 1_000_000:
            raise Misuse(f"link: {name} must be at most 1000000, not {value}")
