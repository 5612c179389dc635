"""The pipeline: from a trace directory to bronze, silver and gold tables, and a report.

Only runs that are new or have changed are processed, in batches that are bounded in bytes; each
batch is published run by run when it is done (`layout`). The summary, the joint curves and the
report are made from the tables of all runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F

from unisono.errors import Misuse
from unisono.laws import Verdict
from unisono.laws.verdict import verdict_json
from unisono.spark import gold
from unisono.spark.bronze import VALID, Bronze, read_bronze
from unisono.spark.laws import Claims, check_claims, judged
from unisono.spark.layout import (
    CURVES,
    REPORT,
    RUNS,
    SUMMARY,
    ResultLayout,
    folders_in,
    open_layout,
)
from unisono.spark.measures import with_work
from unisono.spark.partitioned import frame_in, stage, stage_joint, stage_table
from unisono.spark.report.build import build_report
from unisono.spark.results import findings_in, runs_in, summary_in
from unisono.spark.runs import (
    OPEN,
    Input,
    batches_of,
    changed,
    inputs_in,
    laws_digest,
    removed,
)
from unisono.spark.tables import silver_of, with_parents
from unisono.trace.parquet import TORN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unisono.spark.tables import Silver

TINY_BYTES: Final = 4 << 20
"""Each step of a smaller batch is one task, without exchanges."""
SMALL_BYTES: Final = 64 << 20
"""A smaller batch gets few tasks."""
PART_BYTES: Final = 8 << 20
"""Per task of a larger one."""
EVENTUAL: Final = (
    *("gap_free", "every_place", "agreement", "validity", "safe", "received", "stable"),
    *("one_primary", "quorum", "one_founding", "begun", "exclusion"),
    *("accuracy", "progress"),
)
"""Liveness: not judged while a run goes on."""
NOT_YET: Final = "not yet"
"""The verdict of an eventual law on a run that goes on."""

Progress = Callable[[str], None]


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
) -> PipelineResult:
    """Process the runs that are new or have changed. `claimed` are the laws of each protocol,
    `others` those of a protocol that is not in it; `progress` is called with the next step.

    `everything`: process all runs, and drop those that are gone; `runs`: only these; without
    `silver` only gold and quarantine are written; `going_on`: a run with a file without an end is
    not judged by eventual laws.
    """
    if everything and runs:
        raise Misuse("give --all or --run, not both")
    report = progress or (lambda step: None)
    inputs = inputs_in(trace_dir, runs)
    check_claims(claimed)
    with open_layout(Path(out_dir)) as layout:
        laws = _ClaimedLaws(claimed, tuple(others))
        todo = list(inputs.values())
        if layout.outdated:
            if runs:
                raise Misuse(f"{out_dir}: tables of another version; give --all or another --out")
            report("the tables are of another version: all runs are processed")
        elif not everything:
            todo = changed(session, layout.out, inputs, laws.of, going_on, silver)
            if len(todo) < len(inputs):
                report(f"{len(todo):,} of {len(inputs):,} runs are new or have changed")
        batches = list(batches_of(todo))
        for index, batch in enumerate(batches, 1):
            part = f" (part {index:,} of {len(batches):,})" if len(batches) > 1 else ""
            job = _BatchJob(session, layout, report, part, batch)
            with _configured(session, job.nbytes):
                job.run(laws, silver, going_on)
            layout.publish(each.run for each in batch)
        if everything:
            layout.drop(removed(folders_in(layout.out, RUNS), inputs))
        if layout.stale:
            report("summarizing all runs")
            with _configured(session, 0):
                _summarize(session, layout)
        report("writing the report")
        layout.write_report(build_report(session, layout.out, trace_dir))
        return _result(session, layout.out, inputs, todo)


class _ClaimedLaws(NamedTuple):
    claimed: Claims
    others: tuple[str, ...]

    def of(self, protocol: str) -> Sequence[str]:
        return self.claimed.get(protocol, self.others)

    def by(self, protocols: set[str]) -> dict[str, Sequence[str]]:
        return {name: self.of(name) for name in sorted(protocols | self.claimed.keys())}


class _BatchJob:
    """Processes one batch of runs."""

    def __init__(
        self,
        session: SparkSession,
        layout: ResultLayout,
        report: Progress,
        part: str,
        batch: Sequence[Input],
    ) -> None:
        self.session = session
        self.layout = layout
        self.report: Progress = lambda step: report(step + part)
        self.batch = batch
        self.files = [found for each in batch for found in each.files]
        self.nbytes = sum(each.nbytes for each in batch)
        self.tiny = self.nbytes < TINY_BYTES
        self._in_memory: dict[int, tuple[DataFrame, pa.Table]] = {}

    def keep(self, table: DataFrame, name: str) -> DataFrame:
        """Compute a table now and read it back: from a scratch file, or from memory if it is
        small."""
        if self.tiny:
            rows = table.toArrow()
            frame = self.session.createDataFrame(rows, table.schema).coalesce(1)
            self._in_memory[id(frame)] = (frame, rows)
            return frame
        path = f"file://{self.layout.kept(name)}"
        table.write.parquet(path)
        # Brackets and stars in the directory's name are no glob patterns.
        read = self.session.read.schema(table.schema).option("__globPaths__", "false")
        return read.parquet(path)

    def stage(self, table: str, rows: DataFrame, *order: str) -> None:
        if self.tiny:
            kept = self._in_memory.get(id(rows))
            stage_table(self.layout, table, kept[1] if kept else rows.toArrow(), order)
        else:
            stage(self.layout, table, rows, order)

    def run(self, laws: _ClaimedLaws, silver: bool, going_on: bool) -> None:
        self.report("reading the trace")
        bronze = read_bronze(self.session, self.files, self.tiny)
        bronze.checked.persist()
        try:
            self.stage("bronze/quarantine", bronze.quarantine, "path", "row")
            if silver:
                self.stage("bronze/events", bronze.events, "node", "incarnation", "step")
            self.report("writing the tables")
            tables = silver_of(bronze.events, self.keep, self.tiny)
            counts = self.keep(_counts(bronze), "counts")
        finally:
            bronze.checked.unpersist()
        if silver:
            self._stage_silver(tables)
        self.report("judging")
        claimed = laws.by(self._protocols(counts))
        found = judged(self.session, self.files, claimed)
        try:
            violations, verdicts = found.violations, found.verdicts
            if going_on:
                violations, verdicts = _so_far(violations, verdicts, counts)
            order = ("law", "life", "message", "other", "detail")
            self.stage("gold/violations", violations, *order)
            verdicts = self.keep(verdicts, "verdicts")
            self.stage("gold/verdicts", verdicts, "law")
            self.report("measuring")
            measures = self.keep(with_work(found.measures, tables), "measures")
            lives = self.keep(found.lives, "lives")
            contradicted = self.keep(_by_run(found.contradicted), "contradicted")
        finally:
            found.forget()
        self.stage("gold/measures", measures, "protocol", "node")
        self.stage(
            "gold/recoveries", gold.recoveries_of(tables, lives), "protocol", "group", "life"
        )
        self._stage_curves(tables, measures)
        self.stage(RUNS, self._runs(counts, verdicts, contradicted, claimed, going_on))

    def _protocols(self, counts: DataFrame) -> set[str]:
        if self.tiny:
            listed = self._in_memory[id(counts)][1].column("protocols").to_pylist()
            return {name for names in listed for name in names}
        each = counts.select(F.explode("protocols").alias("protocol")).distinct()
        return {row.protocol for row in each.collect()}

    def _stage_silver(self, tables: Silver) -> None:
        sends = with_parents(tables.sends, tables.deliveries)
        life = ("protocol", "group", "life", "step")
        self.stage("silver/sends", sends, *life)
        self.stage("silver/deliveries", tables.deliveries, *life)
        self.stage("silver/views", tables.views, *life)
        self.stage("silver/packets", tables.packets, *life)

    def _stage_curves(self, tables: Silver, measures: DataFrame) -> None:
        keys = gold.keys_of(measures)
        latencies = self.keep(gold.latencies_of(tables, keys), "latencies")
        self.stage("gold/latencies", latencies, "protocol", "latency_us")
        curves = gold.latency_curves(latencies, ("run", *gold.KEYS))
        self.stage("gold/latency_curves", curves, "protocol")
        self.stage("gold/rate_curves", gold.rate_curves(tables, keys), "protocol", "bin")

    def _runs(
        self,
        counts: DataFrame,
        verdicts: DataFrame,
        contradicted: DataFrame,
        claimed: Claims,
        going_on: bool,
    ) -> DataFrame:
        """One row per run: its facts, and the fingerprints that show whether it has changed."""
        rows = [
            (each.run, len(each.files), each.nbytes, each.fingerprint, each.replay)
            for each in self.batch
        ]
        ddl = "run string, files int, octets bigint, fingerprint string, replay string"
        runs = self.session.createDataFrame(rows, ddl).coalesce(1)
        kept = verdicts.groupBy("run").agg(
            F.max(F.col("verdict") == "broken").alias("broken"),
            F.max(F.col("verdict") == NOT_YET).alias("not_yet"),
        )
        # Unknown while a law is not judged.
        known = F.when(F.col("broken") | ~F.col("not_yet"), ~F.col("broken")).alias("kept")
        pairs = [(F.lit(name), F.lit(laws_digest(laws))) for name, laws in claimed.items()]
        digests = F.create_map(*(each for pair in pairs for each in pair))
        for table in (counts, kept, contradicted):
            runs = runs.join(table, "run", "left")
        fingerprint = F.col("fingerprint")
        if going_on:
            still_open = F.concat(F.lit(OPEN), fingerprint)
            fingerprint = F.when(F.col("whole"), fingerprint).otherwise(still_open)
        return runs.select(
            "run",
            F.array_join("protocols", ", ").alias("protocol"),
            *("protocols", "groups", "events", "quarantined", "unjudged", "contradicted"),
            *("files", "octets"),
            known,
            *("whole", "replay"),
            fingerprint.alias("fingerprint"),
            F.array_join(F.transform("protocols", lambda name: digests[name]), " ").alias("asked"),
        )


def _so_far(
    violations: DataFrame, verdicts: DataFrame, counts: DataFrame
) -> tuple[DataFrame, DataFrame]:
    """Without the eventual laws of runs that go on."""
    early = counts.where("NOT whole").selectExpr("run", f"explode(array{EVENTUAL}) AS law")
    blamed = violations.join(early, ["run", "law"], "left_anti").select(*violations.columns)
    marked = verdicts.join(early.withColumn("early", F.lit(True)), ["run", "law"], "left")
    held = f"IF(early AND verdict <> 'not claimed', '{NOT_YET}', verdict) AS verdict"
    return blamed, marked.selectExpr("run", "law", held)


def _by_run(contradicted: DataFrame) -> DataFrame:
    lives = F.array_sort(F.collect_list("life"))
    return contradicted.groupBy("run").agg(lives.alias("contradicted"))


def _counts(bronze: Bronze) -> DataFrame:
    """By run: protocols, groups, events, quarantined rows and files, how many of these were
    complete, and whether each file has its end."""
    cut = "place IS NULL AND (coalesce(torn, false) OR after)"
    cut_off = f"place IS NULL AND startswith(reason, '{TORN}')"
    return bronze.checked.groupBy("run").agg(
        F.expr(f"array_sort(collect_set(protocol) FILTER (WHERE {VALID})) AS protocols"),
        F.expr(f"array_sort(collect_set(`group`) FILTER (WHERE {VALID})) AS groups"),
        F.expr(f"count_if({VALID}) AS events"),
        F.expr("count(reason) AS quarantined"),
        F.expr(f"count_if(reason IS NOT NULL AND NOT ({cut_off})) AS unjudged"),
        F.expr(f"count_if({cut}) = 0 AS whole"),
    )


def _summarize(session: SparkSession, layout: ResultLayout) -> None:
    """The summary and the joint curves, from the tables of all runs."""
    latencies, rates, measures, recoveries, runs = (
        frame_in(session, layout.out, f"gold/{name}")
        for name in ("latencies", "rate_curves", "measures", "recoveries", "runs")
    )
    curves = gold.latency_curves(latencies, gold.KEYS)
    staged = session.createDataFrame(stage_joint(layout, CURVES[0], curves, gold.KEYS)).coalesce(1)
    stage_joint(layout, CURVES[1], gold.joint_rate_curves(rates), (*gold.KEYS, "bin"))
    summary = gold.summary_of(measures, runs, recoveries, staged)
    stage_joint(layout, SUMMARY, summary, gold.KEYS)
    layout.publish_joint()


def _result(
    session: SparkSession, out: Path, inputs: dict[str, Input], todo: Sequence[Input]
) -> PipelineResult:
    found = findings_in(session, out, list(inputs))
    known = runs_in(session, out, list(inputs))
    done = tuple(each.run for each in todo)
    return PipelineResult(
        out=out,
        report=out / REPORT,
        events=found.events,
        quarantined=found.quarantined,
        verdicts=found.verdicts,
        unjudged_by_run={row["run"]: row["unjudged"] for row in known},
        contradicted=dict(found.contradicted),
        measures=[row for row in found.measures if row["node"] is None],
        processed=done,
        skipped=len(inputs) - len(done),
        open=frozenset(row["run"] for row in known if not row["whole"]),
        so_far=frozenset(row["run"] for row in known if row["fingerprint"].startswith(OPEN)),
        summary=summary_in(out),
        replays={row["run"]: row["replay"] for row in known if row["replay"]},
    )


@contextmanager
def _configured(session: SparkSession, nbytes: int) -> Iterator[None]:
    """Spark's settings for a batch of this size; restored afterwards."""
    settings = {"spark.sql.session.timeZone": "UTC"}
    cores = session.sparkContext.defaultParallelism
    shuffled = int(session.conf.get("spark.sql.shuffle.partitions") or 200)
    if nbytes < SMALL_BYTES:
        shuffled = max(1, min(cores, 8))
    elif nbytes < shuffled * PART_BYTES:
        # Spark does not coalesce the partitions of scratch files: empty tasks add up.
        shuffled = max(2 * cores, nbytes // PART_BYTES)
    settings["spark.sql.shuffle.partitions"] = str(shuffled)
    if nbytes < TINY_BYTES:
        # Code generation, broadcasts and adaptive planning cost more than they save.
        settings["spark.sql.shuffle.partitions"] = "1"
        settings["spark.sql.adaptive.enabled"] = "false"
        settings["spark.sql.codegen.wholeStage"] = "false"
        settings["spark.sql.codegen.factoryMode"] = "NO_CODEGEN"
        settings["spark.sql.autoBroadcastJoinThreshold"] = "-1"
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)
