"""Probes in a simulated world: the dead are refused, the paused and the cut off are not."""

from __future__ import annotations

import pytest

from unisono.core import Event, Unreachable
from unisono.sim.plan import SECOND_US, FaultEvent, Plan, Weather
from unisono.sim.run import run
from unisono.sim.swarm import drawn
from unisono.sim.world import World
from unisono.trace.record import Row

DETECT_US = 2 * SECOND_US
AT_US = 2 * SECOND_US
PROTOCOLS = ("rmcast", "mtp", "ring", "rmp")


def struck(protocol: str, kind: str, seed: int = 1) -> Plan:
    """Node 2 of 4 is struck, long after all came together, for the rest of the time."""
    event = FaultEvent(kind, AT_US, 6 * SECOND_US, (2,))
    weather = Weather(fault_us=8 * SECOND_US, schedule=(event,))
    options = {"detect_us": DETECT_US}
    return Plan(
        protocol=protocol, nodes=4, seed=seed, messages=80, weather=weather, options=options
    )


def gone_after_us(plan: Plan) -> int:
    """How long after the fault the first view without the third node was installed."""
    outcome = run(plan)
    assert not outcome.broken, outcome.violations
    assert outcome.history is not None
    rows = [row for row in outcome.history.rows if row.kind == "view" and row.t_us >= AT_US]
    return min(row.t_us for row in rows if not _names(row) & {"c"} and row.node != "c") - AT_US


def _names(row: Row) -> set[str]:
    return {member.partition("#")[0] for member in row.members or ()}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_crash_is_noticed_before_the_silence_is_long_and_a_pause_is_not(protocol: str) -> None:
    assert gone_after_us(struck(protocol, "crash")) < DETECT_US * 3 // 4
    for kind in ("pause", "isolate"):
        assert gone_after_us(struck(protocol, kind)) > DETECT_US * 3 // 4, kind


def refusals_of(plan: Plan) -> tuple[World, list[tuple[int, Event]]]:
    from unisono.sim.run import checked_spec, services_for

    full = drawn(plan)
    assert full.weather is not None
    spec = checked_spec(full)
    world = World(full, full.weather, spec, services_for(full, spec))
    told: list[tuple[int, Event]] = []
    post = world.probes._refuse

    def refuse(life: object, address: object) -> None:
        told.append((world.now_us, Unreachable(address)))  # type: ignore[arg-type]
        post(life, address)  # type: ignore[arg-type]

    world.probes._refuse = refuse  # type: ignore[method-assign,assignment]
    world.run()
    return world, told


def test_only_the_dead_are_refused_and_some_answers_are_lost() -> None:
    counted = {"refused": 0, "refusals_lost": 0}
    for seed in range(6):
        for kind, refuses in (("crash", True), ("pause", False), ("isolate", False)):
            world, told = refusals_of(struck("rmcast", kind, seed))
            assert world.counts["probed"]
            addresses = {event.address for _, event in told if isinstance(event, Unreachable)}
            assert addresses == ({world.nodes[2].address} if refuses else set()), kind
            for name in counted:
                counted[name] += world.counts[name]
    assert counted["refused"] > 2 * counted["refusals_lost"] > 0


def test_a_refusal_may_come_when_another_life_has_begun() -> None:
    """The network is slow at times: who concludes from one late answer blames the living."""
    late = 0
    for seed in range(12):
        event = FaultEvent("crash", AT_US, SECOND_US // 2, (2,))
        weather = Weather(fault_us=4 * SECOND_US, schedule=(event,))
        plan = Plan(protocol="ring", nodes=4, seed=seed, messages=80, weather=weather)
        world, told = refusals_of(plan)
        late += sum(at_us > AT_US + SECOND_US // 2 for at_us, _ in told)
        assert not world.found
    assert late
