"""Plans whose every run mixes all seven service levels, with locks and votes under way."""

from __future__ import annotations

from dataclasses import replace

from unisono.laws import sentence
from unisono.model import Resilient
from unisono.protocols.rmp import SPEC
from unisono.sim.chaos import EVENTS
from unisono.sim.plan import Plan, dice
from unisono.sim.run import run
from unisono.sim.swarm import drawn


def all_levels(seed: int, least: int = 3, most: int = 9, messages: int = 60) -> Plan:
    """Chaos of this seed, among `least` to `most` members."""
    nodes = dice(seed, "nodes").randint(least, most)
    plan = drawn(Plan(protocol="rmp", nodes=nodes, seed=seed, messages=messages))
    assert plan.weather is not None
    k = dice(seed, "k").randint(1, nodes)
    levels = (
        *SPEC.services,
        Resilient(k),
        Resilient(Resilient.MAJORITY),
        Resilient(Resilient.ALL),
    )
    schedule = plan.weather.schedule
    if not any(event.kind == "request" for event in schedule):
        requests = EVENTS["request"](plan, plan.weather.fault_us, SPEC, dice(seed, "requests"))
        schedule = tuple(sorted((*schedule, *requests), key=lambda event: event.at_us))
    return replace(plan, weather=replace(plan.weather, services=levels, schedule=schedule))


def broken(seed: int) -> str:
    """The first violation of a run, or nothing."""
    found = run(all_levels(seed)).violations
    return f"{seed}: {sentence(found[0])}" if found else ""
