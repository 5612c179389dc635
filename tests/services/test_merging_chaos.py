"""State on merge under chaos: components that went on apart hold the same again, nothing that one
of them has processed is lost, and all are told the same."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from tests.services.merging_world import WRITERS, Writer, judge, plan
from unisono.model import Member, Message, View
from unisono.services.merge.exchange import Complete, Progress
from unisono.services.merge.messages import SERVICE
from unisono.services.merge.reconciler import Duty, Reconciler
from unisono.sim import run
from unisono.sim.applications import ApplicationContext, ApplicationSpec

SEEDS = int(os.environ.get("UNISONO_MERGING_SEEDS") or 1000)


def broken(seeds: Iterable[int], application: ApplicationSpec = WRITERS) -> list[str]:
    return [
        f"seed {seed}: {each.detail}"
        for seed in seeds
        for each in run(plan(seed, 3 + seed % 5, application)).violations
    ]


@pytest.mark.slow
def test_components_are_reconciled_over_some_seeds_of_chaos() -> None:
    # In 27 two members part after a view, and each gives up for a reason of its own; 43 ends with
    # two components.
    assert not broken([*range(6), 27, 43])


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_components_are_reconciled_over_a_thousand_seeds_of_chaos() -> None:
    assert not broken(range(SEEDS))


# -- planted bugs ----------------------------------------------------------------------------------


class Unheld(Reconciler):
    """Holds nothing back."""

    def deliver(self, message: Message) -> list[Duty]:
        if message.payload[:1] == SERVICE:
            return super().deliver(message)
        return [message._replace(payload=message.payload[1:])]


class Presumptuous(Reconciler):
    """Counts all that came along as of its component, reconciled or not."""

    def _narrowed(self, view: View) -> frozenset[Member]:
        return frozenset(view.stayed)


class OneSided(Reconciler):
    """Takes the first component's state for that of all."""

    def _follow(self, progress: Progress) -> list[Duty]:
        if isinstance(progress, Complete):
            progress = Complete(progress.states[:1])
        return super()._follow(progress)


def writing(kind: type[Reconciler]) -> ApplicationSpec:
    def make(scene: ApplicationContext) -> Writer:
        return type("Planted", (Writer,), {"reconciler_of": kind})(scene)

    return ApplicationSpec(make, judge)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "first"), [(Unheld, 7), (Presumptuous, 29), (OneSided, 3)])
def test_a_planted_bug_is_found(kind: type[Reconciler], first: int) -> None:
    """Which seeds find it changes with the protocol: the first is tried first."""
    assert any(broken((seed,), writing(kind)) for seed in range(first, first + 20))
