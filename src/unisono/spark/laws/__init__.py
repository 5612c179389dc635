"""The laws and the measures at scale: a task reads the files of a run once, and judges them.

A trace has one file (or a chain of files) per incarnation, in order of steps. A task reads the
files of a run with pyarrow and judges it on numpy columns; several small runs share a task. Only
summaries and violations leave it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from unisono.errors import Misuse
from unisono.laws import LAWS
from unisono.spark.laws import tasks
from unisono.spark.laws.tasks import FOUND, INPUT, Claims, Output, pack
from unisono.trace.files import RunFiles, TraceFiles, runs_of, trace_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Claims", "Judged", "Output", "check_claims", "judged", "write_tables"]

Source: TypeAlias = "str | os.PathLike[str] | Sequence[TraceFiles]"

RUNS_PER_TASK: Final = 2_000
TASK_BYTES_MIN: Final = 128 << 10
"""For less, distributing the work costs more than it saves."""
TASK_BYTES_MAX: Final = 16 << 20
"""A task takes runs until their files have this size; a larger run has a task of its own."""
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
) -> Judged:
    """The laws and the measures on a trace directory, or on files of one; with `runs`, on those
    runs alone. Nothing is computed until one of the DataFrames is used; then all are.

    `BadTrace` when there is no trace, `Misuse` when a claimed law does not exist."""
    check_claims(claimed)
    files = trace_files(source) if isinstance(source, str | os.PathLike) else source
    some = [file for file in files if runs is None or file.run in runs]
    found = _found(session, some, claimed, None).persist()

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


def check_claims(claimed: Claims) -> None:
    """`Misuse` when a claimed law does not exist."""
    unknown = sorted({law for laws in claimed.values() for law in laws} - LAWS.keys())
    if unknown:
        raise Misuse(f"no law {', '.join(unknown)}; there are {', '.join(LAWS)}")


def write_tables(
    session: SparkSession, files: Sequence[TraceFiles], claimed: Claims, output: Output
) -> list[dict[str, Any]]:
    """Judge and measure these files; the tasks write the tables of each run. Returns a row per run:
    what was read, and whether every law was kept."""
    found = _found(session, files, claimed, output)
    rows: list[dict[str, Any]] = found.select("run", *RUN_COLUMNS).toArrow().to_pylist()
    return rows


def _found(
    session: SparkSession, files: Sequence[TraceFiles], claimed: Claims, output: Output | None
) -> DataFrame:
    laws = {protocol: list(mine) for protocol, mine in claimed.items()}
    bins = list(_by_task(runs_of(files), session.sparkContext.defaultParallelism))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tasks.judge_runs(batches, laws, output)

    rows = [(bytearray(pack(mine)),) for mine in bins]
    frame = session.createDataFrame(rows, from_arrow_schema(INPUT))
    return frame.repartition(max(1, len(bins))).mapInArrow(work, from_arrow_schema(FOUND))


def _by_task(runs: Sequence[RunFiles], cores: int) -> Iterator[list[RunFiles]]:
    """The runs in tasks of about equal size, bounded in bytes and number; the largest first, since
    one that starts last would delay the stage."""
    sized = sorted(((_nbytes(run), run) for run in runs), key=lambda each: -each[0])
    share = max(TASK_BYTES_MIN, sum(nbytes for nbytes, _ in sized) // (4 * cores))
    mine: list[RunFiles] = []
    filled = 0
    for nbytes, run in sized:
        if mine and (filled >= min(TASK_BYTES_MAX, share) or len(mine) >= RUNS_PER_TASK):
            yield mine
            mine, filled = [], 0
        mine.append(run)
        filled += nbytes
    if mine:
        yield mine


def _nbytes(run: RunFiles) -> int:
    return sum(os.path.getsize(each.path) for each in run.files if os.path.isfile(each.path))
