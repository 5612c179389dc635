"""The laws on columns: what `unisono.laws` defines, on the files of a run as they are read.

`unisono verify` judges a directory so, in this process; the tasks of a pipeline their runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from unisono.laws import Verdict
from unisono.laws.columnar.judging import operations_of, read_run, verdict_on
from unisono.trace.columns import Codes
from unisono.trace.files import runs_of, trace_files
from unisono.trace.reading import Quarantined, quarantined_in

__all__ = ["JudgedRun", "judge_trace", "read_run", "verdict_on"]


class JudgedRun(NamedTuple):
    """A run that was read and judged."""

    verdict: Verdict
    """Without laws when no row could be judged."""
    events: int
    protocols: list[str]
    lives: int
    quarantined: list[Quarantined]
    contradicted: list[str]
    """The incarnations whose rows differ between two files."""


def judge_trace(
    directory: str | os.PathLike[str], claims: Callable[[str], Iterable[str]]
) -> dict[str, JudgedRun]:
    """Each run of a trace directory; `claims` maps a protocol to the laws it claims.

    Raises `BadTrace` when there is no trace at all; a bad file or row never raises."""
    found = {}
    for run in runs_of(trace_files(directory)):
        scan, histories = read_run(run, Codes())
        found[run.name] = JudgedRun(
            verdict_on(histories, claims, operations=operations_of(run)),
            scan.events,
            sorted({data.history.protocol for data in histories}),
            len({member.key for data in histories for member in data.members}),
            list(quarantined_in(scan)),
            scan.contradicted,
        )
    return found
