"""What a task does: it reads runs one after the other, judges, measures and writes them. The result
is one wide table."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from unisono.laws import Verdict
from unisono.laws.columnar.history import HistoryColumns
from unisono.laws.columnar.judging import read_run, verdict_on
from unisono.laws.unread import NOT_YET, UNCERTAIN
from unisono.spark.laws.curves import (
    keys_of,
    latency_curve,
    latency_rows,
    rate_rows,
    recoveries_of,
    stabilities_of,
)
from unisono.spark.laws.measures import Latencies, added, latencies_of, measures_of
from unisono.spark.laws.work import WorkCounts
from unisono.spark.partitioned import RunWriter
from unisono.spark.schemas import QUARANTINE
from unisono.spark.tables import RowTables, write_deliveries
from unisono.trace.checks import TORN
from unisono.trace.columns import Codes
from unisono.trace.files import RunFiles
from unisono.trace.scan import ScanResult

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


class Output(NamedTuple):
    """Where tasks write the tables of their runs."""

    top: str
    silver: bool
    """Whether bronze events and silver tables are written."""
    going_on: bool
    """A run with a file without an end is not judged by eventual laws."""


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
    """Everything found about a run, as rows of the wide table. With an output the tables are
    written, and only the row of the run is returned."""
    codes, work = Codes(), WorkCounts()
    writer = RunWriter(output.top, run.name, "run") if output else None
    tables = [RowTables(writer, codes)] if writer and output and output.silver else []
    scan, histories = read_run(run, codes, work, *tables)
    going_on = output is not None and output.going_on and not scan.whole
    verdict = verdict_on(
        histories, lambda name: claimed.get(name, claimed.get(ANY_PROTOCOL, ())), going_on
    )
    violations = [violation._asdict() for violation in verdict.violations]
    latencies = [latencies_of(data) for data in histories]
    measures = list(measures_of(histories, latencies, work))
    counts = _counts(scan, histories, verdict)
    if writer is not None:
        for data in histories if tables else ():
            write_deliveries(writer, data)
        _write_gold(writer, histories, latencies, measures)
        writer.write_rows("gold/violations", violations)
        listed = sorted(verdict.laws.items())
        writer.write_rows("gold/verdicts", [{"law": law, "verdict": how} for law, how in listed])
        for batch in _quarantine_rows(run.name, scan):
            writer.write("bronze/quarantine", QUARANTINE, pa.Table.from_batches([batch]))
        writer.close()
        yield pa.RecordBatch.from_pylist([{"run": run.name, **counts}], schema=FOUND)
        return
    rows: list[dict[str, Any]] = [{"what": "violation", **row} for row in violations]
    rows += [{"what": "verdict", "law": law, "verdict": how} for law, how in verdict.laws.items()]
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
    rows += [{"what": "contradicted", "life": key} for key in scan.contradicted]
    rows.append({"what": "count", **counts})
    yield pa.RecordBatch.from_pylist([{**row, "run": run.name} for row in rows], schema=FOUND)
    yield from _quarantine_rows(run.name, scan)


def _counts(
    scan: ScanResult, histories: Sequence[HistoryColumns], verdict: Verdict
) -> dict[str, Any]:
    """The row of the run: what was read, and whether every law was kept."""
    sizes = [1 if bad is None else len(bad) for _, bad, _ in scan.quarantined]
    cut_off = sum(bad is None and reason.startswith(TORN) for _, bad, reason in scan.quarantined)
    # Unknown while a law is not judged.
    pending = not {NOT_YET, UNCERTAIN}.isdisjoint(verdict.laws.values())
    known = verdict.laws and not (verdict.kept and pending)
    return {
        "events": scan.events,
        "quarantined": sum(sizes),
        "unjudged": sum(sizes) - cut_off,
        "whole": scan.whole,
        "kept": verdict.kept if known else None,
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
