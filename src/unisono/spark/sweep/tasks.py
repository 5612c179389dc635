"""The simulations of a sweep as Spark tasks: many and small, so that no slow one delays the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from unisono.errors import Misuse
from unisono.spark.session import in_words, is_interrupted
from unisono.spark.sweep.runs import TaskResult, check_directory, code_version, perform
from unisono.spark.sweep.spec import Sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_RUNS: Final = 8
"""Runs per task: some seconds of work."""
REPORT_EVERY_S: Final = 0.5

SCHEMA: Final = pa.schema(
    [
        ("run", pa.string()),
        ("protocol", pa.string()),
        ("seed", pa.int64()),
        ("nodes", pa.int32()),
        ("broken", pa.list_(pa.string())),
        ("why", pa.string()),
        ("replay", pa.string()),
        ("sent", pa.int64()),
        ("delivered", pa.int64()),
        ("steps", pa.int64()),
        ("virtual_s", pa.float64()),
        ("wall_s", pa.float64()),
        ("octets", pa.int64()),
        ("there", pa.bool_()),
        ("dropped", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class TraceTarget:
    """The directory of the runs, and how a task recognizes it."""

    traces: Path
    token: str
    code: str
    drops: bool


Count = Callable[[int, int], None]
"""Called with the numbers of runs done and failed."""


def simulate_runs(
    session: SparkSession, sweep: Sweep, target: TraceTarget, part: range, count: Count
) -> list[TaskResult]:
    """Simulate these runs of the sweep; the results are in their order."""
    context = session.sparkContext
    done, failed = context.accumulator(0), context.accumulator(0)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if code_version() != target.code:
            raise Misuse("the cluster has another version of unisono: install the same")
        check_directory(target.traces, target.token)
        for batch in batches:
            results = []
            for index in batch.column(0).to_pylist():
                plan = sweep.plan(index)
                results.append(perform(plan, target.traces, target.code, target.drops))
                done.add(1)
                failed.add(bool(results[-1].broken))
            yield batch_of(results)

    tasks = max(1, -(-len(part) // TASK_RUNS))
    indices = session.range(part.start, part.stop, 1, tasks)
    with _reporting(lambda: count(done.value, failed.value)):
        try:
            table = indices.mapInArrow(work, from_arrow_schema(SCHEMA)).toArrow()
        except Exception as error:
            if is_interrupted(error):
                raise KeyboardInterrupt from None
            raise Misuse(f"the sweep failed: {in_words(error)}; completed runs are kept") from None
    results = [TaskResult(**row) for row in table.to_pylist()]
    return sorted(results, key=lambda each: (each.seed, sweep.protocols.index(each.protocol)))


def batch_of(results: list[TaskResult]) -> pa.RecordBatch:
    columns: list[Any] = list(zip(*results, strict=True)) if results else [[] for _ in SCHEMA]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


@contextmanager
def _reporting(report: Callable[[], None]) -> Iterator[None]:
    """Reports at intervals while the tasks run, and once when they are done."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(REPORT_EVERY_S):
            report()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    report()
