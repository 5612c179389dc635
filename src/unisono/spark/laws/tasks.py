"""The Spark tasks: small runs are judged whole, a giant run in four steps. Between the steps
summaries are exchanged as pickled bytes; the result is one wide table."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from unisono.laws import LAWS, VIOLATIONS_MAX, Violation
from unisono.spark.laws.columns import CAUSAL, RELIABLE
from unisono.spark.laws.combine import ShardResult, ShardResults
from unisono.spark.laws.curves import (
    FirstDeliveries,
    binned,
    first_deliveries,
    keys_of,
    latency_curve,
    latency_rows,
    rate_rows,
    recoveries_of,
    set_bins,
)
from unisono.spark.laws.measures import Latencies, added, latencies_of, measures_of
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
from unisono.spark.partitioned import RunWriter
from unisono.spark.schemas import QUARANTINE
from unisono.spark.tables import write_deliveries
from unisono.trace.parquet import TORN

ROWS_PER_BATCH: Final = 50_000
ALL_CHAINS: Final = "chain-all"

INPUT: Final = pa.schema([("runs", pa.binary())])
STEP: Final = pa.schema([("run", pa.string()), ("what", pa.string()), ("summary", pa.binary())])
_STRINGS: Final = (
    "what run law life message other detail verdict path reason protocol node group end"
)
_INTEGERS: Final = (
    "row events quarantined unjudged sent delivered views octets span_us p50_us p90_us p99_us"
    " p999_us max_us ended_us"
)
FOUND: Final = pa.schema(
    [
        *((name, pa.string()) for name in _STRINGS.split()),
        *((name, pa.int64()) for name in _INTEGERS.split()),
        *((name, pa.list_(pa.string())) for name in ("protocols", "groups", "contradicted")),
        *((name, pa.bool_()) for name in ("whole", "kept")),
        ("members", pa.int32()),
        ("messages_per_s", pa.float64()),
        ("mb_per_s", pa.float64()),
    ]
)
"""The wide table: rows of all kinds, named by `what`."""


EVENTUAL: Final = (
    *("gap_free", "every_place", "agreement", "validity", "safe", "received", "stable"),
    *("one_primary", "quorum", "one_founding", "begun", "exclusion"),
    *("accuracy", "progress"),
)
"""Liveness: not judged while a run goes on."""
NOT_YET: Final = "not yet"
"""The verdict of an eventual law on a run that goes on."""


class Output(NamedTuple):
    """Where tasks write the tables of their runs."""

    top: str
    silver: bool
    """Whether bronze events and silver tables are written."""
    going_on: bool
    """A run with a file without an end is not judged by eventual laws."""

    def rows(self, run: str, name: str) -> RunWriter | None:
        return RunWriter(self.top, run, name) if self.silver else None


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
    firsts: list[FirstDeliveries] = field(default_factory=list)
    """By member."""
    rates: Any = 0
    """Deliveries by bin of the rate curve."""


ANY_PROTOCOL: Final = ""
"""In claims: the laws of a protocol that is not named."""


def pack(thing: Any) -> bytes:
    return zlib.compress(pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL), 1)


def unpack(data: bytes) -> Any:
    return pickle.loads(zlib.decompress(data))


def _claimed_by(claimed: Claims, plan: HistoryPlan) -> list[str]:
    mine = claimed.get(plan.history.protocol, claimed.get(ANY_PROTOCOL, ()))
    return [law for law in LAWS if law in mine]


# -- small runs ----------------------------------------------------------------------------------


def judge_small(
    batches: Iterator[pa.RecordBatch],
    claimed: Claims,
    limits: ShardLimits,
    output: Output | None = None,
) -> Iterator[pa.RecordBatch]:
    """Runs that fit into memory, one after the other."""
    for run in _runs(batches):
        yield from judge_run(run, claimed, limits, output)


def judge_run(
    run: RunFiles, claimed: Claims, limits: ShardLimits, output: Output | None = None
) -> Iterator[pa.RecordBatch]:
    writer = output.rows(run.name, "run") if output else None
    scan = Scan(run.files, limits.chunk_rows, True, writer).run()
    plans = _plans(run.name, [scan], claimed)
    findings = [
        [
            judge_shard(shard, _claimed_by(claimed, plan), writer)
            for shard in shards_of(plan, limits)
        ]
        for plan in plans
    ]
    if writer is not None:
        writer.close()
    yield from result_rows(run.name, RunPlan(plans, [scan]), findings, claimed, output)


# -- a giant run ---------------------------------------------------------------------------------


def scan_chains(
    batches: Iterator[pa.RecordBatch], limits: ShardLimits, output: Output | None = None
) -> Iterator[pa.RecordBatch]:
    """Step 1: scan the files of each chain."""
    for run in _runs(batches):
        chain = f"chain-{run.files[0].chain:06}"
        yield _step(run.name, "scan", _scan(run.name, run.files, limits, output, chain))


def _scan(
    run: str, files: list[InputFile], limits: ShardLimits, output: Output | None, name: str
) -> ScanResult:
    writer = output.rows(run, name) if output else None
    if writer is not None and name == ALL_CHAINS:
        writer.remove_others()
    result = Scan(files, limits.chunk_rows, False, writer).run()
    if writer is not None:
        writer.close()
    return result


def plan_runs(
    batches: Iterator[pa.RecordBatch],
    claimed: Claims,
    limits: ShardLimits,
    output: Output | None = None,
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
            scans = [_scan(run, files, limits, output, ALL_CHAINS)]
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
    set_bins(plans)
    for plan in plans:
        laws = _claimed_by(claimed, plan)
        levels = {"causal": CAUSAL, "cut": RELIABLE}
        plan.floors = floors_of(plan, [level for law, level in levels.items() if law in laws])
    return plans


def judge_shards(
    batches: Iterator[pa.RecordBatch], output: Output | None = None
) -> Iterator[pa.RecordBatch]:
    """Step 3: judge each shard by itself."""
    for row in _rows(batches):
        if row["what"] != "shard":
            yield pa.RecordBatch.from_pylist([row], schema=STEP)
            continue
        at, shard, laws = unpack(row["summary"])
        name = f"shard-{at:03}-{shard.index:06}"
        writer = output.rows(row["run"], name) if output else None
        found = judge_shard(shard, laws, writer)
        if writer is not None:
            writer.close()
        yield _step(row["run"], "findings", (at, found))


def judge_shard(
    shard: Shard, laws: Sequence[str], writer: RunWriter | None = None
) -> ShardFindings:
    data = ShardData(shard)
    found = ShardFindings(shard, {}, latencies_of(data), first_deliveries(data), binned(data))
    if writer is not None:
        write_deliveries(writer, data)
    for step in (LAW_STEPS[law].shard for law in laws):
        if step is not None and step.__name__ not in found.results:
            found.results[step.__name__] = step(data)
    return found


def combine_runs(
    batches: Iterator[pa.RecordBatch], claimed: Claims, output: Output | None = None
) -> Iterator[pa.RecordBatch]:
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
        yield from result_rows(run, plan, mine, claimed, output)


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
    run: str,
    about: RunPlan,
    findings: Sequence[Sequence[ShardFindings]],
    claimed: Claims,
    output: Output | None = None,
) -> Iterator[pa.RecordBatch]:
    """Everything found about a run, as rows of the wide table. With an output the tables are
    written, and only the row of the run is returned."""
    by_law: dict[str, list[Violation]] = {}
    for plan, found in zip(about.plans, findings, strict=True):
        for violation in violations_in(plan, found, _claimed_by(claimed, plan)):
            by_law.setdefault(violation.law, []).append(violation)
    claims = {law for plan in about.plans for law in _claimed_by(claimed, plan)}
    whole = all(scan.whole for scan in about.scans)
    early = set(EVENTUAL) & claims if output and output.going_on and not whole else set()
    violations = [
        violation._asdict()
        for law in sorted(by_law.keys() - early)
        for violation in nsmallest(VIOLATIONS_MAX, by_law[law])
    ]
    # A run of several groups keeps a law when each that claims it does.
    verdicts = {
        law: NOT_YET
        if law in early
        else "broken"
        if law in by_law
        else "kept"
        if law in claims
        else "not claimed"
        for law in (LAWS if about.plans else ())
    }
    latencies = [[each.latencies for each in found] for found in findings]
    measures = list(measures_of(about.plans, latencies))
    counts = _counts(about, verdicts)
    if output is not None:
        writer = RunWriter(output.top, run, "run")
        _write_gold(writer, about, findings, measures)
        writer.write_rows("gold/violations", violations)
        listed = sorted(verdicts.items())
        writer.write_rows("gold/verdicts", [{"law": law, "verdict": how} for law, how in listed])
        for batch in _quarantine_rows(run, about):
            writer.write("bronze/quarantine", QUARANTINE, pa.Table.from_batches([batch]))
        writer.close()
        yield pa.RecordBatch.from_pylist([{"run": run, **counts}], schema=FOUND)
        return
    rows: list[dict[str, Any]] = [{"what": "violation", **row} for row in violations]
    rows += [{"what": "verdict", "law": law, "verdict": how} for law, how in verdicts.items()]
    rows += [{"what": "measure", **row} for row in measures]
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
    rows += [{"what": "contradicted", "life": key} for key in counts["contradicted"] or ()]
    rows.append(counts)
    yield pa.RecordBatch.from_pylist([{**row, "run": run} for row in rows], schema=FOUND)
    yield from _quarantine_rows(run, about)


def _counts(about: RunPlan, verdicts: Mapping[str, str]) -> dict[str, Any]:
    """The row of the run: what was read, and whether every law was kept."""
    quarantined = [each for scan in about.scans for each in scan.quarantined]
    sizes = [1 if bad is None else len(bad) for _, bad, _ in quarantined]
    cut_off = sum(bad is None and reason.startswith(TORN) for _, bad, reason in quarantined)
    contradicted = sorted(key for scan in about.scans for key in scan.contradicted)
    # Unknown while a law is not judged.
    broken, pending = "broken" in verdicts.values(), NOT_YET in verdicts.values()
    return {
        "what": "count",
        "events": sum(scan.events for scan in about.scans),
        "quarantined": sum(sizes),
        "unjudged": sum(sizes) - cut_off,
        "whole": all(scan.whole for scan in about.scans),
        "kept": not broken if verdicts and (broken or not pending) else None,
        "protocols": sorted({plan.history.protocol for plan in about.plans}),
        "groups": sorted({plan.history.group for plan in about.plans}),
        "contradicted": contradicted or None,
    }


def _write_gold(
    writer: RunWriter,
    about: RunPlan,
    findings: Sequence[Sequence[ShardFindings]],
    measures: Sequence[Mapping[str, Any]],
) -> None:
    writer.write_rows("gold/measures", measures)
    for plan, found in zip(about.plans, findings, strict=True):
        writer.write_rows("gold/recoveries", recoveries_of(plan, [each.firsts for each in found]))
    for protocol, keys in keys_of(measures).items():
        alike = [
            (plan, found)
            for plan, found in zip(about.plans, findings, strict=True)
            if plan.history.protocol == protocol
        ]
        every = [each for _, found in alike for each in found]
        classes = list(latency_rows(keys, added([x for each in every for x in each.latencies])))
        writer.write_rows("gold/latencies", classes)
        writer.write_rows("gold/latency_curves", latency_curve(keys, classes))
        rates = np.sum([each.rates for each in every], axis=0)
        writer.write_rows("gold/rate_curves", rate_rows(keys, [plan for plan, _ in alike], rates))


def _quarantine_rows(run: str, about: RunPlan) -> Iterator[pa.RecordBatch]:
    for path, bad, reason in (each for scan in about.scans for each in scan.quarantined):
        same = {"what": "quarantine", "run": run, "path": path, "reason": reason}
        for at in range(0, 1 if bad is None else len(bad), ROWS_PER_BATCH):
            numbers = [None] if bad is None else bad[at : at + ROWS_PER_BATCH]
            row = pa.array(np.asarray(numbers) if bad is not None else numbers, pa.int64())
            columns = [
                row if name == "row" else pa.repeat(pa.scalar(same.get(name), kind), len(row))
                for name, kind in zip(FOUND.names, FOUND.types, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=FOUND)
