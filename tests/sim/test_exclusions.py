"""Exclusions are judged by the trace alone, as the world that knows its faults counts them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.laws.judged_here import judged_here
from tests.laws.test_protocol_mutants import Buggy, gives_up
from unisono.core import CoreConfig
from unisono.laws import judge_all
from unisono.protocols import spec
from unisono.sim import Plan
from unisono.sim.run import Outcome, run
from unisono.trace.reading import read_trace


def buggy(protocol: str, seed: int, faults: str, **more: Any) -> Plan:
    sound = spec(protocol)

    def make(setting: CoreConfig) -> Any:
        core = sound.make(setting)
        return Buggy(core, gives_up) if setting.me.name == "b" else core

    planted = replace(sound, make=make)
    return Plan(
        protocol=protocol, spec=planted, nodes=4, seed=seed, faults=faults, messages=30, **more
    )


def agree(outcome: Outcome) -> bool:
    """Whether a life was excluded for nothing, by the world and by the trace alike."""
    told = "exclusion" in outcome.broken
    assert told == bool(outcome.counts.get("excluded_for_nothing")), outcome.violations
    return told


@pytest.mark.catches("exclusion")
@pytest.mark.parametrize("protocol", ["rmcast", "mtp", "ring"])
def test_a_false_exclusion_is_caught_where_no_fault_explains_it(protocol: str) -> None:
    calm = [agree(run(buggy(protocol, seed, "none"))) for seed in range(4)]
    assert any(calm)
    rough = [agree(run(buggy(protocol, seed, "chaos"))) for seed in range(4)]
    assert not all(rough), "faults are an excuse"


@pytest.mark.parametrize("protocol", ["rmcast", "mtp", "ring"])
def test_without_a_bug_world_and_trace_agree(protocol: str) -> None:
    for seed in range(6):
        assert not agree(run(Plan(protocol=protocol, seed=seed, nodes=5, messages=30)))


@pytest.mark.catches("exclusion")
def test_the_files_alone_show_a_false_exclusion(tmp_path: Path) -> None:
    """In process, and on the columns of files as on Spark."""
    for seed in range(3):
        run(buggy("ring", seed, "none", trace=tmp_path))
    claims = {"ring": ["exclusion", "accuracy"]}
    plain = judge_all(read_trace(tmp_path).histories(), lambda protocol: claims[protocol])
    rows = judged_here(tmp_path, claims, set(plain))
    broken = {(row["run"], row["law"]) for row in rows if row.get("verdict") == "broken"}
    assert broken == {
        (name, law)
        for name, each in plain.items()
        for law, how in each.laws.items()
        if how == "broken"
    }
    assert "exclusion" in {law for _, law in broken}
