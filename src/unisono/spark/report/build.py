"""Builds the page from the tables of a pipeline and the traces that they were made from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from unisono.spark.layout import folders_in
from unisono.spark.partitioned import FOLDERS_PER_TASK, frame_in, read_table
from unisono.spark.report.broken import SHOWN_MAX
from unisono.spark.report.diagrams import Diagrams
from unisono.spark.report.model import RunInfo
from unisono.spark.report.page import page
from unisono.spark.results import curves_in, findings_in, runs_in, summary_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECOVERIES: Final = "gold/recoveries"
STABILITIES: Final = "gold/stabilities"
CLASSES_PER_DECADE: Final = 24
"""Recovery times of many runs are counted in classes."""


def build_report(session: SparkSession, out: Path, trace_dir: str | os.PathLike[str]) -> str:
    """The page about all runs in the tables. `trace_dir` appears in commands as it is given."""
    found = replace(
        findings_in(session, out),
        info={
            row["run"]: RunInfo(row["protocol"] or "", row["whole"] is not False, row["replay"])
            for row in runs_in(session, out)
        },
        summary=summary_in(out),
        recoveries=_recoveries(session, out),
        stabilities=_stabilities(session, out),
        version=_version(),
    )
    diagrams = Diagrams(os.fspath(trace_dir))
    drawn = {
        run: diagrams.of(run, found.verdicts[run].violations) for run in found.broken[:SHOWN_MAX]
    }
    return page(replace(found, diagrams=drawn), curves_in(session, out))


def _version() -> str:
    try:
        return version("unisono")
    except PackageNotFoundError:
        return ""


def _stabilities(
    session: SparkSession, out: Path
) -> dict[tuple[str, str], Sequence[tuple[int, int]]]:
    """Times from delivery to stability and their counts, by protocol and service."""
    frame = frame_in(session, out, STABILITIES)
    sums = frame.groupBy("protocol", "service", "stability_us").agg(
        F.sum("messages").alias("times")
    )
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in sums.collect():
        found.setdefault((row.protocol, row.service), []).append((row.stability_us, row.times))
    return {key: sorted(times) for key, times in sorted(found.items())}


def _recoveries(
    session: SparkSession, out: Path
) -> dict[tuple[str, str], Sequence[tuple[int, int]]]:
    """Recovery times and their counts, by protocol and end."""
    if len(folders_in(out, RECOVERIES)) <= FOLDERS_PER_TASK:
        rows = read_table(session, out, RECOVERIES).to_pylist()
        counts = Counter((row["protocol"], row["what"], row["recovery_us"]) for row in rows)
    else:
        frame = frame_in(session, out, RECOVERIES).where("recovery_us IS NOT NULL")
        class_ = F.floor(F.log10(F.greatest("recovery_us", F.lit(1))) * CLASSES_PER_DECADE)
        grouped = frame.groupBy("protocol", "what", class_.alias("class")).agg(
            F.max("recovery_us").alias("recovery_us"), F.count("*").alias("times")
        )
        counts = Counter(
            {(row.protocol, row.what, row.recovery_us): row.times for row in grouped.collect()}
        )
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for (protocol, what, us), times in counts.items():
        if us is not None:
            found.setdefault((protocol, what), []).append((us, times))
    return {key: sorted(times) for key, times in sorted(found.items())}
