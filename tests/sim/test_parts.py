"""A run that ends in parts: who is asked to go on."""

from __future__ import annotations

import pytest

from unisono.sim.plan import SECOND_US, FaultEvent, Plan, Weather
from unisono.sim.recovery import PROBES
from unisono.sim.run import run

CUT_US = 4 * SECOND_US
LATE = (0, CUT_US + SECOND_US, 0)
LEAVE = FaultEvent("leave", CUT_US - 1_000, SECOND_US, (1,))
AMNESIA = FaultEvent("amnesia", SECOND_US, 100_000, (1,))


def probes(protocol: str, masters: int, weather: Weather) -> int:
    """How many nodes of {a b}, cut off from c, were asked to go on, and did."""
    options = {"masters": masters} if protocol == "mtp" else {}
    outcome = run(
        Plan(protocol=protocol, nodes=3, seed=1, messages=0, weather=weather, options=options)
    )
    assert outcome.violations == ()
    return outcome.sent // PROBES


def weather(*schedule: FaultEvent, starts_us: tuple[int, ...] = ()) -> Weather:
    parts = ((0, 1), (2,))
    return Weather(fault_us=CUT_US, schedule=schedule, starts_us=starts_us, parts=parts)


@pytest.mark.parametrize("faults", [(), (AMNESIA,)])
def test_most_of_the_masters_are_to_go_on_whoever_forgot_long_ago(
    faults: tuple[FaultEvent, ...],
) -> None:
    assert probes("mtp", 3, weather(*faults)) == 2


def test_a_master_that_could_not_learn_of_the_web_makes_no_majority() -> None:
    """a alone cannot tell b whether c and an earlier b have gone on without it."""
    assert probes("mtp", 3, weather(starts_us=LATE)) == 0
    assert probes("mtp", 3, weather(LEAVE)) == 0


def test_a_lone_master_lets_in_whoever_comes_late() -> None:
    assert probes("mtp", 1, weather(starts_us=LATE)) == 2
    assert probes("mtp", 1, weather(LEAVE)) == 2


def test_a_majority_of_a_ring_counts_only_names_that_the_group_knows() -> None:
    """a and c began the group. With a newcomer on each side of the split, {a b} and {c d} would be
    alike; b has a vote once a ring has let it in, or if no group has begun."""
    assert probes("ring", 0, weather()) == 2
    assert probes("ring", 0, weather(starts_us=LATE)) == 0
    assert probes("ring", 0, weather(starts_us=(0, LATE[1], LATE[1]))) == 2


def test_a_part_of_rmp_without_a_quorum_stops_and_founds_another_group() -> None:
    plan = Plan(protocol="rmp", nodes=3, seed=1, messages=0, weather=weather())
    outcome = run(plan)
    assert outcome.violations == () and outcome.sent // PROBES == 3
    assert outcome.history is not None
    lives = outcome.history.lives
    assert {key: set(life.views[-1].members or ()) for key, life in lives.items()} == {
        "a#1": {"a#1", "b#1"},
        "b#1": {"a#1", "b#1"},
        "c#1": {"a#1", "b#1", "c#1"},
        "c#2": {"c#2"},
    }
    (stop,) = (row for row in outcome.history.rows if row.kind == "leave" and row.node == "c")
    assert stop.changes == ("too_few",)


def test_where_any_part_goes_on_all_are_to() -> None:
    assert probes("rmcast", 0, weather(AMNESIA, starts_us=LATE)) == 3


@pytest.mark.parametrize("protocol", ["ring", "transis"])
def test_fewer_processes_than_a_group_needs_are_not_to_make_progress(protocol: str) -> None:
    def sent(sites: int) -> int:
        options = {"sites": sites}
        plan = Plan(protocol=protocol, nodes=3, messages=10, faults="none", options=options)
        outcome = run(plan)
        assert outcome.violations == ()
        return outcome.sent

    assert sent(7) == 0 < sent(5)
