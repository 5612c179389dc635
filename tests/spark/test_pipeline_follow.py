"""The pipeline as a stream: runs are judged as they grow, and not blamed early."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import here, refused
from tests.laws.stories import story, write_trace
from unisono.errors import BadTrace
from unisono.laws import Verdict
from unisono.spark import follow, tasks
from unisono.spark.follow import Judged, VerdictStream
from unisono.spark.pipeline import PipelineResult, run_pipeline
from unisono.spark.results import runs_in
from unisono.spark.runs import Input, changed, inputs_in
from unisono.trace.files import TraceFile, runs_of, trace_files

LAWS = ("no_duplication", "validity")
CLAIMED = {"story": LAWS}
TOLD = story("a: view 1 a b | send\nb: view 1 a b | a:1 | a:1", run="grown").rows


class World:
    """Time that only passes between turns, in which a run grows."""

    def __init__(self, spark: Any, top: Path) -> None:
        self.spark = spark
        self.top = top
        self.now = 0.0
        self.turns = 0
        self.file: TraceFile | None = None
        self.killed: TraceFile | None = None
        (top / "trace").mkdir()

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.turns += 1
        trace = self.top / "trace"
        if self.turns == 1:
            # One life ended, without a delivery of its own message; another goes on.
            with_end = TraceFile(trace, "grown", "a", 1)
            for row in TOLD[:2]:
                with_end.write(row)
            with_end.close()
            self.file = TraceFile(trace, "grown", "b", 1)
            self.write(TOLD[2:4])
            # Another run, of which one life is killed.
            for name, rows in (("a", TOLD[:2]), ("b", TOLD[2:4])):
                told = TraceFile(trace, "killed", name, 1)
                for row in rows:
                    told.write(row)
                told.close() if name == "a" else told.flush()
                self.killed = told
        elif self.turns == 2:
            assert self.to_do() == ["grown", "killed"], "judged so far, so not for good"
            assert self.kept() == {"grown": None, "killed": None}
            assert self.to_do(going_on=True) == []
            self.write(TOLD[4:])
        elif self.turns == 4:
            assert self.file
            self.file.close()

    def write(self, rows: Any) -> None:
        assert self.file
        for row in rows:
            self.file.write(row)
        self.file.flush()

    def kept(self) -> dict[str, bool | None]:
        return {row["run"]: row["kept"] for row in runs_in(self.top / "out")}

    def to_do(self, going_on: bool = False) -> list[str]:
        inputs = inputs_in(self.top / "trace")
        found = changed(self.top / "out", inputs, lambda name: LAWS, going_on)
        return [each.run for each in found]


def test_a_run_is_judged_as_it_grows(spark: Any, tmp_path: Path) -> None:
    world = World(spark, tmp_path)
    stream = VerdictStream(
        spark,
        tmp_path / "trace",
        tmp_path / "out",
        CLAIMED,
        every_s=5.0,
        idle_s=20.0,
        silver=False,
        sleep=world.sleep,
        clock=lambda: world.now,
    )
    news = [
        (world.turns, each.run, each.so_far, *map(each.verdict.laws.get, LAWS)) for each in stream
    ]
    assert news == [
        (1, "grown", True, "kept", "not yet"),
        (1, "killed", True, "kept", "not yet"),
        (2, "grown", True, "broken", "not yet"),
        (4, "grown", False, "broken", "broken"),
        (8, "killed", False, "kept", "broken"),
    ]
    assert world.turns == 8, "the last change was seen in the fifth turn, 20 s before the ninth"
    assert world.to_do() == []
    assert world.kept() == {"grown": False, "killed": False}
    assert not any(verdict.kept for verdict in stream.verdicts.values())


def test_a_run_that_goes_on_in_files_not_listed_is_judged_so_far(tmp_path: Path) -> None:
    """All files that were listed have their end, and another began before they were read."""
    write_trace(story("a: view 1 a | send | crash"), tmp_path)
    (run,) = runs_of(trace_files(tmp_path))
    output = tasks.Output(str(tmp_path / "out"), "part", silver=False, going_on=True)

    def is_whole(output: tasks.Output) -> Any:
        (row,) = tasks.judge_runs([(run, date(2026, 5, 1))], CLAIMED, output)
        return row["whole"]

    assert is_whole(output)
    TraceFile(tmp_path, run.name, "a", 2)
    assert not is_whole(output)
    assert is_whole(output._replace(going_on=False))


def test_a_run_that_goes_away_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in ("brief", "stays"):
        write_trace(story("a: view 1 a", run=run), tmp_path / "trace")
    asked = []

    def late(*args: Any, runs: list[str], **more: Any) -> Any:
        """The first of the runs is gone before it is read."""
        asked.append(runs)
        shutil.rmtree(tmp_path / "trace" / f"run={runs[0]}")
        return run_pipeline(*args, runs=runs, **more)

    monkeypatch.setattr(follow, "run_pipeline", late)
    times = iter(range(100))
    stream = VerdictStream(
        None,  # type: ignore[arg-type]
        tmp_path / "trace",
        tmp_path / "out",
        CLAIMED,
        idle_s=5.0,
        sleep=lambda seconds: None,
        clock=lambda: next(times),
    )
    assert list(stream) == []
    assert asked == [["brief", "stays"], ["stays"]]
    shutil.rmtree(tmp_path / "trace")
    with pytest.raises(BadTrace, match="no such directory"):
        list(stream)


def test_a_long_run_is_read_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows by 1 MB a poll for 1,000 polls, and a megabyte is judged in 0.1 s."""
    now, polls, read, reports = [0.0], [0], list[int](), list[float]()
    told: list[Judged] = []

    def inputs(directory: Any) -> dict[str, Input]:
        nbytes = 1_000_000 * min(1000, polls[0] + 1)
        polls[0] += 1
        return {"long": Input("long", (), nbytes, str(nbytes), datetime.now(UTC))}

    def judged(*args: Any, **more: Any) -> Any:
        read.append(min(1000, polls[0]))
        now[0] += 0.1 * read[-1]
        verdict = Verdict(dict.fromkeys(LAWS, "kept"), [])
        open_ones = frozenset(("long",) if more["going_on"] else ())
        return PipelineResult(Path(), Path(), 1, 0, {"long": verdict}, so_far=open_ones)

    def refreshed(*args: Any) -> None:
        """All runs are many: it takes long."""
        reports.append(now[0])
        now[0] += 30.0

    monkeypatch.setattr(follow, "inputs_in", inputs)
    monkeypatch.setattr(follow, "run_pipeline", judged)
    monkeypatch.setattr(follow, "refresh", refreshed)
    monkeypatch.setattr(follow.os.path, "isdir", lambda path: True)
    stream = VerdictStream(
        None,  # type: ignore[arg-type]
        "trace",
        "out",
        CLAIMED,
        every_s=5.0,
        idle_s=20.0,
        done=told.append,
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
        clock=lambda: now[0],
    )
    assert [each.so_far for each in stream] == [True, False]
    assert read[-2:] == [1000, 1000], "when it grows no more, and for good"
    assert sum(read) < 20 * 1000, "megabytes, of which there are 1,000; at each poll: 500,000"
    assert all(b <= a * 1.5 + 50 for a, b in pairwise(read)), "and never far behind"
    assert len(told) == len(read) and told[-1].so_far == 0
    assert "1 run," in str(told[0]) and all(each.behind_bytes == 0 for each in told)
    assert len(reports) < len(read), "not with each poll"
    assert all(b - a >= 30 for a, b in pairwise(reports))
    assert reports[-1] >= now[0] - 100, "and in the end"


def test_what_is_not_there_is_not_waited_for(spark: Any, tmp_path: Path) -> None:
    stream = VerdictStream(spark, tmp_path / "nowhere", tmp_path / "out", CLAIMED)
    with pytest.raises(BadTrace, match="no such directory"):
        next(iter(stream))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--follow", "--all"), ("--follow", "--all")),
        (("--follow", "--run", "x"), ("--follow", "--run")),
        (("--every", "5s"), ("--follow",)),
        (("--follow", "--every", "soon"), ("--every 'soon'", "5s")),
        (("--follow", "--every", "0s"), ("--every '0s'", "5s")),
        (("--tables", "silver"), ("--tables 'silver'", "all or gold")),
        (("--all", "--run", "x"), ("--all", "--run")),
    ],
)
def test_what_does_not_go_together_is_told(
    tmp_path: Path,
    options: tuple[str, ...],
    words: tuple[str, ...],
    capfd: pytest.CaptureFixture[str],
) -> None:
    refused(here(capfd, "pipeline", str(tmp_path), "--out", str(tmp_path / "o"), *options), *words)
