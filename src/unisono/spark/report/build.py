"""Builds the page from the tables of a pipeline and the traces that they were made from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from unisono.spark.gold import grouped
from unisono.spark.partitioned import read_table
from unisono.spark.report.broken import SHOWN_MAX
from unisono.spark.report.diagrams import Diagrams
from unisono.spark.report.model import RunInfo
from unisono.spark.report.page import page
from unisono.spark.results import analyses_in, curves_in, findings_in, runs_in, summary_in


def build_report(out: Path, trace_dir: str | os.PathLike[str]) -> str:
    """The page about all runs in the tables. `trace_dir` appears in commands as it is given."""
    found = replace(
        findings_in(out),
        info={
            row["run"]: RunInfo(row["protocol"] or "", row["whole"] is not False, row["replay"])
            for row in runs_in(out)
        },
        summary=summary_in(out),
        recoveries=_times(out, "gold/recoveries", "what", "recovery_us"),
        stabilities=_times(out, "gold/stabilities", "service", "stability_us", "messages"),
        analyses=analyses_in(out),
        version=_version(),
    )
    diagrams = Diagrams(os.fspath(trace_dir))
    drawn = {
        run: diagrams.of(run, found.verdicts[run].violations) for run in found.broken[:SHOWN_MAX]
    }
    return page(replace(found, diagrams=drawn), curves_in(out))


def _version() -> str:
    try:
        return version("unisono")
    except PackageNotFoundError:
        return ""


def _times(
    out: Path, table: str, kind: str, time: str, count: str = ""
) -> dict[tuple[str, str], Sequence[tuple[int, int]]]:
    """Times and their counts, by protocol and kind. Without a column of counts, a row is one."""
    one = count or "count"

    def counted(rows: pa.Table) -> pa.Table:
        if one not in rows.column_names:
            rows = rows.append_column(one, pa.repeat(1, rows.num_rows))
        rows = rows.filter(pc.is_valid(rows.column(time)))
        return grouped(rows, ("protocol", kind, time), one)

    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in read_table(out, table, reduced=counted).to_pylist():
        found.setdefault((row["protocol"], row[kind]), []).append((row[time], row[one]))
    return {key: sorted(times) for key, times in sorted(found.items())}
