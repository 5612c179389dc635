"""From the tables of a pipeline, and the traces they were made of, to the page."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from unisono.spark.findings import curves_in, findings_in, runs_in, summary_in
from unisono.spark.layout import folders_in
from unisono.spark.partitioned import FOLDERS_A_TASK, frame_in, read_table
from unisono.spark.report.broken import SHOWN_MAX
from unisono.spark.report.found import RunAbout
from unisono.spark.report.page import page
from unisono.spark.report.pictures import Pictures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECOVERIES: Final = "gold/recoveries"
CLASSES_A_DECADE: Final = 24
"""Of many runs, times to recover are counted in so many classes to a power of ten."""


def report_of(session: SparkSession, out: Path, trace_dir: str | os.PathLike[str]) -> str:
    """The page about all runs that the tables tell of. `trace_dir` is named as its reader would
    name it: it stands in commands."""
    found = replace(
        findings_in(session, out),
        about=_about(runs_in(session, out)),
        summary=summary_in(out),
        recoveries=_recoveries(session, out),
        version=_version(),
    )
    pictures = Pictures(os.fspath(trace_dir))
    drawn = {
        run: pictures.of(run, found.verdicts[run].violations) for run in found.broken[:SHOWN_MAX]
    }
    return page(replace(found, pictures=drawn), curves_in(session, out))


def _version() -> str:
    try:
        return version("unisono")
    except PackageNotFoundError:
        return ""


def _about(rows: Iterable[Mapping[str, Any]]) -> dict[str, RunAbout]:
    return {
        row["run"]: RunAbout(row["protocol"] or "", row["whole"] is not False, row["replay"])
        for row in rows
    }


def _recoveries(
    session: SparkSession, out: Path
) -> dict[tuple[str, str], Sequence[tuple[int, int]]]:
    """Times to recover and how often, by protocol and end; of many runs in classes."""
    if len(folders_in(out, RECOVERIES)) <= FOLDERS_A_TASK:
        table = read_table(session, out, RECOVERIES)
        if not table.num_rows:
            return {}
        names = ("protocol", "what", "recovery_us")
        rows: Iterable[tuple[Any, ...]] = Counter(
            zip(*(table.column(name).to_pylist() for name in names), strict=True)
        ).items()
        counted = [(*key, count) for key, count in rows]
    else:
        frame = frame_in(session, out, RECOVERIES).where("recovery_us IS NOT NULL")
        place = F.floor(F.log10(F.greatest("recovery_us", F.lit(1))) * CLASSES_A_DECADE)
        grouped = frame.groupBy("protocol", "what", place.alias("place")).agg(
            F.max("recovery_us").alias("recovery_us"), F.count("*").alias("times")
        )
        counted = [
            (row.protocol, row.what, row.recovery_us, row.times) for row in grouped.collect()
        ]
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for protocol, what, us, times in counted:
        if us is not None:
            found.setdefault((protocol, what), []).append((us, times))
    return {key: sorted(line) for key, line in sorted(found.items())}
