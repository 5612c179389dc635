"""The pipeline again and again: only what is new is done, and nothing else is touched."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.laws.stories import story, write_trace
from unisono.errors import BadTrace, Misuse
from unisono.spark import pipeline
from unisono.spark import runs as batching
from unisono.spark.layout import (
    JOINT,
    MARK,
    TABLES,
    files_in,
)
from unisono.spark.partitioned import read_table, runs_table
from unisono.spark.publishing import ResultLayout, open_layout
from unisono.spark.results import summary_in
from unisono.spark.runs import changed, inputs_in
from unisono.trace.files import safe_name

CLAIMED = {"story": ["validity"]}
KEPT = "a: view 1 a | send | a:1"
BROKEN = "a: view 1 a | send"
LOST = "a: view 1 a b | send | send | a:1 | view 2 a\nb: view 1 a b"


def do(spark: Any, top: Path, **options: Any) -> Any:
    return pipeline.run_pipeline(spark, top / "trace", top / "out", CLAIMED, **options)


def tell(top: Path, run: str, text: str) -> Path:
    """A run's trace, whatever it told before."""
    folder = top / "trace" / f"run={safe_name(run)}"
    shutil.rmtree(folder, ignore_errors=True)
    write_trace(story(text, run=run), top / "trace")
    return folder


MAY_BE_EMPTY = {
    "bronze/quarantine", "silver/packets", "gold/stabilities", "gold/links", "gold/causes",
    "gold/exclusions", "gold/factors",
}  # fmt: skip


def content(out: Path) -> dict[str, list[str]]:
    """What every table says."""
    said = {}
    for name in (*TABLES, *JOINT):
        rows = [
            {**row, "of": str(path.parent.relative_to(out))}
            for path in files_in(out, name)
            for row in pq.ParquetFile(path).read().to_pylist()
        ]
        said[name] = sorted(repr({k: v for k, v in row.items() if k != "part"}) for row in rows)
        assert rows or name in MAY_BE_EMPTY, name
    return said


def parts_of(out: Path) -> dict[str, str]:
    """By run the name of its files."""
    return {row["run"]: row["part"] for row in runs_table(out).to_pylist()}


def runs_in(out: Path, table: str | None = None) -> list[str]:
    rows = runs_table(out) if table is None else read_table(out, table)
    return sorted(set(rows.column("run").to_pylist()))


ODD = "a=b [*] %41 é"


def test_only_what_is_new_or_has_changed_is_done(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    said: list[str] = []
    tell(tmp_path, ODD, KEPT)
    tell(tmp_path, "one", KEPT)
    replay = tell(tmp_path, "other", BROKEN) / "replay.txt"
    replay.write_text("unisono sim --seed 7\nand more\n")
    junk = tmp_path / "trace" / "run=junk"
    junk.mkdir()
    (junk / "a-1.parquet").write_text("no Parquet")
    settings = {"spark.sql.shuffle.partitions": spark.conf.get("spark.sql.shuffle.partitions")}
    first = do(spark, tmp_path, silver=False)
    assert runs_in(out) == sorted([ODD, "junk", "one", "other"])
    assert (first.processed, first.skipped, first.kept) == ((ODD, "junk", "one", "other"), 0, False)
    assert first.replays == {"other": "unisono sim --seed 7"}
    assert settings == {key: spark.conf.get(key) for key in settings}
    assert not (out / "bronze" / "events").exists() and not (out / "silver").exists()
    parts = parts_of(out)
    inputs = inputs_in(tmp_path / "trace")
    assert changed(out, inputs, CLAIMED.get) == []

    # All tables are asked for now. One run changes, one is new, another is gone for now; killed
    # while the second batch is put in place.
    tell(tmp_path, "other", KEPT)
    tell(tmp_path, "x", LOST)
    (tmp_path / "trace" / "run=one").rename(tmp_path / "away")
    monkeypatch.setattr(batching, "BATCH_RUNS", 2)
    whole, placed = ResultLayout._place, []

    def killed(self: ResultLayout, table: str, *parts: Any) -> None:
        placed.append(table)
        if placed.count("gold/verdicts") == 2:
            raise KeyboardInterrupt
        whole(self, table, *parts)

    said.clear()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ResultLayout, "_place", killed)
        do(spark, tmp_path, progress=said.append)
    assert said[0] == "3 of 4 runs are new or have changed", "junk has no events to write"
    assert "reading, judging and measuring (part 2 of 2)" in said
    assert runs_in(out) == sorted([ODD, "junk", "one", "other"])
    assert runs_in(out, "silver/sends") == sorted([ODD, "other", "x"]), "x is half in place"
    assert runs_in(out, "gold/violations") == []
    now = parts_of(out)
    assert now["other"] != parts["other"]
    assert now["one"] == parts["one"], "what is not there now stays"
    assert sum(row["broken"] for row in summary_in(out)) == 1, "not put together yet"
    assert not list(out.glob(".pipeline-*"))

    (tmp_path / "away").rename(tmp_path / "trace" / "run=one")
    on = do(spark, tmp_path)
    assert (on.processed, on.skipped, on.kept) == (("one", "x"), 3, False)
    again = parts_of(out)
    assert (again[ODD], again["other"]) == (now[ODD], now["other"])
    assert on.replays == {} and sum(row["runs"] for row in on.summary) == 4
    read = spark.read.parquet(f"{out}/gold/verdicts").select("run").distinct()
    assert {row.run for row in read.collect()} == {ODD, "one", "other", "x"}

    # Tables made step by step are those made at once, but for a run that is gone.
    stepwise = content(out)
    shutil.rmtree(junk)
    anew = do(spark, tmp_path, everything=True)
    assert len(anew.processed) == 4 and runs_in(out) == [ODD, "one", "other", "x"]
    assert content(out) == {
        name: [row for row in rows if "'junk'" not in row] for name, rows in stepwise.items()
    }

    said.clear()
    idle = do(spark, tmp_path, progress=said.append)
    assert said[0] == "0 of 4 runs are new or have changed"
    assert (idle.processed, idle.skipped) == ((), 4)
    assert idle.verdicts == anew.verdicts and idle.events == anew.events
    inputs = inputs_in(tmp_path / "trace")
    assert len(changed(out, inputs, {"story": ["fifo"]}.get)) == 4, "by other laws"


def test_mistakes_in_what_is_asked_for(spark: Any, tmp_path: Path) -> None:
    tell(tmp_path, "one", KEPT)
    with pytest.raises(BadTrace, match="no run 'two' in it; there are one"):
        do(spark, tmp_path, runs=["two"])
    with pytest.raises(Misuse, match="--all or --run"):
        do(spark, tmp_path, runs=["one"], everything=True)
    assert not (tmp_path / "out").exists()


# -- without Spark -------------------------------------------------------------------------------


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "BATCH_BYTES", 10)
    monkeypatch.setattr(batching, "BATCH_RUNS", 3)
    sizes = [4, 6, 1, 50, 1, 1, 1, 1]
    inputs = [
        batching.Input(str(n), (), size, "", datetime.now(UTC)) for n, size in enumerate(sizes)
    ]
    made = [[each.nbytes for each in batch] for batch in batching.batches_of(inputs)]
    assert made == [[4, 6], [1], [50], [1, 1, 1], [1]]
    assert list(batching.batches_of([])) == []


def test_tables_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / MARK).write_text("0")
    with pytest.raises(Misuse, match="another version"), open_layout(tmp_path):
        pass
