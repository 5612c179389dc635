"""A query that writes to a group is killed and started again: each row is delivered once, at every
member, though its tasks fail and its rows come in another order each time."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pip install 'unisono[spark]'")

from tests.harness import Module
from tests.spark.sinkquery import write_lines
from tests.spark.sinkstage import repeated_of, staged
from tests.waiting import LIMIT_S

pytestmark = [pytest.mark.real, pytest.mark.spark]


def killed(place: Path, rows: int, files: int, per_batch: int, begun: list[int]) -> None:
    """The query is killed once in each of the batches `begun`, by their numbers, in the midst."""
    lines = write_lines(place / "lines", rows, files)
    batch = rows * per_batch // files
    # How many rows are delivered when it is killed.
    marks = [at * batch + batch // 8 for at in begun]
    orders = {
        "lines": str(place / "lines"),
        "files": per_batch,
        "checkpoint": str(place / "checkpoint"),
        "stands_by": True,
    }

    with ExitStack() as stack:

        def next_query() -> Module:
            return stack.enter_context(Module("query", "tests.spark.sinkquery", orders))

        # Spark takes long to start: each does so while what comes before it is at work.
        query = next_query()
        stage = stack.enter_context(staged(place))
        began, ids = time.monotonic(), set()
        for at, mark in zip([*begun, None], [*marks, None], strict=True):
            query.write(stage.feed)
            after = next_query() if mark is not None else None
            while query.is_alive:
                if mark is not None and stage.counts()[0] >= mark:
                    break
                time.sleep(0.02)
            ids |= {each["query"] for each in query.of("started")}
            if after is None:
                assert query.wait(LIMIT_S) == 0
                break
            assert query.is_alive, "it ended before it could be killed"
            query.kill()
            done = {int(path.name) for path in (place / "checkpoint/commits").glob("[0-9]*")}
            assert done == set(range(at or 0)), "the kill came in the midst of this batch"
            query = after
        said = stage.heard(rows)
        repeats = stage.repeated()
    assert len(ids) == 1, "a query that is started again keeps its name"
    assert len(said) == rows and not repeated_of(said)
    assert sorted(said) == sorted(lines)
    assert repeats > 0, "nothing was said twice: the kills came at no interesting time"
    took_s = time.monotonic() - began
    print(f"{rows} rows, killed at {marks}: {repeats} said again and dropped, {took_s:.0f} s")


@pytest.mark.soak
def test_each_row_is_delivered_once_though_the_query_is_killed(tmp_path: Path) -> None:
    # In the second batch: what was before it is kept, and what was half said is said again.
    killed(tmp_path, rows=4_000, files=2, per_batch=1, begun=[1])


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_of_100000_rows_though_the_query_is_killed_five_times(
    tmp_path: Path, seed: int
) -> None:
    begun = sorted(random.Random(seed).sample(range(10), 5))
    killed(tmp_path, rows=100_000, files=20, per_batch=2, begun=begun)
