"""Five bugs that applications have: each is found, and shrunk to at most three nodes; the mended
programs stand all seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.programs import planted
from unisono.programs import Program
from unisono.programs.seeds import ProgramFailed, chaos
from unisono.sim import Plan, run

CASES = {
    "lost update": ("chaos", planted.lost_update, planted.update),
    "stale leader": ("partition", planted.stale_leader, planted.leader),
    "double take": ("partition", planted.double_take, planted.take),
    "state forgotten at join": ("chaos", planted.forgotten_state, planted.kept_state),
    "reply before order": ("partition", planted.early_reply, planted.reply),
}
JUDGES = {
    "lost update": {"converged": planted.nothing_is_lost},
    "stale leader": {"invariant": planted.terms_rise},
    "double take": {"invariant": planted.each_job_once},
    "state forgotten at join": {"converged": planted.counts_are_equal},
    "reply before order": {"converged": planted.confirmed_is_placed},
}


LONG = ("state forgotten at join", "reply before order")
"""Shrinking these takes seconds."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.soak] * (name in LONG)) for name in CASES],
)
def test_a_planted_bug_is_found_and_made_small(name: str, tmp_path: Path) -> None:
    faults, bug, _ = CASES[name]
    test = chaos(seeds=200, faults=faults, files=tmp_path, **JUDGES[name])(bug)  # type: ignore[arg-type]
    with pytest.raises(ProgramFailed) as failed:
        test()
    assert failed.value.small.plan.nodes <= 3
    assert "planted.py" in str(failed.value)
    assert "assert " in str(failed.value), "the failing line"
    (drawing,) = tmp_path.glob("small-*.svg")
    assert drawing.read_text().startswith("<svg")


def all_kept(name: str, seeds: range) -> None:
    faults, _, mended = CASES[name]
    program = Program(mended, **JUDGES[name])  # type: ignore[arg-type]
    plan = Plan(protocol="ring", messages=0, faults=faults, program=program)
    for seed in seeds:
        outcome = run(replace(plan, seed=seed))
        assert not outcome.broken, (seed, outcome.violations[:1])


@pytest.mark.parametrize("name", CASES)
def test_the_mended_program_stands_some_seeds(name: str) -> None:
    all_kept(name, range(1))


@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
def test_the_mended_program_stands_many_seeds(name: str) -> None:
    all_kept(name, range(200))
