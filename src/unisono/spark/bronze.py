"""Bronze: the rows of a trace directory as one DataFrame, and what must not be judged, and why.

Files are read where they lie by the trace room's own reader, in the tasks: what is torn, foreign or
unreadable is found by the same code that `unisono verify` uses, and no two readers can disagree.
The columns of a row hold the truth; of the path only the run, the order of names and the chain of
parts matter. The files of a chain are read by one task, which knows what is missing between them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F

from unisono.trace.checks import AFTER_TORN, ROW_CHECKS, TOLD_TWICE
from unisono.trace.files import SCHEMA, TraceFiles, trace_files
from unisono.trace.parquet import ParquetPart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES_A_TASK: Final = 32 << 20
"""A task reads files until it has about this much."""

_WORDS: Final = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.list_(pa.string()): "array<string>",
}
TRACE_DDL: Final = ", ".join(f"`{field.name}` {_WORDS[field.type]}" for field in SCHEMA)
"""The schema of a trace, as Spark spells it."""

_ABOUT: Final = pa.schema(
    [
        ("run", pa.string()),
        ("chain", pa.int32()),
        ("file", pa.int32()),
        ("place", pa.int64()),
        ("after", pa.bool_()),
        ("lost", pa.string()),
        ("torn", pa.bool_()),
    ]
)
_ABOUT_DDL: Final = (
    "run string, chain int, file int, place bigint, after boolean, lost string, torn boolean"
)
_READ_DDL: Final = f"{_ABOUT_DDL}, {TRACE_DDL}"
_PART: Final = pa.struct([("file", pa.int32()), ("at", pa.binary()), ("gap", pa.bool_())])
_CHAIN: Final = pa.schema([("run", pa.string()), ("chain", pa.int32()), ("parts", pa.list_(_PART))])
_PATHS: Final = pa.schema([("file", pa.int32()), ("path", pa.string())])
_READ_SCHEMA: Final = pa.schema([*_ABOUT, *SCHEMA])
_LIFE: Final = ("run", "node", "incarnation")
SOUND: Final = "(place IS NOT NULL AND reason IS NULL)"
"""Of what was checked: a row that may be judged."""


class Bronze(NamedTuple):
    events: DataFrame
    """`run` and the columns of the trace: the rows that may be judged."""
    quarantine: DataFrame
    """`run, path, row, reason`: rows, and (without a row) files or the rest of them."""
    checked: DataFrame
    """All rows with their reasons, from which the others are taken: persist this one."""


def read_bronze(
    session: SparkSession,
    trace: str | os.PathLike[str] | Sequence[TraceFiles],
    alone: bool = False,
) -> Bronze:
    """Everything a trace directory holds, or these files of one, in their order. `BadTrace` when it
    is no trace at all. With `alone` the files are read here and one task does the rest, which for a
    small trace is much faster than sharing the work."""
    files = trace_files(trace) if isinstance(trace, str | os.PathLike) else list(trace)
    paths = [range(len(files)), [found.name for found in files]]
    chains: dict[Path, list[dict[str, Any]]] = {}
    for index, found in enumerate(files):
        part = {"file": index, "at": os.fsencode(found.path), "gap": found.gap}
        chains.setdefault(found.chain, []).append(part)
    rows = [
        {"run": files[parts[0]["file"]].run, "chain": index, "parts": parts}
        for index, parts in enumerate(chains.values())
    ]
    named = pa.Table.from_pylist(rows, _CHAIN)
    if alone:
        # There is nothing to exchange.
        here = pa.Table.from_batches(_rows_of(named.to_batches()), _READ_SCHEMA)
        read = session.createDataFrame(here).coalesce(1)
    else:
        shared = session.createDataFrame(named).repartition(_task_count(session, files, len(rows)))
        # One exchange by life serves all checks.
        read = shared.mapInArrow(_rows_of, _READ_DDL).repartition(*_LIFE)
    checked = with_reasons(read)
    places = session.createDataFrame(pa.table(paths, _PATHS)).coalesce(1)
    return Bronze(events_of(checked), quarantine_of(checked, places), checked)


def _task_count(session: SparkSession, files: list[TraceFiles], chain_count: int) -> int:
    octets = sum(size_of(found.path) for found in files)
    cores = session.sparkContext.defaultParallelism
    return max(1, min(chain_count, max(cores, octets // FILE_BYTES_A_TASK)))


def size_of(path: Path) -> int:
    """How long a file is; none where there is no file, or no longer."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the files of each chain, in order."""
    for batch in batches:
        for chain in batch.to_pylist():
            after = False
            for named in chain["parts"]:
                after = after or named["gap"]
                part = ParquetPart(Path(os.fsdecode(named["at"])))
                about = {"run": chain["run"], "chain": chain["chain"], "file": named["file"]}
                yield from _rows_of_part(part, about | {"after": after})
                after = after or part.torn


def _rows_of_part(part: ParquetPart, about: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The rows of one file; after them, one about the file itself, which has no place and no node,
    and for each life in a torn file one about that life, which has no place."""
    start = 0
    lives: set[tuple[str | None, int | None]] = set()
    for table in part.tables():
        named = table.group_by(["node", "incarnation"]).aggregate([])
        lives.update((life["node"], life["incarnation"]) for life in named.to_pylist())
        for rows in table.to_batches(max_chunksize=20_000):
            yield _placed(rows, about, start)
            start += rows.num_rows
    ends = [about | {"lost": part.lost, "torn": part.torn}]
    if part.torn:
        ends += [
            about | {"torn": True, "node": node, "incarnation": incarnation}
            for node, incarnation in lives
            if node is not None
        ]
    yield pa.RecordBatch.from_pylist(ends, schema=_READ_SCHEMA)


def _placed(rows: pa.RecordBatch, about: dict[str, Any], start: int) -> pa.RecordBatch:
    count = rows.num_rows
    columns = [
        pa.array(range(start, start + count), pa.int64())
        if field.name == "place"
        else pa.repeat(pa.scalar(about.get(field.name), field.type), count)
        for field in _ABOUT
    ]
    return pa.RecordBatch.from_arrays([*columns, *rows.columns], schema=_READ_SCHEMA)


# -- checks --------------------------------------------------------------------------------------


def with_reasons(read: DataFrame) -> DataFrame:
    """Adds `reason`, null for a row that may be judged, and `fresh`; the rows to be judged have the
    steps that they are judged by. See `unisono.trace.checks`."""
    checks = " ".join(f"WHEN {check.sql} THEN '{check.reason}'" for check in ROW_CHECKS)
    life = ", ".join(_LIFE)
    in_file = f"OVER (PARTITION BY {life}, file)"
    before = (
        f"OVER (PARTITION BY {life} ORDER BY file"
        " RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    so_far = f"OVER (PARTITION BY {life} ORDER BY file, place ROWS UNBOUNDED PRECEDING)"
    among = (
        f"CASE WHEN NOT fresh THEN '{TOLD_TWICE}' WHEN after OR after_cut THEN '{AFTER_TORN}' END"
    )
    # One sort serves all windows.
    rows = read.sortWithinPartitions(*_LIFE, "file", "place")
    for name, sql in (
        ("reason", f"CASE WHEN place IS NULL THEN NULL {checks} END"),
        ("told", f"coalesce(max(IF({SOUND}, step, NULL)) {before}, -1)"),
        ("fresh", f"{SOUND} AND step > told"),
        ("cut", f"max(fresh) {in_file} AND max(after OR coalesce(torn, false)) {in_file}"),
        ("after_cut", f"coalesce(max(cut) {before}, false)"),
        ("reason", f"coalesce(reason, IF({SOUND}, {among}, NULL), lost)"),
        ("step", f"IF({SOUND}, count_if({SOUND}) {so_far} - 1, step)"),
    ):
        rows = rows.withColumn(name, F.expr(sql))
    return rows.drop("told", "cut", "after_cut")


def events_of(checked: DataFrame) -> DataFrame:
    """The rows that may be judged."""
    return checked.where(SOUND).select("run", *SCHEMA.names)


def quarantine_of(checked: DataFrame, places: DataFrame) -> DataFrame:
    """The rows and files that may not, with the path under the trace directory."""
    bad = checked.where("reason IS NOT NULL").join(F.broadcast(places), "file")
    return bad.selectExpr("run", "path", "place AS row", "reason")
