"""Bronze: the rows of a trace directory as one DataFrame, and what must not be judged, and why.

Files are read where they lie by the trace room's own reader, in the tasks: what is torn, foreign or
unreadable is found by the same code that `unisono verify` uses, and no two readers can disagree.
The columns of a row hold the truth; of the path only the run, the order of names and the chain of
parts matter. The files of a chain are read by one task, which knows what is missing between them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from unisono.trace.checks import AFTER_TORN, ROW_CHECKS, TOLD_TWICE
from unisono.trace.files import SCHEMA, Found, trace_files
from unisono.trace.parquet import ParquetPart

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FILE_OCTETS_A_TASK: Final = 32 << 20
"""A task reads files until it has about this much."""

TRACE_DDL: Final = (
    "protocol string, `group` string, node string, incarnation int, step bigint, t_us bigint, "
    "kind string, view string, sender string, sender_incarnation int, number bigint, seq bigint, "
    "service string, size int, digest bigint, members array<string>, peer string, detail string"
)
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
_CHAIN_DDL: Final = (
    "chain int, run string, parts array<struct<file: int, at: binary, gap: boolean>>"
)
_READ_SCHEMA: Final = pa.schema([*_ABOUT, *SCHEMA])
_LIFE: Final = ("run", "node", "incarnation")


class Bronze(NamedTuple):
    events: DataFrame
    """`run` and the columns of the trace: the rows that may be judged."""
    quarantine: DataFrame
    """`run, path, row, reason`: rows, and (without a row) files or the rest of them."""
    torn: DataFrame
    """`run, node, incarnation`: lives of which a file is torn or missing."""
    checked: DataFrame
    """All rows with their reasons, from which the others are taken: persist this one."""


def read_bronze(
    session: SparkSession,
    trace: str | os.PathLike[str] | Sequence[Found],
    alone: bool = False,
) -> Bronze:
    """Everything a trace directory holds, or these files of one, in their order. `BadTrace` when it
    is no trace at all. With `alone` one task does it all, which for a small trace is much faster
    than sharing the work."""
    files = trace_files(trace) if isinstance(trace, str | os.PathLike) else list(trace)
    paths = [(index, found.name) for index, found in enumerate(files)]
    chains: dict[Path, list[tuple[int, bytearray, bool]]] = {}
    for index, found in enumerate(files):
        part = (index, bytearray(os.fsencode(found.path)), found.gap)
        chains.setdefault(found.chain, []).append(part)
    rows = [(index, files[parts[0][0]].run, parts) for index, parts in enumerate(chains.values())]
    named = session.createDataFrame(rows, _CHAIN_DDL)
    tasks = 1 if alone else _task_count(session, files, len(rows))
    read = named.repartition(tasks).mapInArrow(_rows_of, _READ_DDL)
    # One exchange by life serves all checks; within one task there is nothing to exchange.
    checked = with_reasons(read.coalesce(1) if alone else read.repartition(*_LIFE))
    places = session.createDataFrame(paths, "file int, path string")
    return Bronze(events_of(checked), quarantine_of(checked, places), torn_of(checked), checked)


def _task_count(session: SparkSession, files: list[Found], chain_count: int) -> int:
    octets = sum(octets_of(found.path) for found in files)
    cores = session.sparkContext.defaultParallelism
    return max(1, min(chain_count, max(cores, octets // FILE_OCTETS_A_TASK)))


def octets_of(path: Path) -> int:
    """How long a file is; none where there is no file, or no longer."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
    is_row = F.col("place").isNotNull()
    sound = is_row & F.col("reason").isNull()
    in_file = Window.partitionBy(*_LIFE, "file")
    before = Window.partitionBy(*_LIFE).orderBy("file").rangeBetween(Window.unboundedPreceding, -1)
    in_order = Window.partitionBy(*_LIFE).orderBy("file", "place")
    told = F.max(F.when(sound, F.col("step"))).over(before)
    # One sort serves all windows.
    rows = read.sortWithinPartitions(*_LIFE, "file", "place")
    rows = rows.withColumn("reason", F.when(is_row, _row_reason()))
    rows = rows.withColumn("told", F.coalesce(told, F.lit(-1)))
    rows = rows.withColumn("fresh", sound & (F.col("step") > F.col("told")))
    cut = F.max("fresh").over(in_file) & F.max(
        F.col("after") | F.coalesce("torn", F.lit(False))
    ).over(in_file)
    rows = rows.withColumn("cut", cut)
    rows = rows.withColumn("after_cut", F.coalesce(F.max("cut").over(before), F.lit(False)))
    among = F.when(~F.col("fresh"), TOLD_TWICE).when(
        F.col("after") | F.col("after_cut"), AFTER_TORN
    )
    rows = rows.withColumn("reason", F.coalesce("reason", F.when(sound, among), "lost"))
    step = F.sum(F.when(sound, 1)).over(in_order.rowsBetween(Window.unboundedPreceding, 0)) - 1
    rows = rows.withColumn("step", F.when(sound, step).otherwise(F.col("step")))
    return rows.drop("told", "cut", "after_cut")


def _row_reason() -> Column:
    """The reason of the first check that fails."""
    reason = F.lit(None).cast("string")
    for check in reversed(ROW_CHECKS):
        reason = F.when(F.expr(check.sql), check.reason).otherwise(reason)
    return reason


def events_of(checked: DataFrame) -> DataFrame:
    """The rows that may be judged."""
    sound = F.col("place").isNotNull() & F.col("reason").isNull()
    return checked.where(sound).select("run", *SCHEMA.names)


def quarantine_of(checked: DataFrame, places: DataFrame) -> DataFrame:
    """The rows and files that may not, with the path under the trace directory."""
    bad = checked.where(F.col("reason").isNotNull())
    named = bad.join(F.broadcast(places), "file")
    return named.select("run", "path", F.col("place").alias("row"), "reason")


def torn_of(checked: DataFrame) -> DataFrame:
    """The lives that have fresh rows in a chain of which a part is torn or missing."""
    broken = checked.where("place IS NULL AND (torn OR after)").select("chain")
    rows = checked.where("fresh").join(F.broadcast(broken), "chain", "left_semi")
    return rows.select(*_LIFE).distinct()
