"""The laws and the measures at scale: each task reads just the trace files that it needs.

A trace has one file (or a chain of files) per incarnation, in order of steps. A task reads them
with pyarrow and checks them on numpy columns; only summaries and violations are exchanged. Small
runs are judged whole, many by one task. A giant run is divided into shards, ranges of numbers of
every sender. The layout is verified, not trusted: an incarnation in several chains is read in the
order of files, as `unisono.trace.files` does.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from unisono.spark.laws import tasks
from unisono.spark.laws.plan import Claims, ShardLimits, check_claims
from unisono.spark.laws.scan import InputFile
from unisono.spark.laws.tasks import FOUND, INPUT, STEP, Output, RunFiles, pack
from unisono.trace.files import TraceFiles, trace_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Claims", "Judged", "Output", "ShardLimits", "check_claims", "judged", "write_tables"]

Source: TypeAlias = "str | os.PathLike[str] | Sequence[TraceFiles]"

RUNS_PER_TASK: Final = 2_000
TASK_BYTES_MIN: Final = 128 << 10
"""For less, distributing the work costs more than it saves."""
BYTES_PER_ROW: Final = 20
RUN_COLUMNS: Final = (
    *("events", "quarantined", "unjudged", "whole", "kept"),
    *("protocols", "groups", "contradicted"),
)


@dataclass(frozen=True)
class Judged:
    """The findings, as DataFrames over one persisted DataFrame: call `forget` when done."""

    violations: DataFrame
    """`run, law, life, message, other, detail`: the first of each run and law."""
    verdicts: DataFrame
    """`run, law, verdict`: `kept`, `broken` or `not claimed`, for every run and law."""
    measures: DataFrame
    """One row per run and protocol (`node` is null), and one per node of it."""
    quarantine: DataFrame
    """`run, path, row, reason`: rows, and (without a row) files or the rest of them."""
    counts: DataFrame
    """`run, events, quarantined`."""
    lives: DataFrame
    """`run, protocol, group, life, end, ended_us`."""
    contradicted: DataFrame
    """`run, life`: incarnations whose rows differ between two files; the first is judged."""
    found: DataFrame
    """All of these in one wide table, persisted."""

    def forget(self) -> None:
        self.found.unpersist()


def judged(
    session: SparkSession,
    source: Source,
    claimed: Claims,
    runs: Collection[str] | None = None,
    limits: ShardLimits | None = None,
) -> Judged:
    """The laws and the measures on a trace directory, or on files of one; with `runs`, on those
    runs alone. Nothing is computed until one of the DataFrames is used; then all are.

    `BadTrace` when there is no trace, `Misuse` when a claimed law does not exist."""
    check_claims(claimed)
    found = _found(session, source, claimed, runs, limits or ShardLimits(), None).persist()

    def rows(what: str, *columns: str) -> DataFrame:
        return found.where(F.col("what") == what).select("run", *columns)

    return Judged(
        violations=rows("violation", "law", "life", "message", "other", "detail"),
        verdicts=rows("verdict", "law", "verdict"),
        measures=rows(
            "measure",
            *("protocol", "node", "members", "sent", "delivered", "views", "octets", "span_us"),
            *("messages_per_s", "mb_per_s"),
            *("p50_us", "p90_us", "p99_us", "p999_us", "max_us"),
        ),
        quarantine=rows("quarantine", "path", "row", "reason"),
        counts=rows("count", "events", "quarantined"),
        contradicted=rows("contradicted", "life"),
        lives=rows("life", "protocol", "group", "life", "end", "ended_us"),
        found=found,
    )


def write_tables(
    session: SparkSession,
    files: Sequence[TraceFiles],
    claimed: Claims,
    output: Output,
    limits: ShardLimits | None = None,
) -> list[dict[str, Any]]:
    """Judge and measure these files; the tasks write the tables of each run. Returns a row per run:
    what was read, and whether every law was kept."""
    found = _found(session, files, claimed, None, limits or ShardLimits(), output)
    rows: list[dict[str, Any]] = found.select("run", *RUN_COLUMNS).toArrow().to_pylist()
    return rows


def _found(
    session: SparkSession,
    source: Source,
    claimed: Claims,
    runs: Collection[str] | None,
    limits: ShardLimits,
    output: Output | None,
) -> DataFrame:
    laws = {protocol: list(mine) for protocol, mine in claimed.items()}
    files = trace_files(source) if isinstance(source, str | os.PathLike) else source
    small, giant = runs_by_size(files, runs, limits)
    parts = []
    if small or not giant:
        parts.append(_judge_small(session, small, laws, limits, output))
    if giant:
        parts.append(_judge_giant(session, giant, laws, limits, output))
    return parts[0] if len(parts) == 1 else parts[0].union(parts[1])


@dataclass
class SizedRun:
    """A run, or one chain of it, and the size of its files."""

    run: RunFiles
    nbytes: int = 0

    def add(self, file: InputFile) -> None:
        self.run.files.append(file)
        self.nbytes += os.path.getsize(file.path) if os.path.isfile(file.path) else 0

    def chains(self) -> list[SizedRun]:
        found: dict[int, SizedRun] = {}
        for file in self.run.files:
            found.setdefault(file.chain, SizedRun(RunFiles(self.run.name, []))).add(file)
        return list(found.values())


def runs_by_size(
    files: Sequence[TraceFiles], runs: Collection[str] | None, limits: ShardLimits
) -> tuple[list[SizedRun], list[SizedRun]]:
    """Small runs and giant ones."""
    by_run: dict[str, SizedRun] = {}
    chains: dict[Any, int] = {}
    for found in files:
        if runs is None or found.run in runs:
            chain = chains.setdefault(found.chain, len(chains))
            file = InputFile(os.fsencode(found.path), found.name, chain, found.gap)
            by_run.setdefault(found.run, SizedRun(RunFiles(found.run, []))).add(file)
    sized = by_run.values()
    small = [each for each in sized if each.nbytes < limits.giant_bytes]
    return small, [each for each in sized if each.nbytes >= limits.giant_bytes]


def _judge_small(
    session: SparkSession,
    small: list[SizedRun],
    laws: Claims,
    limits: ShardLimits,
    output: Output | None,
) -> DataFrame:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tasks.judge_small(batches, laws, limits, output)

    return _by_task(session, small, limits.task_bytes).mapInArrow(work, from_arrow_schema(FOUND))


def _by_task(session: SparkSession, sized: list[SizedRun], bytes_max: int) -> DataFrame:
    """The runs in tasks of about equal size, bounded in bytes and number."""
    cores = session.sparkContext.defaultParallelism
    share = max(TASK_BYTES_MIN, sum(each.nbytes for each in sized) // (4 * cores))
    most = min(bytes_max, share)
    bins: list[list[RunFiles]] = []
    filled = most
    for each in sized:
        if filled >= most or len(bins[-1]) >= RUNS_PER_TASK:
            bins.append([])
            filled = 0
        bins[-1].append(each.run)
        filled += each.nbytes
    rows = [(bytearray(pack(mine)),) for mine in bins]
    frame = session.createDataFrame(rows, from_arrow_schema(INPUT))
    return frame.repartition(max(1, len(bins)))


def _judge_giant(
    session: SparkSession,
    giant: list[SizedRun],
    laws: Claims,
    limits: ShardLimits,
    output: Output | None,
) -> DataFrame:
    chains = [chain for sized in giant for chain in sized.chains()]
    # The longest first: a long one that starts last would delay the stage.
    chains.sort(key=lambda chain: -chain.nbytes)
    rows = sum(sized.nbytes for sized in giant) // BYTES_PER_ROW
    shard_tasks = max(1, min(limits.tasks_max, rows // limits.shard_rows + len(giant)))
    run_tasks = min(len(giant), limits.tasks_max, 64)

    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tasks.scan_chains(batches, limits, output)

    def plan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tasks.plan_runs(batches, laws, limits, output)

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tasks.judge_shards(batches, output)

    def combine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tasks.combine_runs(batches, laws, output)

    step = from_arrow_schema(STEP)
    return (
        _by_task(session, chains, limits.task_bytes)
        .mapInArrow(scan, step)
        .repartition(run_tasks, "run")
        .mapInArrow(plan, step)
        .repartition(shard_tasks)
        .mapInArrow(judge, step)
        .repartition(run_tasks, "run")
        .mapInArrow(combine, from_arrow_schema(FOUND))
    )
