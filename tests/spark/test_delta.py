"""Delta tables hold what the Parquet tables hold, each batch of runs in one commit per table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.laws.stories import story, write_trace
from unisono.errors import Misuse, UnisonoError
from unisono.spark import delta
from unisono.spark.delta import DeltaTables
from unisono.spark.layout import ALL, JOINT, ROWS, RUNS, TABLES, files_in
from unisono.spark.partitioned import rows_in
from unisono.spark.pipeline import run_pipeline
from unisono.trace.files import safe_name

CLAIMED = {"story": ["validity"]}
KEPT = "a: view 1 a | send | a:1"
BROKEN = "a: view 1 a | send"
LOST = "a: view 1 a b | send | send | a:1 | view 2 a\nb: view 1 a b"
ODD = "a=b 'é' 100%"


def tell(top: Path, run: str, text: str) -> None:
    shutil.rmtree(top / "trace" / f"run={safe_name(run)}", ignore_errors=True)
    write_trace(story(text, run=run), top / "trace")


def do(spark: Any, top: Path, out: str = "out", **options: Any) -> Any:
    return run_pipeline(spark, top / "trace", top / out, CLAIMED, **options)


def rows_of(top: Path, name: str) -> list[str]:
    return said(DeltaTable(top / "delta" / name).to_pyarrow_table())


def parquet_rows(top: Path, name: str) -> list[str]:
    parts = []
    for path in files_in(top, name):
        parts += said(pq.ParquetFile(path).read() if name in JOINT else rows_in(path, name))
    return sorted(parts)


def said(table: pa.Table) -> list[str]:
    apart = {"date", "rows_in", "part"}
    return sorted(
        repr({k: v for k, v in row.items() if k not in apart}) for row in table.to_pylist()
    )


def test_delta_tables_hold_what_the_parquet_tables_hold(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(tmp_path, ODD, KEPT)
    tell(tmp_path, "other", BROKEN)
    out = tmp_path / "out"
    assert len(do(spark, tmp_path, delta="").processed) == 2
    assert not any((out / name).exists() for name in ROWS), "the large tables are not kept twice"

    # One run changes and one is new; killed between two tables, they are done again.
    tell(tmp_path, "other", LOST)
    tell(tmp_path, "x", KEPT)
    whole = DeltaTables._commit

    def killed(self: DeltaTables, name: str, *rest: Any) -> None:
        if name == "gold/verdicts":
            raise KeyboardInterrupt
        whole(self, name, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(DeltaTables, "_commit", killed)
        do(spark, tmp_path, delta="")
    lake = DeltaTables(str(out / "delta"))
    assert lake.runs() == {ODD}, "no run that is half committed"
    monkeypatch.setattr(delta, "FILES_MAX", 2)
    assert do(spark, tmp_path, delta="").processed == ("other", "x")
    assert lake.runs() == {ODD, "other", "x"}
    sends = lake.table("silver/sends")
    assert sends is not None and len(sends.file_uris()) == 1, "compacted"

    # Without Delta, the large tables are written as well.
    assert len(do(spark, tmp_path).processed) == 3
    for name in (*TABLES, *JOINT):
        assert rows_of(out, name) == parquet_rows(out, name), name

    # Every tool reads every table.
    for name in (*TABLES, *JOINT):
        table = DeltaTable(out / "delta" / name)
        count = table.to_pyarrow_table().num_rows
        files = table.to_pyarrow_dataset()
        assert len(table.to_pandas()) == count
        assert polars.read_delta(str(out / "delta" / name)).height == count
        assert duckdb.sql("SELECT count(*) FROM files").fetchall() == [(count,)], files.schema
    top, uris = str(out / "delta" / "silver/sends"), sends.file_uris()
    assert spark.read.option("basePath", top).parquet(*uris).count() == 4
    earlier = DeltaTable(out / "delta" / RUNS, version=0)
    assert set(earlier.to_pyarrow_table().column("run").to_pylist()) == {ODD, "other"}


def test_another_place_and_its_errors(spark: Any, tmp_path: Path) -> None:
    tell(tmp_path, "one", KEPT)
    tell(tmp_path, "two", KEPT)
    place = tmp_path / "elsewhere"
    do(spark, tmp_path, delta=place.as_uri())
    lake = DeltaTables(place.as_uri())
    assert lake.runs() == {"one", "two"}
    shutil.rmtree(tmp_path / "trace" / "run=two")
    assert do(spark, tmp_path, delta=place.as_uri()).processed == ()
    do(spark, tmp_path, delta=place.as_uri(), everything=True)
    for name in TABLES:
        table = lake.table(name)
        assert table is not None
        assert set(table.to_pyarrow_table().column("run").to_pylist()) <= {"one", ALL}, name
    with pytest.raises(UnisonoError, match=r"noscheme://x/.*: Unknown scheme"):
        do(spark, tmp_path, delta="noscheme://x")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(Misuse, match=r"pip install 'unisono\[delta\]'"):
        DeltaTables("x")


def test_a_full_disk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("Generic LocalFileSystem error\n  Unable to copy data to file")

    tables = DeltaTables(str(tmp_path))
    write_deltalake(tables.place(RUNS), pa.table({"run": ["r"]}))
    monkeypatch.setattr(DeltaTable, "delete", full)
    with pytest.raises(UnisonoError, match=r"runs: Generic LocalFileSystem error$"):
        tables.drop(["r"])
