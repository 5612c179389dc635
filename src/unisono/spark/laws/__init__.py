"""The laws and the measures where the files lie: for traces too large to be sent about.

A trace has a file (or a chain of files) a life, in order of steps. So a task can read with pyarrow
just what it needs and check it on numpy columns, and only summaries and violations travel. Small
runs are judged whole, many by one task. A giant run is cut into shards, ranges of numbers of every
sender: a first look at each chain says which rows of which file are in which shard; then each shard
is judged by itself; then what they say is put together. The layout is looked at, not trusted: what
lies elsewhere is read in the order of files, as `unisono.trace.files` does.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as F

from unisono.spark.laws import tasks
from unisono.spark.laws.claims import Claims, check_claims
from unisono.spark.laws.plan import ShardLimits
from unisono.spark.laws.survey import File
from unisono.spark.laws.tasks import FOUND_DDL, SMALL_DDL, STEP_DDL, RunFiles, packed
from unisono.trace.files import TraceFiles, trace_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Claims", "Judged", "ShardLimits", "check_claims", "judged"]

Source: TypeAlias = "str | os.PathLike[str] | Sequence[TraceFiles]"

RUNS_A_TASK = 2_000
TASK_BYTES_MIN = 128 << 10
"""For less, sharing the work costs more than it saves."""


@dataclass(frozen=True)
class Judged:
    """What was found, as DataFrames over one that is kept: call `forget` when done."""

    violations: DataFrame
    """`run, law, life, message, other, detail`: the first few of each run and law."""
    verdicts: DataFrame
    """`run, law, verdict`: `kept`, `broken` or `not claimed`, for every run and law."""
    measures: DataFrame
    """One row a run and protocol (`node` is null), and one a node of it."""
    quarantine: DataFrame
    """`run, path, row, reason`: rows, and (without a row) files or the rest of them."""
    counts: DataFrame
    """`run, events, quarantined`."""
    lives: DataFrame
    """`run, protocol, group, life, end, ended_us`."""
    contradicted: DataFrame
    """`run, life`: lives that two files tell in different ways; the first is judged."""
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
    runs alone. Nothing is computed before one of the DataFrames is asked for; then all are.

    `BadTrace` when there is no trace, `Misuse` when a law is claimed that is none."""
    check_claims(claimed)
    laws = {protocol: list(mine) for protocol, mine in claimed.items()}
    cut = limits or ShardLimits()
    files = trace_files(source) if isinstance(source, str | os.PathLike) else source
    small, giant = _sorted_out(files, runs, cut)
    parts = []
    if small or not giant:
        parts.append(_small(session, small, laws, cut))
    if giant:
        parts.append(_giant(session, giant, laws, cut))
    found = parts[0] if len(parts) == 1 else parts[0].union(parts[1])
    found = found.persist()

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


@dataclass
class _Sized:
    run: RunFiles
    octets: int


def _sorted_out(
    files: Sequence[TraceFiles], runs: Collection[str] | None, limits: ShardLimits
) -> tuple[list[_Sized], list[_Sized]]:
    """Small runs and giant ones."""
    by_run: dict[str, _Sized] = {}
    chains: dict[Any, int] = {}
    for found in files:
        if runs is not None and found.run not in runs:
            continue
        sized = by_run.setdefault(found.run, _Sized(RunFiles(found.run, []), 0))
        chain = chains.setdefault(found.chain, len(chains))
        sized.run.files.append(File(os.fsencode(found.path), found.name, chain, found.gap))
        sized.octets += found.path.stat().st_size if found.path.is_file() else 0
    giant = [sized for sized in by_run.values() if sized.octets >= limits.giant_bytes]
    small = [sized for sized in by_run.values() if sized.octets < limits.giant_bytes]
    return small, giant


def _small(
    session: SparkSession, small: list[_Sized], laws: dict[str, list[str]], limits: ShardLimits
) -> DataFrame:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tasks.judge_small(batches, laws, limits)

    bins = _bins(session, small, limits.task_bytes)
    return _named(session, bins).mapInArrow(work, FOUND_DDL)


def _bins(session: SparkSession, sized: list[_Sized], bytes_max: int) -> list[list[RunFiles]]:
    """What each task gets: about as much as any other, but not too much."""
    cores = session.sparkContext.defaultParallelism
    share = max(TASK_BYTES_MIN, sum(each.octets for each in sized) // (4 * cores))
    most = min(bytes_max, share)
    bins: list[list[RunFiles]] = []
    full = most
    for each in sized:
        if full >= most or len(bins[-1]) >= RUNS_A_TASK:
            bins.append([])
            full = 0
        bins[-1].append(each.run)
        full += each.octets
    return bins


def _named(session: SparkSession, bins: list[list[RunFiles]]) -> DataFrame:
    rows = [(bytearray(packed(mine)),) for mine in bins]
    return session.createDataFrame(rows, SMALL_DDL).repartition(max(1, len(bins)))


def _giant(
    session: SparkSession, giant: list[_Sized], laws: dict[str, list[str]], limits: ShardLimits
) -> DataFrame:
    chains: list[_Sized] = []
    for sized in giant:
        by_chain: dict[int, list[File]] = {}
        for file in sized.run.files:
            by_chain.setdefault(file.chain, []).append(file)
        for files in by_chain.values():
            octets = sum(os.path.getsize(file.at) for file in files if os.path.isfile(file.at))
            chains.append(_Sized(RunFiles(sized.run.name, files), octets))
    # The longest first, so that nobody waits for one that began last.
    chains.sort(key=lambda chain: -chain.octets)
    octets = sum(sized.octets for sized in giant)
    bins = _bins(session, chains, limits.task_bytes)
    # A row takes some twenty bytes.
    shards = max(1, min(limits.tasks_max, octets // (20 * limits.shard_rows) + len(giant)))

    def survey(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tasks.survey_chains(batches, limits)

    def plan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tasks.plan_runs(batches, laws, limits)

    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tasks.fold_runs(batches, laws)

    folds = min(len(giant), limits.tasks_max, 64)
    return (
        _named(session, bins)
        .mapInArrow(survey, STEP_DDL)
        .repartition(folds, "run")
        .mapInArrow(plan, STEP_DDL)
        .repartition(shards)
        .mapInArrow(tasks.judge_shards, STEP_DDL)
        .repartition(folds, "run")
        .mapInArrow(fold, FOUND_DDL)
    )
