"""Does every protocol of the catalogue keep the laws it claims, under any faults, and heal?"""

from __future__ import annotations

import os

import pytest

from unisono.protocols import spec, specs
from unisono.sim import PROFILES, campaign
from unisono.sim.campaign import Summary
from unisono.sim.plan import Plan
from unisono.sim.run import run

SOAK_SEEDS = int(os.environ.get("UNISONO_SEEDS") or 3000)
SOAK_ONLY = os.environ.get("UNISONO_PROTOCOL")
SOAKED = [spec(SOAK_ONLY).name] if SOAK_ONLY else sorted(specs())
NODES = {"mtp": (3, 9), "ring": (3, 9)}
"""How many nodes a soaked run has, where it is not 3 to 7: a replicated master takes some."""


def lines(summary: Summary) -> str:
    return "\n".join(f"{each.replay}\n    {each.text}" for each in summary.failures)


@pytest.mark.parametrize("faults", PROFILES)
@pytest.mark.parametrize("protocol", sorted(specs()))
def test_a_few_seeds_break_no_law(protocol: str, faults: str) -> None:
    summary = campaign(protocol, range(5), faults, (3, 9), jobs=1, messages=60)
    assert not summary.failures, lines(summary)


@pytest.mark.parametrize("protocol", sorted(specs()))
def test_what_is_drawn_of_the_options_exists(protocol: str) -> None:
    found = spec(protocol)
    for varied in (found.swarm, found.chaos):
        assert varied.keys() <= found.options.keys()
        assert all(varied.values()), "an option that is varied has something to choose from"


@pytest.mark.parametrize("protocol", sorted(specs()))
def test_the_same_plan_gives_the_same_run(protocol: str) -> None:
    plan = Plan(protocol=protocol, nodes=4, seed=11, faults="mild", messages=60)
    first, second = run(plan), run(plan)
    assert first.history is not None
    assert second.history is not None
    assert first.history.rows == second.history.rows


def test_chaos_tears_what_a_protocol_writes() -> None:
    """The ring only ever writes checkpoints."""
    torn = 0
    for seed in (17, 53, 159):
        outcome = run(Plan(protocol="ring", nodes=3, seed=seed, faults="chaos", messages=30))
        assert outcome.violations == (), outcome.replay
        torn += outcome.counts["torn"]
    assert torn > 2


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("protocol", SOAKED)
def test_thousands_of_seeds_of_chaos_break_no_law(protocol: str) -> None:
    summary = campaign(protocol, range(SOAK_SEEDS), "chaos", NODES.get(protocol, (3, 7)), jobs=2)
    print(
        f"{protocol}: {summary.runs} runs, {summary.virtual_s:.0f} simulated seconds, "
        f"{summary.rate:.0f} a second"
    )
    assert not summary.failures, lines(summary)
