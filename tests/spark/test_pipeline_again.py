"""The pipeline again and again: only what is new is done, and nothing else is touched."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.laws.stories import story, write_trace
from unisono.errors import BadTrace, Misuse
from unisono.spark import pipeline
from unisono.spark import runs as batching
from unisono.spark.layout import (
    GOLD,
    JOINT,
    MARK,
    RUNS,
    TABLES,
    ResultLayout,
    folders_in,
    open_layout,
    run_folder,
    run_of,
)
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
        folders = [path for path in sorted((out / name).glob("**/")) if any(path.glob("*.parquet"))]
        rows = [row for path in folders for row in table_in(path).to_pylist()]
        said[name] = [repr(row) for row in rows]
        assert rows or name in MAY_BE_EMPTY, name
    return said


def table_in(folder: Path) -> pa.Table:
    """The rows of a folder, with its name as a column."""
    files = sorted(folder.glob("[!.]*.parquet"))
    table = pa.concat_tables([pq.ParquetFile(path).read() for path in files])
    return table.append_column("of", pa.repeat(pa.scalar(folder.name), table.num_rows))


def files_of(out: Path, run: str) -> dict[Path, int]:
    """Each file of a run, by which a replaced one is told from an old one."""
    found = (path for name in TABLES for path in (out / name / run_folder(run)).glob("*"))
    return {path: path.stat().st_ino for path in found}


def runs_in(out: Path, table: str = RUNS) -> list[str]:
    return [run_of(folder.name) for folder in folders_in(out, table)]


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
    one, other = files_of(out, "one"), files_of(out, "other")
    inputs = inputs_in(tmp_path / "trace")
    assert changed(spark, out, inputs, CLAIMED.get) == []

    # All tables are asked for now. One run changes, one is new, another is gone for now; killed
    # while the second batch is put in place.
    tell(tmp_path, "other", KEPT)
    tell(tmp_path, "x", LOST)
    (tmp_path / "trace" / "run=one").rename(tmp_path / "away")
    monkeypatch.setattr(batching, "BATCH_RUNS", 2)
    whole = ResultLayout._replace

    def killed(self: ResultLayout, new: Path, place: Path) -> None:
        if place == out.resolve() / "gold" / "verdicts" / "run=x":
            raise KeyboardInterrupt
        whole(self, new, place)

    said.clear()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ResultLayout, "_replace", killed)
        do(spark, tmp_path, progress=said.append)
    assert said[0] == "3 of 4 runs are new or have changed", "junk has no events to write"
    assert "reading, judging and measuring (part 2 of 2)" in said
    assert runs_in(out) == sorted([ODD, "junk", "one", "other"])
    assert runs_in(out, "silver/sends") == sorted([ODD, "other", "x"]), "x is half in place"
    assert runs_in(out, "gold/violations") == []
    assert not set(other.values()) & set(files_of(out, "other").values())
    assert files_of(out, "one") == one, "what is not there now stays"
    assert sum(row["broken"] for row in summary_in(out)) == 1, "not put together yet"
    assert not list(out.glob(".pipeline-*"))

    odd, other = files_of(out, ODD), files_of(out, "other")
    (tmp_path / "away").rename(tmp_path / "trace" / "run=one")
    on = do(spark, tmp_path)
    assert (on.processed, on.skipped, on.kept) == (("one", "x"), 3, False)
    assert (files_of(out, ODD), files_of(out, "other")) == (odd, other)
    assert {path.parts[-3] for path in odd} > {"events", "sends", "verdicts", "runs"}
    assert on.replays == {} and sum(row["runs"] for row in on.summary) == 4
    read = spark.read.parquet(f"{out}/gold/verdicts").select("run").distinct()
    assert {row.run for row in read.collect()} == {ODD, "one", "other", "x"}

    # Tables made step by step are those made at once, but for a run that is gone.
    stepwise = content(out)
    shutil.rmtree(junk)
    anew = do(spark, tmp_path, everything=True)
    assert len(anew.processed) == 4 and runs_in(out) == [ODD, "one", "other", "x"]
    assert content(out) == {
        name: [row for row in rows if "'run=junk'" not in row] for name, rows in stepwise.items()
    }

    said.clear()
    again = do(spark, tmp_path, progress=said.append)
    assert said[0] == "0 of 4 runs are new or have changed"
    assert (again.processed, again.skipped) == ((), 4)
    assert again.verdicts == anew.verdicts and again.events == anew.events
    inputs = inputs_in(tmp_path / "trace")
    assert len(changed(spark, out, inputs, {"story": ["fifo"]}.get)) == 4, "by other laws"


def test_mistakes_in_what_is_asked_for(spark: Any, tmp_path: Path) -> None:
    tell(tmp_path, "one", KEPT)
    with pytest.raises(BadTrace, match="no run 'two' in it; there are one"):
        do(spark, tmp_path, runs=["two"])
    with pytest.raises(Misuse, match="--all or --run"):
        do(spark, tmp_path, runs=["one"], everything=True)
    assert not (tmp_path / "out").exists()


# -- without Spark -------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["plain", "", "a b", "é/ü", "x=1", "100%", "[a]*?{b}^", "#'\"\\"])
def test_a_folder_tells_its_run(run: str) -> None:
    folder = run_folder(run)
    assert "/" not in folder and run_of(folder) == run


def test_a_long_name_is_cut_and_stays_its_own() -> None:
    long = [run_folder("*" * 200 + end) for end in "ab"]
    assert long[0] != long[1]
    assert all(len(os.fsencode(name)) <= 255 for name in long)


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


def test_a_run_is_put_in_place_last_in_the_table_of_runs(tmp_path: Path) -> None:
    assert TABLES[-1] == GOLD[-1] == RUNS
    with open_layout(tmp_path / "out") as where:
        for name in TABLES:
            (where.staged(name) / "run=x").mkdir(parents=True)
        where.publish(["x"])
        assert all((where.out / name / "run=x").is_dir() for name in TABLES)
        assert where.stale
    assert not list((tmp_path / "out").glob(".pipeline-*"))
