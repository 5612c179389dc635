"""Simulated rmcast: seeds that once failed."""

from __future__ import annotations

import pytest

from unisono.sim.plan import FaultEvent, Plan, Weather
from unisono.sim.run import run

# What each of them found is told where it was mended.
KEPT = [
    # nodes, seed, messages
    (4, 76, 200),  # a leaver went before its failed companions were settled
    (7, 159, 200),
    (5, 307, 200),
    (5, 322, 200),  # a leaver went on delivering, and announcing itself
    (6, 403, 200),
    (7, 544, 200),  # a welcome larger than a packet
    (7, 579, 200),
    (7, 1038, 100),
    (7, 1249, 200),
    (5, 5642, 200),  # entries recalled into a header made a packet too large
    (7, 7469, 200),  # a sleeper woke and admitted every request that had waited: ghosts
    (3, 220, 200),  # who leaves had delivered more of a failed one than the newcomer closed with
    (5, 2351, 100),  # a newcomer of a part that died waited for ever to settle its dead
]


@pytest.mark.parametrize(("nodes", "seed", "messages"), KEPT)
def test_a_seed_that_once_failed_holds(nodes: int, seed: int, messages: int) -> None:
    plan = Plan(protocol="rmcast", nodes=nodes, seed=seed, faults="mild", messages=messages)
    assert run(plan).violations == ()


def test_what_a_slow_reader_lacks_of_one_that_left_is_kept_for_it() -> None:
    """It had not heard that the leaver ever came, and that was taken for having settled it."""
    outcome = run(Plan(protocol="rmcast", nodes=7, seed=21330, faults="chaos", messages=60))
    assert outcome.violations == ()


def test_a_namesake_waits_until_no_view_holds_the_one_it_replaces() -> None:
    """The sponsor had closed the failed one; another member had not when it heard of the new."""
    outcome = run(Plan(protocol="rmcast", nodes=5, seed=200586, faults="chaos", messages=60))
    assert outcome.violations == ()


def test_a_failed_member_is_forgotten_though_one_came_while_it_was_settled() -> None:
    """The newcomer got the rank of the failed one: it seemed not to have heard of it yet, for ever,
    and a namesake of the failed one waited as long."""
    outcome = run(Plan(protocol="rmcast", nodes=4, seed=200759, faults="chaos", messages=60))
    assert outcome.violations == ()


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_one_that_is_cut_off_and_its_namesake_share_no_view(seed: int) -> None:
    """The phase of the heartbeats, which the seed draws, decides who closes first."""
    unheard = FaultEvent("block", 2_000_000, 2_000_000, (1,), (0, 2))
    namesake = FaultEvent("namesake", 2_900_000, 500_000, (1,))
    weather = Weather(fault_us=5_000_000, schedule=(unheard, namesake))
    outcome = run(Plan(protocol="rmcast", nodes=3, seed=seed, messages=0, weather=weather))
    assert outcome.violations == ()


SPARED = [
    # nodes, seed
    (6, 20042),  # a second group was founded while the oldest member was dead
    (8, 20348),  # a newcomer removed slow readers that could not see it yet
    (4, 310088),  # a second group was founded before the oldest member was known to be quiet
    (8, 600241),  # one that had been suspended did not answer a larger group
    (8, 1001838),  # one unknown to a group took its sponsor for a member of its own
    (7, 1003497),  # likewise
]


@pytest.mark.parametrize(("nodes", "seed"), SPARED)
def test_no_member_is_excluded_unforced_where_one_was(nodes: int, seed: int) -> None:
    outcome = run(Plan(protocol="rmcast", nodes=nodes, seed=seed, faults="chaos", messages=60))
    assert outcome.violations == ()
    assert not outcome.counts.get("excluded_unforced")


@pytest.mark.parametrize("seed", range(3))
def test_a_lone_survivor_that_was_suspended_joins_the_larger_group_soon(seed: int) -> None:
    """It waits up to four times as long as usual before it removes the dead, the sponsor among
    them, and did not answer the announcement of the group that they founded meanwhile."""
    cut = FaultEvent("split", 2_000_000, 2_000_000, (3,), (0, 1, 2))
    pause = FaultEvent("pause", 2_000_000, 1_800_000, (3,))
    crash = FaultEvent("crash", 2_200_000, 200_000, (0, 1, 2))
    weather = Weather(fault_us=4_000_000, schedule=(cut, pause, crash))
    outcome = run(Plan(protocol="rmcast", nodes=4, seed=seed, messages=0, weather=weather))
    assert outcome.violations == ()
