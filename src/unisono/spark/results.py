"""Reads the result tables, as far as the report and the command line show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unisono.laws import SENTENCES, Verdict, Violation
from unisono.spark.gold import grouped, latency_parts
from unisono.spark.layout import ALL, CURVES, FACTORS, JOINT, SUMMARY, TRENDS, files_in
from unisono.spark.partitioned import read_table, rows_in, runs_table
from unisono.spark.report import Curves, Findings
from unisono.spark.report.panels import SHOWN_MAX, VIEWS_MAX

SERIES_MAX: Final = 6
"""More runs than this are plotted together, by protocol, members and size."""
QUARANTINE_SHOWN_MAX: Final = 200
MEASURES_MAX: Final = 100_000


def runs_in(out: Path, runs: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The rows of `gold/runs`, in the order of runs."""
    rows: list[dict[str, Any]] = runs_table(out, runs).sort_by("run").to_pylist()
    return rows


def findings_in(out: Path, runs: Sequence[str] | None = None) -> Findings:
    """The results of some runs, or of all."""
    known = runs_in(out, runs)
    suspect = [row["run"] for row in known if row["kept"] is not True]
    with_quarantine = [row["run"] for row in known if row["quarantined"]]
    return Findings(
        verdicts=_verdicts(out, runs, suspect),
        measures=_measures(out, runs),
        events=sum(row["events"] for row in known),
        quarantined=sum(row["quarantined"] for row in known),
        quarantine=_quarantine(out, with_quarantine[:QUARANTINE_SHOWN_MAX]),
        contradicted={row["run"]: row["contradicted"] for row in known if row["contradicted"]},
    )


def _verdicts(out: Path, runs: Sequence[str] | None, suspect: Sequence[str]) -> dict[str, Verdict]:
    """By run, in their order; `suspect` are those that may have violations."""
    violations: dict[str, list[Violation]] = {}
    for row in read_table(out, "gold/violations", suspect).to_pylist() if suspect else ():
        found = Violation(*(row[name] for name in Violation._fields))
        violations.setdefault(row["run"], []).append(found)
    laws: dict[str, dict[str, str]] = {}
    for row in read_table(out, "gold/verdicts", runs).to_pylist():
        laws.setdefault(row["run"], {})[row["law"]] = row["verdict"]
    return {
        run: Verdict(
            {law: laws[run][law] for law in SENTENCES if law in laws[run]},
            sorted(violations.get(run, [])),
        )
        for run in sorted(laws)
    }


def _measures(out: Path, runs: Sequence[str] | None) -> list[dict[str, Any]]:
    table = read_table(out, "gold/measures", runs)
    if table.num_rows > MEASURES_MAX:
        table = table.filter(pc.is_null(table.column("node"))).slice(0, MEASURES_MAX)
    return sorted(
        table.to_pylist(), key=lambda row: (row["run"], row["protocol"], row["node"] or "")
    )


def _quarantine(out: Path, runs: Sequence[str]) -> list[tuple[str, int | None, str]]:
    rows = read_table(out, "bronze/quarantine", runs).to_pylist() if runs else []
    found = sorted(rows, key=lambda row: (row["path"], -1 if row["row"] is None else row["row"]))
    return [(row["path"], row["row"], row["reason"]) for row in found[:QUARANTINE_SHOWN_MAX]]


def analyses_in(out: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of the panels, in their order: of large tables those that matter most, and one more
    than are shown."""

    def read(table: str, reduced: Callable[[pa.Table], pa.Table]) -> pa.Table:
        return read_table(out, table, reduced=reduced)

    def rows_of(name: str, reduced: Callable[[pa.Table], pa.Table]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = read(f"gold/{name}", reduced).to_pylist()
        return rows

    def first(*by: tuple[str, str], most: int = SHOWN_MAX + 1) -> Callable[[pa.Table], pa.Table]:
        return lambda rows: rows.sort_by(list(by)).slice(0, most)

    causes = rows_of("causes", lambda rows: grouped(rows, ("protocol", "kind", "reason"), "count"))
    return {
        "latency_parts": latency_parts(read),
        "links": rows_of("links", first(("lost", "descending"), ("p99_us", "descending"))),
        "causes": sorted(causes, key=lambda row: (-row["count"], *map(str, row.values()))),
        "exclusions": rows_of(
            "exclusions", first(("unforced", "descending"), ("run", "ascending"))
        ),
        "components": rows_of(
            "components", first(("run", "ascending"), ("from_us", "ascending"), most=VIEWS_MAX)
        ),
        "factors": _rows_in(out, FACTORS),
        "trends": _rows_in(out, TRENDS)[::-1],
    }


def summary_in(out: Path) -> list[dict[str, Any]]:
    """The rows of `gold/summary`."""
    return _rows_in(out, SUMMARY)


def _rows_in(out: Path, table: str) -> list[dict[str, Any]]:
    """The rows about all runs."""
    found = [path for path in files_in(out, table) if path.stem == ALL]
    tables = (
        pq.ParquetFile(path).read() if table in JOINT else rows_in(path, table) for path in found
    )
    return [row for rows in tables for row in rows.to_pylist()]


def curves_in(out: Path) -> Curves:
    """A curve per run, or per kind of run where there are many."""
    if runs_table(out).num_rows <= SERIES_MAX:
        by = "run"
        latency, rates = (read_table(out, table).to_pylist() for table in CURVES)
    else:
        by = "protocol, members and size"
        latency, rates = (_rows_in(out, table) for table in CURVES)
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
    run: str = row["run"]
    return f"{row['protocol']}, {row['members']} members, {row['size']} B" if run == ALL else run
