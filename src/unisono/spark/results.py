"""Reads the result tables, as far as the report and the command line show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unisono.laws import SENTENCES, Verdict, Violation
from unisono.spark.gold import grouped, latency_parts
from unisono.spark.layout import CURVES, FACTORS, NO_RUN, RUNS, SUMMARY, TRENDS, folders_in
from unisono.spark.partitioned import read_table
from unisono.spark.report import Curves, Findings
from unisono.spark.report.panels import SHOWN_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERIES_MAX: Final = 6
"""More runs than this are plotted together, by protocol, members and size."""
QUARANTINE_SHOWN_MAX: Final = 200
MEASURES_MAX: Final = 100_000


def runs_in(
    session: SparkSession, out: Path, runs: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """The rows of `gold/runs`, in the order of runs."""
    return sorted(read_table(session, out, RUNS, runs).to_pylist(), key=lambda row: row["run"])


def findings_in(session: SparkSession, out: Path, runs: Sequence[str] | None = None) -> Findings:
    """The results of some runs, or of all."""
    known = runs_in(session, out, runs)
    suspect = [row["run"] for row in known if row["kept"] is not True]
    with_quarantine = [row["run"] for row in known if row["quarantined"]]
    return Findings(
        verdicts=_verdicts(session, out, runs, suspect),
        measures=_measures(session, out, runs),
        events=sum(row["events"] for row in known),
        quarantined=sum(row["quarantined"] for row in known),
        quarantine=_quarantine(session, out, with_quarantine[:QUARANTINE_SHOWN_MAX]),
        contradicted={row["run"]: row["contradicted"] for row in known if row["contradicted"]},
    )


def _verdicts(
    session: SparkSession, out: Path, runs: Sequence[str] | None, suspect: Sequence[str]
) -> dict[str, Verdict]:
    """By run, in their order; `suspect` are those that may have violations."""
    violations: dict[str, list[Violation]] = {}
    for row in read_table(session, out, "gold/violations", suspect).to_pylist() if suspect else ():
        found = Violation(*(row[name] for name in Violation._fields))
        violations.setdefault(row["run"], []).append(found)
    laws: dict[str, dict[str, str]] = {}
    for row in read_table(session, out, "gold/verdicts", runs).to_pylist():
        laws.setdefault(row["run"], {})[row["law"]] = row["verdict"]
    return {
        run: Verdict(
            {law: laws[run][law] for law in SENTENCES if law in laws[run]},
            sorted(violations.get(run, [])),
        )
        for run in sorted(laws)
    }


def _measures(session: SparkSession, out: Path, runs: Sequence[str] | None) -> list[dict[str, Any]]:
    table = read_table(session, out, "gold/measures", runs)
    if table.num_rows > MEASURES_MAX:
        table = table.filter(pc.is_null(table.column("node"))).slice(0, MEASURES_MAX)
    return sorted(
        table.to_pylist(), key=lambda row: (row["run"], row["protocol"], row["node"] or "")
    )


def _quarantine(
    session: SparkSession, out: Path, runs: Sequence[str]
) -> list[tuple[str, int | None, str]]:
    rows = read_table(session, out, "bronze/quarantine", runs).to_pylist() if runs else []
    found = sorted(rows, key=lambda row: (row["path"], -1 if row["row"] is None else row["row"]))
    return [(row["path"], row["row"], row["reason"]) for row in found[:QUARANTINE_SHOWN_MAX]]


def analyses_in(session: SparkSession, out: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of the panels, in their order: of large tables those that matter most, and one more
    than are shown."""

    def read(table: str, reduced: Callable[[pa.Table], pa.Table]) -> pa.Table:
        return read_table(session, out, table, reduced=reduced)

    def rows_of(name: str, reduced: Callable[[pa.Table], pa.Table]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = read(f"gold/{name}", reduced).to_pylist()
        return rows

    def first(*by: tuple[str, str]) -> Callable[[pa.Table], pa.Table]:
        return lambda rows: rows.sort_by(list(by)).slice(0, SHOWN_MAX + 1)

    causes = rows_of("causes", lambda rows: grouped(rows, ("protocol", "kind", "reason"), "count"))
    return {
        "latency_parts": latency_parts(read),
        "links": rows_of("links", first(("lost", "descending"), ("p99_us", "descending"))),
        "causes": sorted(causes, key=lambda row: (-row["count"], *map(str, row.values()))),
        "exclusions": rows_of(
            "exclusions", first(("unforced", "descending"), ("run", "ascending"))
        ),
        "components": rows_of("components", first(("run", "ascending"), ("from_us", "ascending"))),
        "factors": _rows_in(out / FACTORS),
        "trends": _rows_in(out / TRENDS)[::-1],
    }


def summary_in(out: Path) -> list[dict[str, Any]]:
    """The rows of `gold/summary`."""
    return _rows_in(out / SUMMARY)


def _rows_in(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(folder / "part.parquet").read().to_pylist()
    return rows


def curves_in(session: SparkSession, out: Path) -> Curves:
    """A curve per run, or per kind of run where there are many."""
    if len(folders_in(out, CURVES[0])) <= SERIES_MAX:
        by = "run"
        latency, rates = (read_table(session, out, table).to_pylist() for table in CURVES)
    else:
        by = "protocol, members and size"
        latency, rates = (_rows_in(out / table / NO_RUN) for table in CURVES)
    lines = {_series(row): list(row["quantiles"]) for row in latency}
    shown = dict(sorted(lines.items())[:SERIES_MAX])
    bins: dict[str, dict[int, float]] = {name: {} for name in shown}
    widths: dict[str, float] = {}
    for row in rates:
        if (name := _series(row)) in bins:
            bins[name][row["bin"]] = row["rate"]
            widths[name] = row["width_s"]
    # A bin without deliveries has no row: its rate is 0.
    plotted = {
        name: [((n + 0.5) * widths[name], of.get(n, 0.0)) for n in range(max(of) + 1)]
        for name, of in bins.items()
        if of
    }
    return Curves(by, shown, plotted)


def _series(row: dict[str, Any]) -> str:
    run: str | None = row.get("run")
    return f"{row['protocol']}, {row['members']} members, {row['size']} B" if run is None else run
