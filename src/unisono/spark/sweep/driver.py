"""A sweep: simulate, judge, keep the traces wanted, and report the seeds that failed.

It proceeds in parts. The pipeline judges each part, and then unwanted traces are deleted: the disk
holds one part at most, and completed parts stay.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from unisono.errors import Misuse
from unisono.laws import LAWS, Verdict, sentence
from unisono.protocols import specs
from unisono.spark.sweep.runs import MARK, RAISED, TaskResult, clean, code_version, drop
from unisono.spark.sweep.spec import Sweep
from unisono.spark.sweep.tasks import SCHEMA, TASK_RUNS, TraceTarget, batch_of, simulate_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART_RUNS: Final = 6_000
"""Runs per part: some 600 MB of traces."""
PART_TASKS: Final = 16
"""The least number of tasks per core in a part, so that a large cluster stays busy."""
FAILURES_MAX: Final = 1_000
"""Failures that are listed; the others are counted, and are in `outcomes.parquet`."""
KEEPS: Final = ("all", "failed")
TRACES: Final = "traces"
OUTCOMES: Final = "outcomes.parquet"
UNJUDGED: Final = "not judged"
DIFFERS: Final = "judged differently"


@dataclass(frozen=True, slots=True)
class SweepProgress:
    done: int
    total: int
    failed: int
    rate: float
    """Runs per second while simulating."""
    doing: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that broke a law, could not be simulated, or was judged differently."""

    run: str
    protocol: str
    seed: int
    nodes: int
    broken: tuple[str, ...]
    why: str
    replay: str


@dataclass(slots=True)
class Swept:
    """The results of a sweep; those of each run are in `outcomes.parquet`."""

    out: Path
    traces: Path
    report: Path | None = None
    runs: int = 0
    simulated: int = 0
    """By this sweep; the others existed."""
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)
    """The first, in order of seed and protocol."""
    sent: int = 0
    delivered: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    octets: int = 0
    """The size of the traces, before any were deleted."""
    simulate_s: float = 0.0
    judge_s: float = 0.0

    @property
    def kept(self) -> bool:
        return not self.failed

    @property
    def rate(self) -> float:
        """Runs simulated per second, by all tasks."""
        return self.simulated / self.simulate_s if self.simulate_s else 0.0

    def add(self, result: TaskResult, failure: Failure | None) -> None:
        self.runs += 1
        self.sent += result.sent
        self.delivered += result.delivered
        self.steps += result.steps
        self.virtual_s += result.virtual_s
        self.octets += result.octets
        if failure is not None:
            self.failed += 1
            if len(self.failures) < FAILURES_MAX:
                self.failures.append(failure)


Report = Callable[[SweepProgress], None]


def sweep(
    session: SparkSession,
    spec: Sweep,
    out_dir: str | os.PathLike[str],
    keep: str = "all",
    report: Report | None = None,
) -> Swept:
    """Simulate each run that does not exist yet, judge all, and write traces, tables and the report
    into `out_dir`. `report` is called with the progress."""
    spec.check()
    if keep not in KEEPS:
        raise Misuse(f"--keep {keep!r}: give {' or '.join(KEEPS)}")
    out = Path(out_dir).absolute()
    swept = Swept(out, out / TRACES)
    with _locked(swept.traces) as token, _outcomes(out) as write:
        target = TraceTarget(swept.traces, token, code_version(), keep == "failed")
        cores = session.sparkContext.defaultParallelism
        size = max(PART_RUNS, cores * TASK_RUNS * PART_TASKS)
        for start in range(0, spec.count, size):
            runs = range(start, min(start + size, spec.count))
            part = _Part(session, spec, target, swept, runs, report or (lambda progress: None))
            write(part.process(keep))
    return swept


@dataclass(frozen=True, slots=True)
class _Part:
    session: SparkSession
    spec: Sweep
    target: TraceTarget
    swept: Swept
    runs: range
    report: Report

    def process(self, keep: str) -> list[TaskResult]:
        results = self._simulate()
        verdicts = self._judge(results)
        if keep == "failed":
            self._report("deleting traces that kept all laws")
        processed = []
        for result in results:
            failure = _failure(result, verdicts.get(result.run))
            self.swept.add(result, failure)
            if failure:
                result = result._replace(broken=list(failure.broken), why=failure.why)
            elif keep == "failed" and not result.dropped:
                drop(self.swept.traces, result.run)
            processed.append(result)
        return processed

    def _simulate(self) -> list[TaskResult]:
        started, swept = time.perf_counter(), self.swept

        def count(done: int, failed: int) -> None:
            rate = done / (time.perf_counter() - started)
            # A retried task counts its runs again.
            done = self.runs.start + min(done, len(self.runs))
            failed += swept.failed
            self.report(SweepProgress(done, self.spec.count, failed, rate, "simulating"))

        results = simulate_runs(self.session, self.spec, self.target, self.runs, count)
        swept.simulate_s += time.perf_counter() - started
        swept.simulated += sum(not each.there for each in results)
        return results

    def _judge(self, results: Sequence[TaskResult]) -> dict[str, Verdict]:
        traced = [each.run for each in results if not each.dropped and each.broken != [RAISED]]
        if not traced:
            return {}
        started = time.perf_counter()
        verdicts = judge_runs(self.session, self.swept, traced, self._report)
        self.swept.judge_s += time.perf_counter() - started
        return verdicts

    def _report(self, doing: str) -> None:
        swept = self.swept
        done, total = self.runs.stop, self.spec.count
        self.report(SweepProgress(done, total, swept.failed, swept.rate, doing))


def judge_runs(
    session: SparkSession, swept: Swept, runs: Sequence[str], report: Callable[[str], None]
) -> dict[str, Verdict]:
    """The pipeline's verdict on each of these runs. Only gold tables are written: silver is several
    times the size of the traces."""
    from unisono.spark.pipeline import run_pipeline

    claimed = {name: spec.laws for name, spec in specs().items()}
    result = run_pipeline(
        session, swept.traces, swept.out, claimed, report, runs=runs, silver=False
    )
    swept.report = result.report
    return result.verdicts


def _failure(result: TaskResult, verdict: Verdict | None) -> Failure | None:
    """What is wrong with a run, according to the simulation and to the pipeline."""
    broken, why = set(result.broken), result.why
    if result.broken != [RAISED] and not result.dropped:
        if verdict is None:
            broken.add(UNJUDGED)
            why = why or "the pipeline gave no verdict"
        else:
            found = {law for law, how in verdict.laws.items() if how == "broken"}
            if (found ^ broken) & LAWS.keys():
                # One of the two is wrong, or the trace was changed.
                broken.add(DIFFERS)
                why = why or "the laws were kept when it was simulated"
            if verdict.violations:
                why = sentence(verdict.violations[0])
            broken |= found
    if not broken:
        return None
    laws = tuple(sorted(broken, key=lambda law: (law in (UNJUDGED, DIFFERS), law)))
    return Failure(*result[:4], laws, why, result.replay)


# -- directories ---------------------------------------------------------------------------------


@contextmanager
def _locked(traces: Path) -> Iterator[str]:
    """Lock the directory of the traces; yields the token of this sweep."""
    handle = -1
    try:
        try:
            traces.mkdir(parents=True, exist_ok=True)
            handle = os.open(traces, os.O_RDONLY | os.O_DIRECTORY)
            _lock(handle, traces)
            if not (traces / MARK).exists() and any(traces.iterdir()):
                raise Misuse(f"{traces} exists and is not a sweep's; give another --out")
            clean(traces)
            token = uuid.uuid4().hex
            (traces / MARK).write_text(token)
        except OSError as error:
            raise Misuse(
                f"{traces}: cannot write there: {error.strerror or error}; give another --out"
            ) from None
        yield token
    finally:
        if handle >= 0:
            os.close(handle)


def _lock(handle: int, traces: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Misuse(f"{traces}: in use by another sweep; wait, or give another --out") from None
    except OSError:
        # A file system without locks: the token distinguishes the tasks of two sweeps.
        pass


@contextmanager
def _outcomes(out: Path) -> Iterator[Callable[[list[TaskResult]], Any]]:
    """Writes the table of all results, which appears when the sweep is done."""
    draft = out / f".{OUTCOMES}.draft"
    try:
        with pq.ParquetWriter(draft, SCHEMA, compression="zstd") as writer:
            yield lambda results: writer.write_batch(batch_of(results))
        draft.replace(out / OUTCOMES)
    finally:
        draft.unlink(missing_ok=True)
