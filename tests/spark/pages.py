"""Pages to look at and to test: real runs with faults planted in their traces, judged plainly.

`python -m tests.spark.pages DIR` runs the pipeline over such traces and leaves the screenshots of
docs/SPARK.md in DIR.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.laws.telling import write_trace
from unisono.laws import LAWS, Verdict, judge_all
from unisono.protocols import specs
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.spark.measures import CURVE
from unisono.spark.report import Curves, Findings, RunInfo
from unisono.spark.report.broken import SHOWN_MAX
from unisono.spark.report.diagrams import Diagrams
from unisono.trace.history import History
from unisono.trace.reading import read_trace
from unisono.trace.record import Row

PROTOCOLS = ("mtp", "ring", "rmcast")
HOSTILE = "</title><script>alert(1)</script> <img src=x onerror=y> \u202e" + "long" * 30


def swapped(rows: Sequence[Row], node: str) -> list[Row]:
    """Two deliveries in the middle of one life change places."""
    heard = [p for p, row in enumerate(rows) if row.kind == "deliver" and row.node == node]
    first, second = heard[len(heard) // 2 : len(heard) // 2 + 2]
    changed = list(rows)
    one, two = rows[first], rows[second]
    changed[first] = two._replace(step=one.step, t_us=one.t_us, seq=one.seq)
    changed[second] = one._replace(step=two.step, t_us=two.t_us, seq=two.seq)
    return changed


def doubled(rows: Sequence[Row], node: str) -> list[Row]:
    """One life delivers a message a second time, in place of the next."""
    heard = [p for p, row in enumerate(rows) if row.kind == "deliver" and row.node == node]
    first, second = heard[len(heard) // 3 : len(heard) // 3 + 2]
    changed = list(rows)
    changed[second] = rows[first]._replace(step=rows[second].step, t_us=rows[second].t_us)
    return changed


def traces(directory: Path, seeds: int, faults: str = "chaos", messages: int = 40) -> None:
    """Runs of every protocol; the first of ring delivers out of order, the first of mtp twice."""
    for protocol in PROTOCOLS:
        for seed in range(seeds):
            detail = protocol == "ring" and seed == 0
            plan = Plan(
                protocol=protocol,
                nodes=3 + seed % 3,
                seed=seed,
                faults="loss" if seed == 0 else faults,
                messages=messages,
                detail=detail,
            )
            history = run(plan).history
            assert history is not None
            if seed == 0 and protocol != "rmcast":
                plant = swapped if protocol == "ring" else doubled
                rows = plant(history.rows, history.rows[-1].node)
                history = replace(history, rows=tuple(rows))
            write_trace(history, directory)
            (directory / f"run={history.run}" / "replay.txt").write_text(plan.replay + "\n")


@cache
def sample(top: Path) -> tuple[Path, Findings, Curves]:
    """A few runs, two of them broken; made once in a process."""
    traces(top, seeds=2, faults="crash", messages=20)
    return top, *found_in(top)


def claims(protocol: str) -> Sequence[str]:
    return specs()[protocol].laws if protocol in specs() else list(LAWS)


def measured(history: History) -> dict[str, Any]:
    """The row of one run, counted simply."""
    sends = {(r.node, r.incarnation, r.number): r.t_us for r in history.rows if r.kind == "send"}
    heard = [row for row in history.rows if row.kind == "deliver"]
    late = sorted(
        row.t_us - sends.get((row.sender, row.sender_incarnation, row.number), row.t_us)
        for row in heard
    ) or [0]
    nodes = {row.node for row in heard}
    span = max((row.t_us for row in heard), default=1) - min((r.t_us for r in heard), default=0)

    def at(part: float) -> int:
        return late[min(int(part * len(late)), len(late) - 1)]

    return {
        "run": history.run, "protocol": history.protocol, "node": None, "members": len(nodes),
        "sent": len(sends), "delivered": len(heard), "octets": 64 * len(heard),
        "views": sum(row.kind == "view" for row in history.rows), "span_us": span,
        "messages_per_s": len(heard) * 1e6 / max(span, 1) / max(len(nodes), 1), "mb_per_s": 0.01,
        "p50_us": at(0.5), "p90_us": at(0.9), "p99_us": at(0.99), "max_us": late[-1],
        "naks": 3 if history.protocol == "mtp" else None,
        "curve": [at(part) for part in CURVE],
        "rates": [
            (n + 0.5, float(sum(int((r.t_us - heard[0].t_us) // 1_000_000) == n for r in heard)))
            for n in range(12)
        ],
    }  # fmt: skip


def found_in(directory: Path) -> tuple[Findings, Curves]:
    """What a trace directory holds, judged and measured in this process."""
    trace = read_trace(directory)
    histories = trace.histories()
    verdicts = judge_all(histories, claims)
    measures = [measured(history) for history in histories]
    about = {}
    for history in histories:
        note = directory / f"run={history.run}" / "replay.txt"
        replay = note.read_text().strip() if note.exists() else None
        about[history.run] = RunInfo(history.protocol, True, replay)
    found = Findings(
        verdicts=dict(sorted(verdicts.items())),
        measures=measures,
        events=trace.events,
        quarantined=len(trace.quarantined),
        quarantine=[tuple(each) for each in trace.quarantined][:200],
        info=about,
        summary=summed(measures),
        recoveries={
            ("ring", "crashed"): [(us, 1 + us % 3) for us in range(90_000, 900_000, 31_000)],
            ("ring", "left"): [(0, 9), (1_200, 2)],
            ("mtp", "crashed"): [(1_500_000, 4), (2_400_000, 1)],
        },
        stabilities={
            ("rmp", "resilient(2)"): [(400, 7), (900, 2)],
            ("rmp", "resilient(all)"): [(2_000, 9)],
        },
        version="0.1.0",
    )
    diagrams = Diagrams(str(directory))
    drawn = {
        name: diagrams.of(name, found.verdicts[name].violations)
        for name in found.broken[:SHOWN_MAX]
    }
    few = measures[:6]
    curves = Curves(
        "run",
        {row["run"]: row["curve"] for row in few},
        {row["run"]: row["rates"] for row in few},
    )
    return replace(found, diagrams=drawn), curves


def summed(measures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    kinds: dict[tuple[str, int], dict[str, Any]] = {}
    for row in measures:
        key = (row["protocol"], row["members"])
        kinds.setdefault(key, {**row, "size": 64, "runs": 0})["runs"] += 1
    return list(kinds.values())


def many(few: Findings, count: int) -> Findings:
    """The same findings as if of many more runs, one in nine of them broken."""
    kept = next(v for v in few.verdicts.values() if v.kept)
    broken = next(v for v in few.verdicts.values() if not v.kept)
    verdicts: dict[str, Verdict] = dict(few.verdicts)
    about = dict(few.info)
    for number in range(count):
        name = f"{PROTOCOLS[number % 3]}-chaos-5-{number:04}"
        verdicts[name] = kept if number % 9 else broken
        about[name] = RunInfo(PROTOCOLS[number % 3], True, f"unisono sim --seed {number}")
    return replace(few, verdicts=verdicts, info=about)


def hostile(few: Findings) -> Findings:
    """A run whose name and whose witnesses would break the page."""
    broken = next(v for v in few.verdicts.values() if not v.kept)
    bad = [v._replace(life=HOSTILE, message=HOSTILE, other=HOSTILE, detail=HOSTILE)
           for v in broken.violations[:2]]  # fmt: skip
    verdicts = {**few.verdicts, HOSTILE: Verdict(broken.laws, bad)}
    about = {**few.info, HOSTILE: RunInfo(HOSTILE, False, f"unisono sim --x '{HOSTILE}'")}
    measures = [*few.measures, {**few.measures[0], "run": HOSTILE, "protocol": HOSTILE}]
    summary = [*few.summary, {**few.summary[0], "protocol": HOSTILE}]
    return replace(
        few,
        verdicts=verdicts,
        info=about,
        measures=measures,
        summary=summary,
        recoveries={**few.recoveries, (HOSTILE, HOSTILE): [(5, 1)]},
        quarantined=1,
        quarantine=[(HOSTILE, None, HOSTILE)],
    )


# -- screenshots -----------------------------------------------------------------------------------

PHONE_PX = 1000
"""How much of the page is shown on the phone."""


def shoot(page: Path, into: Path) -> None:
    """The page in a browser: a broken run on a desk in light, the top on a phone in dark."""
    from tests.spark import browser

    program = browser.found()
    if program is None:
        sys.exit("no browser here: install chromium")
    into.mkdir(parents=True, exist_ok=True)
    last = "[...document.querySelectorAll('article')].at(-1).getBoundingClientRect()"
    with browser.Browser(program) as one:
        one.open(page, browser.DESK)
        top, height = one.value(f"[{last}.top + scrollY, {last}.height]")
        clip = {"x": 0.0, "y": top - 8, "width": float(browser.DESK[0]), "height": height + 16}
        (into / "report-desk.png").write_bytes(one.picture(clip=clip))
        one.open(page, browser.PHONE, dark=True)
        clip = {"x": 0.0, "y": 0.0, "width": float(browser.PHONE[0]), "height": float(PHONE_PX)}
        (into / "report-phone.png").write_bytes(one.picture(clip=clip))


def main() -> None:
    from unisono.spark.pipeline import run_pipeline
    from unisono.spark.report.build import build_report
    from unisono.spark.session import open_session

    if len(sys.argv) != 2:
        sys.exit("give the directory for the screenshots")
    into = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        top = Path("traces")
        traces(top, seeds=4)
        session = open_session("local[2]")
        laws = {name: list(spec.laws) for name, spec in specs().items()}
        result = run_pipeline(session, top, "results", laws, silver=False)
        page = Path("report.html")
        page.write_text(build_report(result.out, top), encoding="utf-8")
        session.stop()
        shoot(page, into)


if __name__ == "__main__":
    main()
