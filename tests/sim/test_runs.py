"""Whole runs: the same plan is the same run, faults really happen, and all heals."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness import output_of
from tests.sim.flood import CRASHES, DOUBLE, FLOOD, SPINS
from unisono.errors import Misuse
from unisono.model import Resilient, Service, ServiceLevel
from unisono.sim import (
    PROFILES,
    FaultEvent,
    LinkPlan,
    Outcome,
    Plan,
    Weather,
    drawn,
    outcome_json,
    plan_from_json,
    plan_to_json,
    run,
)
from unisono.sim.plan import service_name, service_of
from unisono.trace.record import PROBE

ROOT = Path(__file__).parents[2]
SMALL = replace(FLOOD, options={**FLOOD.options, "members_count_max": 3})


def plan(seed: int = 1, faults: str = "chaos", nodes: int = 4, **more: object) -> Plan:
    return replace(
        Plan(protocol="flood", spec=FLOOD, seed=seed, faults=faults, nodes=nodes, messages=60),
        **more,  # type: ignore[arg-type]
    )


def fingerprint(outcome: Outcome) -> str:
    assert outcome.history is not None
    text = "\n".join(map(repr, outcome.history.rows)) + repr(sorted(outcome.counts.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def files_of(directory: Path) -> dict[str, bytes]:
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


# -- the same plan is the same run -----------------------------------------------------------------

PROGRAM = """
import sys
from tests.sim.test_runs import fingerprint, plan, run
for seed in (3, 4):
    print(fingerprint(run(plan(seed, trace=sys.argv[1]))))
"""


def test_a_plan_is_one_run_whatever_the_hash_seed(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pip install 'unisono[trace]'")
    told, files = [], []
    for hash_seed in ("1", "2"):
        where = tmp_path / hash_seed
        told.append(output_of("-c", PROGRAM, str(where), PYTHONHASHSEED=hash_seed))
        files.append(files_of(where))
    assert told[0] == told[1] != ""
    assert files[0] == files[1] and len(files[0]) >= 8
    assert told[0].split()[0] == fingerprint(run(plan(3)))


def test_another_seed_is_another_run() -> None:
    assert fingerprint(run(plan(3))) != fingerprint(run(plan(4)))


# -- faults and healing ----------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [each for each in PROFILES if each != "chaos"])
def test_flooding_keeps_its_laws_and_heals(faults: str) -> None:
    for seed in range(6):
        outcome = run(plan(seed, faults))
        assert not outcome.violations, outcome.replay
        assert outcome.laws["progress"] == outcome.laws["no_crash"] == "kept"
        assert outcome.laws["total_order"] == "not claimed"


def test_every_node_probes_and_everyone_delivers_the_probes() -> None:
    outcome = run(plan(5))
    assert outcome.history is not None
    rows = outcome.history.rows
    probes = {(r.node, r.incarnation, r.number) for r in rows if r.detail == PROBE}
    assert len(probes) == 8 and {node for node, _, _ in probes} == set("abcd")
    heard = Counter((r.sender, r.sender_incarnation, r.number) for r in rows if r.kind == "deliver")
    assert all(heard[probe] == 4 for probe in probes)


MILD = """lost burst_lost duplicated reordered corrupted overflowed blocked block split crashed
    amnesia paused late_timers inboxed left departed stopped congested incarnations persisted
    captured held_back"""
CHAOS = """held_back_long torn setback isolate flap rotate drifted jumped stood filled
    namesakes"""


@pytest.mark.parametrize(("faults", "seeds", "kinds"), [("mild", 30, MILD), ("chaos", 60, CHAOS)])
def test_over_some_seeds_every_kind_of_fault_happens(faults: str, seeds: int, kinds: str) -> None:
    seen: Counter[str] = Counter()
    for seed in range(seeds):
        seen.update(run(plan(seed, faults, options={"fragile": 1})).counts)
    for kind in kinds.split():
        assert seen[kind] > 0, kind


def test_profiles_keep_to_their_kinds() -> None:
    calm: Counter[str] = Counter()
    lossy: Counter[str] = Counter()
    for seed in range(5):
        calm.update(run(plan(seed, "none")).counts)
        lossy.update(run(plan(seed, "loss")).counts)
    assert not set(calm) & {"lost", "crashed", "paused", "blocked", "corrupted", "incarnations"}
    assert lossy["lost"] + lossy["burst_lost"] > 0
    assert not set(lossy) & {"crashed", "amnesia", "paused", "blocked"}


def test_who_stops_joins_again_as_a_new_incarnation() -> None:
    sleep = FaultEvent("pause", 1_000_000, 900_000, (1,))
    weather = Weather(fault_us=3_000_000, schedule=(sleep,))
    outcome = run(plan(weather=weather, options={"fragile": 1}))
    assert outcome.history is not None and not outcome.violations
    ends = [(r.node, r.incarnation, r.detail) for r in outcome.history.rows if r.kind == "leave"]
    assert ends == [("b", 1, "was asleep")]
    assert outcome.counts["stopped"] == outcome.counts["incarnations"] == 1


def test_a_run_sends_small_and_large_messages() -> None:
    weather = Weather(large_ppm=300_000, large_packets=4, packet_bytes_max=600)
    outcome = run(plan(weather=weather))
    assert outcome.history is not None and not outcome.violations
    sizes = [r.size or 0 for r in outcome.history.rows if r.kind == "send"]
    assert min(sizes) < 150 and max(sizes) > 1200


# -- options that a protocol wants varied ----------------------------------------------------------

VARIED = replace(FLOOD, swarm={"fragile": (0, 1), "bug": (0, DOUBLE, 7, 8, 9)})


def test_options_are_drawn_by_swarm_from_dice_of_their_own() -> None:
    plain, varied = (
        [drawn(plan(seed, spec=spec)) for seed in range(40)] for spec in (FLOOD, VARIED)
    )
    assert [each.weather for each in plain] == [each.weather for each in varied]
    assert {each.options["fragile"] for each in varied} == {0, 1}
    assert {each.options["bug"] for each in varied} == {0, DOUBLE, 7, 8, 9}
    again = [drawn(plan(seed, spec=VARIED, options={"bug": 3})) for seed in range(40)]
    assert {each.options["bug"] for each in again} == {3}, "what the plan sets stays"
    assert [e.options["fragile"] for e in again] == [e.options["fragile"] for e in varied]


def test_some_options_are_drawn_in_chaos_alone_and_may_stay_as_they_are() -> None:
    spec = replace(FLOOD, chaos={"fragile": (None, 1)})
    seen = [drawn(plan(seed, spec=spec)).options for seed in range(20)]
    assert {} in seen and {"fragile": 1} in seen
    assert not any(drawn(plan(seed, spec=spec, faults="mild")).options for seed in range(20))


def test_a_run_without_faults_or_with_its_weather_draws_no_options() -> None:
    assert drawn(plan(spec=VARIED, faults="none")).options == {}
    assert drawn(plan(spec=VARIED, weather=Weather())).options == {}


def test_the_seed_replays_the_drawn_options() -> None:
    seed = next(n for n in range(40) if drawn(plan(n, spec=VARIED)).options["bug"] == DOUBLE)
    asked = plan(seed, spec=VARIED, nodes=3)
    outcome = run(asked)
    assert "--option" not in outcome.replay
    assert outcome.options == drawn(asked).options == outcome_json(outcome)["options"]
    explicit = replace(drawn(asked), spec=FLOOD)
    assert fingerprint(run(explicit)) == fingerprint(outcome)
    assert plan_from_json(plan_to_json(explicit)).options["bug"] == DOUBLE


# -- what is wrong is seen -------------------------------------------------------------------------


@pytest.mark.catches("no_duplication")
def test_a_planted_double_delivery_is_found() -> None:
    weather = Weather(link=LinkPlan(duplicate_ppm=200_000))
    outcome = run(plan(options={"bug": DOUBLE}, weather=weather))
    assert outcome.broken == ("no_duplication",)


def test_an_exception_in_a_core_is_a_violation() -> None:
    outcome = run(plan(options={"bug": CRASHES}))
    assert outcome.broken == ("no_crash",)
    detail = outcome.violations[0].detail
    assert "ZeroDivisionError: planted" in detail and "flood.py" in detail and "/" not in detail


def test_work_without_end_on_the_spot_is_a_violation() -> None:
    outcome = run(plan(options={"bug": SPINS}))
    assert "no_livelock" in outcome.broken
    assert outcome.virtual_s < 15


@pytest.mark.catches("progress")
def test_a_group_that_does_not_come_together_has_not_progressed() -> None:
    outcome = run(plan(weather=Weather(fault_us=0), progress_us=100_000))
    assert outcome.broken == ("progress",)
    assert "not together within 0.1 s" in outcome.violations[0].detail


# -- the outcome and the plan ----------------------------------------------------------------------


def test_the_outcome_has_what_the_command_prints() -> None:
    outcome = run(plan(4217), time.perf_counter)
    told = outcome_json(outcome)
    wanted = "protocol seed nodes faults laws violations sent delivered steps virtual_s wall_s"
    assert set(wanted.split()) <= set(told)
    assert outcome.wall_s > 0 and outcome.rate > 1 and outcome.virtual_s > 3
    assert outcome.sent >= 8 and outcome.delivered >= 32
    line = "unisono sim --protocol flood --nodes 4 --seed 4217 --faults chaos --messages 60"
    assert outcome.replay == line


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"nodes": 0}, "nodes must be 1 to"),
        ({"faults": "rain"}, "write one of none, loss, crash, partition, mild, chaos"),
        ({"messages": -1}, "messages must be"),
        ({"seed": -1}, "seed must not be negative"),
        ({"progress_us": 0}, "above 0"),
        ({"options": {"speed": 1}}, "flood has no option 'speed'"),
        ({"service": Service.SAFE}, "flood does not offer safe; it offers: reliable, fifo"),
        ({"service": Resilient(2)}, "does not offer resilient:2"),
        ({"spec": SMALL}, "nodes must be at most 3, the members_count_max of flood, not 4"),
        ({"spec": SMALL, "options": {"members_count_max": 2}}, "nodes must be at most 2"),
        ({"weather": Weather(link=LinkPlan(delay="odd"))}, "unknown delay 'odd'"),
        ({"weather": Weather(link=LinkPlan(loss_ppm=2_000_000))}, "loss_ppm must be at most"),
        ({"weather": Weather(schedule=(FaultEvent("rain", 1, 1, (0,)),))}, "unknown fault 'rain'"),
        ({"weather": Weather(schedule=(FaultEvent("crash", 1, 1, (9,)),))}, "node 9 is not one"),
        ({"weather": Weather(schedule=(FaultEvent("block", 1, 1, (0,)),))}, "the other side"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(Misuse, match=says):
        run(plan(**wrong))  # type: ignore[arg-type]


def test_as_many_nodes_as_the_protocol_takes_are_run() -> None:
    assert run(plan(spec=SMALL, nodes=3, messages=5)).nodes == 3
    assert run(plan(spec=SMALL, options={"members_count_max": 4}, messages=5)).nodes == 4


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("resilient:2", Resilient(2)),
        ("resilient(2)", Resilient(2)),
        ("resilient(majority)", Resilient(Resilient.MAJORITY)),
        ("resilient:all", Resilient(Resilient.ALL)),
        ("AGREED", Service.AGREED),
    ],
)
def test_a_service_is_written_as_in_join(name: str, level: ServiceLevel) -> None:
    assert service_of(name) == level
    assert service_of(service_name(level)) == level


@pytest.mark.parametrize("name", ["resilient", "resilient:", "resilient(x)", "resilient:2)"])
def test_a_service_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(Misuse, match="write resilient:K"):
        service_of(name)
