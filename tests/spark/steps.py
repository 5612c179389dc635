"""The Spark tasks in this process, without Spark.

python -m tests.spark.steps /tmp/million      # measures a million events
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from unisono.spark.laws import Claims


def judged_here(
    trace_dir: Path, claimed: Claims, runs: set[str] | None = None
) -> list[dict[str, Any]]:
    """The rows of the judge's one wide table, as a task gives them."""
    from unisono.spark.laws import tasks
    from unisono.trace.files import runs_of, trace_files

    files = [each for each in trace_files(trace_dir) if runs is None or each.run in runs]
    packed = [tasks.pack([run]) for run in runs_of(files)]
    return list(_rows(tasks.judge_runs(iter([_batch(packed)]), claimed)))


def _batch(data: list[bytes]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.record_batch([pa.array(data, pa.binary())], names=["runs"])


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def write_million(where: Path) -> None:
    from tests.spark.yardstick.synthetic import stories, write

    write(where, stories(1_000_000, 1, 5, faulty=True))


def _measure(where: Path) -> None:
    import time

    from tests.spark.yardstick.synthetic import PROTOCOL
    from unisono.laws import LAWS

    if not where.exists():
        write_million(where)
    begun = time.process_time()
    rows = judged_here(where, {PROTOCOL: list(LAWS)})
    broken = [row["law"] for row in rows if row["verdict"] == "broken"]
    print(f"{time.process_time() - begun:.1f} s of one processor, broken: {broken}")


if __name__ == "__main__":
    import sys

    _measure(Path(sys.argv[1]))
    os._exit(0)
