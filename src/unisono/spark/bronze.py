"""Bronze: the rows of a trace directory as one DataFrame, and what must not be judged, and why.

Files are read where they lie by the trace room's own reader, in the tasks: what is torn, foreign or
unreadable is found by the same code that `unisono verify` uses, and no two readers can disagree.
The columns of a row hold the truth; of the path only the run and the order of names matter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from unisono.trace.checks import ROW_CHECKS, STEP_NOT_RISING, TOLD_TWICE
from unisono.trace.files import SCHEMA, trace_files
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
        ("file", pa.int32()),
        ("place", pa.int64()),
        ("lost", pa.string()),
        ("torn", pa.bool_()),
    ]
)
_READ_DDL: Final = f"run string, file int, place bigint, lost string, torn boolean, {TRACE_DDL}"
_READ_SCHEMA: Final = pa.schema([*_ABOUT, *SCHEMA])
_LIFE: Final = ("run", "node", "incarnation")


class Bronze(NamedTuple):
    events: DataFrame
    """`run` and the columns of the trace: the rows that may be judged."""
    quarantine: DataFrame
    """`run, path, row, reason`: rows, and (without a row) files or the rest of them."""
    torn: DataFrame
    """`run, node, incarnation`: lives whose file has no end."""
    checked: DataFrame
    """All rows with their reasons, from which the others are taken: persist this one."""


def read_bronze(
    session: SparkSession, directory: str | os.PathLike[str], alone: bool = False
) -> Bronze:
    """Everything a trace directory holds. `BadTrace` when it is no trace at all. With `alone` one
    task does it all, which for a small trace is much faster than sharing the work."""
    files = [
        (index, _printable(found.run), _printable(found.name), bytearray(os.fsencode(found.path)))
        for index, found in enumerate(trace_files(directory))
    ]
    named = session.createDataFrame(files, "file int, run string, path string, at binary")
    tasks = 1 if alone else _task_count(session, [os.fsdecode(bytes(at)) for *_, at in files])
    read = named.select("file", "run", "at").repartition(tasks).mapInArrow(_rows_of, _READ_DDL)
    # One exchange by life serves all checks; within one task there is nothing to exchange.
    checked = with_reasons(read.coalesce(1) if alone else read.repartition(*_LIFE))
    return Bronze(events_of(checked), quarantine_of(checked, named), torn_of(checked), checked)


def _printable(name: str) -> str:
    """File names need not be text; Spark's strings must be."""
    return name.encode("utf-8", "backslashreplace").decode()


def _task_count(session: SparkSession, paths: list[str]) -> int:
    octets = sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
    cores = session.sparkContext.defaultParallelism
    return max(1, min(len(paths), max(cores, octets // FILE_OCTETS_A_TASK)))


def _rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the files named, and after those of each file a row about the file itself."""
    for batch in batches:
        for named in batch.to_pylist():
            part = ParquetPart(Path(os.fsdecode(named["at"])))
            start = 0
            for table in part.tables():
                for rows in table.to_batches(max_chunksize=20_000):
                    yield _placed(rows, named, start)
                    start += rows.num_rows
            about = {"run": named["run"], "file": named["file"], "lost": part.lost}
            yield pa.RecordBatch.from_pylist([about | {"torn": part.torn}], schema=_READ_SCHEMA)


def _placed(rows: pa.RecordBatch, named: dict[str, object], start: int) -> pa.RecordBatch:
    count = rows.num_rows
    about = [
        pa.repeat(pa.scalar(named["run"], pa.string()), count),
        pa.repeat(pa.scalar(named["file"], pa.int32()), count),
        pa.array(range(start, start + count), pa.int64()),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.bool_()),
    ]
    return pa.RecordBatch.from_arrays([*about, *rows.columns], schema=_READ_SCHEMA)


# -- checks --------------------------------------------------------------------------------------


def with_reasons(read: DataFrame) -> DataFrame:
    """Adds `reason`: null for a row that may be judged. See `unisono.trace.checks`."""
    is_row = F.col("place").isNotNull()
    before = Window.partitionBy(*_LIFE).orderBy("file").rangeBetween(Window.unboundedPreceding, -1)
    earlier = (
        Window.partitionBy(*_LIFE, "file")
        .orderBy("place")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    sound = is_row & F.col("reason").isNull()
    step = F.max(F.when(sound, F.col("step"))).over(earlier)
    told = F.max(F.when(sound, F.col("step"))).over(before)
    rows = read.withColumn("reason", F.when(is_row, _row_reason()))
    rows = rows.withColumn(
        "reason", F.coalesce("reason", F.when(sound & (step >= F.col("step")), STEP_NOT_RISING))
    )
    rows = rows.withColumn(
        "reason", F.coalesce("reason", F.when(sound & (told >= F.col("step")), TOLD_TWICE))
    )
    return rows.withColumn("reason", F.coalesce("reason", "lost"))


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


def quarantine_of(checked: DataFrame, named: DataFrame) -> DataFrame:
    """The rows and files that may not, with the path under the trace directory."""
    bad = checked.where(F.col("reason").isNotNull())
    paths = F.broadcast(named.select("file", "path"))
    return bad.join(paths, "file").select("run", "path", F.col("place").alias("row"), "reason")


def torn_of(checked: DataFrame) -> DataFrame:
    """The lives that have sound rows in a file whose end is missing."""
    files = F.broadcast(checked.where("torn").select("file"))
    sound = checked.where(F.col("place").isNotNull() & F.col("reason").isNull())
    return sound.join(files, "file", "left_semi").select(*_LIFE).distinct()
