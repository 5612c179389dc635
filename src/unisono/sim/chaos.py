"""What chaos adds to the mild faults: aimed faults, flapping links, clocks, disks, namesakes.

Each kind has its own dice and is off in most runs, so that it is also tried alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Final, TypeAlias

from unisono.model import Resilient, Service, ServiceLevel, SizeVote
from unisono.requests import AcquireLock, GroupCommand, LimitScope, ReleaseLock, VoteSize
from unisono.sim.plan import (
    AIMED,
    EFFECTS,
    SECOND_US,
    WRITES,
    FaultEvent,
    LinkPlan,
    Plan,
    Weather,
    dice,
)
from unisono.spec import ProcessRole, ProtocolSpec

REQUESTS_MAX: Final = 60
ARGUMENTS: Final[Mapping[type[GroupCommand], Mapping[str, tuple[int, ...]]]] = {
    AcquireLock: {"number": (0, 1, 255), "wait": (0, 1)},
    ReleaseLock: {"number": (0, 1, 255)},
    VoteSize: {"minimum": (1, 2, SizeVote.OPTIMISTIC, SizeVote.PESSIMISTIC)},
    LimitScope: {"hops": (1, 8, 255)},
}
"""What the arguments of requests are chosen from; requests without arguments are not listed."""
CHANCES: Final = {
    "services": 0.7,
    "durable": 0.4,
    "hold": 0.15,
    "at_effect": 0.25,
    "at_view": 0.25,
    "at_arrow": 0.25,
    "flap": 0.15,
    "rotate": 0.1,
    "isolate": 0.15,
    "handover": 0.08,
    "request": 0.2,
    "clock": 0.15,
    "setback": 0.1,
    "namesake": 0.1,
    "full": 0.1,
    "slow": 0.1,
    "parts": 0.1,
}
"""Each kind, and how often it is on."""

ALONE: Final = 0.25
"""How often two of these kinds are on and nothing else, so that nothing hides what they do. A
handover is always alone."""

AIMS: Final = tuple(kind for kind in AIMED if kind not in ("torn", "setback"))

Drawn: TypeAlias = list[FaultEvent]


def with_chaos(plan: Plan, weather: Weather, spec: ProtocolSpec | None) -> Plan:
    """The plan with the faults of chaos added."""
    on = {kind for kind, chance in CHANCES.items() if _roll(plan, kind, "on").random() < chance}
    alone = _roll(plan, "alone", "on")
    chance, few = alone.random(), alone.sample(sorted(CHANCES), 2)
    if chance < ALONE or "handover" in on:
        on = {*(few if "handover" not in on else ("handover",)), *({"services"} & on)}
        weather = replace(weather, link=LinkPlan(), links=(), schedule=(), clocks=())
    events: Drawn = []
    for kind, draw in EVENTS.items():
        if kind in on:
            events += draw(plan, weather.fault_us, spec, _roll(plan, kind, "events"))
    schedule = sorted((*weather.schedule, *events), key=_order)
    weather = replace(weather, schedule=tuple(schedule))
    if "services" in on and spec is not None:
        weather = replace(weather, services=_services(plan, spec, _roll(plan, "services", "")))
    if "durable" in on:
        roll = _roll(plan, "durable", "")
        weather = replace(weather, durable=tuple(roll.random() < 0.5 for _ in range(plan.nodes)))
    if "hold" in on:
        roll = _roll(plan, "hold", "")
        link = replace(
            weather.link,
            hold_ppm=log_uniform(roll, 50, 5_000),
            hold_us=log_uniform(roll, SECOND_US, 10_000_000),
        )
        weather = replace(weather, link=link)
    if "parts" in on and spec is not None and plan.nodes > 1:
        weather = replace(weather, parts=_parts(plan, weather, spec, _roll(plan, "parts", "")))
    return replace(plan, weather=weather)


def log_uniform(roll: Random, least: int, most: int) -> int:
    """A number drawn so that every doubling between the two is as likely as any other."""
    doublings = (most // least).bit_length()
    return min(most, int(least * (1 + roll.random())) << roll.randrange(doublings))


def _roll(plan: Plan, kind: str, what: str) -> Random:
    return dice(plan.seed, "chaos", kind, what)


def _order(event: FaultEvent) -> tuple[int, str, tuple[int, ...]]:
    return event.at_us, event.kind, event.nodes


def _services(plan: Plan, spec: ProtocolSpec, roll: Random) -> tuple[ServiceLevel, ...]:
    """Some of the levels on offer. A plan's application needs a total order, where there is one."""
    levels: list[ServiceLevel] = list(spec.services)
    if spec.resilient:
        levels += [Resilient(roll.randint(1, plan.nodes)), Resilient(Resilient.MAJORITY)]
        levels.append(Resilient(Resilient.ALL))
    if plan.application is not None:
        ordered = [each for each in spec.services if each >= Service.AGREED]
        levels = list(ordered or spec.services[-1:])
    some = roll.sample(levels, roll.randint(1, len(levels)))
    return tuple(each for each in levels if each in some)


def _parts(
    plan: Plan, weather: Weather, spec: ProtocolSpec, roll: Random
) -> tuple[tuple[int, ...], ...]:
    """Two sides, of which at least one is to go on; none if that is not found soon."""
    for _ in range(8):
        order = list(range(plan.nodes))
        roll.shuffle(order)
        border = roll.randrange(1, plan.nodes)
        parts = tuple(sorted(order[:border])), tuple(sorted(order[border:]))
        for part in parts:
            options = [spec.assign_roles(index, plan.nodes, plan.options) for index in part]
            if spec.may_continue(list(map(ProcessRole, options)), weather.forgetful):
                return parts
    return ()


# -- events -------------------------------------------------------------------------------------


def _some(nodes: int, roll: Random) -> tuple[int, ...]:
    """One of them, or any of them."""
    return tuple(range(nodes)) if roll.random() < 0.5 else (roll.randrange(nodes),)


def _for_us(fault_us: int, roll: Random) -> int:
    return log_uniform(roll, 10_000, max(fault_us // 2, 10_001))


def _at_effect(plan: Plan, fault_us: int, spec: ProtocolSpec | None, roll: Random) -> Drawn:
    events = []
    for _ in range(log_uniform(roll, 1, 8)):
        effect = roll.choice((*EFFECTS, "Checkpoint"))
        point = f"{roll.choice(('before', 'after'))} {effect}"
        kind = roll.choice(AIMS)
        if effect in WRITES and roll.random() < 0.5:
            kind, point = "torn", f"after {effect}"
        at_us, for_us = roll.randrange(fault_us), _for_us(fault_us, roll)
        nth = log_uniform(roll, 1, 32 if effect in ("Send", "Arm", "Deliver") else 3)
        nodes = _some(plan.nodes, roll)
        events.append(FaultEvent(kind, at_us, for_us, nodes, at_effect=point, nth=nth))
    return events


def _at_view(plan: Plan, fault_us: int, spec: ProtocolSpec | None, roll: Random) -> Drawn:
    events = []
    for _ in range(log_uniform(roll, 1, 4)):
        at_us, for_us = roll.randrange(fault_us) // 2, _for_us(fault_us, roll)
        kind, nodes = roll.choice(AIMS), _some(plan.nodes, roll)
        events.append(FaultEvent(kind, at_us, for_us, nodes, at_view=log_uniform(roll, 1, 8)))
    return events


def _at_arrow(plan: Plan, fault_us: int, spec: ProtocolSpec | None, roll: Random) -> Drawn:
    """Arrows, or the states they lead to; those of the change of membership are rare in a run, and
    as likely here as any other."""
    if spec is None or not spec.arrows:
        return []
    arrows = [name for name in spec.arrows if "/stay" not in name]
    states = sorted({name[name.index("-->") :] for name in arrows})
    events = []
    for _ in range(log_uniform(roll, 1, 6)):
        point = roll.choice(arrows if roll.random() < 0.7 else states)
        at_us, for_us = roll.randrange(fault_us) // 2, _for_us(fault_us, roll)
        kind, nodes, nth = roll.choice(AIMS), _some(plan.nodes, roll), log_uniform(roll, 1, 8)
        done = roll.choice((0, 0, 1, 2, 3, 1000))
        events.append(
            FaultEvent(kind, at_us, for_us, nodes, at_arrow=point, nth=nth, done=done),
        )
    return events


def _flap(plan: Plan, fault_us: int, spec: ProtocolSpec | None, roll: Random) -> Drawn:
    if plan.nodes < 2:
        return []
    events = []
    for _ in range(log_uniform(roll, 1, 3)):
        order = list(range(plan.nodes))
        roll.shuffle(order)
        border = roll.choice((1, roll.randrange(1, plan.nodes)))
        there = order[border : border + roll.randint(1, plan.nodes - border)]
        at_us = roll.randrange(fault_us)
        every_us = log_uniform(roll, 5_000, 2 * SECOND_US)
        here = tuple(sorted(order[:border]))
        events.append(
            FaultEvent("flap", at_us, fault_us, here, tuple(sorted(there)), every_us=every_us)
        )
    return events


def _rotate(plan: Plan, fault_us: int, spec: ProtocolSpec | None, roll: Random) -> Drawn:
    if plan.nodes < 3:
        return []
    everyone, every_us = tuple(range(plan.nodes)), log_uniform(roll, 20_000, 2 * SECOND_US)
    return [FaultEvent("rotate", roll.randrange(fault_us), fault_us, everyone, every_us=every_us)]


def _handover(plan: Plan, fault_us: int, spec: ProtocolSpec | None, roll: Random) -> Drawn:
    """A majority goes on without the others; then most of it dies, and the rest is cut off, as the
    others come back: those that are then together are a majority, and have to remember."""
    if plan.nodes < 3:
        return []
    order = list(range(plan.nodes))
    roll.shuffle(order)
    fewer = roll.randint(1, (plan.nodes - 1) // 2)
    kept = roll.randint(1, (plan.nodes - 1) // 2)
    away, gone_on = tuple(sorted(order[:fewer])), order[fewer:]
    remember, forget = tuple(sorted(gone_on[:kept])), tuple(sorted(gone_on[kept:]))
    first_us = roll.randrange(max(1, fault_us // 2))
    last_us = roll.randint(SECOND_US // 2, max(SECOND_US, fault_us // 4))
    then_us = first_us + last_us
    back = tuple(sorted((*away, *forget)))
    kind = roll.choice(("crash", "amnesia"))
    return [
        FaultEvent("split", first_us, last_us, away, tuple(sorted(gone_on))),
        FaultEvent(kind, then_us - 10_000, log_uniform(roll, 1_000, 100_000), forget),
        FaultEvent("split", then_us - 10_000, fault_us, remember, back),
    ]


def _request(plan: Plan, fault_us: int, spec: ProtocolSpec | None, roll: Random) -> Drawn:
    if spec is None or not spec.requests:
        return []
    # Locks and votes only meet where there are many.
    most = REQUESTS_MAX if any(kind in ARGUMENTS for kind in spec.requests) else 3
    return [
        FaultEvent(
            "request",
            roll.randrange(fault_us),
            0,
            _some(plan.nodes, roll),
            what=str(_command(roll.choice(spec.requests), roll)),
        )
        for _ in range(log_uniform(roll, 1, most))
    ]


def _command(kind: type[GroupCommand], roll: Random) -> GroupCommand:
    return kind(**{name: roll.choice(values) for name, values in ARGUMENTS.get(kind, {}).items()})


def _clock(plan: Plan, fault_us: int, spec: ProtocolSpec | None, roll: Random) -> Drawn:
    events = []
    for _ in range(log_uniform(roll, 1, 4)):
        kind = roll.choice(("drift", "jump", "stand"))
        ppm = roll.choice((-1, 1)) * log_uniform(roll, 20_000, 500_000) if kind == "drift" else 0
        at_us, for_us = roll.randrange(fault_us), _for_us(fault_us, roll)
        events.append(FaultEvent(kind, at_us, for_us, _some(plan.nodes, roll), ppm=ppm))
    return events


def _one_each(
    kind: str, most: int = 3
) -> Callable[[Plan, int, ProtocolSpec | None, Random], Drawn]:
    def draw(plan: Plan, fault_us: int, spec: ProtocolSpec | None, roll: Random) -> Drawn:
        return [
            FaultEvent(
                kind,
                roll.randrange(fault_us),
                _for_us(fault_us, roll),
                (roll.randrange(plan.nodes),),
            )
            for _ in range(log_uniform(roll, 1, most))
        ]

    return draw


def _slow(plan: Plan, fault_us: int, spec: ProtocolSpec | None, roll: Random) -> Drawn:
    """Many readers, for long."""
    nodes = tuple(sorted(roll.sample(range(plan.nodes), roll.randint(1, plan.nodes))))
    at_us = roll.randrange(fault_us)
    return [FaultEvent("slow", at_us, fault_us, nodes)]


EVENTS: Final[dict[str, Callable[[Plan, int, ProtocolSpec | None, Random], Drawn]]] = {
    "at_effect": _at_effect,
    "at_view": _at_view,
    "at_arrow": _at_arrow,
    "flap": _flap,
    "rotate": _rotate,
    "isolate": _one_each("isolate", 4),
    "handover": _handover,
    "request": _request,
    "clock": _clock,
    "setback": _one_each("setback"),
    "namesake": _one_each("namesake"),
    "full": _one_each("full"),
    "slow": _slow,
}
"""Kinds that are events, and how they are drawn."""
