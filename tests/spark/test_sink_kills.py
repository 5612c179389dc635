"""A query that writes to a group is killed and started again: each row is delivered once, at every
member, though its tasks fail and its rows come in another order each time."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pip install 'unisono[spark]'")

from tests.hold import Hold
from tests.spark.sinkquery import write_lines
from tests.spark.sinkstage import kill_with_java, repeated_of, staged

pytestmark = [pytest.mark.real, pytest.mark.spark]


def killed(place: Path, rows: int, files: int, per_batch: int, kills: int, seed: int) -> None:
    """The query is killed so many times, each at another part of the rows."""
    lines = write_lines(place / "lines", rows, files)
    batch = rows * per_batch // files
    # The numbers delivered at which it is killed: each time in the midst of another batch.
    begun = sorted(random.Random(seed).sample(range(files // per_batch), kills))
    marks = [at * batch + batch // 8 for at in begun]
    with staged(place) as stage:
        orders = {
            "lines": str(place / "lines"),
            "files": per_batch,
            "feed": stage.feed,
            "checkpoint": str(place / "checkpoint"),
        }
        began, ids = time.monotonic(), set()
        for mark in [*marks, None]:
            with Hold("query", "tests.spark.sinkquery", orders) as query:
                while query.process.poll() is None:
                    if mark is not None and stage.counts()[0] >= mark:
                        break
                    time.sleep(0.02)
                ids |= {each["query"] for each in query.of("started")}
                if mark is not None:
                    assert query.process.poll() is None, "it ended before it could be killed"
                    kill_with_java(query.process)
                else:
                    assert query.process.wait(10) == 0
        said = stage.heard(rows)
        repeats = stage.repeated()
    assert len(ids) == 1, "a query that is started again keeps its name"
    assert len(said) == rows and not repeated_of(said)
    assert sorted(said) == sorted(lines)
    assert repeats > 0, "nothing was said twice: the kills came at no interesting time"
    took_s = time.monotonic() - began
    print(f"{rows} rows, killed at {marks}: {repeats} said again and dropped, {took_s:.0f} s")


@pytest.mark.timeout(600)
def test_each_row_is_delivered_once_though_the_query_is_killed(tmp_path: Path) -> None:
    killed(tmp_path, rows=4_000, files=2, per_batch=1, kills=2, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_of_100000_rows_though_the_query_is_killed_five_times(
    tmp_path: Path, seed: int
) -> None:
    killed(tmp_path, rows=100_000, files=20, per_batch=2, kills=5, seed=seed)
