"""The laws on columns and the measures, in this process, as rows.

python -m tests.laws.judged_here /tmp/million      # measures a million events
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def judged_here(
    trace_dir: Path, claimed: Mapping[str, Sequence[str]], runs: set[str] | None = None
) -> list[dict[str, Any]]:
    """Rows of all kinds, named by `what`."""
    from unisono.trace.files import runs_of, trace_files

    return [
        {**row, "run": run.name}
        for run in runs_of(trace_files(trace_dir))
        if runs is None or run.name in runs
        for row in _rows(run, claimed)
    ]


def _rows(run: Any, claimed: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Any]]:
    from unisono.laws.columnar import read_run, verdict_on
    from unisono.spark.measures import latencies_of, measures_of
    from unisono.spark.work import WorkCounts
    from unisono.trace.columns import Codes
    from unisono.trace.reading import quarantined_in

    work = WorkCounts()
    scan, histories = read_run(run, Codes(), work)
    verdict = verdict_on(histories, lambda protocol: claimed.get(protocol, ()))
    for violation in verdict.violations:
        yield {"what": "violation", **violation._asdict()}
    for law, how in verdict.laws.items():
        yield {"what": "verdict", "law": law, "verdict": how}
    for row in measures_of(histories, [latencies_of(data) for data in histories], work):
        yield {"what": "measure", **row}
    for each in quarantined_in(scan):
        yield {"what": "quarantine", **each._asdict()}
    for data in histories:
        for member in data.members:
            named = {"protocol": data.history.protocol, "group": data.history.group}
            yield {"what": "life", **named, "life": member.key, "end": member.trace.end}
    for key in scan.contradicted:
        yield {"what": "contradicted", "life": key}
    yield {"what": "count", "events": scan.events}


def write_million(where: Path) -> None:
    from tests.yardstick.synthetic import stories, write

    write(where, stories(1_000_000, 1, 5, faulty=True))


def _measure(where: Path) -> None:
    import time

    from tests.yardstick.synthetic import PROTOCOL
    from unisono.laws import LAWS

    if not where.exists():
        write_million(where)
    begun = time.process_time()
    rows = judged_here(where, {PROTOCOL: list(LAWS)})
    broken = [row["law"] for row in rows if row.get("verdict") == "broken"]
    print(f"{time.process_time() - begun:.1f} s of one processor, broken: {broken}")


if __name__ == "__main__":
    import sys

    _measure(Path(sys.argv[1]))
    os._exit(0)
