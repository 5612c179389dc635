"""Shrinking: a failing run reduced to a small one that still breaks the same law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from unisono.errors import Misuse
from unisono.sim.plan import CALM, SECOND_US, FaultEvent, Link, Plan, Weather
from unisono.sim.run import Outcome, run
from unisono.sim.swarm import drawn

ATTEMPTS_MAX: Final = 300
"""Runs that one shrinking may cost."""

_RATES: Final = (
    "loss_ppm",
    "burst_ppm",
    "duplicate_ppm",
    "reorder_ppm",
    "corrupt_ppm",
    "octets_per_s",
)


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The small case, what it breaks, and what finding it cost."""

    plan: Plan
    law: str
    outcome: Outcome
    attempts: int


def shrink(
    plan: Plan,
    attempts_max: int = ATTEMPTS_MAX,
    tell: Callable[[str], None] | None = None,
) -> Plan:
    """The smallest plan found that breaks the same law."""
    return shrunk(plan, attempts_max, tell).plan


def shrunk(
    plan: Plan,
    attempts_max: int = ATTEMPTS_MAX,
    tell: Callable[[str], None] | None = None,
) -> Shrunk:
    """Try ever smaller plans, keep each that still fails, and stop when none does."""
    plan = replace(drawn(plan), trace=None, sink=None, detail=False)
    outcome = run(plan)
    law = outcome.broken[0] if outcome.broken else ""
    if not law:
        raise Misuse(f"nothing to shrink: {outcome.replay} breaks no law")
    attempts, smaller = 0, True
    while smaller and attempts < attempts_max:
        smaller = False
        for what, candidate in reductions(plan):
            if attempts >= attempts_max:
                break
            attempts += 1
            tried = run(candidate)
            if law in tried.broken:
                plan, outcome, smaller = candidate, tried, True
                if tell is not None:
                    tell(f"{what}: still breaks {law}")
                break
    return Shrunk(plan, law, outcome, attempts)


def reductions(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Every plan one step smaller, the boldest steps first."""
    weather = plan.weather
    assert weather is not None
    yield from _fewer_nodes(plan, weather)
    yield from _fewer_messages(plan)
    for what, calmer in _calmer(weather):
        yield what, replace(plan, weather=calmer)


def _fewer_nodes(plan: Plan, weather: Weather) -> Iterator[tuple[str, Plan]]:
    for gone in range(plan.nodes - 1, -1, -1):
        if plan.nodes > 1:
            smaller = _without_node(weather, gone, plan.nodes)
            yield f"{plan.nodes - 1} nodes", replace(plan, nodes=plan.nodes - 1, weather=smaller)


def _fewer_messages(plan: Plan) -> Iterator[tuple[str, Plan]]:
    tried = set[int]()
    for fewer in (0, plan.messages // 8, plan.messages // 2, plan.messages - 1):
        if 0 <= fewer < plan.messages and fewer not in tried:
            tried.add(fewer)
            yield f"{fewer} messages", replace(plan, messages=fewer)


def _calmer(weather: Weather) -> Iterator[tuple[str, Weather]]:
    schedule = weather.schedule
    size = len(schedule)
    while size:
        for start in range(0, len(schedule), size):
            kept = schedule[:start] + schedule[start + size :]
            yield f"{len(kept)} fault events", replace(weather, schedule=kept)
        size //= 2
    if weather.links:
        yield "all links alike", replace(weather, links=())
    if weather.link != CALM:
        yield "calm links", replace(weather, link=CALM)
    for rate in _RATES:
        if getattr(weather.link, rate):
            none: dict[str, Any] = {rate: 0}
            yield f"no {rate}", replace(weather, link=replace(weather.link, **none))
    if weather.link.delay != "constant":
        plain = replace(weather.link, delay="constant", spread_us=0)
        yield "constant delay", replace(weather, link=plain)
    yield from _plainer(weather)
    if weather.fault_us > SECOND_US // 4:
        half = weather.fault_us // 2
        yield "half the time", replace(weather, fault_us=half)
    for at, event in enumerate(schedule):
        if event.for_us > 20_000:
            shorter = replace(event, for_us=event.for_us // 2)
            yield (
                "a shorter fault",
                replace(weather, schedule=(*schedule[:at], shorter, *schedule[at + 1 :])),
            )


def _plainer(weather: Weather) -> Iterator[tuple[str, Weather]]:
    if weather.clocks:
        yield "true clocks", replace(weather, clocks=())
    if any(weather.starts_us):
        yield "all start at once", replace(weather, starts_us=())
    if weather.with_state:
        yield "no state", replace(weather, with_state=False)
    if weather.large_ppm:
        yield "no large messages", replace(weather, large_ppm=0)
    if weather.burst_max > 1:
        yield "single messages", replace(weather, burst_max=1)
    if weather.loopback:
        yield "no loopback", replace(weather, loopback=False)


def _without_node(weather: Weather, gone: int, nodes: int) -> Weather:
    """The weather of the others, each moved up into the place of the one before."""

    def moved(indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(each - (each > gone) for each in indices if each != gone)

    schedule = []
    for event in weather.schedule:
        here, there = moved(event.nodes), moved(event.to)
        if here and (there or not event.to):
            schedule.append(FaultEvent(event.kind, event.at_us, event.for_us, here, there))
    links: list[tuple[int, int, Link]] = []
    for source, target, link in weather.links:
        if gone not in (source, target):
            links.append((source - (source > gone), target - (target > gone), link))
    return replace(
        weather,
        schedule=tuple(schedule),
        links=tuple(links),
        clocks=weather.clocks[:gone] + weather.clocks[gone + 1 :],
        starts_us=weather.starts_us[:gone] + weather.starts_us[gone + 1 :],
    )
