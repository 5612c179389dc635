"""Simulated MTP: seeds that once failed, and a few fresh ones."""

from __future__ import annotations

import pytest

from unisono.sim.plan import LinkPlan, Plan, Weather
from unisono.sim.run import run

# What each of them found is stated where it was mended.
KEPT = [
    *(("partition", seed) for seed in (15, 43, 66, 77, 122)),
    *(("mild", seed) for seed in (15, 77, 164, 444, 475, 511, 577, 642, 687, 882)),
    *(("loss", seed) for seed in (17, 45)),
    *(("crash", seed) for seed in (7, 15, 16)),
]


FAR = {"unicast": 1, "masters": 3, "dally": 3}
KEPT_FAR = (7008, 7017, 7022, 7025)
"""Repairs did not go to a member that had joined after the token was granted."""


KEPT_CHAOS = [
    # nodes, seed
    (9, 20185),  # a late request for the state expelled a member that had it long ago
    (
        3,
        20036,
    ),  # a master that joined after the cut was asked to continue with one that could not inform it
    (6, 20214),  # the same, of one that was found failed before the cut and learned of it after
    (3, 1_001_184),  # the same, where only one that was then cut off had shown the view without it
    (4, 21660),  # the same, of one that was about to leave
    (4, 201466),  # a master had a view before it held what the masters had decided
    (9, 201244),
    (3, 202093),  # two masters were set back and founded another web; the third did not notice
    (4, 300354),  # a lone master left before its slow reader had its own messages
    (8, 301254),
    (8, 306906),  # a master set back was admitted by one that ignored it as a replica
    (7, 310060),  # a token was used before it was known that an earlier message was rejected
]


def nodes_of(seed: int) -> int:
    return 3 + seed % 7


@pytest.mark.parametrize("messages", [200, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("faults", "seed"), KEPT)
def test_a_seed_that_once_failed_holds(faults: str, seed: int, messages: int) -> None:
    plan = Plan(protocol="mtp", nodes=nodes_of(seed), seed=seed, faults=faults, messages=messages)
    assert run(plan).violations == ()


@pytest.mark.parametrize("seed", KEPT_FAR)
def test_a_seed_that_once_failed_far_away_holds(seed: int) -> None:
    plan = Plan(protocol="mtp", nodes=nodes_of(seed), seed=seed, faults="mild", options=FAR)
    assert run(plan).violations == ()


@pytest.mark.parametrize(("nodes", "seed"), KEPT_CHAOS)
def test_a_seed_of_chaos_that_once_failed_holds(nodes: int, seed: int) -> None:
    outcome = run(Plan(protocol="mtp", nodes=nodes, seed=seed, faults="chaos", messages=60))
    assert outcome.violations == ()


def test_a_master_that_joins_late_counts_though_nothing_was_decided_since() -> None:
    """It learns late from one of the others what they remember. When the coordinator is cut off for
    good, those two have a majority."""
    weather = Weather(
        fault_us=4_500_000,
        links=((1, 2, LinkPlan(delay_us=10_000)),),
        starts_us=(0, 3_500_000, 0),
        parts=((0,), (1, 2)),
    )
    options = {"masters": 3}
    plan = Plan(protocol="mtp", nodes=3, seed=1, messages=0, weather=weather, options=options)
    assert run(plan).violations == ()


def test_no_member_is_excluded_unforced_where_one_was() -> None:
    """A master that had been away expelled the joiner that waited for it."""
    outcome = run(Plan(protocol="mtp", nodes=8, seed=21303, faults="chaos", messages=60))
    assert outcome.violations == ()
    assert not outcome.counts.get("excluded_unforced")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40_000, 40_020, 10))
def test_the_laws_hold_under_chaos(first: int) -> None:
    """3 to 9 members, one to five tokens, one master or three: all drawn by the seed."""
    for seed in range(first, first + 10):
        outcome = run(Plan(protocol="mtp", nodes=nodes_of(seed), seed=seed, faults="chaos"))
        assert outcome.violations == (), outcome.replay
