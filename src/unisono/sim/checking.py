"""Checks of a plan before it is run."""

from __future__ import annotations

from unisono.errors import Misuse
from unisono.sim.plan import (
    AIMED,
    DELAYS,
    EFFECTS,
    KINDS,
    MESSAGES_MAX,
    NODES_MAX,
    PROFILES,
    SECOND_US,
    WRITES,
    FaultEvent,
    LinkPlan,
    Plan,
    Router,
    Weather,
)

POINTS = tuple(f"{when} {effect}" for when in ("before", "after") for effect in EFFECTS)
"""Points between effects at which a fault may strike."""


def check_plan(plan: Plan) -> None:
    """Refuse a plan that cannot be run, and name the remedy."""
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
    if not 0 <= plan.clusters <= plan.nodes:
        raise Misuse(f"clusters must be 0 to {plan.nodes}, the number of nodes")
    if plan.weather is not None:
        _check_weather(plan.weather, plan.nodes)


def _check_weather(weather: Weather, nodes: int) -> None:
    if not 0 <= weather.fault_us <= 3600 * SECOND_US:
        raise Misuse("weather: fault_us must be 0 to an hour")
    for name in ("packet_bytes_max", "window_bytes_max", "burst_max", "large_packets"):
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
        _check_event(event, nodes)
    listed = [node for part in weather.parts for node in part]
    _check_nodes("parts", tuple(listed), nodes)
    if len(set(listed)) < len(listed):
        raise Misuse("weather: a node can be in one of the parts only")


def _check_event(event: FaultEvent, nodes: int) -> None:
    kind = event.kind
    where = f"fault {kind!r}"
    if kind not in KINDS:
        raise Misuse(f"unknown fault {kind!r}: write one of {', '.join(KINDS)}")
    for name in ("at_us", "for_us", "every_us", "at_view", "done"):
        if getattr(event, name) < 0:
            raise Misuse(f"{where}: {name} must not be negative")
    if kind in ("block", "split", "flap") and not event.to:
        raise Misuse(f"{where}: name the other side in `to`")
    if kind in ("flap", "rotate") and not event.every_us:
        raise Misuse(f"{where}: set `every_us`, how long each state lasts")
    if kind == "request" and not event.what:
        raise Misuse(f"{where}: name the request in `what`")
    if abs(event.ppm) >= 1_000_000:
        raise Misuse(f"{where}: ppm must be within a million, not {event.ppm}")
    if event.aimed and kind not in AIMED:
        raise Misuse(f"{where} cannot wait for a view, an arrow or an effect: {', '.join(AIMED)}")
    if sum(map(bool, (event.at_view, event.at_arrow, event.at_effect))) > 1 or event.nth < 1:
        raise Misuse(f"{where}: aim at one view, arrow or effect, and at the first or a later one")
    torn_at = tuple(f"after {write}" for write in WRITES)
    if kind == "torn" and event.at_effect not in torn_at:
        raise Misuse(f"{where}: only a write can be torn: at_effect must be {' or '.join(torn_at)}")
    if event.at_effect and event.at_effect not in POINTS:
        raise Misuse(f"{where}: at_effect must be one of {', '.join(POINTS)}")
    _check_nodes(where, (*event.nodes, *event.to), nodes)


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


def check_link(link: LinkPlan) -> None:
    if link.delay not in DELAYS:
        raise Misuse(f"unknown delay {link.delay!r}: write one of {', '.join(DELAYS)}")
    for name in LinkPlan.__dataclass_fields__:
        value = getattr(link, name)
        if name != "delay" and value < 0:
            raise Misuse(f"link: {name} must not be negative, not {value}")
        if name.endswith("_ppm") and value > 1_000_000:
            raise Misuse(f"link: {name} must be at most 1000000, not {value}")
