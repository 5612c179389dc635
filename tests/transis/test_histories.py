"""One history: who was outside of the primary component comes back as a newcomer."""

from __future__ import annotations

import pytest

from unisono.laws import judge
from unisono.model import Address, Member
from unisono.parts.identity import key_of
from unisono.protocols.transis import flush
from unisono.protocols.transis.histories import outdated, state_source
from unisono.protocols.transis.packets import Agree
from unisono.sim.plan import FaultEvent, Plan, Weather
from unisono.sim.run import Outcome, run

LAWS = ("one_primary", "one_component", "total_order", "virtual_synchrony", "agreement")
"""The first is not claimed, since every component may go on; with one history it holds."""


def simulated(seed: int, dynamic: int) -> Outcome:
    options = {"sites": 5, "one_history": 1, "dynamic": dynamic}
    return run(
        Plan(
            protocol="transis", nodes=5, seed=seed, faults="partition", messages=40, options=options
        )
    )


@pytest.mark.parametrize("dynamic", [0, 1], ids=["static", "dynamic"])
def test_components_that_part_and_merge_have_one_history(dynamic: int) -> None:
    for seed in range(101, 103):
        outcome = simulated(seed, dynamic)
        assert outcome.violations == () and outcome.history is not None
        assert judge(outcome.history, LAWS).violations == []


@pytest.mark.catches("one_primary")
def test_components_that_keep_their_histories_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "outdated", lambda reports: set())
    found = set()
    for seed in range(101, 105):
        history = simulated(seed, 0).history
        assert history is not None
        found |= {each.law for each in judge(history, LAWS).violations}
    assert "one_primary" in found


@pytest.mark.parametrize("one_history", [0, 1], ids=["queued", "withheld"])
def test_one_that_leaves_outside_of_the_primary_component_ends_as_excluded(
    one_history: int,
) -> None:
    """It cannot send what it has queued, nor know whether what it withholds is in the history."""
    cut = FaultEvent("split", 1_000_000, 4_000_000, (0,), (1, 2))
    leave = FaultEvent("leave", 4_000_000, 100_000, (0,))
    weather = Weather(
        fault_us=6_000_000,
        schedule=(cut, leave),
        burst_max=40,
        large_ppm=1_000_000,
        large_packets=60,
    )
    options = {"sites": 3, "one_history": one_history, "vertex_packets": 1}
    plan = Plan(protocol="transis", nodes=3, seed=1, messages=120, weather=weather, options=options)
    outcome = run(plan)
    assert not outcome.violations
    assert outcome.history is not None
    first = outcome.history.lives["a#1"]
    assert [row.detail for row in first.rows if row.kind == "leave"] == [flush.LEFT_APART]


def report(name: str, former: int, history: int, is_new: bool = False) -> Agree:
    who = Member(name, Address("127.0.0.1", 1), 1)
    return Agree(9, who, former, (), 0, False, is_new, False, history=history)


def those_outdated(*reports: Agree) -> set[str]:
    by_key = {key_of(each.sender): each for each in reports}
    return {by_key[key].sender.name for key in outdated(by_key)}


def test_the_last_primary_component_has_the_history_and_of_its_parts_the_largest() -> None:
    old, part, rest = (report("a", 1, 4), report("b", 2, 7), report("c", 3, 7))
    assert those_outdated(old, part, rest) == {"a", "c"}
    assert those_outdated(old, part, rest, report("d", 3, 7)) == {"a", "b"}
    assert those_outdated(old, report("e", 5, 0, is_new=True)) == set()
    assert those_outdated() == set()
    assert state_source([old, part]) is None
    newcomer = report("0", 5, 0, is_new=True)
    found = state_source([old, rest, report("d", 3, 7), newcomer])
    assert found == rest.sender
