"""Measures the judge at scale beside DuckDB, on the same files, each in a process of its own.

python -m tests.yardstick --events 100000000 --runs 1
python -m tests.yardstick --events 100000000 --runs 1,100,10000 --page docs/SPARK.md
python -m tests.yardstick --events 30000,1000000,4000000,10000000,100000000 --whole

`--whole` also measures the pipeline with all its tables, as the command runs it, and `verify`, and
counts Spark's jobs and stages and how often a file is read.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from tests.yardstick.synthetic import PROTOCOL, stories, write
from unisono.laws import Verdict

MEASURES = "run node sent delivered octets span_us p50_us p90_us p99_us p999_us max_us".split()
BEGIN, END = "<!-- yardstick -->", "<!-- end of yardstick -->"
GIB = 1 << 30


class Outcome(NamedTuple):
    seconds: float
    busy: float
    """Seconds of processors, of all its processes: on a machine that others use too, the better
    figure."""
    octets: int
    """The most memory that all its processes held at one time."""
    broken: set[tuple[str, str]]
    measures: list[list[Any]]
    jobs: int = 0
    stages: int = 0

    @property
    def figures(self) -> tuple[str, str, str]:
        return f"{self.seconds:.0f}", f"{self.busy:.0f}", f"{self.octets / GIB:.1f}"


# -- one of the two, in its own process ----------------------------------------------------------


def by_spark(trace: Path, scratch: Path, master: str) -> dict[str, Any]:
    from unisono.laws import LAWS
    from unisono.spark.partitioned import read_table
    from unisono.spark.pipeline import run_pipeline
    from unisono.spark.session import open_session

    session = open_session(master, "yardstick", **{"spark.driver.memory": "2g"})
    out = scratch / "results"
    found = run_pipeline(session, trace, out, {PROTOCOL: list(LAWS)}, silver=False)
    measures = read_table(out, "gold/measures").select(MEASURES).to_pylist()
    session.stop()
    return {
        "broken": broken_in(found.verdicts),
        "measures": [list(row.values()) for row in measures],
    }


def broken_in(verdicts: Mapping[str, Verdict]) -> list[tuple[str, str]]:
    return [
        (run, law)
        for run, verdict in verdicts.items()
        for law, how in verdict.laws.items()
        if how == "broken"
    ]


def by_sql(trace: Path, scratch: Path) -> dict[str, Any]:
    from tests.yardstick.sql import Yardstick

    yardstick = Yardstick(trace, scratch)
    yardstick.run()
    return {"broken": sorted(yardstick.broken), "measures": yardstick.measures()}


def by_pipeline(trace: Path, scratch: Path, master: str) -> dict[str, Any]:
    """All tables, in the session that the command would open."""
    from unisono.cli.sparking import session_on
    from unisono.laws import LAWS
    from unisono.spark.pipeline import run_pipeline

    nbytes = sum(path.stat().st_size for path in trace.glob("*/*"))
    with session_on(master, "yardstick", {}, nbytes) as session:
        found = run_pipeline(session, trace, scratch / "whole", {PROTOCOL: list(LAWS)})
        tracker = session.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup()]
    return {
        "broken": broken_in(found.verdicts),
        "measures": [],
        "jobs": len(jobs),
        "stages": sum(len(job.stageIds) for job in jobs if job is not None),
    }


def by_verify(trace: Path, scratch: Path) -> dict[str, Any]:
    from unisono.laws import LAWS
    from unisono.laws.columnar import judge_trace

    found = judge_trace(trace, lambda protocol: LAWS)
    return {"broken": broken_in({run: each.verdict for run, each in found.items()}), "measures": []}


def reads_of(trace: Path, scratch: Path) -> int:
    """How often the task of a run opens one of its files, at most."""
    from unisono.laws import LAWS
    from unisono.spark.tasks import Output, judge_runs
    from unisono.trace.files import runs_of, trace_files

    counts: Counter[str] = Counter()

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(str(trace.resolve())):
            counts[str(arguments[0])] += 1

    run = runs_of(trace_files(trace))[0]
    sys.addaudithook(count)
    output = Output(str(scratch / "reads"), "part", silver=True, going_on=False)
    judge_runs([(run, date(2026, 1, 1))], {PROTOCOL: list(LAWS)}, output)
    return max(counts[str(file.path)] for file in run.files)


# -- both, watched -------------------------------------------------------------------------------


def held(root: int) -> tuple[int, float]:
    """What a process and all below it hold in memory, and how long they and those that they saw
    end have worked."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
                pages[int(entry)] = int(Path(f"/proc/{entry}/statm").read_text().split()[1])
            except OSError:
                continue
            fields = stat.rpartition(")")[2].split()
            parents[int(entry)] = int(fields[1])
            ticks[int(entry)] = sum(map(int, fields[11:15]))
    mine = {root}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    octets = sum(pages.get(pid, 0) for pid in mine) * os.sysconf("SC_PAGE_SIZE")
    return octets, sum(ticks.get(pid, 0) for pid in mine) / os.sysconf("SC_CLK_TCK")


def watched(which: str, trace: Path, scratch: Path, master: str) -> Outcome:
    command = [sys.executable, "-m", "tests.yardstick", "--alone", which]
    command += ["--trace", str(trace), "--scratch", str(scratch), "--master", master]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak, busy = 0, 0.0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak, busy
        while not done.wait(0.2):
            octets, worked = held(process.pid)
            peak, busy = max(peak, octets), max(busy, worked)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        out, _ = process.communicate()
    finally:
        done.set()
        watcher.join()
    seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"{which} failed with {process.returncode}")
    told = json.loads(out.splitlines()[-1])
    measures = sorted(told["measures"], key=lambda row: (row[0], row[1] or ""))
    broken = {(run, law) for run, law in told["broken"]}
    return Outcome(
        seconds, busy, peak, broken, measures, told.get("jobs", 0), told.get("stages", 0)
    )


def compared(
    events: int, runs: int, lives: int, scratch: Path, master: str, whole: bool
) -> tuple[str, bool]:
    """One line of the table, and whether all said the same."""
    trace = scratch / "trace"
    shutil.rmtree(trace, ignore_errors=True)
    write(trace, stories(events, runs, lives, faulty=True))
    octets = sum(path.stat().st_size for path in trace.glob("*/*"))
    work = scratch / "work"
    work.mkdir()
    spark = watched("spark", trace, work, master)
    sql = watched("sql", trace, work, master)
    more, agreed = _whole(trace, work, master, spark.broken) if whole else ([], True)
    shutil.rmtree(work)
    shutil.rmtree(trace)
    from tests.yardstick.sql import LAWS as IN_SQL

    both = {(run, law) for run, law in spark.broken if law in IN_SQL}
    same = both == sql.broken and spark.measures == sql.measures and agreed
    for name, one, two in (("Spark", both, sql.broken), ("DuckDB", sql.broken, both)):
        for run, law in sorted(one - two)[:20]:
            print(f"only {name} says that {run} breaks {law}", file=sys.stderr)
    if spark.measures != sql.measures:
        odd = [
            pair for pair in zip(spark.measures, sql.measures, strict=False) if pair[0] != pair[1]
        ]
        print(f"measures differ: {odd[:3]}", file=sys.stderr)
    figures = [
        f"{events:,} in {runs:,}",
        f"{octets / 1e9:.2f}",
        *spark.figures,
        *sql.figures,
        f"{spark.seconds / sql.seconds:.2f}",
        f"{len(spark.broken)}",
        "yes" if same else "NO",
        *more,
    ]
    line = f"| {' | '.join(figures)} |"
    return line, same


def _whole(
    trace: Path, work: Path, master: str, broken: set[tuple[str, str]]
) -> tuple[list[str], bool]:
    """The figures of the whole pipeline and of `verify`, and whether they found these."""
    pipeline, verify = (watched(which, trace, work, master) for which in ("pipeline", "verify"))
    files = list(trace.glob("*/*.parquet"))
    is_small = sum(path.stat().st_size for path in files) < READS_BYTES_MAX
    reads = str(reads_of(trace, work)) if is_small else "–"
    figures = [*pipeline.figures, *verify.figures, f"{pipeline.jobs}/{pipeline.stages}", reads]
    return figures, pipeline.broken == verify.broken == broken


READS_BYTES_MAX = 100_000_000
"""Of larger traces nobody counts how often a file is read: it is the same code."""
WHOLE = (
    *("pipeline, s", "CPU s", "GiB"),
    *("verify, s", "CPU s", "GiB", "jobs/stages", "reads of a file"),
)
COLUMNS = (
    *("events in runs", "files, GB"),
    *("Spark, s", "CPU s", "GiB", "DuckDB, s", "CPU s", "GiB"),
    *("Spark / DuckDB", "laws broken", "same"),
)


def head(whole: bool) -> str:
    columns = (*COLUMNS, *WHOLE) if whole else COLUMNS
    return f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|"


def put_into(page: Path, table: str) -> None:
    """The table in its place on the page, instead of the one that was there."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{page}: no place for the table; it stands between {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.yardstick", description=__doc__)
    asked.add_argument("--events", default="1000000", help="one number, or several")
    asked.add_argument("--whole", action="store_true", help="the whole pipeline and verify too")
    asked.add_argument("--runs", default="1", help="one number, or several with commas between")
    asked.add_argument("--lives", type=int, default=5)
    asked.add_argument("--master", default="local[2]")
    asked.add_argument("--scratch", type=Path, help="where traces are made; a temporary one")
    asked.add_argument("--page", type=Path, help="a page to write the table into")
    asked.add_argument(
        "--alone", choices=("spark", "sql", "pipeline", "verify"), help=argparse.SUPPRESS
    )
    asked.add_argument("--trace", type=Path, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.alone:
        on_spark = {"spark": by_spark, "pipeline": by_pipeline}
        here = {"sql": by_sql, "verify": by_verify}
        where = given.trace, given.scratch
        if given.alone in on_spark:
            print(json.dumps(on_spark[given.alone](*where, given.master)))
        else:
            print(json.dumps(here[given.alone](*where)))
        return
    scratch = Path(tempfile.mkdtemp(prefix="yardstick-", dir=given.scratch))
    try:
        lines, fine = [head(given.whole)], True
        print(lines[0], flush=True)
        for events, runs in product(
            *(map(int, each.split(",")) for each in (given.events, given.runs))
        ):
            line, same = compared(events, runs, given.lives, scratch, given.master, given.whole)
            lines.append(line)
            fine = fine and same
            print(line, flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if given.page:
        put_into(given.page, "\n".join(lines))
    if not fine:
        raise SystemExit("the two do not say the same")


if __name__ == "__main__":
    main()
