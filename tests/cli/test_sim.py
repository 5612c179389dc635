"""`unisono sim` and `unisono verify` as a user meets them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.running import here, refused, unisono
from tests.laws.doctoring import cut
from tests.waiting import LIMIT_S
from unisono.trace.parquet import SCHEMA

VERDICTS = {"kept", "broken", "not claimed"}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("traced")
    found = unisono(
        "sim", "--nodes", "3", "--seed", "7", "--messages", "30", "--trace", "trace", cwd=place
    )
    assert found.returncode == 0, found.stderr
    return place / "trace"


def test_one_run_as_json_has_the_promised_shape(capfd: pytest.CaptureFixture[str]) -> None:
    found = here(capfd, "sim", "--nodes", "3", "--seed", "5", "--messages", "20", "--json")
    told = json.loads(found.stdout)
    promised = "protocol seed nodes faults laws violations sent delivered steps virtual_s wall_s"
    assert set(promised.split()) <= told.keys()
    assert (told["protocol"], told["seed"], told["nodes"]) == ("ring", 5, 3)
    assert set(told["laws"].values()) <= VERDICTS
    assert told["laws"]["safe"] == "kept"
    assert told["laws"]["prefix"] == "not claimed"
    assert told["violations"] == []
    assert found.returncode == 0


def test_one_run_as_text_reports_its_speed() -> None:
    found = unisono("sim", "--nodes", "3", "--messages", "20", "--option", "tries=20")
    assert "kept" in found.stdout
    assert "seed 1, " in found.stdout and ", tries 20\n" in found.stdout
    assert "simulated seconds a second" in found.stdout
    assert found.returncode == 0


def test_a_broken_law_is_shown_with_its_replay_and_shrunk(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = {"protocol": "rmcast", "nodes": 3, "messages": 5, "progress_us": 1}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    found = here(capfd, "sim", "--plan", "plan.json", "--shrink")
    assert found.returncode == 1
    assert "broken: progress" in found.stdout
    assert "replay: unisono sim --plan plan.json" in found.stdout
    small = "small-rmcast-chaos-3-1.json"
    assert f"unisono sim --plan {small}" in found.stdout
    again = here(capfd, "sim", "--plan", small, "--json")
    assert again.returncode == 1
    assert json.loads(again.stdout)["laws"]["progress"] == "broken"


def test_a_campaign_sums_up() -> None:
    found = unisono("sim", "--seeds", "0:6", "--messages", "20", "--jobs", "1", "--json")
    told = json.loads(found.stdout)
    assert (told["runs"], told["failures"], told["seeds"]) == (6, [], [0, 6])
    assert told["rate"] > 0
    assert found.returncode == 0


def test_a_sound_trace_is_kept(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = here(capfd, "verify", str(trace), "--json")
    told = json.loads(found.stdout)
    assert told.keys() == {"runs", "events", "quarantined", "contradicted"}
    (run,) = told["runs"].values()
    assert run["violations"] == []
    assert run["laws"]["fifo"] == "kept"
    assert told["events"] > 100
    assert told["quarantined"] == 0
    assert found.returncode == 0
    assert "kept" in here(capfd, "verify", str(trace)).stdout


def doctored(trace: Path, place: Path, protocol: str = "rmcast") -> Path:
    """The same, but one life delivered one message twice."""
    for path in trace.rglob("*.parquet"):
        rows = pq.read_table(path).to_pylist()
        delivered = [place for place, row in enumerate(rows) if row["kind"] == "deliver"]
        if delivered:
            rows.append({**rows[delivered[0]], "step": rows[-1]["step"] + 1})
        rows = [{**row, "protocol": protocol} for row in rows]
        copy = place / path.relative_to(trace)
        copy.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(path)), copy)
    return place


@pytest.mark.parametrize("progress_us", [1, 30_000_000])
def test_sim_and_verify_agree_on_progress(
    tmp_path: Path,
    progress_us: int,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = {"protocol": "rmcast", "nodes": 3, "messages": 5, "progress_us": progress_us}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    arguments = ("--plan", "plan.json", "--trace", "trace", "--json")
    simulated = json.loads(here(capfd, "sim", *arguments).stdout)
    (run,) = json.loads(here(capfd, "verify", "trace", "--json").stdout)["runs"].values()
    assert run["laws"]["progress"] == ("broken" if progress_us == 1 else "kept")
    told = {law: simulated["laws"][law] for law in run["laws"]}
    assert told == run["laws"]


def copied(trace: Path, place: Path) -> tuple[Path, list[dict[str, object]]]:
    """A copy of the trace, and the path of a second file of one of its incarnations."""
    shutil.copytree(trace, place, dirs_exist_ok=True)
    path = sorted(place.rglob("*.parquet"))[0]
    rows = pq.read_table(path).to_pylist()
    return path.with_name(f"{path.name}.copy.parquet"), rows


def test_rows_that_were_not_judged_are_no_success_unless_allowed(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    second, rows = copied(trace, tmp_path)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), second)
    found = here(capfd, "verify", str(tmp_path), "--json")
    told = json.loads(found.stdout)
    assert (told["quarantined"], told["contradicted"]) == (len(rows), {})
    assert found.returncode == 2
    assert "--allow-quarantined" in here(capfd, "verify", str(tmp_path)).stdout
    assert here(capfd, "verify", str(tmp_path), "--allow-quarantined").returncode == 0


def test_an_incarnation_with_two_contradicting_files_is_broken(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    second, rows = copied(trace, tmp_path)
    some = next(row for row in rows if row["kind"] == "deliver")
    some["digest"] = 7
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), second)
    found = here(capfd, "verify", str(tmp_path), "--allow-quarantined", "--json")
    (lives,) = json.loads(found.stdout)["contradicted"].values()
    assert lives == [f"{some['node']}#{some['incarnation']}"]
    assert found.returncode == 1
    assert f"contradict each other about {lives[0]}" in here(capfd, "verify", str(tmp_path)).stdout


def test_the_end_of_a_killed_process_is_missing_not_unjudged(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    second, _ = copied(trace, tmp_path)
    path = second.with_name(second.name.removesuffix(".copy.parquet"))
    cut(path)
    assert here(capfd, "verify", str(tmp_path)).returncode == 0


def test_a_doctored_trace_is_broken(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = doctored(trace, tmp_path)
    found = here(capfd, "verify", str(place), "--json")
    (run,) = json.loads(found.stdout)["runs"].values()
    assert run["laws"]["no_duplication"] == "broken"
    assert run["violations"]
    assert found.returncode == 1
    shown = here(capfd, "verify", str(place))
    assert shown.returncode == 1
    assert "no_duplication" in shown.stdout


def test_of_an_unknown_protocol_little_is_asked_but_that(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = doctored(trace, tmp_path, protocol="homemade")
    found = here(capfd, "verify", str(place), "--json")
    (run,) = json.loads(found.stdout)["runs"].values()
    asked = {law for law, verdict in run["laws"].items() if verdict != "not claimed"}
    assert asked == {"no_creation", "no_duplication"}
    assert found.returncode == 1
    assert "not in the catalogue" in here(capfd, "verify", str(place)).stdout


def test_a_pipe_without_a_reader_ends_quietly(trace: Path) -> None:
    import subprocess

    from tests.harness import ENVIRONMENT, UNISONO

    for arguments in (("verify", str(trace), "--json"), ("sim", "--messages", "5")):
        with subprocess.Popen(
            [*UNISONO, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(LIMIT_S) == 141


@pytest.mark.real
def test_the_benchmark_measures(tmp_path: Path) -> None:
    found = unisono("bench", "raw", "--seconds", "0.2", "--rounds", "1", "--json")
    told = json.loads(found.stdout)
    assert told["driver_packets_s"] > 0
    assert found.returncode == 0


def test_a_benchmark_of_nothing_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    refused(here(capfd, "bench", "--rounds", "0"), "--rounds")


def test_the_line_that_makes_a_traced_run_again_lies_beside_it(trace: Path) -> None:
    (line,) = [path.read_text() for path in trace.glob("run=*/replay.txt")]
    assert line == "unisono sim --protocol ring --nodes 3 --seed 7 --faults chaos --messages 30\n"
