"""The Spark tasks: small runs are judged whole, a giant run in four steps. Between the steps
summaries are exchanged as pickled bytes; the result is one wide table."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from unisono.laws import LAWS, VIOLATIONS_MAX, Violation
from unisono.spark.laws.columns import CAUSAL, RELIABLE
from unisono.spark.laws.combine import ShardResult, ShardResults
from unisono.spark.laws.measures import Latencies, latencies_of, measures_of
from unisono.spark.laws.plan import (
    Claims,
    HistoryPlan,
    Shard,
    ShardLimits,
    overlapping,
    plans_of,
    shards_of,
)
from unisono.spark.laws.scan import InputFile, Scan, ScanResult
from unisono.spark.laws.shard import ShardData, floors_of
from unisono.spark.laws.steps import LAW_STEPS

ROWS_PER_BATCH: Final = 50_000

INPUT: Final = pa.schema([("runs", pa.binary())])
STEP: Final = pa.schema([("run", pa.string()), ("what", pa.string()), ("summary", pa.binary())])
_STRINGS: Final = (
    "what run law life message other detail verdict path reason protocol node group end"
)
_INTEGERS: Final = (
    "row events quarantined sent delivered views octets span_us p50_us p90_us p99_us p999_us max_us"
    " ended_us"
)
FOUND: Final = pa.schema(
    [
        *((name, pa.string()) for name in _STRINGS.split()),
        *((name, pa.int64()) for name in _INTEGERS.split()),
        ("members", pa.int32()),
        ("messages_per_s", pa.float64()),
        ("mb_per_s", pa.float64()),
    ]
)
"""The wide table: rows of all kinds, named by `what`."""


class RunFiles(NamedTuple):
    """A run and its files, in the order of their names."""

    name: str
    files: list[InputFile]


@dataclass
class RunPlan:
    """What is known of a run before it is judged."""

    plans: list[HistoryPlan]
    """Without chunks."""
    scans: list[ScanResult]


@dataclass
class ShardFindings:
    shard: Shard
    results: dict[str, Any] = field(default_factory=dict)
    """By the name of the first step."""
    latencies: list[Latencies] = field(default_factory=list)
    """By member."""


def pack(thing: Any) -> bytes:
    return zlib.compress(pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL), 1)


def unpack(data: bytes) -> Any:
    return pickle.loads(zlib.decompress(data))


def _claimed_by(claimed: Claims, plan: HistoryPlan) -> list[str]:
    mine = claimed.get(plan.history.protocol, ())
    return [law for law in LAWS if law in mine]


# -- small runs ----------------------------------------------------------------------------------


def judge_small(
    batches: Iterator[pa.RecordBatch], claimed: Claims, limits: ShardLimits
) -> Iterator[pa.RecordBatch]:
    """Runs that fit into memory, one after the other."""
    for run in _runs(batches):
        yield from judge_run(run, claimed, limits)


def judge_run(run: RunFiles, claimed: Claims, limits: ShardLimits) -> Iterator[pa.RecordBatch]:
    scan = Scan(run.files, limits.chunk_rows, keep=True).run()
    plans = _plans(run.name, [scan], claimed)
    findings = [
        [judge_shard(shard, _claimed_by(claimed, plan)) for shard in shards_of(plan, limits)]
        for plan in plans
    ]
    yield from result_rows(run.name, RunPlan(plans, [scan]), findings, claimed)


# -- a giant run ---------------------------------------------------------------------------------


def scan_chains(batches: Iterator[pa.RecordBatch], limits: ShardLimits) -> Iterator[pa.RecordBatch]:
    """Step 1: scan the files of each chain."""
    for run in _runs(batches):
        yield _step(run.name, "scan", Scan(run.files, limits.chunk_rows, keep=False).run())


def plan_runs(
    batches: Iterator[pa.RecordBatch], claimed: Claims, limits: ShardLimits
) -> Iterator[pa.RecordBatch]:
    """Step 2: divide each run into shards."""
    by_run: dict[str, list[ScanResult]] = {}
    for row in _rows(batches):
        by_run.setdefault(row["run"], []).append(unpack(row["summary"]))
    for run, scans in by_run.items():
        if overlapping(scans):
            # Several chains hold one incarnation: the order of all files decides which rows count.
            files = [file for scan in scans for file in scan.files]
            files.sort(key=lambda file: (file.name, file.path))
            scans = [Scan(files, limits.chunk_rows, keep=False).run()]
        scans.sort(key=lambda scan: scan.files[0].name)
        bare = []
        for at, plan in enumerate(_plans(run, scans, claimed)):
            shards = shards_of(plan, limits)
            bare.append(shards[0].plan)
            for shard in shards:
                yield _step(run, "shard", (at, shard, _claimed_by(claimed, plan)))
        for scan in scans:
            scan.summaries = {}
        yield _step(run, "run", RunPlan(bare, scans))


def _plans(run: str, scans: Sequence[ScanResult], claimed: Claims) -> list[HistoryPlan]:
    plans = plans_of(run, scans)
    for plan in plans:
        laws = _claimed_by(claimed, plan)
        levels = {"causal": CAUSAL, "cut": RELIABLE}
        plan.floors = floors_of(plan, [level for law, level in levels.items() if law in laws])
    return plans


def judge_shards(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Step 3: judge each shard by itself."""
    for row in _rows(batches):
        if row["what"] != "shard":
            yield pa.RecordBatch.from_pylist([row], schema=STEP)
            continue
        at, shard, laws = unpack(row["summary"])
        yield _step(row["run"], "findings", (at, judge_shard(shard, laws)))


def judge_shard(shard: Shard, laws: Sequence[str]) -> ShardFindings:
    data = ShardData(shard)
    found = ShardFindings(shard, latencies=latencies_of(data))
    for step in (LAW_STEPS[law].shard for law in laws):
        if step is not None and step.__name__ not in found.results:
            found.results[step.__name__] = step(data)
    return found


def combine_runs(batches: Iterator[pa.RecordBatch], claimed: Claims) -> Iterator[pa.RecordBatch]:
    """Step 4: combine the shards of each run."""
    plans: dict[str, RunPlan] = {}
    findings: dict[str, dict[int, list[ShardFindings]]] = {}
    for row in _rows(batches):
        if row["what"] == "run":
            plans[row["run"]] = unpack(row["summary"])
        else:
            at, found = unpack(row["summary"])
            findings.setdefault(row["run"], {}).setdefault(at, []).append(found)
    for run, plan in plans.items():
        mine = [findings[run][at] for at in range(len(plan.plans))]
        yield from result_rows(run, plan, mine, claimed)


def _step(run: str, what: str, summary: Any) -> pa.RecordBatch:
    row = {"run": run, "what": what, "summary": pack(summary)}
    return pa.RecordBatch.from_pylist([row], schema=STEP)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[RunFiles]:
    for row in _rows(batches):
        yield from unpack(row["runs"])


# -- results -------------------------------------------------------------------------------------


def violations_in(
    plan: HistoryPlan, findings: Sequence[ShardFindings], laws: Sequence[str]
) -> Iterator[Violation]:
    """Of one history, a bounded number for each law."""
    shards = sorted(findings, key=lambda each: each.shard.index)
    results = {
        step: ShardResults(ShardResult(each.shard, each.results[step]) for each in shards)
        for step in shards[0].results
    }
    for law in laws:
        step, combine = LAW_STEPS[law]
        mine = results[step.__name__] if step else ShardResults()
        yield from nsmallest(VIOLATIONS_MAX, set(combine(plan, mine)))


def result_rows(
    run: str, about: RunPlan, findings: Sequence[Sequence[ShardFindings]], claimed: Claims
) -> Iterator[pa.RecordBatch]:
    """Everything found about a run, as rows of the wide table."""
    by_law: dict[str, list[Violation]] = {}
    for plan, found in zip(about.plans, findings, strict=True):
        for violation in violations_in(plan, found, _claimed_by(claimed, plan)):
            by_law.setdefault(violation.law, []).append(violation)
    rows: list[dict[str, Any]] = [
        {"what": "violation", **violation._asdict()}
        for law in sorted(by_law)
        for violation in nsmallest(VIOLATIONS_MAX, by_law[law])
    ]
    # A run of several groups keeps a law when each that claims it does.
    claims = {law for plan in about.plans for law in _claimed_by(claimed, plan)}
    for law in LAWS if about.plans else ():
        verdict = "broken" if law in by_law else "kept" if law in claims else "not claimed"
        rows.append({"what": "verdict", "law": law, "verdict": verdict})
    latencies = [[each.latencies for each in found] for found in findings]
    rows += [{"what": "measure", **row} for row in measures_of(about.plans, latencies)]
    rows += [
        {
            "what": "life",
            "protocol": plan.history.protocol,
            "group": plan.history.group,
            "life": member.key,
            "end": plan.history.lives[member.key].end,
            "ended_us": member.ended_us,
        }
        for plan in about.plans
        for member in plan.members
    ]
    rows += [
        {"what": "contradicted", "life": key} for scan in about.scans for key in scan.contradicted
    ]
    quarantined = [each for scan in about.scans for each in scan.quarantined]
    rows.append(
        {
            "what": "count",
            "events": sum(scan.events for scan in about.scans),
            "quarantined": sum(1 if bad is None else len(bad) for _, bad, _ in quarantined),
        }
    )
    yield pa.RecordBatch.from_pylist([{**row, "run": run} for row in rows], schema=FOUND)
    for path, bad, reason in quarantined:
        same = {"what": "quarantine", "run": run, "path": path, "reason": reason}
        for at in range(0, 1 if bad is None else len(bad), ROWS_PER_BATCH):
            numbers = [None] if bad is None else bad[at : at + ROWS_PER_BATCH]
            row = pa.array(np.asarray(numbers) if bad is not None else numbers, pa.int64())
            columns = [
                row if name == "row" else pa.repeat(pa.scalar(same.get(name), kind), len(row))
                for name, kind in zip(FOUND.names, FOUND.types, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=FOUND)
