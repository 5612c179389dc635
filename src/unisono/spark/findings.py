"""What the tables tell, small enough to be read: for the report and for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unisono.laws import LAWS, Verdict, Violation
from unisono.spark.layout import CURVES, NO_RUN, RUNS, SUMMARY, folders_in
from unisono.spark.partitioned import read_table
from unisono.spark.report import Curves, Findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERIES_MAX: Final = 6
"""More runs than this are drawn together, by protocol, members and size."""
QUARANTINE_SHOWN_MAX: Final = 200
MEASURES_MAX: Final = 100_000


def runs_in(
    session: SparkSession, out: Path, runs: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """The rows of `gold/runs`, in the order of runs."""
    return sorted(read_table(session, out, RUNS, runs).to_pylist(), key=lambda row: row["run"])


def findings_in(session: SparkSession, out: Path, runs: Sequence[str] | None = None) -> Findings:
    """What was found of some runs, or of all."""
    known = runs_in(session, out, runs)
    broken = [row["run"] for row in known if row["kept"] is False]
    marred = [row["run"] for row in known if row["quarantined"]]
    return Findings(
        verdicts=verdicts_in(session, out, runs, broken),
        measures=_measures(session, out, runs),
        events=sum(row["events"] for row in known),
        quarantined=sum(row["quarantined"] for row in known),
        quarantine=_quarantine(session, out, marred[:QUARANTINE_SHOWN_MAX]),
        contradicted={row["run"]: row["contradicted"] for row in known if row["contradicted"]},
    )


def verdicts_in(
    session: SparkSession, out: Path, runs: Sequence[str] | None, broken: Sequence[str]
) -> dict[str, Verdict]:
    """By run, in their order; `broken` are those that have violations."""
    told: dict[str, list[Violation]] = {}
    violations = read_table(session, out, "gold/violations", broken).to_pylist() if broken else []
    for row in violations:
        found = Violation(
            row["law"], row["run"], row["life"], row["message"], row["other"], row["detail"]
        )
        told.setdefault(row["run"], []).append(found)
    laws: dict[str, dict[str, str]] = {}
    table = read_table(session, out, "gold/verdicts", runs)
    for run, law, verdict in zip(*_columns(table, "run", "law", "verdict"), strict=True):
        laws.setdefault(run, {})[law] = verdict
    return {
        run: Verdict({law: laws[run][law] for law in LAWS}, sorted(told.get(run, [])))
        for run in sorted(laws)
    }


def _columns(table: pa.Table, *names: str) -> list[list[Any]]:
    return [table.column(name).to_pylist() if table.num_rows else [] for name in names]


def _measures(session: SparkSession, out: Path, runs: Sequence[str] | None) -> list[dict[str, Any]]:
    table = read_table(session, out, "gold/measures", runs)
    if not table.num_rows:
        return []
    if table.num_rows > MEASURES_MAX:
        table = table.filter(pc.is_null(table.column("node"))).slice(0, MEASURES_MAX)
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: (row["run"], row["protocol"], row["node"] or ""))


def _quarantine(
    session: SparkSession, out: Path, runs: Sequence[str]
) -> list[tuple[str, int | None, str]]:
    rows = read_table(session, out, "bronze/quarantine", runs).to_pylist() if runs else []
    found = sorted(rows, key=lambda row: (row["path"], -1 if row["row"] is None else row["row"]))
    return [(row["path"], row["row"], row["reason"]) for row in found[:QUARANTINE_SHOWN_MAX]]


def summary_in(out: Path) -> list[dict[str, Any]]:
    """The rows of `gold/summary`."""
    return _whole(out / SUMMARY)


def _whole(folder: Path) -> list[dict[str, Any]]:
    """The rows of the one file of a folder."""
    rows: list[dict[str, Any]] = pq.ParquetFile(folder / "part.parquet").read().to_pylist()
    return rows


def curves_in(session: SparkSession, out: Path) -> Curves:
    """What is plotted: each run, or where they are many, runs of a kind together."""
    folders = folders_in(out, CURVES[0])
    if len(folders) <= SERIES_MAX:
        by = "run"
        latency = read_table(session, out, CURVES[0]).to_pylist()
        rates = read_table(session, out, CURVES[1]).to_pylist()
    else:
        by = "protocol, members and size"
        latency, rates = (_whole(out / table / NO_RUN) for table in CURVES)
    lines = {_series(row): list(row["quantiles"]) for row in latency}
    shown = dict(sorted(lines.items())[:SERIES_MAX])
    bins: dict[str, dict[int, float]] = {name: {} for name in shown}
    widths: dict[str, float] = {}
    for row in rates:
        if (name := _series(row)) in bins:
            bins[name][row["bin"]] = row["rate"]
            widths[name] = row["width_s"]
    # Time without a delivery has no row: it is drawn as the silence it was.
    drawn = {
        name: [((n + 0.5) * widths[name], of.get(n, 0.0)) for n in range(max(of) + 1)]
        for name, of in bins.items()
        if of
    }
    return Curves(by, shown, drawn)


def _series(row: dict[str, Any]) -> str:
    run = row.get("run")
    return f"{row['protocol']}, {row['members']} members, {row['size']} B" if run is None else run
