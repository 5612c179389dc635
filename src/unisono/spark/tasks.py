"""The runs of a trace as tasks: each reads the files of some runs once, judges and measures them,
and writes their tables.

A trace has one file (or a chain of files) per incarnation, in order of steps. Several small runs
share a task. A task returns a row per run; nothing is exchanged between tasks.
"""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from unisono.errors import BadTrace, Misuse
from unisono.laws import LAWS, Verdict
from unisono.laws.columnar.history import HistoryColumns
from unisono.laws.columnar.judging import operations_of, read_run, verdict_on
from unisono.laws.unread import NOT_YET, UNCERTAIN
from unisono.spark.curves import (
    keys_of,
    latency_curve,
    latency_rows,
    rate_rows,
    recoveries_of,
    stabilities_of,
)
from unisono.spark.latency_parts import latency_parts_of
from unisono.spark.measures import added, latencies_of, measures_of
from unisono.spark.membership import components_of, exclusions_of
from unisono.spark.partitioned import RunWriter
from unisono.spark.schemas import QUARANTINE
from unisono.spark.tables import RowTables, write_deliveries
from unisono.spark.work import WorkCounts
from unisono.trace.checks import TORN
from unisono.trace.columns import Codes
from unisono.trace.files import RunFiles, TraceFiles, runs_of, trace_files
from unisono.trace.scan import ScanResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Claims: TypeAlias = Mapping[str, Sequence[str]]
"""By protocol, the laws that it claims."""
ANY_PROTOCOL: Final = ""
"""In claims: the laws of a protocol that is not named."""

RUNS_PER_TASK: Final = 2_000
TASK_BYTES_MIN: Final = 128 << 10
"""For less, distributing the work costs more than it saves."""
TASK_BYTES_MAX: Final = 16 << 20
"""A task takes runs until their files have this size; a larger run has a task of its own."""
FOUND: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "part")),
        *((name, pa.int64()) for name in ("events", "quarantined", "unjudged")),
        *((name, pa.bool_()) for name in ("whole", "kept")),
        *((name, pa.list_(pa.string())) for name in ("protocols", "groups", "contradicted")),
    ]
)
"""The row of a run: what was read, and whether every law was kept."""


class Output(NamedTuple):
    """Where tasks write the tables of their runs."""

    top: str
    part: str
    """The name of the files, to which each task adds its number."""
    silver: bool
    """Whether bronze events and silver tables are written."""
    going_on: bool
    """A run with a file without an end is not judged by eventual laws."""


def check_claims(claimed: Claims) -> None:
    """`Misuse` when a claimed law does not exist."""
    unknown = sorted({law for laws in claimed.values() for law in laws} - LAWS.keys())
    if unknown:
        raise Misuse(f"no law {', '.join(unknown)}; there are {', '.join(LAWS)}")


def write_tables(
    session: SparkSession,
    files: Sequence[TraceFiles],
    days: Mapping[str, date],
    claimed: Claims,
    output: Output,
) -> list[dict[str, Any]]:
    """Judge and measure these files; the tasks write the tables of each run. `days` are when the
    runs were recorded. Returns the rows of the runs."""
    laws = {protocol: list(mine) for protocol, mine in claimed.items()}
    bins = list(_by_task(runs_of(files), session.sparkContext.defaultParallelism))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for packed in batch.column("runs").to_pylist():
                part, runs = pickle.loads(zlib.decompress(packed))
                rows = judge_runs(runs, laws, output._replace(part=part))
                yield pa.RecordBatch.from_pylist(rows, schema=FOUND)

    parts = (
        (f"{output.part}-{at}", [(run, days[run.name]) for run in mine])
        for at, mine in enumerate(bins)
    )
    packed = [(bytearray(zlib.compress(pickle.dumps(each), 1)),) for each in parts]
    frame = session.createDataFrame(packed, "runs binary").repartition(max(1, len(bins)))
    rows: list[dict[str, Any]] = (
        frame.mapInArrow(work, from_arrow_schema(FOUND)).toArrow().to_pylist()
    )
    return rows


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


# -- a run -----------------------------------------------------------------------------------------


def judge_runs(
    runs: Iterable[tuple[RunFiles, date]], claimed: Claims, output: Output
) -> list[dict[str, Any]]:
    """Write the tables of these runs into files of one name; returns their rows."""
    writer = RunWriter(output.top, output.part)
    rows = []
    for run, day in runs:
        writer.begin(run.name, day)
        rows.append(_judge(run, claimed, output, writer))
    writer.close()
    return rows


def _judge(run: RunFiles, claimed: Claims, output: Output, writer: RunWriter) -> dict[str, Any]:
    codes, work = Codes(), WorkCounts()
    tables = [RowTables(writer, codes)] if output.silver else []
    scan, histories = read_run(run, codes, work, *tables)
    others = claimed.get(ANY_PROTOCOL, ())
    if output.going_on and _has_grown(run):
        scan.whole = False
    going_on = output.going_on and not scan.whole
    verdict = verdict_on(
        histories, lambda name: claimed.get(name, others), going_on, operations_of(run)
    )
    if output.silver:
        for data in histories:
            write_deliveries(writer, data)
    _write_gold(writer, histories, work)
    writer.write_rows("gold/violations", [each._asdict() for each in verdict.violations])
    listed = sorted(verdict.laws.items())
    writer.write_rows("gold/verdicts", [{"law": law, "verdict": how} for law, how in listed])
    _write_quarantine(writer, scan)
    return {"run": run.name, "part": output.part, **_counts(scan, histories, verdict)}


def _has_grown(run: RunFiles) -> bool:
    """Whether there are files that were not when the run was listed: it goes on in them."""
    with suppress(BadTrace):
        listed = {file.path for file in run.files}
        return any(file.path not in listed for file in trace_files(run.files[0].path.parent))
    return False


def _counts(
    scan: ScanResult, histories: Sequence[HistoryColumns], verdict: Verdict
) -> dict[str, Any]:
    sizes = [1 if bad is None else len(bad) for _, bad, _ in scan.quarantined]
    cut_off = sum(bad is None and reason.startswith(TORN) for _, bad, reason in scan.quarantined)
    # Unknown while a law is not judged.
    pending = not {NOT_YET, UNCERTAIN}.isdisjoint(verdict.laws.values())
    known = verdict.laws and not (verdict.kept and pending)
    return {
        "events": scan.events,
        "quarantined": sum(sizes),
        "unjudged": sum(sizes) - cut_off,
        "whole": scan.whole,
        "kept": verdict.kept if known else None,
        "protocols": sorted({data.history.protocol for data in histories}),
        "groups": sorted({data.history.group for data in histories}),
        "contradicted": scan.contradicted or None,
    }


def _write_gold(
    writer: RunWriter,
    histories: Sequence[HistoryColumns],
    work: WorkCounts,
) -> None:
    latencies = [latencies_of(data) for data in histories]
    measures = list(measures_of(histories, latencies, work))
    writer.write_rows("gold/measures", measures)
    for data in histories:
        writer.write_rows("gold/recoveries", recoveries_of(data))
        writer.write_rows("gold/stabilities", stabilities_of(data))
        name = (data.history.protocol, data.history.group)
        turns_us = {code: each.turns_us for (mine, code), each in work.items() if mine == name}
        tables = {
            "gold/links": work.links(name, data.codes),
            "gold/causes": work.causes(name, data.codes),
            "gold/latency_parts": latency_parts_of(data, turns_us),
            "gold/exclusions": exclusions_of(data),
            "gold/components": components_of(data),
        }
        about = dict(zip(("protocol", "group"), name, strict=True))
        for table, rows in tables.items():
            writer.write_rows(table, [about | row for row in rows])
    for row in measures:
        if row["node"] is not None:
            continue
        keys, protocol = keys_of(row), row["protocol"]
        alike = [at for at, data in enumerate(histories) if data.history.protocol == protocol]
        every = added([mine for at in alike for mine in latencies[at]])
        classes = list(latency_rows(keys, every))
        writer.write_rows("gold/latencies", classes)
        writer.write_rows("gold/latency_curves", latency_curve(keys, classes))
        writer.write_rows("gold/rate_curves", rate_rows(keys, [histories[at] for at in alike]))


def _write_quarantine(writer: RunWriter, scan: ScanResult) -> None:
    for path, bad, reason in scan.quarantined:
        rows = pa.array([None] if bad is None else bad, pa.int64())
        same = (pa.repeat(pa.scalar(each, pa.string()), len(rows)) for each in (path, reason))
        columns = dict(zip(("path", "reason"), same, strict=True), row=rows)
        writer.write("bronze/quarantine", QUARANTINE, pa.table(columns))
