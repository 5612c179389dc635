"""`unisono sweep`: does it say what `unisono verify` says, go on, and name what failed?"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.running import refused, unisono
from tests.documents import blocks, section
from tests.waiting import LIMIT_S
from unisono.cli import sweep as command
from unisono.cli.verify import claims
from unisono.errors import Misuse
from unisono.laws import judge_all
from unisono.spark.sweep import Sweep, SweepProgress, sweep, tasks
from unisono.spark.sweep.runs import MANIFEST, MARK, _files, code_version
from unisono.trace.reading import read_trace

SMALL = {"nodes": "3", "messages": 15, "faults": "loss"}


@pytest.fixture
def swept(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """The command, on the session that all tests share: its exit code, and what it printed."""

    @contextmanager
    def shared(*_: object) -> Iterator[Any]:
        yield spark

    monkeypatch.setattr(command, "session_on", shared)

    def run(out: Path, keep: str = "all", as_json: bool = True, **words: Any) -> tuple[int, str]:
        code = command.sweep(SMALL | words, out, keep, "local[2]", (), as_json)
        return code, capsys.readouterr().out

    return run


def test_a_sweep_agrees_with_verify_goes_on_and_names_what_failed(
    swept: Callable[..., tuple[int, str]],
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "sweep"
    code, printed = swept(out, protocol="all", seeds="0:3")
    said = json.loads(printed)
    assert (code, said["runs"], said["simulated"], said["failed"]) == (0, 15, 15, 0)
    assert said["protocols"] == ["rmcast", "mtp", "rmp", "transis", "ring"]
    assert said["sent"] > 15 * 15 and said["octets"] > 0

    trace = read_trace(out / "traces")
    found = judge_all(trace.histories(), claims)
    assert len(found) == 15 and trace.quarantined == []
    assert verdicts_in(spark, out) == {run: verdict.laws for run, verdict in found.items()}
    outcomes = pq.read_table(out / "outcomes.parquet").to_pylist()
    assert sorted(row["run"] for row in outcomes) == sorted(found)
    for row in outcomes:
        beside = (out / "traces" / f"run={row['run']}" / "replay.txt").read_text()
        assert beside == row["replay"] + "\n"

    (program,) = blocks(section("SPARK", "Sweeps"), "python")
    exec(program, {})

    # One of them is changed behind its back, so that only the trace can tell.
    victim = outcomes[5]["run"]
    forge(out / "traces" / f"run={victim}")
    code, printed = swept(out, keep="failed", as_json=False, protocol="all", seeds="0:3")
    assert code == 1
    assert "0 simulated" in printed and "15 existed" in printed
    (line,) = [line for line in printed.splitlines() if "•" in line]
    assert line.split()[1] == f"{victim}:"
    assert "no_duplication" in line and "judged differently" in line
    assert f"replay: {outcomes[5]['replay']}\n" in printed
    left = {path.parent.name for path in (out / "traces").glob("run=*/*.parquet")}
    assert left == {f"run={victim}"}, "only the trace of the failed run is kept"

    # The rest is known without its trace, also to the tables.
    code, printed = swept(out, keep="failed", protocol="all", seeds="0:3")
    said = json.loads(printed)
    assert (code, said["simulated"], said["failed"]) == (1, 0, 1)
    assert said["failures"][0]["run"] == victim
    assert len(verdicts_in(spark, out)) == 15


def verdicts_in(spark: Any, out: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    place = out / "gold" / "verdicts"
    for row in spark.read.parquet(str(place)).collect():
        found.setdefault(row.run, {})[row.law] = row.verdict
    return found


def forge(folder: Path) -> None:
    """One life delivered one message twice, and the manifest does not mind."""
    path = min(folder.glob("*.parquet"))
    rows = pq.read_table(path).to_pylist()
    delivered = next(row for row in rows if row["kind"] == "deliver")
    rows.append({**delivered, "step": rows[-1]["step"] + 1})
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(path)), path)
    says = json.loads((folder / MANIFEST).read_text())
    says["files"] = _files(folder)
    (folder / MANIFEST).write_text(json.dumps(says))


def test_a_sweep_that_is_stopped_goes_on_where_it_was(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "TASK_RUNS", 1)
    ask = Sweep(protocols=("rmcast",), first=0, last=24, faults="loss", nodes=(3, 3), messages=10)
    told: list[SweepProgress] = []
    traces = tmp_path / "traces"

    def stop() -> None:
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end and len(list(traces.glob("run=*"))) < 3:
            time.sleep(0.01)
        spark.sparkContext.cancelAllJobs()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(Misuse, match=r"the sweep failed: .*; completed runs are kept"):
        sweep(spark, ask, tmp_path, report=told.append)
    stopper.join()
    done = len(list(traces.glob("run=*")))
    assert 3 <= done < 24

    (tmp_path / "traces" / ".sweep-left").mkdir()
    place = tasks.TraceTarget(traces, (traces / MARK).read_text(), code_version(), False)
    found = tasks.simulate_runs(spark, ask, place, range(24), lambda done, failed: None)
    assert sum(each.there for each in found) >= done
    assert [each.seed for each in found] == list(range(24))


def test_progress_is_told_while_tasks_work(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "TASK_RUNS", 2)
    monkeypatch.setattr(tasks, "REPORT_EVERY_S", 0.05)
    ask = Sweep(protocols=("rmcast",), first=0, last=16, faults="loss", nodes=(3, 3), messages=30)
    (tmp_path / MARK).write_text("token")
    counted: list[tuple[int, int]] = []
    place = tasks.TraceTarget(tmp_path, "token", code_version(), False)
    tasks.simulate_runs(spark, ask, place, range(16), lambda *told: counted.append(told))
    assert counted == sorted(counted) and counted[-1] == (16, 0)
    assert any(0 < done < 16 for done, _ in counted)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (tasks.TraceTarget(Path("/nowhere"), "token", code_version(), False), "all machines share"),
        (
            tasks.TraceTarget(Path("/nowhere"), "token", "other", False),
            "another version of unisono",
        ),
    ],
    ids=["no shared storage", "other code"],
)
def test_a_cluster_that_is_not_set_up_gets_one_clear_line(
    spark: Any, place: tasks.TraceTarget, words: str
) -> None:
    ask = Sweep(protocols=("rmcast",), first=0, last=1)
    with pytest.raises(Misuse, match=words) as refusal:
        tasks.simulate_runs(spark, ask, place, range(1), lambda done, failed: None)
    assert len(str(refusal.value).splitlines()) == 1


# -- bad arguments: told before Spark starts -----------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--seeds 5:1", "--seeds '5:1'"),
        ("--seeds 0:1000000", "5,000,000 runs are more than 1,000,000"),
        ("--seeds 0:1 --nodes 3-99", "nodes must be"),
        ("--seeds 0:1 --protocol ring,foo", "no protocol 'foo'"),
        ("--seeds 0:1 --protocol ring,ring", "named twice"),
        ("--seeds 0:1 --option nix=1", "no option 'nix'"),
        ("--seeds 0:1 --conf cores=1", "spark.name=value"),
        ("--seeds 0:1 --keep some", "all, failed"),
        ("--seeds 0:1 --faults rain", "unknown faults 'rain'"),
        ("--seeds 0:1 --protocol rmcast --service safe", "does not offer safe"),
        ("--seeds 0:1 --master here", "local[*]"),
    ],
)
def test_a_bad_argument_gets_one_line(
    arguments: str, words: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from unisono.cli import run

    out = tmp_path / "out"
    assert run(["sweep", "--out", str(out), *arguments.split()]) == 2
    said = capfd.readouterr()
    assert not said.out and said.err.startswith("unisono: ") and said.err.count("\n") == 1
    assert words in said.err
    assert not out.exists()


def test_what_no_sweep_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "notes.txt").write_text("mine")
    with pytest.raises(Misuse, match="exists and is not a sweep's"):
        sweep(None, Sweep(protocols=("ring",), first=0, last=1), tmp_path)  # type: ignore[arg-type]
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["notes.txt"]


def test_an_option_that_is_not_there_is_refused_by_the_parser() -> None:
    refused(unisono("sweep", "--out", "x"), "--seeds")
