"""The simulations of a sweep as Spark tasks, many and small, so that the slowest hold up nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from unisono.errors import Misuse
from unisono.spark.session import in_words, is_interrupted
from unisono.spark.sweep.ask import Sweep
from unisono.spark.sweep.runs import TaskResult, check_place, code_version, perform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_RUNS: Final = 8
"""Runs of a task: some seconds, so that starting it costs little and the last one is soon over."""
TELL_EVERY_S: Final = 0.5

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
COLUMNS: Final = (
    "run string, protocol string, seed long, nodes int, broken array<string>, why string,"
    " replay string, sent long, delivered long, steps long, virtual_s double, wall_s double,"
    " octets long, there boolean, dropped boolean"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the runs go, and what a task must find to be allowed to write there."""

    traces: Path
    token: str
    code: str
    drops: bool


Count = Callable[[int, int], None]
"""Is told how many runs are done, and how many of them failed."""


def simulated(
    session: SparkSession, sweep: Sweep, place: Place, part: range, count: Count
) -> list[TaskResult]:
    """Runs these places of the sweep. What they told comes in the order of the places."""
    context = session.sparkContext
    done, failed = context.accumulator(0), context.accumulator(0)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if code_version() != place.code:
            raise Misuse(
                "the machines of the cluster have another unisono than this one: install the same"
            )
        check_place(place.traces, place.token)
        for batch in batches:
            told = []
            for index in batch.column(0).to_pylist():
                told.append(perform(sweep.plan(index), place.traces, place.code, place.drops))
                done.add(1)
                failed.add(bool(told[-1].broken))
            yield batch_of(told)

    tasks = max(1, -(-len(part) // TASK_RUNS))
    places = session.range(part.start, part.stop, 1, tasks)
    with _watched(lambda: count(done.value, failed.value)):
        try:
            table = places.mapInArrow(work, COLUMNS).toArrow()
        except Exception as error:
            if is_interrupted(error):
                raise KeyboardInterrupt from None
            raise Misuse(f"the sweep stopped: {in_words(error)}; what is done is kept") from None
    told = [TaskResult(**row) for row in table.to_pylist()]
    return sorted(told, key=lambda each: (each.seed, sweep.protocols.index(each.protocol)))


def batch_of(told: list[TaskResult]) -> pa.RecordBatch:
    columns: list[Any] = list(zip(*told, strict=True)) if told else [[] for _ in SCHEMA]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


@contextmanager
def _watched(tell: Callable[[], None]) -> Iterator[None]:
    """Tells now and then while the tasks work, and once when they are done."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(TELL_EVERY_S):
            tell()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    tell()
