"""The pipeline again and again: only what is new is done, and nothing else is touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.laws.stories import story, write_trace
from unisono.errors import BadTrace, Misuse
from unisono.spark import runs as batching
from unisono.spark.findings import summary_in
from unisono.spark.places import (
    GOLD,
    MARK,
    NO_RUN,
    RUNS,
    SUMMARY,
    TABLES,
    Places,
    folders_in,
    places,
    run_folder,
    run_of,
)
from unisono.spark.runs import changed, inputs_in
from unisono.trace.files import safe_name

pytestmark = pytest.mark.timeout(240)
CLAIMED = {"story": ["validity"]}
KEPT = "a: view 1 a | send | a:1"
BROKEN = "a: view 1 a | send"


def do(spark: Any, top: Path, out: str = "out", **options: Any) -> Any:
    from unisono.spark.pipeline import run_pipeline

    claimed = options.pop("claimed", CLAIMED)
    return run_pipeline(spark, top / "trace", top / out, claimed, **options)


def tell(top: Path, run: str, text: str) -> Path:
    """A run's trace, whatever it told before."""
    folder = top / "trace" / f"run={safe_name(run)}"
    shutil.rmtree(folder, ignore_errors=True)
    write_trace(story(text, run=run), top / "trace")
    return folder


def content(out: Path) -> dict[str, list[str]]:
    """What every table says."""
    said = {}
    for name in (*TABLES, SUMMARY):
        folders = [path for path in sorted((out / name).glob("**/")) if any(path.glob("*.parquet"))]
        rows = [row for path in folders for row in table_in(path).to_pylist()]
        said[name] = [repr(row) for row in rows]
        assert rows or name in ("bronze/quarantine", "gold/recoveries", "silver/packets"), name
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
    # What is there is of another format; it is made anew, but never by way of a single run.
    for name in ("events/run=one", "sends", "gold/runs/run=old", f"gold/runs/{NO_RUN}"):
        (out / name).mkdir(parents=True)
        (out / name / "part.parquet").write_text("of another make")
    (out / MARK).touch()
    tell(tmp_path, ODD, KEPT)
    tell(tmp_path, "one", KEPT)
    replay = tell(tmp_path, "other", BROKEN) / "replay.txt"
    replay.write_text("unisono sim --seed 7\nand more\n")
    with pytest.raises(Misuse, match="another version; give --all or another --out"):
        do(spark, tmp_path, runs=["one"])
    settings = {"spark.sql.shuffle.partitions": spark.conf.get("spark.sql.shuffle.partitions")}
    first = do(spark, tmp_path, progress=said.append)
    assert said[0] == "the tables there are of another version: all is done anew"
    assert not (out / "events").exists() and not (out / "sends").exists()
    assert runs_in(out) == sorted([ODD, "one", "other"])
    assert (first.processed, first.skipped, first.kept) == ((ODD, "one", "other"), 0, False)
    assert first.replays == {"other": "unisono sim --seed 7"}
    assert settings == {key: spark.conf.get(key) for key in settings}
    one, other = files_of(out, "one"), files_of(out, "other")
    assert {path.parts[-3] for path in one} > {"events", "sends", "verdicts", "runs"}
    read = spark.read.parquet(f"{out}/gold/verdicts").select("run").distinct()
    assert {row.run for row in read.collect()} == {ODD, "one", "other"}

    said.clear()
    again = do(spark, tmp_path, progress=said.append)
    assert (again.processed, again.skipped) == ((), 3)
    assert again.verdicts == first.verdicts and again.events == first.events
    assert said[0] == "0 of 3 runs are new or have changed"
    assert files_of(out, "other") == other

    # One run changes, another is gone for now: the first is replaced, the second stays.
    tell(tmp_path, "other", KEPT)
    (tmp_path / "trace" / "run=one").rename(tmp_path / "away")
    third = do(spark, tmp_path)
    assert (third.processed, third.skipped, third.kept) == (("other",), 1, True)
    assert files_of(out, "one") == one
    assert not set(other.values()) & set(files_of(out, "other").values())
    assert third.replays == {} and runs_in(out, "gold/violations") == []

    # Killed while the second of two new ones is put in place.
    (tmp_path / "away").rename(tmp_path / "trace" / "run=one")
    for run in ("x", "y"):
        tell(tmp_path, run, BROKEN)
    monkeypatch.setattr(batching, "BATCH_RUNS", 1)
    whole, count = Places._replace, 0

    def killed(self: Places, new: Path, place: Path) -> None:
        nonlocal count
        count += 1
        if count > len(TABLES) + 5:
            raise KeyboardInterrupt
        whole(self, new, place)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Places, "_replace", killed)
        do(spark, tmp_path, progress=said.append)
    assert "judging (part 2 of 2)" in said
    assert runs_in(out) == sorted([ODD, "one", "other", "x"])
    assert "y" in runs_in(out, "silver/sends"), "it was half in place"
    assert sum(row["runs"] for row in summary_in(out)) == 3, "not put together yet"
    assert not list(out.glob(".pipeline-*"))
    on = do(spark, tmp_path)
    assert (on.processed, on.skipped) == (("y",), 4)
    assert files_of(out, "one") == one
    assert sum(row["runs"] for row in on.summary) == 5

    # Tables made step by step are those made at once.
    monkeypatch.undo()
    stepwise = content(out)
    assert len(do(spark, tmp_path, everything=True).processed) == 5
    assert content(out) == stepwise

    # All anew, without those that are gone, by other laws, and gold alone.
    for run in ("other", "x", "y"):
        shutil.rmtree(tmp_path / "trace" / f"run={run}")
    inputs = inputs_in(tmp_path / "trace")
    assert changed(spark, out, inputs, CLAIMED.get) == []
    assert len(changed(spark, out, inputs, {"story": ["fifo"]}.get)) == 2
    last = do(spark, tmp_path, everything=True, silver=False, claimed={"story": ["fifo"]})
    assert runs_in(out) == [ODD, "one"] and runs_in(out, "silver/sends") == []
    assert sum(row["runs"] for row in last.summary) == 2
    assert {each.laws["validity"] for each in last.verdicts.values()} == {"not claimed"}


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
    monkeypatch.setattr(batching, "BATCH_OCTETS", 10)
    monkeypatch.setattr(batching, "BATCH_RUNS", 3)
    sizes = [4, 6, 1, 50, 1, 1, 1, 1]
    inputs = [batching.Input(str(n), (), size, "") for n, size in enumerate(sizes)]
    made = [[each.octets for each in batch] for batch in batching.batches_of(inputs)]
    assert made == [[4, 6], [1], [50], [1, 1, 1], [1]]
    assert list(batching.batches_of([])) == []


def test_a_run_is_put_in_place_last_in_the_table_of_runs(tmp_path: Path) -> None:
    assert TABLES[-1] == GOLD[-1] == RUNS
    with places(tmp_path / "out") as where:
        for name in TABLES:
            (where.staged(name) / "run=x").mkdir(parents=True)
        where.put_in_place(["x"])
        assert all((where.out / name / "run=x").is_dir() for name in TABLES)
        assert where.stale
    assert not list((tmp_path / "out").glob(".pipeline-*"))
