"""Tables partitioned by run: what is written in different ways is read as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unisono.spark import partitioned
from unisono.spark.layout import NO_RUN, RUNS

SURE = pa.struct([pa.field("life", pa.string(), nullable=False), pa.field("us", pa.int64())])
UNSURE = pa.struct([pa.field("life", pa.string()), pa.field("us", pa.int64())])


def rows_of(run: str, kind: pa.DataType, sure: bool) -> pa.Table:
    """A run with a list of structures, which either may be null within or may not."""
    listed = pa.list_(pa.field("element", kind, nullable=not sure))
    columns = [pa.field("run", pa.string()), pa.field("told", listed)]
    return pa.table(
        [[run], pa.array([[{"life": "a#1", "us": 1}]], listed)], schema=pa.schema(columns)
    )


@pytest.mark.parametrize("first_sure", [True, False], ids=["null later", "null first"])
def test_tables_that_differ_in_nullability_are_combined(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_sure: bool
) -> None:
    kinds = {True: SURE, False: UNSURE}
    (tmp_path / RUNS / NO_RUN).mkdir(parents=True)
    empty = rows_of("", UNSURE, sure=False).drop_columns(["run"]).slice(0, 0)
    pq.write_table(empty, tmp_path / RUNS / NO_RUN / "empty.parquet", store_schema=False)
    for run, sure in (("v", first_sure), ("w", not first_sure)):
        (tmp_path / RUNS / f"run={run}").mkdir()
        rows = rows_of(run, kinds[sure], sure).drop_columns(["run"])
        pq.write_table(rows, tmp_path / RUNS / f"run={run}" / "part.parquet", store_schema=False)
    wanted = [{"run": run, "told": [{"life": "a#1", "us": 1}]} for run in "vw"]
    for most in (2, 1):
        # More than that are read in tasks.
        monkeypatch.setattr(partitioned, "FOLDERS_PER_TASK", most)
        read = partitioned.read_table(spark, tmp_path, RUNS)
        assert sorted(read.to_pylist(), key=lambda row: row["run"]) == wanted
