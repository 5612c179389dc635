"""Bugs planted in the ring, each caught by the law it breaks: the checker can fail."""

from __future__ import annotations

import pytest

from tests.plants import Mutant
from tests.ring.harness import Room, at_rest, gather, holder_of, quiet
from tests.ring.mutants import IN_A_STORY, MUTANTS
from unisono.sim.plan import Plan
from unisono.sim.run import run

SEEDS_MAX = 25


def plan_of(mutant: Mutant, seed: int) -> Plan:
    return Plan(protocol="ring", nodes=3 + seed % 7, seed=seed, faults=mutant.faults, messages=100)


CASES = [
    pytest.param(mutant, id=mutant.name, marks=pytest.mark.catches(mutant.law))
    for mutant in MUTANTS
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", CASES)
def test_a_planted_bug_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    broken: set[str] = set()
    for seed in range(mutant.first, mutant.first + SEEDS_MAX):
        broken |= set(run(plan_of(mutant, seed)).broken)
        if mutant.law in broken:
            return
    raise AssertionError(f"{mutant.law} was kept; broken: {sorted(broken)}")


def die_with_what_only_they_have(room: Room) -> str:
    """A message reaches only the next member; both die, and the others continue without it."""
    s = at_rest(room)
    one, two = holder_of(room, s), holder_of(room, s + 1)
    room.loses = lambda by, to, packet: (by == one and to != two) or by == two
    room.obey(f"service safe\nsay {one} word\nadvance 3ms\ncrash {one}\ncrash {two}")
    room.loses = None
    gather(room, *(set("abcde") - {one, two}))
    return room.obey("check safe agreement total_order")


@pytest.mark.catches("safe")
@pytest.mark.parametrize("mutant", IN_A_STORY, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught_in_a_scenario(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = quiet(*"abcde")
    mutant.plant(monkeypatch)
    assert f"{mutant.law}: broken" in die_with_what_only_they_have(room)


def test_without_a_bug_the_scenario_breaks_nothing() -> None:
    assert "broken" not in die_with_what_only_they_have(quiet(*"abcde"))


def test_ten_bugs_and_more_of_many_kinds() -> None:
    assert len(MUTANTS) >= 10
    assert len({mutant.law for mutant in MUTANTS}) >= 8
    assert len({mutant.name for mutant in (*MUTANTS, *IN_A_STORY)}) == len(MUTANTS) + 2
