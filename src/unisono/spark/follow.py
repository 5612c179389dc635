"""The pipeline as a stream: each run is judged as it grows.

Every few seconds the trace directory is looked through, and the runs whose files have changed are
done again as one small batch, by the same pipeline. What has been done stands in `gold/runs`, so a
stream that is stopped goes on where it was. A file that is being written is read up to its last
whole row group; while one has no end, the verdict on its run is what can be said so far. When the
stream has waited long enough, the runs that are still open are judged for good.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from unisono.errors import BadTrace
from unisono.laws import Verdict
from unisono.spark.pipeline import Progress, run_pipeline
from unisono.spark.runs import Input, inputs_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from unisono.spark.laws import Claims


MISSED_MAX: Final = 10
"""Turns in a row in which a run may be gone before it is read."""


class News(NamedTuple):
    """The verdict on a run, when it is the first or another than before."""

    run: str
    verdict: Verdict
    so_far: bool
    """A file of the run has no end yet, and may get one."""

    def broke(self, law: str) -> bool:
        return self.verdict.laws[law] == "broken"


@dataclass
class VerdictStream:
    """Follows a trace directory; iterate over it for the news.

    It ends when nothing has changed for `idle_s` seconds, with a verdict for good on each run, or
    never. `sleep` and `clock` are the world's, for tests to replace."""

    session: SparkSession
    trace_dir: str | os.PathLike[str]
    out_dir: str | os.PathLike[str]
    claimed: Claims
    others: Sequence[str] = ()
    every_s: float = 5.0
    idle_s: float | None = None
    silver: bool = True
    progress: Progress | None = None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By run, what was found last."""
    contradicted: dict[str, Sequence[str]] = field(default_factory=dict)
    """By run, the lives that two files tell in different ways."""
    unjudged: dict[str, int] = field(default_factory=dict)
    """By run, how much was there and not judged."""
    report: Path | None = None
    _seen: dict[str, str] = field(default_factory=dict)
    """By run, the fingerprint of its files when they were last looked at."""
    _told: dict[str, tuple[tuple[str, ...], bool]] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)
    """The runs that were judged so far."""
    _missed: int = 0
    """Turns in a row in which a run was gone before it was read."""

    def __iter__(self) -> Iterator[News]:
        quiet_since = self.clock()
        while True:
            turn = self.clock()
            inputs = self._inputs()
            grown = [each for each in inputs if self._seen.get(each.run) != each.fingerprint]
            if grown:
                yield from self._judge(grown)
                quiet_since = self.clock()
            elif self.idle_s is not None and self.clock() - quiet_since >= self.idle_s:
                left = [each for each in inputs if each.run in self._open]
                if not left:
                    return
                yield from self._judge(left, going_on=False)
                continue
            self.sleep(max(0.0, self.every_s - (self.clock() - turn)))

    def _inputs(self) -> list[Input]:
        """The runs that are there. A directory that has none may still get one; a directory that is
        not there is a mistake."""
        try:
            return list(inputs_in(self.trace_dir).values())
        except BadTrace:
            if not os.path.isdir(self.trace_dir):
                raise
            return []

    def _judge(self, grown: Sequence[Input], going_on: bool = True) -> Iterator[News]:
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
            )
        except BadTrace:
            # A run has gone since it was listed: the others have their turn next time.
            self._missed += 1
            if self._missed > MISSED_MAX or not os.path.isdir(self.trace_dir):
                raise
            return
        self._missed = 0
        # As they were before they were read: what has grown since then is for the next turn.
        self._seen.update((each.run, each.fingerprint) for each in grown)
        self.report = result.report
        for each in grown:
            self.contradicted.pop(each.run, None)
        self.contradicted |= result.contradicted
        self.unjudged |= result.unjudged_by_run
        for run, verdict in result.verdicts.items():
            self.verdicts[run] = verdict
            so_far = run in result.so_far
            (self._open.add if so_far else self._open.discard)(run)
            broken = tuple(law for law, how in verdict.laws.items() if how == "broken")
            if self._told.get(run) != (broken, so_far):
                self._told[run] = (broken, so_far)
                yield News(run, verdict, so_far)
