"""The laws in DuckDB's SQL, written independently, find the same planted faults as the laws on
columns, and measure the same. `python -m tests.yardstick` does this at any size."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.laws.judged_here import judged_here
from tests.laws.stories import DOCTORED, SOUND, write_trace
from tests.yardstick.__main__ import MEASURES
from tests.yardstick.synthetic import FAULTS, PROTOCOL, Story, stories, write
from unisono.laws import LAWS, judge_all
from unisono.trace.history import History
from unisono.trace.reading import read_trace


def told_by_both(tmp_path: Path, told: list[Story]) -> tuple[set[tuple[str, str]], int]:
    """The runs and laws broken, and how many rows of measures there are, when both agree."""
    pytest.importorskip("duckdb", reason="needs pip install duckdb")
    from tests.yardstick.sql import LAWS as IN_SQL
    from tests.yardstick.sql import Yardstick

    write(tmp_path / "trace", told)
    found = judged_here(tmp_path / "trace", {PROTOCOL: list(LAWS)})
    broken = {(row["run"], row["law"]) for row in found if row.get("verdict") == "broken"}
    measures = [tuple(row[n] for n in MEASURES) for row in found if row["what"] == "measure"]
    assert not [row for row in found if row["what"] == "quarantine"]
    yardstick = Yardstick(tmp_path / "trace", tmp_path)
    yardstick.run()
    assert {(run, law) for run, law in broken if law in IN_SQL} == yardstick.broken
    measures.sort(key=lambda row: (row[0], row[1] or ""))
    assert measures == yardstick.measures()
    yardstick.close()
    return yardstick.broken, len(measures)


def test_one_run_with_every_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.trace.columns.ROWS_IN_MEMORY_MAX", 1_000)
    told = stories(200_000, 1, 5, faulty=True)
    broken, measured = told_by_both(tmp_path, told)
    from tests.yardstick.sql import LAWS as IN_SQL

    assert broken == {("r000000", law) for law in IN_SQL}
    assert measured == 6


def test_runs_with_one_fault_each(tmp_path: Path) -> None:
    told = stories(3_000 * len(FAULTS), len(FAULTS), 5, faulty=True)
    broken, measured = told_by_both(tmp_path, told)
    by_run = [{law for run, law in broken if run == story.run} for story in told]
    assert by_run[0] == set()
    for name, laws in zip(list(FAULTS)[1:], by_run[1:], strict=True):
        assert laws, name
        assert name in laws or name not in LAWS, name
    assert measured == 6 * len(told)


def is_known_in_sql(history: History) -> bool:
    """Whether it has only what the laws of `yardstick.places` know."""
    views = [row for row in history.rows if row.kind in ("view", "transitional")]
    changes = [change for row in views for change in row.changes or ()]
    return (
        not history.torn
        and len({row.view for row in views if "founded" in (row.changes or ())}) <= 1
        and "parted" not in changes
        and all(row.kind == "view" and not row.detail and row.stayed is None for row in views)
    )


def test_laws_in_sql_judge_planted_histories_as_in_process(tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="needs pip install duckdb")
    from tests.yardstick import places
    from tests.yardstick.sql import Yardstick

    planted = [each.history for each in (*DOCTORED, *SOUND) if is_known_in_sql(each.history)]
    for history in planted:
        write_trace(history, tmp_path / "trace")
    verdicts = judge_all(read_trace(tmp_path / "trace").histories(), lambda _: list(places.LAWS))
    broken = {(run, each.law) for run, found in verdicts.items() for each in found.violations}
    yardstick = Yardstick(tmp_path / "trace", tmp_path)
    yardstick.run()
    assert {(run, law) for run, law in yardstick.broken if law in places.LAWS} == broken
    yardstick.close()
    for law in places.LAWS:
        assert sum(law == its for _, its in broken) >= 2, law
    assert len(planted) > len({run for run, _ in broken}) > 20


def test_a_process_and_those_below_it_are_watched() -> None:
    import subprocess

    from tests.yardstick.__main__ import held

    script = "x = bytearray(60_000_000); print(flush=True); input()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}])"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", outer], **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        process.stdout.readline()
        octets, busy = held(process.pid)
        process.communicate(b"\n")
    assert octets > 60_000_000
    assert busy > 0
