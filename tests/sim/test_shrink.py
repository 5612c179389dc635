"""A failing run becomes a small one, is kept as a file, and fails again from it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.flood import DOUBLE, FLOOD
from unisono.errors import Misuse
from unisono.model import Resilient, Service
from unisono.sim import (
    Plan,
    campaign,
    drawn,
    plan_from_json,
    plan_to_json,
    read_plan,
    run,
    shrunk,
    write_plan,
)
from unisono.sim.campaign import Summary

BUGGY = Plan(
    protocol="flood", spec=FLOOD, nodes=5, faults="mild", messages=80, options={"bug": DOUBLE}
)


def failing() -> Plan:
    """The first seed that shows the planted bug."""
    for seed in range(40):
        found = replace(BUGGY, seed=seed)
        if run(found).broken:
            return found
    raise AssertionError("no seed shows the planted bug")


def test_a_planted_bug_is_found_and_made_small(tmp_path: Path) -> None:
    plan = failing()
    small = shrunk(plan, attempts_max=120)
    assert small.law == "no_duplication"
    assert small.plan.nodes == 2
    assert small.plan.messages <= 10
    assert len(small.plan.schedule) <= 1
    assert small.attempts < 120, "it ended because nothing smaller fails, not at the bound"
    line = write_plan(small.plan, tmp_path / "small.json")
    assert line == f"unisono sim --plan {tmp_path / 'small.json'}"
    again = run(replace(read_plan(tmp_path / "small.json"), spec=FLOOD))
    assert again.violations == small.outcome.violations
    assert again.replay == "unisono sim --plan FILE"


def test_options_that_were_drawn_stay_in_the_small_plan() -> None:
    varied = replace(FLOOD, swarm={"bug": (DOUBLE,), "fragile": (0, 1)})
    small = shrunk(replace(failing(), spec=varied, options={}), attempts_max=10)
    assert small.law == "no_duplication"
    assert small.plan.options["bug"] == DOUBLE and "fragile" in small.plan.options


def test_what_does_not_fail_cannot_be_shrunk() -> None:
    with pytest.raises(Misuse, match="breaks no law"):
        shrunk(replace(BUGGY, options={}, messages=5, nodes=2, faults="none"))


@given(st.integers(0, 10**6), st.sampled_from(["none", "loss", "crash", "partition", "chaos"]))
def test_plans_survive_the_file(seed: int, faults: str) -> None:
    plan = drawn(Plan(protocol="ring", seed=seed, faults=faults, nodes=3, service=Service.SAFE))
    assert plan_from_json(plan_to_json(plan)) == plan
    plain = Plan(protocol="rmp", seed=seed, service=Resilient(2), options={"x_us": 5})
    assert plan_from_json(plan_to_json(plain)) == plain


@pytest.mark.parametrize(
    "told, says",
    [
        ("{", "not JSON"),
        ("[]", "plan must be an object"),
        ("{}", "protocol is missing"),
        ('{"protocol": 1}', "protocol must be a name"),
        (
            '{"protocol": "x", "speed": 1}',
            "unknown field 'speed'.*sealed, clusters, weather",
        ),
        ('{"protocol": "x", "nodes": "3"}', "nodes must be a whole number"),
        ('{"protocol": "x", "nodes": true}', "nodes must be a whole number"),
        ('{"protocol": "x", "nodes": 0}', "nodes must be 1"),
        ('{"protocol": "x", "service": "loud"}', "unknown service 'loud'"),
        ('{"protocol": "x", "service": 3}', "service must be a name"),
        ('{"protocol": "x", "service": "resilient:x"}', "resilient:K"),
        ('{"protocol": "x", "options": []}', "options must be an object"),
        ('{"protocol": "x", "weather": 1}', "weather must be an object"),
        ('{"protocol": "x", "weather": {"rain": 1}}', "unknown field 'rain'"),
        ('{"protocol": "x", "weather": {"loopback": 1}}', "true or false"),
        ('{"protocol": "x", "weather": {"schedule": {}}}', "must be a list"),
        ('{"protocol": "x", "weather": {"schedule": [{"kind": "crash"}]}}', "at_us is missing"),
        ('{"protocol": "x", "weather": {"links": [[0, 1]]}}', "links must be a list of 3"),
        ('{"protocol": "x", "weather": {"link": {"delay": 7}}}', "delay must be a name"),
        ('{"protocol": "x", "weather": {"clocks": [{"ppm": 1000000}]}}', "within a million"),
    ],
)
def test_a_bad_file_is_refused_with_one_line(told: str, says: str) -> None:
    with pytest.raises(Misuse, match=says) as refused:
        plan_from_json(told)
    assert "\n" not in str(refused.value)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["protocol", "nodes", "weather", "schedule", "link", "links", "kind"]),
        inner,
        max_size=4,
    ),
    max_leaves=12,
))  # fmt: skip
def test_any_json_is_a_plan_or_a_misuse(told: object) -> None:
    with contextlib.suppress(Misuse):
        plan_from_json(json.dumps(told))


def test_an_unreadable_file_is_a_misuse(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="cannot read the plan"):
        read_plan(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(Misuse, match="cannot read the plan"):
        read_plan(tmp_path / "bytes.json")


def test_a_campaign_in_several_processes_sums_up_as_in_one() -> None:
    told: list[int] = []

    def progress(summary: Summary) -> None:
        told.append(summary.runs)

    one, two = (
        campaign(FLOOD, range(6), "chaos", (2, 3), jobs=jobs, messages=20, progress=progress)
        for jobs in (1, 2)
    )
    assert told == [1, 2, 3, 4, 5, 6] * 2
    assert not one.failures and not two.failures
    assert (one.sent, one.delivered, one.steps) == (two.sent, two.delivered, two.steps)
    assert one.rate > 1 and two.virtual_s == one.virtual_s


def test_a_campaign_stops_after_enough_failures_with_their_replay_commands() -> None:
    summary = campaign(
        FLOOD, range(1000), "loss", (3, 3), jobs=1, messages=60, failures_max=2, plan=BUGGY
    )
    assert len(summary.failures) == 2 and summary.runs < 50
    first = summary.failures[0]
    assert first.broken == ("no_duplication",) and "no_duplication" in first.text
    assert first.replay.startswith(f"unisono sim --protocol flood --nodes 3 --seed {first.seed}")
    assert first.replay.endswith("--option bug=1")


@pytest.mark.parametrize("wrong", [{"jobs": 0}, {"nodes": (5, 3)}, {"faults": "rain"}])
def test_a_campaign_that_cannot_be_run_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Misuse):
        campaign(FLOOD, range(3), **wrong)  # type: ignore[arg-type]
