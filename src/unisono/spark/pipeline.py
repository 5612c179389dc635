"""The pipeline: a trace directory in; tables, verdicts, measures and a page for people out.

Everything is first written beside its place, and put there when all is done, table after table: a
pipeline that fails leaves what the one before it wrote.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from unisono.errors import Misuse
from unisono.laws import LAWS, Verdict, Violation
from unisono.laws.verdict import verdict_json
from unisono.spark.bronze import read_bronze
from unisono.spark.laws import Claims, claims_of, verdicts_of, violations_of
from unisono.spark.measures import latency_curves, measures_of, rate_curves
from unisono.spark.report import Curves, Findings, page
from unisono.spark.tables import SILVER, tables_of
from unisono.trace.files import trace_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unisono.spark.tables import Tables

TABLES: Final = ("events", *SILVER, "verdicts", "violations", "measures", "quarantine")
REPORT: Final = "report.html"
MARK: Final = ".unisono-pipeline"
"""This file says that the tables beside it are ours to replace; in a scratch directory, that it is
ours to remove."""
SCRATCH: Final = ".pipeline-"

ALONE_OCTETS: Final = 4 << 20
"""Of a smaller trace each step is one task: without exchanges all laws are a single stage."""
SMALL_OCTETS: Final = 64 << 20
"""A smaller trace is work for few tasks."""
SERIES_MAX: Final = 6
"""More runs than this are drawn together by protocol."""
QUARANTINE_SHOWN_MAX: Final = 200

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """What the pipeline found; the rest is in the tables."""

    out: Path
    report: Path
    events: int
    quarantined: int
    verdicts: dict[str, Verdict]
    """By run."""
    measures: list[dict[str, Any]] = field(default_factory=list)
    """One a run and protocol, in that order: the rows of the table `measures` without a node."""

    @property
    def kept(self) -> bool:
        return all(verdict.kept for verdict in self.verdicts.values())

    def as_json(self) -> dict[str, Any]:
        """The object that `unisono pipeline --json` prints, of the shape of `verify --json`."""
        return {
            "runs": {run: verdict_json(verdict) for run, verdict in self.verdicts.items()},
            "events": self.events,
            "quarantined": self.quarantined,
        }


def run_pipeline(
    session: SparkSession,
    trace_dir: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    claimed: Claims,
    progress: Progress | None = None,
) -> Result:
    """Reads, tables, judges, measures and reports. `claimed` are the laws of each protocol;
    `progress` is told what comes next, in a few words."""
    say = progress or (lambda words: None)
    octets = sum(
        found.path.stat().st_size for found in trace_files(trace_dir) if found.path.is_file()
    )
    claims = claims_of(session, claimed)
    out = Path(out_dir)
    with _scratch(out) as scratch, _suited(session, octets):
        work = _Work(session, scratch, say, alone=octets < ALONE_OCTETS)
        result = work.run(Path(trace_dir), out, claims, claimed)
        say("putting the tables in place")
        _put_in_place(scratch, out)
    return result


class _Work:
    """One pipeline at work: what all its stages need."""

    def __init__(self, session: SparkSession, scratch: Path, say: Progress, alone: bool) -> None:
        self.session = session
        self.scratch = scratch
        self.say = say
        self.alone = alone

    def keep(self, table: DataFrame, name: str) -> DataFrame:
        """Writes a table beside its place, and gives it back as read from there."""
        where = f"file://{self.scratch / name}"
        table.write.parquet(where)
        # The directory's name is a name, whatever brackets and stars are in it.
        read = self.session.read.schema(table.schema).option("__globPaths__", "false")
        kept = read.parquet(where)
        return kept.coalesce(1) if self.alone else kept

    def run(self, trace: Path, out: Path, claims: DataFrame, claimed: Claims) -> Result:
        self.say("reading the trace")
        bronze = read_bronze(self.session, trace, self.alone)
        bronze.checked.persist()
        try:
            by_run = bronze.events.write.partitionBy("run")
            by_run.parquet(f"file://{self.scratch / 'events'}")
            quarantine = self.keep(bronze.quarantine, "quarantine")
            self.say("making the tables")
            tables = tables_of(bronze.events, bronze.torn, self.keep, self.alone)
            events = bronze.events.count()
        finally:
            bronze.checked.unpersist()
        self.say("judging")
        wanted = [law for law in LAWS if any(law in laws for laws in claimed.values())]
        violations = self.keep(violations_of(tables, claims, wanted), "violations")
        verdicts = self.keep(verdicts_of(tables, claims, violations), "verdicts")
        self.say("measuring")
        measures = self.keep(measures_of(tables).coalesce(1), "measures")
        findings = self._findings(events, quarantine, verdicts, violations, measures)
        self.say("drawing the report")
        text = page(findings, self._curves(tables, len(findings.verdicts)))
        (self.scratch / REPORT).write_text(text, encoding="utf-8")
        whole = [row for row in findings.measures if row["node"] is None]
        return Result(out, out / REPORT, events, findings.quarantined, findings.verdicts, whole)

    def _findings(
        self,
        events: int,
        quarantine: DataFrame,
        verdicts: DataFrame,
        violations: DataFrame,
        measures: DataFrame,
    ) -> Findings:
        told: dict[str, list[Violation]] = {}
        for row in violations.collect():
            found = Violation(row.law, row.run, row.life, row.message, row.other, row.detail)
            told.setdefault(row.run, []).append(found)
        laws: dict[str, dict[str, str]] = {}
        for row in verdicts.collect():
            laws.setdefault(row.run, {})[row.law] = row.verdict
        return Findings(
            verdicts={
                run: Verdict({law: laws[run][law] for law in LAWS}, sorted(told.get(run, [])))
                for run in sorted(laws)
            },
            measures=[
                row.asDict()
                for row in measures.orderBy("run", "protocol", "node").limit(100_000).collect()
            ],
            events=events,
            quarantined=quarantine.count(),
            quarantine=[
                (row.path, row.row, row.reason)
                for row in quarantine.orderBy("path", "row").limit(QUARANTINE_SHOWN_MAX).collect()
            ],
        )

    def _curves(self, tables: Tables, runs: int) -> Curves:
        by = "run" if runs <= SERIES_MAX else "protocol"
        latency = latency_curves(tables, by).orderBy("series").limit(SERIES_MAX).collect()
        shown = [row.series for row in latency]
        rates: dict[str, dict[int, float]] = {name: {} for name in shown}
        widths: dict[str, float] = {}
        for row in rate_curves(tables, by).where(F.col("series").isin(shown)).collect():
            rates[row.series][row.bin] = row.rate
            widths[row.series] = row.width_s
        # Time without a delivery has no row: it is drawn as the silence it was.
        drawn = {
            name: [((n + 0.5) * widths[name], bins.get(n, 0.0)) for n in range(max(bins) + 1)]
            for name, bins in rates.items()
        }
        return Curves(by, {row.series: list(row.quantiles) for row in latency}, drawn)


# -- places --------------------------------------------------------------------------------------


@contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A directory within the one for the results, gone afterwards."""
    handle = -1
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
            stranger = _stranger(out)
            if stranger:
                raise Misuse(
                    f"{stranger} is there already and is not of our making; give another --out"
                )
            if _locked(handle, out):
                _sweep(out)
            scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=out.resolve()))
            (scratch / MARK).touch()
        except OSError as error:
            raise Misuse(
                f"{out}: cannot write there: {error.strerror or error}; give another --out"
            ) from None
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        if handle >= 0:
            os.close(handle)


def _stranger(out: Path) -> Path | None:
    """What stands in the place of a result and is none: without our mark everything; with it, what
    cannot be one, as a table is a directory and the report is a file."""
    marked = (out / MARK).exists()
    for name in (*TABLES, REPORT):
        path = out / name
        fits = path.is_file() if name == REPORT else path.is_dir() and not path.is_symlink()
        if os.path.lexists(path) and not (marked and fits):
            return path
    return None


def _locked(handle: int, out: Path) -> bool:
    """Whether no other pipeline works in this directory, for as long as the handle is open. False
    where the file system cannot tell."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Misuse(f"{out}: another pipeline works there; wait, or give another --out") from None
    except OSError:
        return False
    return True


def _sweep(out: Path) -> None:
    """Remove what pipelines that were killed have left."""
    for path in out.glob(f"{SCRATCH}*"):
        if (path / MARK).is_file() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def _put_in_place(scratch: Path, out: Path) -> None:
    (out / MARK).touch()
    for name in TABLES:
        if (out / name).exists():
            shutil.rmtree(out / name)
        (scratch / name).rename(out / name)
    (scratch / REPORT).replace(out / REPORT)


@contextmanager
def _suited(session: SparkSession, octets: int) -> Iterator[None]:
    """Spark's settings for a trace of this size; what they were before is put back."""
    settings = {"spark.sql.session.timeZone": "UTC"}
    if octets < SMALL_OCTETS:
        cores = session.sparkContext.defaultParallelism
        settings["spark.sql.shuffle.partitions"] = str(max(1, min(cores, 8)))
    if octets < ALONE_OCTETS:
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
