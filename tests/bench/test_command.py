"""`unisono bench` as people and programs use it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.bench.made_up import results
from tests.bench.test_results import KEYS
from tests.cli.running import ends_with_its_members, refused, unisono
from unisono.bench import checkout
from unisono.bench.measure import ALL, BenchPlan
from unisono.bench.own import PREFIX
from unisono.cli import run
from unisono.cli.compare import plan_of, systems_of
from unisono.protocols import ordered

QUICK = "bench --members 2 --size 64 --senders 1 --seconds 0.3 --warm 0.1 --rounds 1".split()
OURS = [PREFIX + name for name in ordered()]


# -- for real --------------------------------------------------------------------------------------


@pytest.mark.real
def test_a_quick_run_prints_json_and_writes_a_page(tmp_path: Path) -> None:
    # A folder of this name in the working directory is not ours.
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("raise RuntimeError('not ours')")
    out = tmp_path / "deep" / "bench"
    words = ("--protocol", "ring", "--peer", "raw", "--json", "--out", str(out))
    found = unisono(*QUICK, *words, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    assert [row["system"] for row in told["results"]] == ["unisono-ring", "raw"]
    for row in told["results"]:
        assert set(row) == set(KEYS)
        assert (row["size"], row["members"], row["senders"]) == (64, 2, 1)
        assert row["messages_per_s"] > 0
        assert row["megabytes_per_s"] == pytest.approx(row["messages_per_s"] * 64e-6, rel=0.01)
        for name in ("latency_us", "loaded_latency_us"):
            assert 0 < row[name]["p50"] <= row[name]["p99"]
        assert row["cpu_us_per_message"] > 0 and row["rss_mb_max"] > 1
    assert told["results"][0]["delivered_share"] == 1
    assert told["results"][0]["against"].keys() == {"raw unreliable"}
    assert (told["about"]["net"], told["about"]["rounds"]) == ("loopback", 1)
    assert told["skipped"] == {} and told["troubles"] == []
    assert json.loads((out / "results.json").read_text()) == told
    assert "unisono-ring" in (out / "bench.html").read_text()


@pytest.mark.real
@pytest.mark.root
@pytest.mark.slow
def test_a_run_in_namespaces_leaves_none() -> None:
    found = unisono(*QUICK, "--net", "namespaces", "--protocol", "mtp", "--json")
    assert found.returncode == 0, found.stderr
    (row,) = json.loads(found.stdout)["results"]
    assert row["system"] == "unisono-mtp" and row["delivered_share"] == 1
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    # Others may be at work here too: those of ours bear the number of a process that is gone.
    pids = {line.split("-")[0].removeprefix("unibench") for line in left.splitlines()}
    assert not [pid for pid in pids if pid.isdigit() and not Path(f"/proc/{pid}").exists()]


@pytest.mark.real
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for children in /proc")
@pytest.mark.parametrize(
    ("sign", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
@pytest.mark.parametrize("command", [[*QUICK, "--seconds", "30"], ["bench", "paper"]], ids=len)
def test_an_interrupted_run_leaves_no_process(
    command: list[str], tmp_path: Path, sign: int, code: int
) -> None:
    ends_with_its_members(command, tmp_path, sign, code)


# -- what is asked for -----------------------------------------------------------------------------


def test_the_default_plan_is_small() -> None:
    plan = plan_of({})
    assert plan == BenchPlan()
    assert (plan.net, plan.members, plan.sizes) == ("loopback", (3,), (64, 1000))
    assert plan.senders == (1, ALL) and not plan.recovery
    assert [system.name for system in systems_of({})] == OURS


def test_values_are_separated_by_commas_or_repeated_options() -> None:
    given = {
        "members": ["2,16", "3"],
        "size": ["16", "1k,1M,16"],
        "senders": ["2,all"],
        "service": ["agreed,SAFE"],
        "via": ["daemon,library"],
        "load": ["0.25,0.9"],
        "warm": 1.5,
    }
    plan = plan_of(given)
    assert plan.members == (2, 16, 3) and plan.sizes == (16, 1024, 1 << 20)
    assert plan.senders == (2, ALL) and plan.services == ("agreed", "safe")
    assert plan.vias == ("daemon", "library") and plan.warm_s == 1.5
    assert plan.loads == (0.25, 0.9)


def test_peers_are_chosen_by_name_or_all_together() -> None:
    known = list(checkout.extras("this test").peers())
    assert known[-1] == "raw"
    names = [system.name for system in systems_of({"protocol": ["mtp"], "peer": ["raw"]})]
    assert names == ["unisono-mtp", "raw"]
    everyone = [system.name for system in systems_of({"protocol": ["ring"], "peer": ["all"]})]
    assert everyone == ["unisono-ring", *known]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--net wifi", ("--net", "loopback or namespaces")),
        ("--members 1", ("--members", "2 to 64")),
        ("--members many", ("--members", "many")),
        ("--size 15", ("--size", "16")),
        ("--size 1G", ("--size", "1M")),
        ("--size 17M", ("--size", "16M")),
        ("--senders 0", ("--senders", "all")),
        ("--senders 4", ("--senders", "3 members")),
        ("--protocol nope", ("nope", "ring")),
        ("--service fast", ("--service", "agreed")),
        ("--load 1.5", ("--load", "0.25")),
        ("--via pigeon", ("--via", "daemon")),
        ("--peer nope", ("nope", "raw")),
        ("--option speed=1", ("speed", "turn_packets")),
        ("--state-bytes 5", ("--recovery",)),
        ("--seconds 0", ("--seconds",)),
        ("--rounds 0", ("--rounds",)),
        ("--out file", ("--out", "file")),
        ("raw --size 64", ("--size", "bench all")),
        ("raw --state-bytes 64", ("--state-bytes", "bench all")),
        ("paper --recovery", ("--recovery", "bench all")),
        ("paper --protocol ring --protocol mtp", ("--protocol", "one")),
        ("paper --protocol rmcast", ("rmcast", "total order", "ring")),
        ("paper --option speed=1", ("speed", "turn_packets")),
        ("paper --seconds 2", ("--seconds", "raw")),
        ("--quick", ("--quick", "paper")),
        ("raw --out x", ("--out", "paper")),
    ],
)
def test_options_that_do_not_fit_are_refused(
    line: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    code = run(["bench", *line.split()])
    told = capsys.readouterr()
    refused(subprocess.CompletedProcess(line, code, told.out, told.err), *words)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("line", ["--peer raw", "--out here", "paper --quick"])
def test_without_a_checkout_what_measures_others_is_refused(
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    code = run(["bench", *line.split()])
    told = capsys.readouterr()
    found = subprocess.CompletedProcess(line, code, told.out, told.err)
    refused(found, line.split()[0], "clone the repository", "make setup")
    assert not list(tmp_path.iterdir())
    assert [each.name for each in systems_of({})] == OURS


def test_a_system_that_refuses_is_skipped_and_an_empty_run_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = "bench --protocol rmcast --service agreed --peer raw --senders all"
    assert run(line.split()) == 3
    told = capsys.readouterr()
    assert not told.out
    first, second, last = told.err.splitlines()
    assert first.startswith("unisono: skipped: unisono-rmcast has no agreed service")
    assert second.startswith("unisono: skipped: raw has one sender")
    assert last.startswith("unisono: nothing was measured")


def test_the_table_is_whole_on_a_narrow_screen(capsys: pytest.CaptureFixture[str]) -> None:
    from unisono.cli.compare import show

    show(results(sizes=(64, 1 << 20)))
    told = capsys.readouterr().out
    assert "unisono-ring" in told and "1,048,576 B, 3 of 3 send" in told
    assert "× corosync" in told and "a killed member costs 925 ms" in told
    assert "…" not in told
