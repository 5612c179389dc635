"""What the tasks do: small runs whole, a giant run in three steps. What goes between the steps are
summaries, as bytes; what comes out are rows of one wide table."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from unisono.laws import LAWS, VIOLATIONS_MAX, Violation
from unisono.spark.laws.claims import Claims
from unisono.spark.laws.floors import floors_of
from unisono.spark.laws.judging import ShardFound, judge_history, judge_shard, verdicts
from unisono.spark.laws.measuring import measured
from unisono.spark.laws.plan import HistoryPlan, ShardLimits, overlapping, planned, shards_of
from unisono.spark.laws.survey import CAUSAL, RELIABLE, File, Survey, Surveyed

ROWS_A_BATCH: Final = 50_000

SMALL_DDL: Final = "runs binary"
STEP_DDL: Final = "run string, what string, summary binary"
_STEP: Final = pa.schema([("run", pa.string()), ("what", pa.string()), ("summary", pa.binary())])

_COLUMNS: Final = (
    "what string, run string, law string, life string, message string, other string,"
    " detail string, verdict string, path string, row bigint, reason string, events bigint,"
    " quarantined bigint, protocol string, node string, members int, sent bigint,"
    " delivered bigint, views bigint, octets bigint, span_us bigint, messages_per_s double,"
    " mb_per_s double, p50_us bigint, p90_us bigint, p99_us bigint, p999_us bigint, max_us bigint,"
    " group string, end string, ended_us bigint"
)
FOUND_DDL: Final = _COLUMNS
_ARROW: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
}
_FOUND: Final = pa.schema(
    [(name, _ARROW[kind]) for name, kind in (each.split() for each in _COLUMNS.split(","))]
)


class RunFiles(NamedTuple):
    """A run and its files, in the order of their names."""

    name: str
    files: list[File]


@dataclass
class RunPlan:
    """What is known of a run before it is judged."""

    plans: list[HistoryPlan]
    """Without pieces."""
    events: int
    quarantined: list[tuple[str, Any, str]]
    contradicted: list[str]


def packed(thing: Any) -> bytes:
    return zlib.compress(pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL), 1)


def unpacked(data: bytes) -> Any:
    return pickle.loads(zlib.decompress(data))


def claimed_of(claimed: Claims, plan: HistoryPlan) -> list[str]:
    mine = claimed.get(plan.history.protocol, ())
    return [law for law in LAWS if law in mine]


# -- small runs ----------------------------------------------------------------------------------


def judge_small(
    batches: Iterator[pa.RecordBatch], claimed: Claims, limits: ShardLimits
) -> Iterator[pa.RecordBatch]:
    """Runs that fit into memory, one after the other."""
    for batch in batches:
        for data in batch.column(0).to_pylist():
            for run in unpacked(data):
                yield from judge_run(run, claimed, limits)


def judge_run(run: RunFiles, claimed: Claims, limits: ShardLimits) -> Iterator[pa.RecordBatch]:
    survey = Survey(run.files, limits.piece_rows, keep=True).run()
    plans = _planned(run.name, [survey], claimed)
    found = [
        [judge_shard(shard, claimed_of(claimed, plan)) for shard in shards_of(plan, limits)]
        for plan in plans
    ]
    about = RunPlan(plans, survey.events, survey.quarantined, survey.contradicted)
    yield from told(run.name, about, found, claimed)


# -- a giant run ---------------------------------------------------------------------------------


def survey_chains(
    batches: Iterator[pa.RecordBatch], limits: ShardLimits
) -> Iterator[pa.RecordBatch]:
    """First step: a look at the files of one chain."""
    for batch in batches:
        for data in batch.column(0).to_pylist():
            for run in unpacked(data):
                found = Survey(run.files, limits.piece_rows, keep=False).run()
                yield _step(run.name, "survey", found)


def plan_runs(
    batches: Iterator[pa.RecordBatch], claimed: Claims, limits: ShardLimits
) -> Iterator[pa.RecordBatch]:
    """Second step: all chains of a run together say how it is cut into shards."""
    surveys: dict[str, list[Surveyed]] = {}
    for row in _rows(batches):
        surveys.setdefault(row["run"], []).append(unpacked(row["summary"]))
    for run, mine in surveys.items():
        if overlapping(mine):
            # A life is told by several chains: which rows count shows only in the order of files.
            files = [file for survey in mine for file in survey.files]
            files.sort(key=lambda file: (file.name, file.at))
            mine = [Survey(files, limits.piece_rows, keep=False).run()]
        mine.sort(key=lambda survey: survey.files[0].name)
        plans = _planned(run, mine, claimed)
        bare = []
        for at, plan in enumerate(plans):
            shards = shards_of(plan, limits)
            bare.append(shards[0].plan)
            for shard in shards:
                yield _step(run, "shard", (at, shard, claimed_of(claimed, plan)))
        quarantined = [each for survey in mine for each in survey.quarantined]
        otherwise = [life for survey in mine for life in survey.contradicted]
        about = RunPlan(bare, sum(survey.events for survey in mine), quarantined, otherwise)
        yield _step(run, "run", about)


def _planned(run: str, surveys: Sequence[Surveyed], claimed: Claims) -> list[HistoryPlan]:
    plans = planned(run, surveys)
    for plan in plans:
        laws = claimed_of(claimed, plan)
        asked = {"causal": CAUSAL, "cut": RELIABLE}
        plan.floors = floors_of(plan, [level for law, level in asked.items() if law in laws])
    return plans


def judge_shards(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Third step: each shard by itself."""
    for row in _rows(batches):
        if row["what"] != "shard":
            yield pa.RecordBatch.from_pylist([row], schema=_STEP)
            continue
        at, shard, laws = unpacked(row["summary"])
        yield _step(row["run"], "found", (at, judge_shard(shard, laws)))


def fold_runs(batches: Iterator[pa.RecordBatch], claimed: Claims) -> Iterator[pa.RecordBatch]:
    """Last step: what the shards of a run say together."""
    about: dict[str, RunPlan] = {}
    found: dict[str, dict[int, list[ShardFound]]] = {}
    for row in _rows(batches):
        if row["what"] == "run":
            about[row["run"]] = unpacked(row["summary"])
        else:
            at, shard = unpacked(row["summary"])
            found.setdefault(row["run"], {}).setdefault(at, []).append(shard)
    for run, plan in about.items():
        shards = [found[run][at] for at in range(len(plan.plans))] if plan.plans else []
        yield from told(run, plan, shards, claimed)


def _step(run: str, what: str, thing: Any) -> pa.RecordBatch:
    row = {"run": run, "what": what, "summary": packed(thing)}
    return pa.RecordBatch.from_pylist([row], schema=_STEP)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


# -- what comes out ------------------------------------------------------------------------------


def told(
    run: str, about: RunPlan, found: Sequence[Sequence[ShardFound]], claimed: Claims
) -> Iterator[pa.RecordBatch]:
    """All that is said of a run, as rows of the wide table."""
    violations: list[Violation] = []
    for plan, shards in zip(about.plans, found, strict=True):
        violations += judge_history(plan, shards, claimed_of(claimed, plan))
    by_law: dict[str, list[Violation]] = {}
    for violation in sorted(violations):
        by_law.setdefault(violation.law, []).append(violation)
    rows: list[dict[str, Any]] = [
        {"what": "violation", **violation._asdict()}
        for mine in by_law.values()
        for violation in mine[:VIOLATIONS_MAX]
    ]
    if about.plans:
        words = verdicts(about.plans, claimed, set(by_law))
        rows += [
            {"what": "verdict", "run": run, "law": law, "verdict": word}
            for law, word in words.items()
        ]
    rows += [{"what": "measure", "run": run, **row} for row in measured(about.plans, found)]
    rows += [{"what": "life", "run": run, **row} for plan in about.plans for row in _lives(plan)]
    rows += [{"what": "contradicted", "run": run, "life": life} for life in about.contradicted]
    count = sum(1 if places is None else len(places) for _, places, _ in about.quarantined)
    rows.append({"what": "count", "run": run, "events": about.events, "quarantined": count})
    yield pa.RecordBatch.from_pylist(rows, schema=_FOUND)
    for path, places, reason in about.quarantined:
        for at in range(0, 1 if places is None else len(places), ROWS_A_BATCH):
            some = None if places is None else places[at : at + ROWS_A_BATCH]
            yield _quarantine(run, path, some, reason)


def _lives(plan: HistoryPlan) -> Iterator[dict[str, Any]]:
    history = plan.history
    for life in plan.lives:
        yield {
            "protocol": history.protocol,
            "group": history.group,
            "life": life.key,
            "end": history.lives[life.key].end,
            "ended_us": life.ended_us,
        }


def _quarantine(run: str, path: str, places: Any, reason: str) -> pa.RecordBatch:
    count = 1 if places is None else len(places)
    same = {"what": "quarantine", "run": run, "path": path, "reason": reason}
    row = pa.nulls(1, pa.int64()) if places is None else pa.array(np.asarray(places), pa.int64())
    columns = [
        row
        if column.name == "row"
        else pa.repeat(pa.scalar(same.get(column.name), column.type), count)
        for column in _FOUND
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_FOUND)
