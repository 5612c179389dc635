"""The bank of the example under chaos: the total stands, all hold the same, nothing hangs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from tests.services.banking import BANK, Teller, judge
from unisono.model import ServiceLevel, View
from unisono.services.commit import Committed, Decided, Table
from unisono.services.commit.table import Step
from unisono.sim import Plan, campaign, run
from unisono.sim.acting import Lived, Play, Scene
from unisono.sim.campaign import Summary

PROTOCOL = "mtp"
SEEDS = int(os.environ.get("UNISONO_BANK_SEEDS") or 1000)
COMMON = Plan(protocol=PROTOCOL, application=BANK)


def bank(seeds: range, jobs: int, plan: Plan = COMMON) -> Summary:
    return campaign(plan.protocol, seeds, "chaos", (3, 7), jobs, messages=80, plan=plan)


def lines(summary: Summary) -> str:
    return "\n".join(f"{each.replay}\n    {each.text}" for each in summary.failures)


@pytest.mark.slow
@pytest.mark.rule("RNG-22", "RNG-23")
def test_the_bank_survives_some_seeds_of_chaos() -> None:
    summary = bank(range(40), 1)
    assert summary.runs == 40 and not summary.failures, lines(summary)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_bank_survives_a_thousand_seeds_of_chaos() -> None:
    summary = bank(range(SEEDS), 2)
    print(f"the bank: {summary.runs} runs, {summary.virtual_s:.0f} simulated seconds")
    assert not summary.failures, lines(summary)


def counted(lives: Sequence[Lived], service: ServiceLevel) -> Iterable[str]:
    """The judge, and what there was to judge."""
    yield from judge(lives, service)
    tellers: list[Teller] = [each.application for each in lives]
    reasons = [
        "committed" if isinstance(outcome, Committed) else outcome.reason
        for teller in tellers
        for outcome in teller.outcomes.values()
    ]
    for what in ("committed", "only", "vanish", "failed before", "not in the group"):
        yield f"{what}: {sum(what in reason for reason in reasons)}"
    yield f"handed over: {sum(teller.adopted for teller in tellers)}"


def teller(scene: Scene) -> Teller:
    return Teller(scene)


@pytest.mark.slow
def test_over_some_seeds_everything_happens() -> None:
    sums: dict[str, int] = {}
    for seed in range(8):
        outcome = run(replace(COMMON, seed=seed, messages=80, application=Play(teller, counted)))
        for each in outcome.violations:
            what, _, count = each.detail.rpartition(": ")
            sums[what] = sums.get(what, 0) + int(count)
    assert len(sums) == 6 and all(sums.values()), sums


# -- planted bugs ----------------------------------------------------------------------------------


class Forgiving(Table):
    """Waits for the vote of one that has failed."""

    def _is_gone(self, name: str, incarnation: int) -> bool:
        return False


class Apart(Table):
    """Who hears of a failure takes the action for done if it has agreed itself."""

    who = ""

    def see(self, view: View) -> list[Step]:
        return [
            Decided(step.action, Committed())
            if isinstance(step, Decided) and self.who in step.action.operations
            else step
            for step in super().see(view)
        ]


def forgiving(scene: Scene) -> Teller:
    found = Teller(scene)
    found.replica.table = Forgiving()
    return found


def apart(scene: Scene) -> Teller:
    found = Teller(scene)
    table = found.replica.table = Apart()
    table.who = scene.me.name
    return found


@pytest.mark.parametrize("make", [forgiving, apart])
def test_a_planted_bug_is_found(make: object) -> None:
    play = Play(make, judge)  # type: ignore[arg-type]
    for seed in range(20):
        plan = replace(COMMON, seed=seed, faults="crash", application=play, progress_us=6_000_000)
        if "application" in run(plan).broken:
            return
    raise AssertionError("twenty seeds did not show it")
