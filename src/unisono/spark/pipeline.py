"""The pipeline: from a trace directory to bronze, silver and gold tables, and a report.

Only runs that are new or have changed are processed, in batches that are bounded in bytes; each
batch is published when it is done (`publishing`). The summary, the joint curves and the
report are made from the tables of all runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unisono.errors import Misuse
from unisono.laws import Verdict
from unisono.laws.verdict import verdict_json
from unisono.spark import gold
from unisono.spark.delta import FOLDER as DELTA
from unisono.spark.delta import DeltaTables
from unisono.spark.factors import factors_of, trends_of
from unisono.spark.layout import (
    BRONZE,
    CURVES,
    FACTORS,
    GOLD,
    REPORT,
    ROWS,
    SUMMARY,
    TABLES,
    TRENDS,
)
from unisono.spark.partitioned import read_table
from unisono.spark.publishing import ResultLayout, open_layout
from unisono.spark.report.build import build_report
from unisono.spark.results import findings_in, runs_in, summary_in
from unisono.spark.runs import (
    OPEN,
    Input,
    batches_of,
    changed,
    inputs_in,
    laws_digest,
)
from unisono.spark.tasks import ANY_PROTOCOL, Claims, Output, check_claims, write_tables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]
PARQUET = "parquet"


@dataclass(frozen=True)
class PipelineResult:
    """The results of the selected runs; everything else is in the tables."""

    out: Path
    report: Path
    events: int
    quarantined: int
    verdicts: dict[str, Verdict]
    """By run."""
    unjudged_by_run: dict[str, int] = field(default_factory=dict)
    """Quarantined rows and files, without those that a killed process did not finish."""
    quarantine: Sequence[tuple[str, int | None, str]] = ()
    """Of what is quarantined the first: path, row and reason."""
    events_by_run: dict[str, int] = field(default_factory=dict)
    contradicted: dict[str, Sequence[str]] = field(default_factory=dict)
    """By run, the incarnations whose rows differ between two files."""
    measures: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the table `measures` without a node, by run and protocol."""
    processed: tuple[str, ...] = ()
    """The runs that were new or had changed."""
    skipped: int = 0
    """The number of unchanged runs."""
    open: frozenset[str] = frozenset()
    """Runs with a file without an end: they go on, or were cut short."""
    so_far: frozenset[str] = frozenset()
    """Those of them that were judged as going on."""
    summary: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the table `summary`, of all runs."""
    replays: dict[str, str] = field(default_factory=dict)
    """By run, the command that reproduces it, where it is known."""

    @property
    def unjudged(self) -> int:
        return sum(self.unjudged_by_run.values())

    @property
    def kept(self) -> bool:
        """No law is broken, and no files contradict each other."""
        return not self.contradicted and all(each.kept for each in self.verdicts.values())

    def as_json(self) -> dict[str, Any]:
        """What `unisono pipeline --json` prints: the object of `verify --json`, and the numbers of
        runs processed and skipped."""
        return {
            "runs": {run: verdict_json(verdict) for run, verdict in self.verdicts.items()},
            "events": self.events,
            "quarantined": self.quarantined,
            "contradicted": self.contradicted,
            "processed": len(self.processed),
            "skipped": self.skipped,
        }


def run_pipeline(
    session: SparkSession,
    trace_dir: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    claimed: Claims,
    progress: Progress | None = None,
    *,
    others: Sequence[str] = (),
    everything: bool = False,
    runs: Sequence[str] | None = None,
    silver: bool = True,
    going_on: bool = False,
    delta: str | None = None,
    joint: bool = True,
) -> PipelineResult:
    """Process the runs that are new or have changed. `claimed` are the laws of each protocol,
    `others` those of a protocol that is not in it; `progress` is called with the next step.

    `everything`: process all runs, and drop those that are gone; `runs`: only these; without
    `silver` only gold and quarantine are written; `going_on`: a run with a file without an end is
    not judged by eventual laws; `delta`: the tables are written as Delta Lake too, below this URI,
    or below `out_dir` if it is empty, and the large ones only there; without `joint` the tables
    about many runs and the report are left to `refresh`.
    """
    if everything and runs:
        raise Misuse("give --all or --run, not both")
    report = progress or (lambda step: None)
    inputs = inputs_in(trace_dir, runs)
    check_claims(claimed)
    with open_layout(Path(out_dir)) as layout:
        rows_in = None if not silver else PARQUET if delta is None else DELTA
        lake = _lake(layout, delta)
        laws = _ClaimedLaws(claimed, tuple(others))
        todo = list(inputs.values())
        if not everything:
            todo = changed(
                layout.out,
                inputs,
                laws.of,
                going_on,
                rows_in,
                None if lake is None else lake.runs(),
            )
            if len(todo) < len(inputs):
                report(f"{len(todo):,} of {len(inputs):,} runs are new or have changed")
        batches = list(batches_of(todo))
        for index, batch in enumerate(batches, 1):
            part = f" (part {index:,} of {len(batches):,})" if len(batches) > 1 else ""
            report(f"reading, judging and measuring{part}")
            rows = _process(session, layout, batch, laws, rows_in, going_on)
            if lake is not None:
                lake.publish(layout, rows)
                layout.discard(ROWS)
            layout.publish(rows)
        if everything:
            gone = [row["run"] for row in runs_in(layout.out) if row["run"] not in inputs]
            layout.remove(gone)
            if lake is not None:
                lake.drop(gone)
        if joint:
            _refresh(layout, lake, trace_dir, report)
        return _result(layout.out, inputs, todo)


def refresh(
    trace_dir: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    delta: str | None = None,
) -> None:
    """Make the tables about many runs and the report from the tables of the runs."""
    with open_layout(Path(out_dir)) as layout:
        _refresh(layout, _lake(layout, delta), trace_dir, lambda step: None)


def _lake(layout: ResultLayout, delta: str | None) -> DeltaTables | None:
    return None if delta is None else DeltaTables(delta or str(layout.out / DELTA))


def _refresh(
    layout: ResultLayout,
    lake: DeltaTables | None,
    trace_dir: str | os.PathLike[str],
    report: Progress,
) -> None:
    if layout.stale:
        report("summarizing all runs")
        _summarize(layout, lake)
    report("writing the report")
    layout.write_report(build_report(layout.out, trace_dir))


class _ClaimedLaws(NamedTuple):
    claimed: Claims
    others: tuple[str, ...]

    def of(self, protocol: str) -> Sequence[str]:
        return self.claimed.get(protocol, self.others)

    def with_default(self) -> Claims:
        return {ANY_PROTOCOL: self.others, **self.claimed}


def _process(
    session: SparkSession,
    layout: ResultLayout,
    batch: Sequence[Input],
    laws: _ClaimedLaws,
    rows_in: str | None,
    going_on: bool,
) -> list[dict[str, Any]]:
    """Stage the tables of a batch of runs; returns their rows of `gold/runs`."""
    layout.stage_empty(TABLES if rows_in else (BRONZE[1], *GOLD))
    files = [found for each in batch for found in each.files]
    output = Output(str(layout.staged("")), layout.next_part(), rows_in is not None, going_on)
    days = {each.run: each.recorded.date() for each in batch}
    inputs = {each.run: each for each in batch}
    rows = []
    for row in write_tables(session, files, days, laws.with_default(), output):
        each = inputs[row["run"]]
        still_open = OPEN if going_on and not row["whole"] else ""
        about = {
            "protocol": ", ".join(row["protocols"]),
            "files": len(each.files),
            "octets": each.nbytes,
            "replay": each.replay,
            "fingerprint": still_open + each.fingerprint,
            "asked": " ".join(laws_digest(laws.of(name)) for name in row["protocols"]),
            "rows_in": rows_in,
            "recorded": each.recorded,
        }
        rows.append(row | about)
    return rows


def _summarize(layout: ResultLayout, lake: DeltaTables | None) -> None:
    """The tables about many runs, from the tables of each."""

    def read(table: str, reduced: Callable[[pa.Table], pa.Table]) -> pa.Table:
        return read_table(layout.out, table, reduced=reduced)

    runs = runs_in(layout.out)
    kept = {row["run"]: row["kept"] for row in runs}
    curves = list(gold.latency_curves(read))
    measures = read("gold/measures", gold.of_runs).to_pylist()
    layout.stage_joint(CURVES[0], curves)
    layout.stage_joint(CURVES[1], gold.rate_curves(read))
    layout.stage_joint(SUMMARY, gold.summary_of(read, kept, curves, measures))
    layout.stage_joint(FACTORS, factors_of(runs, measures))
    layout.stage_joint(TRENDS, trends_of(runs, measures))
    if lake is not None:
        lake.publish_joint(layout)
    layout.publish_joint()


def _result(out: Path, inputs: dict[str, Input], todo: Sequence[Input]) -> PipelineResult:
    found = findings_in(out, list(inputs))
    known = runs_in(out, list(inputs))
    done = tuple(each.run for each in todo)
    return PipelineResult(
        out=out,
        report=out / REPORT,
        events=found.events,
        quarantined=found.quarantined,
        verdicts=found.verdicts,
        unjudged_by_run={row["run"]: row["unjudged"] for row in known},
        quarantine=found.quarantine,
        events_by_run={row["run"]: row["events"] for row in known},
        contradicted=dict(found.contradicted),
        measures=[row for row in found.measures if row["node"] is None],
        processed=done,
        skipped=len(inputs) - len(done),
        open=frozenset(row["run"] for row in known if not row["whole"]),
        so_far=frozenset(row["run"] for row in known if row["fingerprint"].startswith(OPEN)),
        summary=summary_in(out) if (out / SUMMARY).is_dir() else [],
        replays={row["run"]: row["replay"] for row in known if row["replay"]},
    )
