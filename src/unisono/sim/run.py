"""One simulated run: a plan in, an outcome out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from unisono.errors import Misuse, check_option_names
from unisono.model import Resilient, ServiceLevel
from unisono.sim.applications import APPLICATION, judged
from unisono.sim.checking import check_plan
from unisono.sim.plan import Plan, service_name
from unisono.sim.programs import PROGRAM_LAWS, PROGRAM_PROGRESS_US, weather_of_programs
from unisono.sim.swarm import drawn
from unisono.sim.world import World
from unisono.spec import ProtocolSpec
from unisono.trace.history import History

if TYPE_CHECKING:
    from unisono.laws import Violation

WORLD_LAWS: Final = {
    "no_crash": "a core never raises",
    "no_livelock": "a group never works without end on the spot",
    "packet_size": "no packet is larger than the path carries",
    "one_name": "no view has two members of one name",
    "place": "a message is delivered in the view that it says",
    "received_by_all": "what is delivered as safe is held by every member of the view",
    "state": "an adopted state ends where the joiner's cut says, in the same order for all",
}
"""Laws that the world judges itself, since no row of the trace shows them."""

MEMBERS: Final = "members_count_max"
"""The option that limits the members of a protocol."""

YOUNG_MAX: Final = 50_000
"""Objects between two garbage collections of a run. Almost nothing of one is cyclic before its end;
Python's 700 would traverse the rows of the trace again and again, a tenth of the time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run."""

    protocol: str
    seed: int
    nodes: int
    faults: str
    laws: Mapping[str, str]
    """Each law: `kept`, `broken` or `not claimed`."""
    violations: tuple[Violation, ...]
    sent: int
    delivered: int
    steps: int
    virtual_s: float
    wall_s: float
    replay: str
    """The command that runs this again."""
    options: Mapping[str, int] = field(default_factory=dict)
    """The protocol's options, as set and drawn."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Events of the network and the nodes, by name."""
    history: History | None = None

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(sorted(law for law, how in self.laws.items() if how == "broken"))

    @property
    def rate(self) -> float:
        """Simulated seconds per wall second."""
        return self.virtual_s / self.wall_s if self.wall_s > 0 else 0.0


def run(plan: Plan, clock: Callable[[], float] | None = None) -> Outcome:
    """Run the plan. `clock` only measures how long it took; without it, `wall_s` is 0."""
    check_plan(plan)
    with _rare_collections(), plan.program.surroundings() if plan.program else nullcontext():
        return _run(plan, checked_spec(plan), clock)


@contextmanager
def _rare_collections() -> Iterator[None]:
    usual = gc.get_threshold()
    gc.set_threshold(max(usual[0], YOUNG_MAX) if usual[0] else 0, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _run(plan: Plan, spec: ProtocolSpec, clock: Callable[[], float] | None) -> Outcome:
    started = clock() if clock else 0.0
    full = drawn(plan)
    if full.program is not None:
        assert full.weather is not None
        full = replace(
            full,
            weather=weather_of_programs(full.weather),
            progress_us=max(full.progress_us, PROGRAM_PROGRESS_US),
        )
    assert full.weather is not None
    world = World(full, full.weather, spec, services_for(full, spec))
    world.run()
    history = History(plan.run_name, spec.name, world.group, tuple(world.rows))
    laws, violations = verdict_on(world, history)
    return Outcome(
        protocol=spec.name,
        seed=plan.seed,
        nodes=plan.nodes,
        faults=plan.faults,
        laws=laws,
        violations=violations,
        sent=world.sent,
        delivered=world.delivered,
        steps=world.steps,
        virtual_s=world.now_us / 1e6,
        wall_s=(clock() - started) if clock else 0.0,
        replay=plan.replay,
        options=dict(sorted(full.options.items())),
        counts=dict(sorted((world.counts + world.network.totals()).items())),
        history=history,
    )


def verdict_on(world: World, history: History) -> tuple[dict[str, str], tuple[Violation, ...]]:
    """The laws' verdict on the trace, together with the violations that the world itself saw."""
    from unisono.laws import Verdict, Violation, judge

    found = [*world.found, *judged(world)]
    of_its_own = (
        *(PROGRAM_LAWS if world.programs else ()),
        *((APPLICATION,) if world.plan.application else ()),
    )
    if any(each.law in PROGRAM_LAWS for each in found):
        # The run ended there: the trace is cut short.
        verdict = Verdict(dict.fromkeys(world.spec.laws, "not yet"), [])
    else:
        verdict = judge(history, world.spec.laws)
    laws = dict(verdict.laws) | dict.fromkeys((*WORLD_LAWS, *of_its_own), "kept")
    for each in found:
        laws[each.law] = "broken"
    seen = (Violation(each.law, history.run, each.process, "", "", each.text) for each in found)
    return laws, (*seen, *verdict.violations)


def checked_spec(plan: Plan) -> ProtocolSpec:
    """The protocol of a plan: the one it brings, or the catalogue's of that name. It must know
    the plan's options, and take that many nodes."""
    if plan.spec is None:
        from unisono.protocols import spec

        found = spec(plan.protocol)
    else:
        found = plan.spec
    if plan.clusters or (plan.weather is not None and plan.weather.clusters):
        found = clustered_spec(found)
    check_option_names(found.name, plan.options, found.options)
    limit = plan.options.get(MEMBERS, found.options.get(MEMBERS))
    if limit is not None and plan.nodes > limit:
        raise Misuse(
            f"nodes must be at most {limit}, the {MEMBERS} of {found.name}, not {plan.nodes}: ask"
            f" for fewer, or raise it with --option {MEMBERS}=N"
        )
    return found


def clustered_spec(spec: ProtocolSpec) -> ProtocolSpec:
    """The protocol for a group that spans clusters."""
    if spec.clustered is None:
        raise Misuse(f"{spec.name} does not span clusters: leave out clusters, or choose another")
    return spec.clustered


def services_for(plan: Plan, spec: ProtocolSpec) -> tuple[ServiceLevel, ...]:
    """The service levels of messages: the plan's, its weather's, or the strongest on offer."""
    weather = plan.weather.services if plan.weather is not None else ()
    services = weather if plan.service is None else (plan.service,)
    for service in services:
        if not (spec.resilient if isinstance(service, Resilient) else service in spec.services):
            levels = ", ".join(map(service_name, spec.services))
            its_name = service_name(service)
            raise Misuse(f"{spec.name} does not offer {its_name}; it offers: {levels}")
    return services or (max(spec.services),)


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """The object that `unisono sim --json` prints."""
    return {
        "protocol": outcome.protocol,
        "seed": outcome.seed,
        "nodes": outcome.nodes,
        "faults": outcome.faults,
        "options": dict(outcome.options),
        "laws": dict(outcome.laws),
        "violations": [each._asdict() for each in outcome.violations],
        "sent": outcome.sent,
        "delivered": outcome.delivered,
        "steps": outcome.steps,
        "virtual_s": outcome.virtual_s,
        "wall_s": outcome.wall_s,
        "rate": outcome.rate,
        "replay": outcome.replay,
    }
