"""A run of a sweep: is it put in place whole, found again, and done anew when it is not whole?"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.running import unisono
from tests.sim.flood import CRASHES, FLOOD
from unisono.errors import BadTrace, Misuse
from unisono.sim.campaign import plans_of
from unisono.sim.plan import Plan
from unisono.spark.shipping import packed
from unisono.spark.sweep import Sweep, runs
from unisono.spark.sweep.runs import MANIFEST, REPLAY, TaskResult, code_version, perform

PLAN = Plan(protocol="ring", nodes=3, seed=7, faults="loss", messages=12)
CODE = "this code"


def done(traces: Path, plan: Plan = PLAN, code: str = CODE, drops: bool = False) -> TaskResult:
    traces.mkdir(exist_ok=True)
    return perform(plan, traces, code, drops)


def folder(traces: Path, plan: Plan = PLAN) -> Path:
    return traces / f"run={plan.run_name}"


def content(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.glob("*.parquet")}


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        replace(PLAN, protocol="mtp", faults="chaos", options={"tokens": 2}, detail=True),
        replace(PLAN, protocol="rmcast", nodes=4, service=None),
    ],
    ids=lambda plan: plan.protocol,
)
def test_the_line_beside_a_trace_replays_it_to_the_byte(tmp_path: Path, plan: Plan) -> None:
    done(tmp_path / "traces", plan)
    line = (folder(tmp_path / "traces", plan) / REPLAY).read_text()
    command, *words = shlex.split(line)
    assert command == "unisono"
    again = tmp_path / "again"
    extra = ["--detail"] if plan.detail else []
    assert unisono(*words, "--trace", str(again), *extra).returncode == 0
    first = content(folder(tmp_path / "traces", plan))
    assert len(first) >= plan.nodes
    assert content(folder(again, plan)) == first


def test_a_run_that_is_there_is_not_simulated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = done(tmp_path)
    monkeypatch.setattr(runs, "run", None)
    again = done(tmp_path)
    assert (first.there, again.there) == (False, True)
    assert again._replace(there=False) == first
    assert first.octets == sum(map(len, content(folder(tmp_path)).values())) > 0


def flip(place: Path) -> None:
    path = min(place.glob("*.parquet"))
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 2] ^= 1
    path.write_bytes(octets)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip,
    "a missing file": lambda place: min(place.glob("*.parquet")).unlink(),
    "a file too many": lambda place: (place / "z-9.parquet").write_bytes(b"?"),
    "an empty file": lambda place: min(place.glob("*.parquet")).write_bytes(b""),
    "no manifest": lambda place: (place / MANIFEST).unlink(),
    "half a manifest": lambda place: (place / MANIFEST).write_bytes(
        (place / MANIFEST).read_bytes()[:100]
    ),
    "a manifest of something else": lambda place: (place / MANIFEST).write_text("[1]"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_done_anew(tmp_path: Path, damage: str) -> None:
    done(tmp_path)
    sound = content(folder(tmp_path))
    DAMAGES[damage](folder(tmp_path))
    assert not done(tmp_path).there
    assert content(folder(tmp_path)) == sound
    assert [path.name for path in tmp_path.iterdir()] == [folder(tmp_path).name]


def test_another_plan_or_other_code_is_done_anew(tmp_path: Path) -> None:
    done(tmp_path)
    assert not done(tmp_path, replace(PLAN, messages=13)).there
    assert not done(tmp_path, replace(PLAN, messages=13, detail=True)).there
    assert not done(tmp_path, replace(PLAN, messages=13, detail=True), "other code").there
    assert done(tmp_path, replace(PLAN, messages=13, detail=True), "other code").there


def test_tries_of_one_run_at_the_same_time_leave_one(tmp_path: Path) -> None:
    together = threading.Barrier(4)
    told = []

    def work() -> None:
        together.wait()
        told.append(done(tmp_path))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each._replace(wall_s=0, there=False) for each in map(hashable, told)}) == 1
    assert [path.name for path in tmp_path.iterdir()] == [folder(tmp_path).name]
    assert done(tmp_path).there


def hashable(told: TaskResult) -> TaskResult:
    return told._replace(broken=tuple(told.broken))  # type: ignore[arg-type]


def test_a_simulation_that_raises_is_a_failed_seed_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(runs, "run", fail_with(ZeroDivisionError("by the\nsea")))
        told = done(tmp_path)
    assert (told.broken, told.why) == (["simulation"], "ZeroDivisionError: by the sea")
    assert told.replay == PLAN.replay
    assert content(folder(tmp_path)) == {}
    assert not done(tmp_path).broken, "it may have been the machine: it is tried again"


@pytest.mark.parametrize("trouble", [OSError(28, "no space"), BadTrace("no space"), MemoryError()])
def test_trouble_of_the_machine_is_not_blamed_on_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    monkeypatch.setattr(runs, "run", fail_with(trouble))
    with pytest.raises(type(trouble)):
        done(tmp_path)
    assert not list(tmp_path.iterdir()), "and leaves nothing half done"


def fail_with(error: Exception) -> Callable[..., None]:
    def run(*_: object) -> None:
        raise error

    return run


def test_what_the_world_saw_break_is_told(tmp_path: Path) -> None:
    plan = replace(PLAN, protocol="flood", spec=FLOOD, options={"bug": CRASHES})
    told = done(tmp_path, plan)
    assert "no_crash" in told.broken
    assert told.why.startswith("no_crash: ")


def test_a_dropped_run_is_known_but_has_no_trace(tmp_path: Path) -> None:
    first = done(tmp_path)
    runs.drop(tmp_path, PLAN.run_name)
    assert sorted(path.name for path in folder(tmp_path).iterdir()) == [MANIFEST, REPLAY]
    known = done(tmp_path, drops=True)
    assert known == first._replace(there=True, dropped=True)
    assert not done(tmp_path, drops=False).there, "who wants all traces gets it anew"
    assert content(folder(tmp_path))


def test_what_a_killed_task_left_is_removed(tmp_path: Path) -> None:
    done(tmp_path)
    left = tmp_path / ".sweep-abc" / "run=half"
    left.mkdir(parents=True)
    (left / "a-1.parquet").write_bytes(b"half")
    runs.clean(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [folder(tmp_path).name]


def test_a_directory_of_the_same_name_on_another_machine_is_refused(tmp_path: Path) -> None:
    (tmp_path / runs.MARK).write_text("one")
    runs.check_directory(tmp_path, "one")
    for traces, token in ((tmp_path, "two"), (tmp_path / "nowhere", "one")):
        with pytest.raises(Misuse, match="storage that all machines share"):
            runs.check_directory(traces, token)


# -- what is asked for ---------------------------------------------------------------------------


def test_a_sweep_runs_the_plans_of_a_campaign() -> None:
    ask = Sweep(protocols=("ring", "mtp"), first=10, last=30, nodes=(3, 7), messages=50)
    plans = [ask.plan(index) for index in range(ask.count)]
    for which, name in enumerate(ask.protocols):
        assert plans[which::2] == list(plans_of(name, range(10, 30), "chaos", (3, 7), 50))
    assert len({plan.run_name for plan in plans}) == ask.count == 40


def test_the_package_is_the_same_code_when_it_is_shipped(tmp_path: Path) -> None:
    archive = packed()
    assert archive is not None and archive == packed()
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import unisono;"
        "from unisono.spark.sweep.runs import code_version;"
        "print(code_version(), unisono.__file__)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(archive)], capture_output=True, text=True, cwd=tmp_path
    )
    version, where = run.stdout.split()
    assert where.startswith(str(archive)), run.stderr
    assert version == code_version()


def test_the_manifest_says_what_a_run_was_made_of(tmp_path: Path) -> None:
    told = done(tmp_path)
    says = json.loads((folder(tmp_path) / MANIFEST).read_text())
    assert says["replay"] == PLAN.replay and says["code"] == CODE
    assert says["told"] == told._asdict()
    assert {name: size for name, (size, _) in says["files"].items()} == {
        name: len(octets) for name, octets in content(folder(tmp_path)).items()
    }
