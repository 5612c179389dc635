"""Bronze: the rows of a trace directory as one DataFrame, and what must not be judged, and why.

Tasks read the files with the reader of `unisono.trace`, so torn, foreign and unreadable files are
treated as `unisono verify` treats them. The columns of a row are authoritative; of a path only the
run, the order of names and the chain of parts matter. One task reads all files of a chain, so that
it knows what is missing between them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from unisono.trace.checks import AFTER_TORN, ROW_CHECKS, TOLD_TWICE
from unisono.trace.files import SCHEMA, TraceFiles, trace_files
from unisono.trace.parquet import ParquetPart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BYTES_PER_TASK: Final = 32 << 20
"""A task reads about this much."""
BATCH_ROWS: Final = 20_000

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
_READ: Final = pa.schema([*_ABOUT, *SCHEMA])
_PART: Final = pa.struct([("file", pa.int32()), ("at", pa.binary()), ("gap", pa.bool_())])
_CHAIN: Final = pa.schema([("run", pa.string()), ("chain", pa.int32()), ("parts", pa.list_(_PART))])
_PATHS: Final = pa.schema([("file", pa.int32()), ("path", pa.string())])
_INCARNATION: Final = ("run", "node", "incarnation")
VALID: Final = "(place IS NOT NULL AND reason IS NULL)"
"""Of checked rows: a row that may be judged."""


class Bronze(NamedTuple):
    events: DataFrame
    """`run` and the columns of the trace: the rows that may be judged."""
    quarantine: DataFrame
    """`run, path, row, reason`: rows, and (without a row) files or the rest of them."""
    checked: DataFrame
    """All rows with their reasons, from which the others are derived: persist this one."""


def read_bronze(
    session: SparkSession,
    trace: str | os.PathLike[str] | Sequence[TraceFiles],
    in_driver: bool = False,
) -> Bronze:
    """All rows of a trace directory, or of these files of one, in their order. `BadTrace` when it
    is no trace. `in_driver`: the driver reads the files and one task does the rest, which is much
    faster for a small trace."""
    files = trace_files(trace) if isinstance(trace, str | os.PathLike) else list(trace)
    chains: dict[Path, list[dict[str, Any]]] = {}
    for index, found in enumerate(files):
        part = {"file": index, "at": os.fsencode(found.path), "gap": found.gap}
        chains.setdefault(found.chain, []).append(part)
    rows = [
        {"run": files[parts[0]["file"]].run, "chain": index, "parts": parts}
        for index, parts in enumerate(chains.values())
    ]
    table = pa.Table.from_pylist(rows, _CHAIN)
    if in_driver:
        read = session.createDataFrame(pa.Table.from_batches(_read(table.to_batches()), _READ))
        read = read.coalesce(1)
    else:
        frame = session.createDataFrame(table).repartition(_task_count(session, files, len(rows)))
        # One exchange by incarnation serves all checks.
        read = frame.mapInArrow(_read, from_arrow_schema(_READ)).repartition(*_INCARNATION)
    checked = _with_reasons(read)
    paths = pa.table([range(len(files)), [found.name for found in files]], _PATHS)
    bad = checked.where("reason IS NOT NULL").join(
        F.broadcast(session.createDataFrame(paths).coalesce(1)), "file"
    )
    return Bronze(
        events=checked.where(VALID).select("run", *SCHEMA.names),
        quarantine=bad.selectExpr("run", "path", "place AS row", "reason"),
        checked=checked,
    )


def _task_count(session: SparkSession, files: list[TraceFiles], chain_count: int) -> int:
    nbytes = sum(_size_of(found.path) for found in files)
    cores = session.sparkContext.defaultParallelism
    return max(1, min(chain_count, max(cores, nbytes // BYTES_PER_TASK)))


def _size_of(path: Path) -> int:
    """0 where there is no file, or no longer."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the files of each chain, in order."""
    for batch in batches:
        for chain in batch.to_pylist():
            after = False
            for found in chain["parts"]:
                after = after or found["gap"]
                part = ParquetPart(Path(os.fsdecode(found["at"])))
                about = {"run": chain["run"], "chain": chain["chain"], "file": found["file"]}
                yield from _read_part(part, about | {"after": after})
                after = after or part.torn


def _read_part(part: ParquetPart, about: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The rows of one file; then one about the file, which has no place and no node; and for each
    incarnation in a torn file one about that, which has no place."""
    start = 0
    incarnations: set[tuple[str | None, int | None]] = set()
    for table in part.tables():
        named = table.group_by(["node", "incarnation"]).aggregate([])
        incarnations.update((row["node"], row["incarnation"]) for row in named.to_pylist())
        for rows in table.to_batches(max_chunksize=BATCH_ROWS):
            columns = [
                pa.array(range(start, start + rows.num_rows), pa.int64())
                if field.name == "place"
                else pa.repeat(pa.scalar(about.get(field.name), field.type), rows.num_rows)
                for field in _ABOUT
            ]
            yield pa.RecordBatch.from_arrays([*columns, *rows.columns], schema=_READ)
            start += rows.num_rows
    ends = [about | {"lost": part.lost, "torn": part.torn}]
    if part.torn:
        ends += [
            about | {"torn": True, "node": node, "incarnation": incarnation}
            for node, incarnation in incarnations
            if node is not None
        ]
    yield pa.RecordBatch.from_pylist(ends, schema=_READ)


def _with_reasons(read: DataFrame) -> DataFrame:
    """Adds `reason`, null for a row that may be judged, and `fresh`; the rows to be judged get the
    steps that they are judged by. See `unisono.trace.checks`."""
    checks = " ".join(f"WHEN {check.sql} THEN '{check.reason}'" for check in ROW_CHECKS)
    incarnation = ", ".join(_INCARNATION)
    in_file = f"OVER (PARTITION BY {incarnation}, file)"
    before = (
        f"OVER (PARTITION BY {incarnation} ORDER BY file"
        " RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    so_far = f"OVER (PARTITION BY {incarnation} ORDER BY file, place ROWS UNBOUNDED PRECEDING)"
    of_files = (
        f"CASE WHEN NOT fresh THEN '{TOLD_TWICE}' WHEN after OR after_cut THEN '{AFTER_TORN}' END"
    )
    # One sort serves all windows.
    rows = read.sortWithinPartitions(*_INCARNATION, "file", "place")
    for name, sql in (
        ("reason", f"CASE WHEN place IS NULL THEN NULL {checks} END"),
        ("last_step", f"coalesce(max(IF({VALID}, step, NULL)) {before}, -1)"),
        ("fresh", f"{VALID} AND step > last_step"),
        ("cut", f"max(fresh) {in_file} AND max(after OR coalesce(torn, false)) {in_file}"),
        ("after_cut", f"coalesce(max(cut) {before}, false)"),
        ("reason", f"coalesce(reason, IF({VALID}, {of_files}, NULL), lost)"),
        ("step", f"IF({VALID}, count_if({VALID}) {so_far} - 1, step)"),
    ):
        rows = rows.withColumn(name, F.expr(sql))
    return rows.drop("last_step", "cut", "after_cut")
