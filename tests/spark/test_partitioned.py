"""Tables partitioned by run: what is written in different ways is read as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unisono.spark import partitioned
from unisono.spark.layout import RUNS, open_layout

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
    with open_layout(tmp_path) as where:
        # In tasks, and in the driver.
        told = "array(named_struct('life', 'a#1', 'us', 1L)) AS told"
        partitioned.stage(where, RUNS, spark.sql(f"SELECT 'u' AS run, {told}"), ())
        where.publish(["u"])
        for run, sure in (("x", first_sure), ("y", not first_sure)):
            partitioned.stage_table(where, RUNS, rows_of(run, kinds[sure], sure), ())
            where.publish([run])
    # As an earlier version wrote it: what is within a column stays as it was.
    for run, sure in (("v", True), ("w", False)):
        (tmp_path / RUNS / f"run={run}").mkdir()
        rows = rows_of(run, kinds[sure], sure).drop_columns(["run"])
        pq.write_table(rows, tmp_path / RUNS / f"run={run}" / "part.parquet", store_schema=False)
    wanted = [{"run": run, "told": [{"life": "a#1", "us": 1}]} for run in "uvwxy"]
    for most in (5, 4):
        # More than that are read in tasks.
        monkeypatch.setattr(partitioned, "FOLDERS_PER_TASK", most)
        read = partitioned.read_table(spark, tmp_path, RUNS)
        assert sorted(read.to_pylist(), key=lambda row: row["run"]) == wanted
    assert pq.read_schema(tmp_path / RUNS / "run=x" / "part.parquet").equals(
        pq.read_schema(tmp_path / RUNS / "run=y" / "part.parquet")
    )
