"""How a sweep scales and whether its verdicts are those of `unisono verify`, as a table.

    python -m tests.spark.sweeping --seeds 2000            all protocols, on one core and on two
    python -m tests.spark.sweeping --seeds 12 --cores 1,2  a small one

Each number of cores sweeps into a directory of its own, in a process of its own, so that nothing is
there already. What is compared is the time of the simulations; the pipeline's is told beside it.
Run it alone on a machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.harness import UNISONO
from unisono.cli.verify import claims
from unisono.laws import judge_all
from unisono.spark.partitioned import read_table
from unisono.trace.reading import read_trace


def main() -> int:
    reader = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    reader.add_argument("--seeds", type=int, default=2000)
    reader.add_argument("--protocol", default="all")
    reader.add_argument("--messages", default="200")
    reader.add_argument("--cores", default="1,2", help="the first is what the others are held to")
    reader.add_argument("--keep", help="a directory for the sweeps, kept afterwards")
    asked = reader.parse_args()
    place = Path(asked.keep or tempfile.mkdtemp(prefix="unisono-sweeping-"))
    words = ("--protocol", asked.protocol, "--messages", asked.messages)
    try:
        cores = [int(each) for each in asked.cores.split(",")]
        swept = {n: sweep(place / f"local-{n}", asked.seeds, n, *words) for n in cores}
        show(swept)
        return compare([place / f"local-{n}" for n in cores])
    finally:
        if not asked.keep:
            shutil.rmtree(place, ignore_errors=True)


def sweep(out: Path, seeds: int, cores: int, *words: str) -> dict[str, Any]:
    run = subprocess.run(
        [
            *(*UNISONO, "sweep", "--seeds", f"0:{seeds}", "--out", str(out)),
            *(*words, "--master", f"local[{cores}]", "--json"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if run.returncode not in (0, 1):
        raise SystemExit(f"the sweep on {cores} cores ended with {run.returncode}")
    said: dict[str, Any] = json.loads(run.stdout)
    return said


def show(swept: dict[int, dict[str, Any]]) -> None:
    first = next(iter(swept.values()))
    heads = "cores|runs|failed|simulated in, s|runs a second|times the first|judged in, s".split(
        "|"
    )
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for cores, said in swept.items():
        times = said["rate"] / first["rate"]
        print(
            f"| {cores} | {said['runs']:,} | {said['failed']} | {said['simulate_s']:.1f} |"
            f" {said['rate']:.2f} | {times:.2f} | {said['judge_s']:.1f} |",
            flush=True,
        )
    mean = first["octets"] / first["runs"]
    print(f"traces: {first['octets'] / 1e6:,.1f} MB, {mean / 1e3:.0f} kB a run")


def compare(outs: list[Path]) -> int:
    """Verdicts and violations of each run, by the tables and by the laws in this process."""
    wrong = compared = 0
    for out in outs:
        tables = told_by_tables(out)
        for run, said in told_by_verify(out / "traces"):
            compared += 1
            if tables.get(run) != said:
                wrong += 1
                print(f"{out.name}: {run} is judged differently", file=sys.stderr)
    print(f"verdicts compared with unisono verify: {compared:,}, different: {wrong}")
    return 1 if wrong or not compared else 0


Said = tuple[dict[str, str], list[tuple[str, ...]]]


def told_by_verify(traces: Path) -> Iterator[tuple[str, Said]]:
    # A run at a time: all of them would not fit into memory.
    for folder in sorted(traces.glob("run=*")):
        for run, verdict in judge_all(read_trace(folder).histories(), claims).items():
            yield run, (dict(verdict.laws), [tuple(each) for each in verdict.violations])


def told_by_tables(out: Path) -> dict[str, Said]:
    found: dict[str, Said] = {}
    for row in read_table(out, "gold/verdicts").to_pylist():
        found.setdefault(row["run"], ({}, []))[0][row["law"]] = row["verdict"]
    names = ("law", "run", "life", "message", "other", "detail")
    for row in read_table(out, "gold/violations").to_pylist():
        found[row["run"]][1].append(tuple(row[name] for name in names))
    return {run: (laws, sorted(violations)) for run, (laws, violations) in found.items()}


if __name__ == "__main__":
    sys.exit(main())
