"""A whole sweep: simulate, judge, keep what is asked for, and say which seeds failed.

It goes in parts. When a part is simulated the pipeline judges it, and then the traces that nobody
asked to keep are let go: so the disk holds one part at most, and what was done stays done.
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
from unisono.protocols import offers
from unisono.spark.sweep.ask import Sweep
from unisono.spark.sweep.runs import MARK, RAISED, TaskResult, clean, code_version, drop
from unisono.spark.sweep.tasks import SCHEMA, TASK_RUNS, Place, batch_of, simulated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART_RUNS: Final = 6_000
"""Runs that are simulated before they are judged: some 600 MB of traces."""
PART_TASKS: Final = 16
"""A part has so many tasks for each core at least, so that a wide cluster is not kept waiting."""
FAILURES_MAX: Final = 1_000
"""Failures that are told one by one; the others are counted, and stand in `outcomes.parquet`."""
KEEPS: Final = ("all", "failed")
TRACES: Final = "traces"
OUTCOMES: Final = "outcomes.parquet"
UNJUDGED: Final = "not judged"
DIFFERS: Final = "judged differently"


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """How far a sweep has come."""

    done: int
    total: int
    failed: int
    rate: float
    """Runs a second while simulating."""
    doing: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that broke a law, could not be simulated, or was not judged alike."""

    run: str
    protocol: str
    seed: int
    nodes: int
    broken: tuple[str, ...]
    why: str
    replay: str


@dataclass(slots=True)
class Swept:
    """What a sweep found; what each run did is in `outcomes.parquet`."""

    out: Path
    traces: Path
    report: Path | None = None
    runs: int = 0
    simulated: int = 0
    """Of them, now; the others were there."""
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)
    """The first of them, in order of seed and protocol."""
    sent: int = 0
    delivered: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    octets: int = 0
    """Of the traces, before any were let go."""
    simulate_s: float = 0.0
    judge_s: float = 0.0

    @property
    def kept(self) -> bool:
        return not self.failed

    @property
    def rate(self) -> float:
        """Runs simulated a second, all tasks together."""
        return self.simulated / self.simulate_s if self.simulate_s else 0.0

    def add(self, told: TaskResult, failure: Failure | None) -> None:
        self.runs += 1
        self.sent += told.sent
        self.delivered += told.delivered
        self.steps += told.steps
        self.virtual_s += told.virtual_s
        self.octets += told.octets
        if failure is not None:
            self.failed += 1
            if len(self.failures) < FAILURES_MAX:
                self.failures.append(failure)


Tell = Callable[[SweepProgress], None]


def sweep(
    session: SparkSession,
    ask: Sweep,
    out_dir: str | os.PathLike[str],
    keep: str = "all",
    tell: Tell | None = None,
) -> Swept:
    """Simulates each run that is not there yet, judges all, and leaves traces, tables and report
    under `out_dir`. `tell` hears now and then how far it is."""
    ask.check()
    if keep not in KEEPS:
        raise Misuse(f"--keep {keep!r}: write one of {', '.join(KEEPS)}")
    out = Path(out_dir).absolute()
    swept = Swept(out, out / TRACES)
    with _held(swept.traces) as token, _outcomes(out) as write:
        place = Place(swept.traces, token, code_version(), keep == "failed")
        cores = session.sparkContext.defaultParallelism
        size = max(PART_RUNS, cores * TASK_RUNS * PART_TASKS)
        for start in range(0, ask.count, size):
            part = range(start, min(start + size, ask.count))
            work = _Part(session, ask, place, swept, part, tell or (lambda standing: None))
            write(work.done(keep))
    return swept


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of a sweep at work."""

    session: SparkSession
    ask: Sweep
    place: Place
    swept: Swept
    places: range
    tell: Tell

    def done(self, keep: str) -> list[TaskResult]:
        told = self._simulated()
        verdicts = self._judged(told)
        failures = [_failure(each, verdicts.get(each.run)) for each in told]
        for each, failure in zip(told, failures, strict=True):
            self.swept.add(each, failure)
        if keep == "failed":
            self._say("letting go of what kept all laws")
            for each, failure in zip(told, failures, strict=True):
                if failure is None and not each.dropped:
                    drop(self.swept.traces, each.run)
        return [
            each._replace(broken=list(failure.broken), why=failure.why) if failure else each
            for each, failure in zip(told, failures, strict=True)
        ]

    def _simulated(self) -> list[TaskResult]:
        started, swept = time.perf_counter(), self.swept

        def count(done: int, failed: int) -> None:
            rate = done / (time.perf_counter() - started)
            # A task that was tried again counted its runs again.
            done = self.places.start + min(done, len(self.places))
            failed += swept.failed
            self.tell(SweepProgress(done, self.ask.count, failed, rate, "simulating"))

        told = simulated(self.session, self.ask, self.place, self.places, count)
        swept.simulate_s += time.perf_counter() - started
        swept.simulated += sum(not each.there for each in told)
        return told

    def _judged(self, told: Sequence[TaskResult]) -> dict[str, Verdict]:
        traced = [each.run for each in told if not each.dropped and each.broken != [RAISED]]
        if not traced:
            return {}
        started = time.perf_counter()
        verdicts = judged(self.session, self.swept, traced, self._say)
        self.swept.judge_s += time.perf_counter() - started
        return verdicts

    def _say(self, doing: str) -> None:
        swept = self.swept
        done, total = self.places.stop, self.ask.count
        self.tell(SweepProgress(done, total, swept.failed, swept.rate, doing))


def judged(
    session: SparkSession, swept: Swept, runs: Sequence[str], say: Callable[[str], None]
) -> dict[str, Verdict]:
    """The pipeline's verdict on each of these runs. All that a sweep needs of the pipeline.

    Of the tables only gold is made: silver would tell the traces once more, at several times their
    size.
    """
    from unisono.spark.pipeline import run_pipeline

    claimed = {name: offer.laws for name, offer in offers().items()}
    result = run_pipeline(session, swept.traces, swept.out, claimed, say, runs=runs, silver=False)
    swept.report = result.report
    return result.verdicts


def _failure(told: TaskResult, verdict: Verdict | None) -> Failure | None:
    """What is wrong with a run, by the world that simulated it and by the pipeline that judged."""
    broken, why = set(told.broken), told.why
    if told.broken != [RAISED] and not told.dropped:
        if verdict is None:
            broken.add(UNJUDGED)
            why = why or "the pipeline gave no verdict on it"
        else:
            found = {law for law, how in verdict.laws.items() if how == "broken"}
            if (found ^ broken) & LAWS.keys():
                # Two judges, one trace: one of them is wrong, or the trace was changed.
                broken.add(DIFFERS)
                why = why or "the laws were kept when it was simulated"
            if verdict.violations:
                why = sentence(verdict.violations[0])
            broken |= found
    if not broken:
        return None
    laws = tuple(sorted(broken, key=lambda law: (law in (UNJUDGED, DIFFERS), law)))
    return Failure(told.run, told.protocol, told.seed, told.nodes, laws, why, told.replay)


# -- places --------------------------------------------------------------------------------------


@contextmanager
def _held(traces: Path) -> Iterator[str]:
    """The directory of the traces, for this sweep alone while it works; the answer is its token."""
    handle = -1
    try:
        try:
            traces.mkdir(parents=True, exist_ok=True)
            handle = os.open(traces, os.O_RDONLY | os.O_DIRECTORY)
            _lock(handle, traces)
            if not (traces / MARK).exists() and any(traces.iterdir()):
                raise Misuse(f"{traces} is there already and no sweep made it; give another --out")
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
        raise Misuse(f"{traces}: another sweep works there; wait, or give another --out") from None
    except OSError:
        # A file system that knows no locks: the token tells the tasks of two sweeps apart.
        pass


@contextmanager
def _outcomes(out: Path) -> Iterator[Callable[[list[TaskResult]], Any]]:
    """A table of what each run told, put in place when all are done."""
    draft = out / f".{OUTCOMES}.draft"
    try:
        with pq.ParquetWriter(draft, SCHEMA, compression="zstd") as writer:
            yield lambda told: writer.write_batch(batch_of(told))
        draft.replace(out / OUTCOMES)
    finally:
        draft.unlink(missing_ok=True)
