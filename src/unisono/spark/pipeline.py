"""The pipeline: a trace directory in; tables, verdicts, measures and a page for people out.

Only runs that are new or have changed are read, judged and measured, in batches that are bounded in
bytes; each batch is put in place run by run when it is done (`places`). What is about many runs
together, the summary, the joint curves and the report, is made from the tables of the runs.
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
from unisono.spark.bronze import SOUND, Bronze, read_bronze
from unisono.spark.laws import Claims, check_claims, judged
from unisono.spark.layout import CURVES, REPORT, RUNS, SUMMARY, ResultLayout, folders_in, places
from unisono.spark.measures import with_work
from unisono.spark.partitioned import frame_in, stage, stage_little, stage_whole
from unisono.spark.report.build import build_report
from unisono.spark.results import findings_in, runs_in, summary_in
from unisono.spark.runs import (
    OPEN,
    Input,
    batches_of,
    changed,
    gone,
    inputs_in,
    word_of,
)
from unisono.spark.tables import silver_of, with_parents
from unisono.trace.parquet import TORN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unisono.spark.tables import Silver

ALONE_BYTES: Final = 4 << 20
"""Of a smaller trace each step is one task: without exchanges all laws are a single stage."""
SMALL_BYTES: Final = 64 << 20
"""A smaller trace is work for few tasks."""
PART_BYTES: Final = 8 << 20
"""Of a larger one, so much is one task's."""
EVENTUAL: Final = (
    *("gap_free", "every_place", "agreement", "validity", "safe", "received", "stable"),
    *("one_primary", "quorum", "one_founding", "begun", "exclusion"),
    *("accuracy", "progress"),
)
"""The laws about what must come in the end: while a run goes on they say nothing."""
NOT_YET: Final = "not yet"
"""The verdict of such a law on a run that goes on."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PipelineResult:
    """What the pipeline found of the runs asked for; the rest is in the tables."""

    out: Path
    report: Path
    events: int
    quarantined: int
    verdicts: dict[str, Verdict]
    """By run."""
    unjudged_by_run: dict[str, int] = field(default_factory=dict)
    """Of what is in quarantine, how much was there: all but what killed processes did not write."""
    contradicted: dict[str, Sequence[str]] = field(default_factory=dict)
    """By run, the lives that two files tell in different ways."""
    measures: list[dict[str, Any]] = field(default_factory=list)
    """One a run and protocol, in that order: the rows of the table `measures` without a node."""
    processed: tuple[str, ...] = ()
    """The runs that were new or had changed."""
    skipped: int = 0
    """How many were as they had been."""
    open: frozenset[str] = frozenset()
    """The runs of which a file has no end: they go on, or were cut short."""
    so_far: frozenset[str] = frozenset()
    """Those of them that were judged as if they went on, so not for good."""
    summary: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the table `summary`: all runs there are, whichever were asked for."""
    replays: dict[str, str] = field(default_factory=dict)
    """By run, the command that makes it again, where it is known."""

    @property
    def unjudged(self) -> int:
        return sum(self.unjudged_by_run.values())

    @property
    def kept(self) -> bool:
        """No law is broken, and no life told in two ways."""
        return not self.contradicted and all(each.kept for each in self.verdicts.values())

    def as_json(self) -> dict[str, Any]:
        """The object that `unisono pipeline --json` prints: that of `verify --json`, and how many
        runs were done and left as they were."""
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
    """Reads, tables, judges, measures and reports what is new or has changed. `claimed` are the
    laws of each protocol, `others` those of a protocol that is not named there; `progress` is told
    what comes next, in a few words.

    With `everything` all is done anew, and runs that are no longer there are dropped; `runs` are
    the only ones to look at; without `silver` only gold and quarantine are written. With `going_on`
    a run that has a file without an end is not blamed for what may still come.
    """
    if everything and runs:
        raise Misuse("all runs or some: give --all or --run, not both")
    say = progress or (lambda words: None)
    inputs = inputs_in(trace_dir, runs)
    check_claims(claimed)
    with places(Path(out_dir)) as where:
        asked = _Asked(claimed, tuple(others))
        todo = list(inputs.values())
        if where.outdated:
            if runs:
                raise Misuse(f"{out_dir}: tables of another version; give --all or another --out")
            say("the tables there are of another version: all is done anew")
        elif not everything:
            todo = changed(session, where.out, inputs, asked.laws, going_on, silver)
            if len(todo) < len(inputs):
                say(f"{len(todo):,} of {len(inputs):,} runs are new or have changed")
        batches = list(batches_of(todo))
        for index, batch in enumerate(batches, 1):
            part = f" (part {index:,} of {len(batches):,})" if len(batches) > 1 else ""
            work = _Work(session, where, say, part, batch)
            with _suited(session, work.octets):
                work.run(asked, silver, going_on)
            where.put_in_place(each.run for each in batch)
        if everything:
            where.drop(gone(folders_in(where.out, RUNS), inputs))
        if where.stale:
            say("putting the runs together")
            with _suited(session, 0):
                _put_together(session, where)
        say("drawing the report")
        where.put_report(build_report(session, where.out, trace_dir))
        return _result(session, where.out, inputs, todo)


class _Asked(NamedTuple):
    """Which laws are asked of whom."""

    claimed: Claims
    others: tuple[str, ...]

    def laws(self, protocol: str) -> Sequence[str]:
        return self.claimed.get(protocol, self.others)

    def by(self, protocols: set[str]) -> dict[str, Sequence[str]]:
        return {name: self.laws(name) for name in sorted(protocols | self.claimed.keys())}


class _Work:
    """One batch of runs at work: what all its stages need."""

    def __init__(
        self,
        session: SparkSession,
        where: ResultLayout,
        say: Progress,
        part: str,
        batch: Sequence[Input],
    ) -> None:
        self.session = session
        self.where = where
        self.say: Progress = lambda words: say(words + part)
        self.batch = batch
        self.files = [found for each in batch for found in each.files]
        self.octets = sum(each.octets for each in batch)
        self.alone = self.octets < ALONE_BYTES
        self._held: dict[int, tuple[DataFrame, pa.Table]] = {}
        """What is kept in memory."""

    def keep(self, table: DataFrame, name: str) -> DataFrame:
        """Computes a table now, and gives it back as read from where it is kept: in a file beside
        its place; or, where there is little, in memory."""
        if self.alone:
            rows = table.toArrow()
            held = self.session.createDataFrame(rows, table.schema).coalesce(1)
            self._held[id(held)] = (held, rows)
            return held
        where = f"file://{self.where.kept(name)}"
        table.write.parquet(where)
        # The directory's name is a name, whatever brackets and stars are in it.
        read = self.session.read.schema(table.schema).option("__globPaths__", "false")
        return read.parquet(where)

    def stage(self, table: str, rows: DataFrame, *order: str) -> None:
        """Writes a table beside its place."""
        if self.alone:
            told = self._held[id(rows)][1] if id(rows) in self._held else rows.toArrow()
            stage_little(self.where, table, told, order)
        else:
            stage(self.where, table, rows, order)

    def run(self, asked: _Asked, silver: bool, going_on: bool) -> None:
        self.say("reading the trace")
        bronze = read_bronze(self.session, self.files, self.alone)
        bronze.checked.persist()
        try:
            self.stage("bronze/quarantine", bronze.quarantine, "path", "row")
            if silver:
                self.stage("bronze/events", bronze.events, "node", "incarnation", "step")
            self.say("making the tables")
            tables = silver_of(bronze.events, self.keep, self.alone)
            counts = self.keep(_counts(bronze), "counts")
        finally:
            bronze.checked.unpersist()
        if silver:
            self._stage_silver(tables)
        self.say("judging")
        claimed = asked.by(self._protocols(counts))
        found = judged(self.session, self.files, claimed)
        try:
            violations, verdicts = found.violations, found.verdicts
            if going_on:
                violations, verdicts = _so_far(violations, verdicts, counts)
            told = ("law", "life", "message", "other", "detail")
            self.stage("gold/violations", violations, *told)
            verdicts = self.keep(verdicts, "verdicts")
            self.stage("gold/verdicts", verdicts, "law")
            self.say("measuring")
            measures = self.keep(with_work(found.measures, tables), "measures")
            lives = self.keep(found.lives, "lives")
            otherwise = self.keep(_by_run(found.contradicted), "contradicted")
        finally:
            found.forget()
        self.stage("gold/measures", measures, "protocol", "node")
        self.stage(
            "gold/recoveries", gold.recoveries_of(tables, lives), "protocol", "group", "life"
        )
        self._stage_curves(tables, measures)
        self.stage(RUNS, self._runs(counts, verdicts, otherwise, claimed, going_on))

    def _protocols(self, counts: DataFrame) -> set[str]:
        if self.alone:
            listed = self._held[id(counts)][1].column("protocols").to_pylist()
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
        otherwise: DataFrame,
        claimed: Claims,
        going_on: bool,
    ) -> DataFrame:
        """One row a run: what is known of it, and by what it is told from its former self."""
        rows = [
            (each.run, len(each.files), each.octets, each.fingerprint, each.replay)
            for each in self.batch
        ]
        ddl = "run string, files int, octets bigint, fingerprint string, replay string"
        told = self.session.createDataFrame(rows, ddl).coalesce(1)
        kept = verdicts.groupBy("run").agg(
            F.max(F.col("verdict") == "broken").alias("broken"),
            F.max(F.col("verdict") == NOT_YET).alias("not_yet"),
        )
        # Whether it keeps all laws is not known while one of them is not judged.
        known = F.when(F.col("broken") | ~F.col("not_yet"), ~F.col("broken")).alias("kept")
        pairs = [(F.lit(name), F.lit(word_of(laws))) for name, laws in claimed.items()]
        word = F.create_map(*(each for pair in pairs for each in pair))
        rest = told.join(counts, "run", "left").join(kept, "run", "left")
        rest = rest.join(otherwise, "run", "left")
        print_ = F.col("fingerprint")
        if going_on:
            print_ = F.when(F.col("whole"), print_).otherwise(F.concat(F.lit(OPEN), print_))
        return rest.select(
            "run",
            F.array_join("protocols", ", ").alias("protocol"),
            *("protocols", "groups", "events", "quarantined", "unjudged", "contradicted"),
            *("files", "octets"),
            known,
            *("whole", "replay"),
            print_.alias("fingerprint"),
            F.array_join(F.transform("protocols", lambda name: word[name]), " ").alias("asked"),
        )


def _so_far(
    violations: DataFrame, verdicts: DataFrame, counts: DataFrame
) -> tuple[DataFrame, DataFrame]:
    """What is found of runs that may go on; what may still come is not judged yet."""
    early = counts.where("NOT whole").selectExpr("run", f"explode(array{EVENTUAL}) AS law")
    blamed = violations.join(early, ["run", "law"], "left_anti").select(*violations.columns)
    marked = verdicts.join(early.withColumn("early", F.lit(True)), ["run", "law"], "left")
    held = f"IF(early AND verdict <> 'not claimed', '{NOT_YET}', verdict) AS verdict"
    return blamed, marked.selectExpr("run", "law", held)


def _by_run(contradicted: DataFrame) -> DataFrame:
    lives = F.array_sort(F.collect_list("life"))
    return contradicted.groupBy("run").agg(lives.alias("contradicted"))


def _counts(bronze: Bronze) -> DataFrame:
    """By run: who is in it, how many events, how many rows and files are in quarantine, how many of
    these were there to be judged, and whether each file has its end."""
    cut = "place IS NULL AND (coalesce(torn, false) OR after)"
    cut_off = f"place IS NULL AND startswith(reason, '{TORN}')"
    return bronze.checked.groupBy("run").agg(
        F.expr(f"array_sort(collect_set(protocol) FILTER (WHERE {SOUND})) AS protocols"),
        F.expr(f"array_sort(collect_set(`group`) FILTER (WHERE {SOUND})) AS groups"),
        F.expr(f"count_if({SOUND}) AS events"),
        F.expr("count(reason) AS quarantined"),
        F.expr(f"count_if(reason IS NOT NULL AND NOT ({cut_off})) AS unjudged"),
        F.expr(f"count_if({cut}) = 0 AS whole"),
    )


def _put_together(session: SparkSession, where: ResultLayout) -> None:
    """What is about many runs together, from the tables of the runs."""
    latencies, rates, measures, recoveries, runs = (
        frame_in(session, where.out, f"gold/{name}")
        for name in ("latencies", "rate_curves", "measures", "recoveries", "runs")
    )
    curves = gold.latency_curves(latencies, gold.KEYS)
    told = session.createDataFrame(stage_whole(where, CURVES[0], curves, gold.KEYS)).coalesce(1)
    stage_whole(where, CURVES[1], gold.rate_curves_together(rates), (*gold.KEYS, "bin"))
    summary = gold.summary_of(measures, runs, recoveries, told)
    stage_whole(where, SUMMARY, summary, gold.KEYS)
    where.put_together()


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
def _suited(session: SparkSession, octets: int) -> Iterator[None]:
    """Spark's settings for a trace of this size; what they were before is put back."""
    settings = {"spark.sql.session.timeZone": "UTC"}
    cores = session.sparkContext.defaultParallelism
    shuffled = int(session.conf.get("spark.sql.shuffle.partitions") or 200)
    if octets < SMALL_BYTES:
        shuffled = max(1, min(cores, 8))
    elif octets < shuffled * PART_BYTES:
        # What is kept is not put together by Spark: tasks with next to nothing to do add up.
        shuffled = max(2 * cores, octets // PART_BYTES)
    settings["spark.sql.shuffle.partitions"] = str(shuffled)
    if octets < ALONE_BYTES:
        # Compiling takes longer than it saves; so do sending tables about, and planning anew
        # after every stage.
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
