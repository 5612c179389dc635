"""The pipeline as a stream: each run is judged as it grows.

The trace directory is polled, and runs whose files have changed are processed as one small batch by
the same pipeline. `gold/runs` holds the state, so a stream that is stopped resumes. A file that is
being written is read up to its last whole row group; until it has its end, the verdict on the run
is provisional. After the idle time the runs that are still open are judged finally.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from unisono.errors import BadTrace
from unisono.laws import Verdict
from unisono.spark.pipeline import Progress, refresh, run_pipeline
from unisono.spark.report.markup import count_of
from unisono.spark.runs import Input, inputs_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from unisono.spark.tasks import Claims


GROWTH: Final = 1.25
PAUSE: Final = 3.0
"""A run is read again from its beginning when it has grown by a quarter, when it grows no more, or
after this many times as long as that takes: a run that goes on for long is read a few times, not
once a poll."""
REPORT_PAUSE: Final = 10.0
"""The report and the tables about many runs are made again after this many times as long as that
takes, and when nothing changes: their cost is by all runs, not by those that have grown."""
MISSED_MAX: Final = 10
"""Consecutive polls in which a run may disappear before it is read."""


class News(NamedTuple):
    """A run's first verdict, or one that differs from the last."""

    run: str
    verdict: Verdict
    so_far: bool
    """Provisional: a file of the run has no end yet."""


class Judged(NamedTuple):
    """What one poll has cost, and what is left."""

    runs: int
    events: int
    """Of these runs, from their beginnings."""
    seconds: float
    so_far: int
    """Runs that go on."""
    behind_bytes: int
    """What runs have grown by since they were last judged."""

    def __str__(self) -> str:
        behind = f", {self.behind_bytes / 1e6:,.1f} MB behind" if self.behind_bytes else ""
        return (
            f"{count_of(self.runs, 'run')}, {count_of(self.events, 'event')} judged in"
            f" {self.seconds:.1f} s; {self.so_far:,} so far{behind}"
        )


@dataclass
class VerdictStream:
    """Follows a trace directory; iterate over it for new verdicts.

    It ends with final verdicts when nothing has changed for `idle_s` seconds, or never."""

    session: SparkSession
    trace_dir: str | os.PathLike[str]
    out_dir: str | os.PathLike[str]
    claimed: Claims
    others: Sequence[str] = ()
    every_s: float = 5.0
    idle_s: float | None = None
    silver: bool = True
    progress: Progress | None = None
    delta: str | None = None
    done: Callable[[Judged], None] = lambda judged: None
    """Called after each poll that has judged runs."""
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By run, the latest."""
    contradicted: dict[str, Sequence[str]] = field(default_factory=dict)
    """By run, the incarnations whose rows differ between two files."""
    unjudged: dict[str, int] = field(default_factory=dict)
    """By run, the number of rows and files not judged."""
    report: Path | None = None
    _seen: dict[str, str] = field(default_factory=dict)
    """By run, the fingerprint of its files at the last poll."""
    _polled: dict[str, str] = field(default_factory=dict)
    """The same, whether the run was judged then or not."""
    _judged: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By run, its size when it was last judged, and when it is judged again at the latest."""
    _reported: dict[str, tuple[tuple[str, ...], bool]] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)
    """Runs with provisional verdicts."""
    _events: dict[str, int] = field(default_factory=dict)
    """By run, those that were judged."""
    _is_stale: bool = False
    """Runs have been judged since the report was made."""
    _report_at: float = -math.inf
    """When it is made again at the earliest, while runs grow."""
    _missed: int = 0
    """Consecutive polls in which a run disappeared."""

    def __iter__(self) -> Iterator[News]:
        quiet_since = self.clock()
        while True:
            polled = self.clock()
            inputs = self._inputs()
            grown = [each for each in inputs if self._seen.get(each.run) != each.fingerprint]
            due = [each for each in grown if self._is_due(each, polled)]
            self._polled = {each.run: each.fingerprint for each in inputs}
            if due:
                yield from self._judge(due)
                self._tell(inputs, due, polled)
                if self._is_stale and self.clock() >= self._report_at:
                    self._refresh()
                quiet_since = self.clock()
            elif grown:
                quiet_since = polled
            else:
                if self._is_stale:
                    self._refresh()
                if self.idle_s is not None and self.clock() - quiet_since >= self.idle_s:
                    left = [each for each in inputs if each.run in self._open]
                    if not left:
                        return
                    yield from self._judge(left, going_on=False)
                    self._tell(inputs, left, polled)
                    continue
            self.sleep(max(0.0, self.every_s - (self.clock() - polled)))

    def _refresh(self) -> None:
        begun = self.clock()
        refresh(self.trace_dir, self.out_dir, self.delta)
        now = self.clock()
        self._report_at, self._is_stale = now + REPORT_PAUSE * (now - begun), False

    def _tell(self, inputs: Sequence[Input], judged: Sequence[Input], begun: float) -> None:
        known = {run: nbytes for run, (nbytes, _) in self._judged.items()}
        behind = sum(each.nbytes - known.get(each.run, 0) for each in inputs)
        events = sum(self._events.get(each.run, 0) for each in judged)
        seconds = self.clock() - begun
        self.done(Judged(len(judged), events, seconds, len(self._open), max(0, behind)))

    def _is_due(self, run: Input, now: float) -> bool:
        """Whether a run that has grown is to be judged now."""
        nbytes, at_the_latest = self._judged.get(run.run, (0, now))
        is_quiet = self._polled.get(run.run) == run.fingerprint
        return is_quiet or run.nbytes >= GROWTH * nbytes or now >= at_the_latest

    def _inputs(self) -> list[Input]:
        """The runs of the directory, which may still be empty but must exist."""
        try:
            return list(inputs_in(self.trace_dir).values())
        except BadTrace:
            if not os.path.isdir(self.trace_dir):
                raise
            return []

    def _judge(self, grown: Sequence[Input], going_on: bool = True) -> Iterator[News]:
        begun = self.clock()
        try:
            result = run_pipeline(
                self.session,
                self.trace_dir,
                self.out_dir,
                self.claimed,
                self.progress,
                others=self.others,
                runs=[each.run for each in grown],
                silver=self.silver,
                going_on=going_on,
                delta=self.delta,
                joint=False,
            )
        except BadTrace:
            # A run has disappeared since it was listed: try the others with the next poll.
            self._missed += 1
            if self._missed > MISSED_MAX or not os.path.isdir(self.trace_dir):
                raise
            return
        self._missed, self._is_stale = 0, True
        # The fingerprints from before the read: what has grown since is for the next poll.
        self._seen.update((each.run, each.fingerprint) for each in grown)
        now = self.clock()
        again = now + PAUSE * (now - begun)
        self._judged.update((each.run, (each.nbytes, again)) for each in grown)
        self.report = result.report
        for each in grown:
            self.contradicted.pop(each.run, None)
        self.contradicted |= result.contradicted
        self.unjudged |= result.unjudged_by_run
        self._events |= result.events_by_run
        for run, verdict in result.verdicts.items():
            self.verdicts[run] = verdict
            so_far = run in result.so_far
            (self._open.add if so_far else self._open.discard)(run)
            broken = tuple(law for law, how in verdict.laws.items() if how == "broken")
            if self._reported.get(run) != (broken, so_far):
                self._reported[run] = (broken, so_far)
                yield News(run, verdict, so_far)
