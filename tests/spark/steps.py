"""The steps of the Spark tasks in this process, without Spark.

python -m tests.spark.steps /tmp/million      # measures a million events
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from unisono.spark.laws import Claims, ShardLimits


def judged_here(
    trace_dir: Path,
    claimed: Claims,
    limits: ShardLimits | None = None,
    runs: set[str] | None = None,
) -> list[dict[str, Any]]:
    """The rows of the judge's one wide table: each run whole, or (where it is giant by the limits)
    in shards, with every summary packed and unpacked between the steps."""
    from unisono.spark.laws import ShardLimits, runs_by_size, tasks
    from unisono.trace.files import trace_files

    limits = limits or ShardLimits()
    small, giant = runs_by_size(trace_files(trace_dir), runs, limits)
    rows: list[dict[str, Any]] = []
    for sized in small:
        rows += _rows(tasks.judge_run(sized.run, claimed, limits))
    for sized in giant:
        packed = [tasks.pack([chain.run]) for chain in sized.chains()]
        scans = _shuffled(tasks.scan_chains(iter([_batch(packed)]), limits))
        shards = _shuffled(tasks.plan_runs(scans, claimed, limits))
        rows += _rows(tasks.combine_runs(tasks.judge_shards(shards), claimed))
    return rows


def _shuffled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In any order, as Spark exchanges them."""
    found = list(batches)
    random.Random(len(found)).shuffle(found)
    return iter(found)


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
    from unisono.spark.laws.plan import ShardLimits

    if not where.exists():
        write_million(where)
    for limits in (
        ShardLimits(giant_bytes=1 << 40),
        ShardLimits(giant_bytes=0, shard_rows=300_000),
    ):
        begun = time.process_time()
        rows = judged_here(where, {PROTOCOL: list(LAWS)}, limits)
        broken = [row["law"] for row in rows if row["verdict"] == "broken"]
        print(f"{time.process_time() - begun:.1f} s of one processor, broken: {broken}")


if __name__ == "__main__":
    import sys

    _measure(Path(sys.argv[1]))
    os._exit(0)
