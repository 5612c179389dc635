"""What publishes is killed at random moments, fifty times: a run that is listed is complete and of
one batch, in Parquet and in Delta, and in the end nothing is left over."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.spark.publisher import RUNS
from unisono.spark.partitioned import read_table, runs_table

KILLS = int(os.environ.get("UNISONO_KILLS", "50"))


def rows_of(out: Path, table: str, kind: str, column: str) -> dict[str, list[object]]:
    """By run the values of a column."""
    if kind == "delta":
        place = out / "delta" / table
        rows = DeltaTable(place).to_pyarrow_table() if place.exists() else None
    else:
        rows = runs_table(out) if table == "gold/runs" else read_table(out, table)
    found: dict[str, list[object]] = defaultdict(list)
    for row in rows.select(["run", column]).to_pylist() if rows is not None else ():
        found[row["run"]].append(row[column])
    return found


def check(out: Path, kind: str) -> dict[str, list[object]]:
    """What is listed, by run the batch."""
    listed = rows_of(out, "gold/runs", kind, "events")
    verdicts = rows_of(out, "gold/verdicts", kind, "verdict")
    measures = rows_of(out, "gold/measures", kind, "sent")
    for run, batches in listed.items():
        (batch,) = batches
        assert verdicts[run] == [f"v{batch}"] * 2, run
        assert len(measures[run]) == 1, run
    return listed


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_nothing_is_lost_doubled_or_half_committed(tmp_path: Path, kind: str) -> None:
    out, dice, batch, amid = tmp_path / "out", random.Random(3), 0, 0
    command = [sys.executable, "-m", "tests.spark.publisher", str(out), kind]
    for _ in range(KILLS):
        with subprocess.Popen(
            [*command, str(batch + 1)], stdout=subprocess.PIPE, text=True
        ) as going:
            assert going.stdout
            going.stdout.readline()
            time.sleep(dice.uniform(0.0, 1.0))
            going.kill()
            done = [batch + 1, *map(int, going.stdout.read().split())]
        listed = check(out, kind)
        amid += len(listed) < len(RUNS) or any((out / "gold" / "runs").glob(".*"))
        batch = done[-1] + 1
    print(f"{kind}: {KILLS} kills amid {batch} batches, {amid} left runs to be done again")
    subprocess.run([*command, str(batch + 1), str(batch + 1)], check=True, capture_output=True)
    assert check(out, kind) == {run: [batch + 1] for run in RUNS}
    for table, column in (("gold/verdicts", "verdict"), ("gold/measures", "sent")):
        assert set(rows_of(out, table, kind, column)) == set(RUNS), "and nothing is left over"
    assert not list(out.glob(".pipeline-*"))
