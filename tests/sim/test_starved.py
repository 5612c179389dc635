"""Slowness is not death: processes that get the processor for some milliseconds at a time, with
pauses far below the goal of detection, exclude nobody but the one that a real fault strikes."""

from __future__ import annotations

import random

import pytest

from unisono.laws.exclusion import Faults
from unisono.sim import Plan, run
from unisono.sim.plan import FaultEvent, Weather, node_name

SECOND_US = 1_000_000
STARVED_US = 8 * SECOND_US
RUNNING_US = 20_000
"""How long a process runs between two pauses, on average."""
REAL = {"crash": SECOND_US, "pause": 2 * SECOND_US, "isolate": 2 * SECOND_US, "leave": SECOND_US}
"""Faults of one member, and how long they last."""


def starved(seed: int, nodes: int, pause_us_max: int, real: str) -> tuple[Weather, str]:
    """Pauses of all, and the name of the one that has the fault."""
    dice = random.Random(f"starve/{seed}")
    schedule = []
    for index in range(nodes):
        at_us = SECOND_US + dice.randrange(SECOND_US // 5)
        while at_us < STARVED_US:
            for_us = int(min(pause_us_max, dice.expovariate(3 / pause_us_max)))
            schedule.append(FaultEvent("pause", at_us, for_us, (index,)))
            at_us += for_us + int(dice.expovariate(1 / RUNNING_US)) + 1000
    struck, at_us = dice.randrange(nodes), 2 * SECOND_US + dice.randrange(SECOND_US)
    if real:
        schedule.append(FaultEvent(real, at_us, REAL[real], (struck,)))
    schedule.sort(key=lambda event: event.at_us)
    return Weather(fault_us=STARVED_US, schedule=tuple(schedule)), node_name(struck) if real else ""


def excluded(protocol: str, seed: int, nodes: int, pause_us_max: int, real: str) -> set[str]:
    """The nodes that others excluded, beside the one that has the fault."""
    weather, struck = starved(seed, nodes, pause_us_max, real)
    plan = Plan(protocol=protocol, nodes=nodes, seed=seed, messages=400, weather=weather)
    outcome = run(plan)
    assert outcome.violations == ()
    assert outcome.history is not None
    found = Faults(outcome.history).exclusions()
    pairs = {tuple(key.partition("#")[0] for key in (each.excluded, each.by)) for each in found}
    return {one for one, by in pairs if struck not in (one, by)}


SPARED = [
    # protocol, seed, nodes, longest pause, fault
    ("ring", 0, 3, 150_000, "crash"),  # a holder had answered; its silence since was counted
    ("ring", 5, 3, 150_000, ""),
    ("ring", 5, 3, 300_000, "isolate"),  # a promised ring came after T_REF_RT
    ("ring", 15, 5, 200_000, "leave"),  # it invited, though the ring had arrived and was not read
]


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "seed", "nodes", "pause_us_max", "real"), SPARED)
def test_nobody_is_excluded_where_one_was(
    protocol: str, seed: int, nodes: int, pause_us_max: int, real: str
) -> None:
    assert not excluded(protocol, seed, nodes, pause_us_max, real)


@pytest.mark.slow
@pytest.mark.parametrize("real", ["", *REAL])
@pytest.mark.parametrize("protocol", ["ring", "mtp", "rmcast", "rmp"])
def test_a_slow_member_is_not_taken_for_dead(protocol: str, real: str) -> None:
    assert not excluded(protocol, 1, 3, 200_000, real)
