"""One simulated run: a plan in, an outcome out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from unisono.core import Offer
from unisono.errors import Misuse
from unisono.model import Resilient, ServiceLevel
from unisono.sim.acting import APPLICATION, judged
from unisono.sim.plan import Plan, check_plan, service_name
from unisono.sim.swarm import drawn
from unisono.sim.world import Found, World
from unisono.trace.history import History

if TYPE_CHECKING:
    from unisono.laws import Violation

WORLD_LAWS: Final = {
    "no_crash": "a core never raises",
    "no_livelock": "a group never works without end on the spot",
    "packet_size": "no packet is larger than the path carries",
    "place": "a message is delivered in the view that it says",
    "quorum": "no part of a group goes on that is smaller than its protocol promises",
    "state": "an adopted state ends where the joiner's cut says, in the same order for all",
}
"""Laws that the world judges itself, since no row of the trace shows them."""

MEMBERS: Final = "members_count_max"
"""The option by which a protocol says how many members it takes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run."""

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
    """The line that runs this again."""
    options: Mapping[str, int] = field(default_factory=dict)
    """The protocol's, as they were set and drawn."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the network and the nodes went through, by name."""
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
    offer = offered(plan)
    started = clock() if clock else 0.0
    full = drawn(plan)
    assert full.weather is not None
    world = World(full, full.weather, offer, service_for(plan, offer))
    world.run()
    history = History(plan.run_name, offer.name, world.group, tuple(world.rows))
    laws, violations = verdict_on(world, history)
    return Outcome(
        protocol=offer.name,
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
    """The laws' judgement of the trace, together with what the world itself saw break."""
    from unisono.laws import Violation, judge

    claimed = world.offer.laws
    verdict = judge(history, claimed)
    found = [*world.found, *judged(world)]
    if "progress" in claimed and not found and not world.progressed:
        found.append(Found("progress", _why_stuck(world), "", world.now_us))
    laws = dict(verdict.laws)
    for law in (*WORLD_LAWS, *((APPLICATION,) if world.plan.application else ())):
        laws[law] = "kept"
    for each in found:
        laws[each.law] = "broken"
    seen = (Violation(each.law, history.run, each.life, "", "", each.text) for each in found)
    return laws, (*seen, *verdict.violations)


def _why_stuck(world: World) -> str:
    """Who stood where when the bound had passed."""
    bound_s = world.plan.progress_us / 1e6
    if world.settled:
        return f"not all delivered all probes within {bound_s:g} s of healing"
    stood = []
    for node in world.nodes:
        life = node.life
        if life is None:
            stood.append(f"{node.name} is away")
        elif life.view is None:
            stood.append(f"{life.me} has no view")
        else:
            members = " ".join(map(str, sorted(life.view.members)))
            stood.append(f"{life.me} sees {{{members}}}")
    return f"not together within {bound_s:g} s of healing: {', '.join(stood)}"


def offered(plan: Plan) -> Offer:
    """The protocol of a plan: the one it brings, or the catalogue's of that name. It must know
    the plan's options, and take that many nodes."""
    if plan.offer is None:
        from unisono.protocols import offer

        found = offer(plan.protocol)
    else:
        found = plan.offer
    for name in plan.options:
        if name not in found.options:
            known = ", ".join(sorted(found.options)) or "none"
            raise Misuse(f"{found.name} has no option {name!r}; it has: {known}")
    limit = plan.options.get(MEMBERS, found.options.get(MEMBERS))
    if limit is not None and plan.nodes > limit:
        raise Misuse(
            f"nodes must be at most {limit}, the {MEMBERS} of {found.name}, not {plan.nodes}: ask"
            f" for fewer, or raise it with --option {MEMBERS}=N"
        )
    return found


def service_for(plan: Plan, offer: Offer) -> ServiceLevel:
    """What the messages ask for: as the plan says, or the strongest on offer."""
    service = plan.service
    if service is None:
        return max(offer.services)
    if offer.resilient if isinstance(service, Resilient) else service in offer.services:
        return service
    levels = ", ".join(map(service_name, offer.services))
    raise Misuse(f"{offer.name} does not offer {service_name(service)}; it offers: {levels}")


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
