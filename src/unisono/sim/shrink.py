"""Shrinking: a failing run reduced to a small one that still breaks the same law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from unisono.errors import Misuse
from unisono.sim.plan import (
    CALM,
    SECOND_US,
    FaultEvent,
    LinkPlan,
    Plan,
    Router,
    Weather,
    service_name,
)
from unisono.sim.run import Outcome, checked_spec, run
from unisono.sim.swarm import drawn
from unisono.spec import ProcessRole

ATTEMPTS_MAX: Final = 300
"""Runs that one shrinking may cost."""

STILL: Final = replace(CALM, delay="constant", spread_us=0)
"""The calmest link of all."""

Steps: TypeAlias = Iterator[tuple[str, Plan]]
"""Plans one step smaller, the boldest step first, each with what was done."""

_LINK_RATES: Final = (
    "loss_ppm",
    "burst_ppm",
    "duplicate_ppm",
    "reorder_ppm",
    "corrupt_ppm",
    "hold_ppm",
    "bytes_per_s",
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
    report: Callable[[str], None] | None = None,
) -> Plan:
    """The smallest plan found that breaks the same law."""
    return shrunk(plan, attempts_max, report).plan


def shrunk(
    plan: Plan,
    attempts_max: int = ATTEMPTS_MAX,
    report: Callable[[str], None] | None = None,
) -> Shrunk:
    """Try ever smaller plans, keep each that still fails, and stop when none does."""
    line = plan.replay
    plan = replace(drawn(plan), trace=None, sink=None, detail=False)
    outcome = run(plan)
    law = outcome.broken[0] if outcome.broken else ""
    if not law:
        raise Misuse(f"nothing to shrink: {line} breaks no law")
    attempts, smaller = 0, True
    while smaller and attempts < attempts_max:
        smaller = False
        for reduction in REDUCTIONS:
            candidates = reduction(plan)
            # After each success the same kind of step goes on from there: bold steps of one kind
            # come before timid ones of another.
            while attempts < attempts_max and (step := next(candidates, None)) is not None:
                what, candidate = step
                attempts += 1
                tried = run(candidate)
                if law in tried.broken:
                    plan, outcome, smaller = candidate, tried, True
                    candidates = reduction(plan)
                    if report is not None:
                        report(f"{what}: still breaks {law}")
    return Shrunk(plan, law, outcome, attempts)


def _weather(plan: Plan) -> Weather:
    assert plan.weather is not None, "shrinking begins by drawing the weather"
    return plan.weather


def _fewer_nodes(plan: Plan) -> Steps:
    spec, fewer = checked_spec(plan), plan.nodes - 1
    if fewer < 1 or not spec.may_continue(
        [ProcessRole(spec.assign_roles(index, fewer, plan.options)) for index in range(fewer)],
        False,
    ):
        return  # So few never are a group.
    for gone in range(fewer, -1, -1):
        smaller = _without_node(_weather(plan), gone)
        yield f"{fewer} nodes", replace(plan, nodes=fewer, weather=smaller)


def _fewer_messages(plan: Plan) -> Steps:
    tried, now = set[int](), 0 if plan.program else plan.messages
    for fewer in (0, now // 8, now // 2, now * 3 // 4, now - 1):
        if 0 <= fewer < now and fewer not in tried:
            tried.add(fewer)
            yield f"{fewer} messages", replace(plan, messages=fewer)


def _fewer_events(plan: Plan) -> Steps:
    schedule = plan.schedule
    size = len(schedule)
    while size:
        for start in range(0, len(schedule), size):
            kept = schedule[:start] + schedule[start + size :]
            weather = replace(_weather(plan), schedule=kept)
            yield f"{len(kept)} fault events", replace(plan, weather=weather)
        size //= 2


def _fewer_routers(plan: Plan) -> Steps:
    weather, routers = _weather(plan), _weather(plan).routers
    smaller: list[tuple[str, tuple[Router, ...]]] = []
    if len(routers) > 1:
        smaller.append(("no routers", ()))
    for at, router in enumerate(routers):
        before, after = routers[:at], routers[at + 1 :]
        smaller.append((f"{len(routers) - 1} routers", (*before, *after)))
        for what, calmer in _calmer(router.link):
            text = f"{what} at a router"
            smaller.append((text, (*before, replace(router, link=calmer), *after)))
    for what, some in smaller:
        yield what, replace(plan, weather=replace(weather, routers=some))


def _calmer_links(plan: Plan) -> Steps:
    weather = _weather(plan)
    if weather.links:
        yield "uniform links", replace(plan, weather=replace(weather, links=()))
    for what, calmer in _calmer(weather.link):
        yield what, replace(plan, weather=replace(weather, link=calmer))


def _calmer(link: LinkPlan) -> Iterator[tuple[str, LinkPlan]]:
    """Each step is closer to `STILL`, so that they cannot go round in a circle."""
    if link != STILL:
        yield "still links", STILL
    if link not in (STILL, CALM):
        yield "calm links", CALM
        for rate in _LINK_RATES:
            if getattr(link, rate):
                none: dict[str, Any] = {rate: 0}
                yield f"no {rate}", replace(link, **none)
        if link.delay != "constant":
            yield "constant delay", replace(link, delay="constant", spread_us=0)


def _plainer(plan: Plan) -> Steps:
    weather = _weather(plan)
    plainer: list[tuple[str, Weather]] = []
    if weather.clocks:
        plainer.append(("true clocks", replace(weather, clocks=())))
    if any(weather.starts_us):
        plainer.append(("all start at once", replace(weather, starts_us=())))
    if weather.with_state:
        plainer.append(("no state", replace(weather, with_state=False)))
    if weather.large_ppm:
        plainer.append(("no large messages", replace(weather, large_ppm=0)))
    if weather.burst_max > 1:
        plainer.append(("single messages", replace(weather, burst_max=1)))
    if not all(weather.durable):
        plainer.append(("all durable", replace(weather, durable=())))
    if weather.parts:
        plainer.append(("all heals", replace(weather, parts=())))
    for service in weather.services if len(weather.services) > 1 else ():
        fewer = tuple(each for each in weather.services if each != service)
        plainer.append((f"no {service_name(service)}", replace(weather, services=fewer)))
    if weather.loopback:
        plainer.append(("no loopback", replace(weather, loopback=False)))
    for what, candidate in plainer:
        yield what, replace(plan, weather=candidate)


def _shorter(plan: Plan) -> Steps:
    weather, schedule = _weather(plan), plan.schedule
    if weather.fault_us > SECOND_US // 4:
        half = replace(weather, fault_us=weather.fault_us // 2)
        yield "half the time", replace(plan, weather=half)
    for at, event in enumerate(schedule):
        if event.for_us > 20_000:
            shorter = replace(event, for_us=event.for_us // 2)
            yield "a shorter fault", _with_event(plan, at, shorter)
        for changed in _plainer_aims(event):
            yield "a plainer aim", _with_event(plan, at, changed)


def _plainer_aims(event: FaultEvent) -> Iterator[FaultEvent]:
    """At one node, at an earlier of the points, at that time instead."""
    if event.aimed:
        if event.kind != "torn":
            yield replace(event, at_view=0, at_arrow="", at_effect="", nth=1, done=0)
        if len(event.nodes) > 1:
            yield from (replace(event, nodes=(node,)) for node in event.nodes)
        for name in ("nth", "at_view", "done"):
            value: int = getattr(event, name)
            if value > 1:
                less: dict[str, Any] = {name: value // 2}
                yield replace(event, **less)


def _with_event(plan: Plan, at: int, event: FaultEvent) -> Plan:
    schedule = plan.schedule
    changed = (*schedule[:at], event, *schedule[at + 1 :])
    return replace(plan, weather=replace(_weather(plan), schedule=changed))


def _without_node(weather: Weather, gone: int) -> Weather:
    """The weather of the others, renumbered without a gap."""

    def moved(indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(each - (each > gone) for each in indices if each != gone)

    schedule = []
    for event in weather.schedule:
        here, there = moved(event.nodes), moved(event.to)
        if here and (there or not event.to):
            schedule.append(replace(event, nodes=here, to=there))
    links: list[tuple[int, int, LinkPlan]] = []
    for source, target, link in weather.links:
        if gone not in (source, target):
            links.append((source - (source > gone), target - (target > gone), link))
    routers = (Router(moved(router.behind), router.link) for router in weather.routers)
    return replace(
        weather,
        schedule=tuple(schedule),
        links=tuple(links),
        routers=tuple(router for router in routers if router.behind),
        clocks=weather.clocks[:gone] + weather.clocks[gone + 1 :],
        starts_us=weather.starts_us[:gone] + weather.starts_us[gone + 1 :],
        durable=weather.durable[:gone] + weather.durable[gone + 1 :],
        parts=tuple(filter(None, map(moved, weather.parts))),
    )


REDUCTIONS: Final[tuple[Callable[[Plan], Steps], ...]] = (
    _fewer_nodes,
    _fewer_messages,
    _fewer_events,
    _fewer_routers,
    _calmer_links,
    _plainer,
    _shorter,
)
