"""What a task does: it reads runs one after the other, judges, measures and writes them. The result
is one wide table."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from unisono.laws import LAWS, VIOLATIONS_MAX, Violation
from unisono.laws.unread import NOT_CLAIMED, UNCERTAIN, outcome, weighed
from unisono.spark.laws.curves import (
    keys_of,
    latency_curve,
    latency_rows,
    rate_rows,
    recoveries_of,
    stabilities_of,
)
from unisono.spark.laws.history import HistoryColumns, histories_in
from unisono.spark.laws.judging import violations_in
from unisono.spark.laws.measures import Latencies, added, latencies_of, measures_of
from unisono.spark.laws.scan import InputFile, Scan, ScanResult
from unisono.spark.partitioned import RunWriter
from unisono.spark.schemas import QUARANTINE
from unisono.spark.tables import write_deliveries
from unisono.trace.checks import TORN

Claims: TypeAlias = Mapping[str, Sequence[str]]
"""By protocol, the laws that it claims."""

ROWS_PER_BATCH: Final = 50_000

INPUT: Final = pa.schema([("runs", pa.binary())])
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
    *("one_primary", "one_component", "quorum", "one_founding", "begun"),
    *("exclusion", "accuracy", "progress"),
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


class RunFiles(NamedTuple):
    """A run and its files, in the order of their names."""

    name: str
    files: list[InputFile]


ANY_PROTOCOL: Final = ""
"""In claims: the laws of a protocol that is not named."""


def pack(thing: Any) -> bytes:
    return zlib.compress(pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL), 1)


def unpack(data: bytes) -> Any:
    return pickle.loads(zlib.decompress(data))


def judge_runs(
    batches: Iterator[pa.RecordBatch], claimed: Claims, output: Output | None = None
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for packed in batch.column("runs").to_pylist():
            for run in unpack(packed):
                yield from judge_run(run, claimed, output)


def judge_run(
    run: RunFiles, claimed: Claims, output: Output | None = None
) -> Iterator[pa.RecordBatch]:
    writer = RunWriter(output.top, run.name, "run") if output else None
    rows_writer = writer if output and output.silver else None
    scan = Scan(run.files, rows_writer).run()
    histories = histories_in(run.name, scan)
    if rows_writer is not None:
        for data in histories:
            write_deliveries(rows_writer, data)
    found = list(result_rows(run.name, scan, histories, claimed, output, writer))
    if writer is not None:
        writer.close()
    yield from found


def _claimed_by(claimed: Claims, data: HistoryColumns) -> list[str]:
    mine = claimed.get(data.history.protocol, claimed.get(ANY_PROTOCOL, ()))
    return [law for law in LAWS if law in mine]


# -- results -------------------------------------------------------------------------------------


def result_rows(
    run: str,
    scan: ScanResult,
    histories: Sequence[HistoryColumns],
    claimed: Claims,
    output: Output | None,
    writer: RunWriter | None,
) -> Iterator[pa.RecordBatch]:
    """Everything found about a run, as rows of the wide table. With an output the tables are
    written, and only the row of the run is returned."""
    by_law: dict[str, list[Violation]] = {}
    for data in histories:
        for law in _claimed_by(claimed, data):
            if found := nsmallest(VIOLATIONS_MAX, set(violations_in(data, law))):
                weighty = weighed(law, found, data.history.unread)
                by_law.setdefault(law, []).extend(weighty)
    claims = {law for data in histories for law in _claimed_by(claimed, data)}
    going_on = output is not None and output.going_on and not scan.whole
    early = set(EVENTUAL) & claims if going_on else set()
    violations = [
        violation._asdict()
        for law in sorted(by_law.keys() - early)
        for violation in nsmallest(VIOLATIONS_MAX, by_law[law])
    ]
    # A run of several groups keeps a law when each that claims it does.
    verdicts = {
        law: NOT_YET
        if law in early
        else outcome(by_law.get(law, ()))
        if law in claims
        else NOT_CLAIMED
        for law in (LAWS if histories else ())
    }
    latencies = [latencies_of(data) for data in histories]
    measures = list(measures_of(histories, latencies))
    counts = _counts(scan, histories, verdicts)
    if writer is not None:
        _write_gold(writer, histories, latencies, measures)
        writer.write_rows("gold/violations", violations)
        listed = sorted(verdicts.items())
        writer.write_rows("gold/verdicts", [{"law": law, "verdict": how} for law, how in listed])
        for batch in _quarantine_rows(run, scan):
            writer.write("bronze/quarantine", QUARANTINE, pa.Table.from_batches([batch]))
        yield pa.RecordBatch.from_pylist([{"run": run, **counts}], schema=FOUND)
        return
    rows: list[dict[str, Any]] = [{"what": "violation", **row} for row in violations]
    rows += [{"what": "verdict", "law": law, "verdict": how} for law, how in verdicts.items()]
    rows += [{"what": "measure", **row} for row in measures]
    rows += [
        {
            "what": "life",
            "protocol": data.history.protocol,
            "group": data.history.group,
            "life": member.key,
            "end": member.trace.end,
            "ended_us": member.rows.ended_us,
        }
        for data in histories
        for member in data.members
    ]
    rows += [{"what": "contradicted", "life": key} for key in counts["contradicted"] or ()]
    rows.append(counts)
    yield pa.RecordBatch.from_pylist([{**row, "run": run} for row in rows], schema=FOUND)
    yield from _quarantine_rows(run, scan)


def _counts(
    scan: ScanResult, histories: Sequence[HistoryColumns], verdicts: Mapping[str, str]
) -> dict[str, Any]:
    """The row of the run: what was read, and whether every law was kept."""
    sizes = [1 if bad is None else len(bad) for _, bad, _ in scan.quarantined]
    cut_off = sum(bad is None and reason.startswith(TORN) for _, bad, reason in scan.quarantined)
    # Unknown while a law is not judged.
    broken = "broken" in verdicts.values()
    pending = not {NOT_YET, UNCERTAIN}.isdisjoint(verdicts.values())
    return {
        "what": "count",
        "events": scan.events,
        "quarantined": sum(sizes),
        "unjudged": sum(sizes) - cut_off,
        "whole": scan.whole,
        "kept": not broken if verdicts and (broken or not pending) else None,
        "protocols": sorted({data.history.protocol for data in histories}),
        "groups": sorted({data.history.group for data in histories}),
        "contradicted": scan.contradicted or None,
    }


def _write_gold(
    writer: RunWriter,
    histories: Sequence[HistoryColumns],
    latencies: Sequence[Sequence[Latencies]],
    measures: Sequence[Mapping[str, Any]],
) -> None:
    writer.write_rows("gold/measures", measures)
    for data in histories:
        writer.write_rows("gold/recoveries", recoveries_of(data))
        writer.write_rows("gold/stabilities", stabilities_of(data))
    for row in measures:
        if row["node"] is not None:
            continue
        keys, protocol = keys_of(row), row["protocol"]
        alike = [at for at, data in enumerate(histories) if data.history.protocol == protocol]
        every = added([mine for at in alike for mine in latencies[at]])
        classes = list(latency_rows(keys, every))
        writer.write_rows("gold/latencies", classes)
        writer.write_rows("gold/latency_curves", latency_curve(keys, classes))
        writer.write_rows("gold/rate_curves", rate_rows(keys, [histories[at] for at in alike]))


def _quarantine_rows(run: str, scan: ScanResult) -> Iterator[pa.RecordBatch]:
    for path, bad, reason in scan.quarantined:
        same = {"what": "quarantine", "run": run, "path": path, "reason": reason}
        for at in range(0, 1 if bad is None else len(bad), ROWS_PER_BATCH):
            numbers = [None] if bad is None else bad[at : at + ROWS_PER_BATCH]
            row = pa.array(np.asarray(numbers) if bad is not None else numbers, pa.int64())
            columns = [
                row if name == "row" else pa.repeat(pa.scalar(same.get(name), kind), len(row))
                for name, kind in zip(FOUND.names, FOUND.types, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=FOUND)
