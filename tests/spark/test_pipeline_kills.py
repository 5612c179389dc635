"""A pipeline that is killed at a random moment leaves no run that is lost, doubled or in half.

`UNISONO_KILLS=50 pytest -m soak --timeout 0 tests/spark/test_pipeline_kills.py`: so many times.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from unisono.laws import LAWS
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.spark.layout import STALE
from unisono.spark.partitioned import read_table, runs_table

KILLS = int(os.environ.get("UNISONO_KILLS", "3"))
SEEDS = 6


def rows_of(out: Path, table: str, kind: str) -> list[tuple[str, int]]:
    """The runs of a table's rows, of `gold/runs` with the number of events."""
    column = "events" if table == "gold/runs" else "run"
    if kind == "delta":
        if not (out / "delta" / table).exists():
            return []
        found = DeltaTable(out / "delta" / table).to_pyarrow_table(columns=["run", column])
        return [(row["run"], row[column]) for row in found.to_pylist()]
    found = runs_table(out) if table == "gold/runs" else read_table(out, table)
    names = ("run", column)
    return list(zip(*(found.column(name).to_pylist() for name in names), strict=True))


def check(out: Path, kind: str) -> set[str]:
    """Every run that is listed is complete, once; returns them."""
    listed = rows_of(out, "gold/runs", kind)
    events = Counter(name for name, _ in rows_of(out, "bronze/events", kind))
    verdicts = Counter(name for name, _ in rows_of(out, "gold/verdicts", kind))
    assert len(dict(listed)) == len(listed)
    for name, count in listed:
        assert (events[name], verdicts[name]) == (count, len(LAWS)), name
    return set(dict(listed))


def started(command: list[str], out: Path) -> subprocess.Popen[bytes]:
    """A pipeline, when it has a scratch directory: before, Spark starts, and nothing is at risk."""
    left = set(out.glob(".pipeline-*"))
    going = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    while going.poll() is None and not set(out.glob(".pipeline-*")) - left:
        time.sleep(0.01)
    return going


def published(out: Path, going: subprocess.Popen[bytes]) -> None:
    """Wait until the first file of a table is replaced."""
    begun = time.time()
    mark = out / STALE if not (out / "delta").exists() else out / "delta" / "gold/runs/_delta_log"
    while going.poll() is None and not (mark.exists() and mark.stat().st_mtime > begun):
        time.sleep(0.002)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_whatever_is_listed_is_complete(tmp_path: Path, kind: str) -> None:
    out, dice = tmp_path / "out", random.Random(7)
    for seed in range(SEEDS):
        run(Plan(protocol="ring", nodes=3, seed=seed, messages=30, trace=tmp_path / "traces"))
    command = [sys.executable, "-m", "unisono", "pipeline", str(tmp_path / "traces")]
    command += ["--out", str(out), "--format", kind, "--master", "local[1]"]
    whole, begun = started(command, out), time.monotonic()
    assert whole.wait() == 0
    work_s = time.monotonic() - begun
    assert len(check(out, kind)) == SEEDS
    amid = 0
    for _ in range(KILLS):
        for path in (tmp_path / "traces").glob("run=*/a-*.parquet"):
            os.utime(path)  # has changed
        going = started(command, out)
        if dice.random() < 0.3:
            time.sleep(work_s * dice.uniform(0.0, 1.0))
        else:
            published(out, going)
            time.sleep(dice.uniform(0.0, 0.5))
        if going.poll() is None:
            amid += 1
            os.killpg(going.pid, signal.SIGKILL)
        going.wait()
        print(len(check(out, kind)), "of", SEEDS, "runs after the kill", flush=True)
    print(f"{kind}: {KILLS} kills, {amid} of them amid the work, which takes {work_s:.1f} s")
    assert amid
    subprocess.run(command, check=True, capture_output=True)
    assert len(check(out, kind)) == SEEDS
    assert not list(out.glob(".pipeline-*"))
