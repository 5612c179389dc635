"""Tables in files that hold many runs: written, read, replaced, merged, and killed amid that."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from unisono.spark import publishing
from unisono.spark.layout import ALL, RUNS, TABLES, files_in, partition_of, protocol_of
from unisono.spark.partitioned import RunWriter, read_table, runs_table
from unisono.spark.publishing import ResultLayout, open_layout

VERDICTS, MEASURES = "gold/verdicts", "gold/measures"
DAYS = (date(2026, 5, 1), date(2026, 5, 2))


def write(layout: ResultLayout, runs: list[str], verdict: str = "kept") -> None:
    layout.publish(stage(layout, runs, verdict))


def stage(layout: ResultLayout, runs: list[str], verdict: str, events: int = 1) -> list[Any]:
    """A batch, of which half the runs are of another day and protocol; their rows."""
    layout.stage_empty(TABLES)
    part = layout.next_part()
    writer = RunWriter(str(layout.staged("")), part)
    rows = []
    for at, run in enumerate(runs):
        writer.begin(run, DAYS[at % 2])
        writer.write_rows(VERDICTS, [{"law": law, "verdict": verdict} for law in "xy"])
        writer.write_rows(MEASURES, [{"protocol": ("ring", "m/p")[at % 2], "sent": at}])
        recorded = datetime.combine(DAYS[at % 2], datetime.min.time(), UTC)
        rows.append({"run": run, "part": part, "events": events, "recorded": recorded})
    writer.close()
    return rows


def verdicts(out: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in read_table(out, VERDICTS).to_pylist():
        found.setdefault(row["run"], []).append(row["verdict"])
    return found


def test_runs_share_files_by_day_and_protocol(tmp_path: Path) -> None:
    with open_layout(tmp_path / "out") as layout:
        write(layout, list("abcd"))
        out = layout.out
    assert verdicts(out) == {run: ["kept", "kept"] for run in "abcd"}
    folders = {str(path.parent.relative_to(out / MEASURES)) for path in files_in(out, MEASURES)}
    assert folders == {
        "date=1970-01-01/protocol=(none)",
        "date=2026-05-01/protocol=ring",
        "date=2026-05-02/protocol=m%2Fp",
    }
    rows = read_table(out, MEASURES, ["b", "c"]).to_pylist()
    assert [(row["run"], row["protocol"], row["sent"]) for row in rows] == [
        ("c", "ring", 2),
        ("b", "m/p", 1),
    ]
    assert runs_table(out).column("run").to_pylist() == list("abcd")


def test_what_an_earlier_batch_still_writes_is_not_published(tmp_path: Path) -> None:
    with open_layout(tmp_path / "out") as layout:
        rows = stage(layout, ["a"], "kept")
        kept = layout.staged(VERDICTS) / partition_of(DAYS[0], None) / f"{rows[0]['part']}.parquet"
        late = kept.read_bytes()
        layout.publish(rows)
        write(layout, ["a"], "broken")
        again = stage(layout, ["b"], "kept")
        kept.write_bytes(late)
        layout.publish(again)
        assert verdicts(layout.out) == {"a": ["broken"] * 2, "b": ["kept"] * 2}


def test_a_run_that_is_done_again_replaces_its_rows_alone(tmp_path: Path) -> None:
    with open_layout(tmp_path / "out") as layout:
        write(layout, list("abcd"))
        write(layout, list("bx"), "broken")
        kept, broken = ["kept"] * 2, ["broken"] * 2
        told = {"a": kept, "b": broken, "c": kept, "d": kept, "x": broken}
        assert verdicts(layout.out) == told
        layout.remove(list("acd"))
        assert verdicts(layout.out) == {"b": broken, "x": broken}
        left = {path.stem for path in files_in(layout.out, VERDICTS)}
        assert len(left) == 2, "what held only them is gone"


@pytest.mark.parametrize("amid", ["_set_runs", "_write_without", "_place"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_killed_at_any_place_nothing_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, amid: str, call: int
) -> None:
    whole, calls = getattr(ResultLayout, amid), [0]

    def killed(self: ResultLayout, *rest: Any) -> None:
        calls[0] += 1
        if calls[0] == call:
            raise KeyboardInterrupt
        whole(self, *rest)

    with open_layout(tmp_path / "out") as layout:
        write(layout, list("abcd"))
        out = layout.out
        with monkeypatch.context() as patch:
            patch.setattr(ResultLayout, amid, killed)
            try:
                write(layout, list("bx"), "broken")
            except KeyboardInterrupt:
                layout.clear()
        for run in runs_table(out).column("run").to_pylist():
            assert verdicts(out)[run] in (["kept"] * 2, ["broken"] * 2), "what is listed is whole"
        assert {"a", "c", "d"} <= set(runs_table(out).column("run").to_pylist())
        write(layout, list("bx"), "broken")
        told = {run: ["broken" if run in "bx" else "kept"] * 2 for run in "abcdx"}
        assert verdicts(out) == told
        assert runs_table(out).column("run").to_pylist() == list("abcdx")
        assert not (out / publishing.REMOVED).exists()


@pytest.mark.parametrize("killed_at", [None, "_set_runs", "_place"])
def test_many_small_parts_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str | None
) -> None:
    monkeypatch.setattr(publishing, "PARTS_MAX", 3)
    with open_layout(tmp_path / "out") as layout:
        for at in range(3):
            write(layout, [f"r{at}", f"s{at}"])
        if killed_at:
            merge, whole = ResultLayout._merge, getattr(ResultLayout, killed_at)

            def killed(self: ResultLayout, *rest: Any) -> None:
                if killed_at != "_place" or rest[0] == TABLES[-1]:
                    raise KeyboardInterrupt
                whole(self, *rest)

            def merging(self: ResultLayout) -> None:
                with monkeypatch.context() as patch:
                    patch.setattr(ResultLayout, killed_at or "", killed)
                    merge(self)

            monkeypatch.setattr(ResultLayout, "_merge", merging)
            with pytest.raises(KeyboardInterrupt):
                write(layout, ["r3", "s3"])
            monkeypatch.setattr(ResultLayout, "_merge", merge)
            layout.clear()
            layout.recover()
        write(layout, ["r3", "s3"])
        parts = {path.stem for path in files_in(layout.out, VERDICTS)} - {ALL, "empty"}
        assert len(parts) == 1
        assert set(runs_table(layout.out).column("part").to_pylist()) == parts
        assert verdicts(layout.out) == {f"{k}{n}": ["kept"] * 2 for k in "rs" for n in range(4)}
        assert len(read_table(layout.out, MEASURES)) == 8


@pytest.mark.parametrize("name", ["plain", "", "a b", "é/ü", "x=1", "100%", "[a]*?{b}^", "#'\"\\"])
def test_a_folder_tells_its_protocol(name: str) -> None:
    folder = partition_of(DAYS[0], name)
    assert folder.count("/") == 1 and protocol_of(Path(folder) / "x.parquet") == name


def test_a_long_name_is_cut_and_stays_its_own() -> None:
    long = [partition_of(DAYS[0], "*" * 200 + end) for end in "ab"]
    assert long[0] != long[1]
    assert all(len(name.rpartition("/")[2].encode()) <= 255 for name in long)


def test_what_only_has_a_schema_is_read(tmp_path: Path) -> None:
    with open_layout(tmp_path / "out") as layout:
        write(layout, ["a"])
        assert read_table(layout.out, "gold/links").num_rows == 0
        assert read_table(layout.out, "gold/links").column_names[:3] == ["run", "protocol", "group"]
        assert files_in(layout.out, RUNS) == [layout.out / RUNS / f"{ALL}.parquet"]
