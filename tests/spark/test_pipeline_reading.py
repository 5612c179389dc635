"""What the pipeline reads and puts aside: damaged, foreign, doubled and older files."""

from __future__ import annotations

import os
import random
import tempfile
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.laws.doctoring import FILES, cut, write_rows
from tests.laws.judged_here import judged_here
from tests.laws.stories import story, write_trace
from tests.trace.test_files import BAD_ROWS, GOOD
from unisono.laws import LAWS, judge_all
from unisono.laws.verdict import verdict_json
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.spark.layout import files_in
from unisono.spark.partitioned import rows_in
from unisono.spark.tasks import Output, write_tables
from unisono.trace import files
from unisono.trace.checks import AFTER_TORN, REPEATED
from unisono.trace.files import TraceFile, trace_files
from unisono.trace.parquet import batch_of, frame_of, writer_to
from unisono.trace.reading import Trace, read_trace


def hostile_directory(top: Path) -> None:
    """Everything that a trace directory should not hold, beside some of what it should."""
    write_trace(story("a: view 1 a b | send | a:1\nb: view 1 a b | a:1", torn="b"), top)
    folder = top / "run=story"
    good = pq.read_table(folder / "a-1.parquet", partitioning=None)
    whole = (folder / "a-1.parquet").read_bytes()
    (folder / "empty.parquet").write_bytes(b"")
    (folder / "garbage.parquet").write_bytes(random.Random(1).randbytes(3000))
    write_rows(folder / "short.parquet", read_trace(folder).runs["story"][:2])
    cut(folder / "short.parquet")
    (folder / "copy.parquet").write_bytes(whole)
    (folder / "folder.parquet").mkdir()
    (folder / "gone.parquet").symlink_to("nowhere")
    (folder / "[a]*?{b}:c %41é<i>.parquet").write_bytes(whole)
    (folder / os.fsdecode(b"not-text-\xff.parquet")).write_bytes(whole)
    pq.write_table(good.drop_columns(["kind"]), folder / "without.parquet")
    pq.write_table(good.set_column(4, "step", good["kind"]), folder / "words.parquet")
    (top / "run=odd <script>").mkdir()
    odd = top / "run=odd <script>"
    # Other tools write other types, other codecs, and columns of their own.
    narrow = good.set_column(3, "incarnation", good["incarnation"].cast(pa.int32()))
    pq.write_table(narrow.append_column("KIND", good["step"]), odd / "narrow.parquet")
    pq.write_table(good, odd / "z.parquet", compression="brotli", use_dictionary=False)
    bad = [row if row.step == -1 else row._replace(step=n) for n, (row, _) in enumerate(BAD_ROWS)]
    newline = GOOD._replace(service="resilient(2)\n", step=80)
    view = GOOD._replace(kind="view", step=81, members=("a#1\n",))
    with writer_to(odd / "bad.parquet") as writer:
        writer.write_batch(batch_of([*bad, newline, view, GOOD._replace(step=90)]))
    file = TraceFile(top, "steps", "a", 1, row_count_max=2)
    for step in (0, 5, 5, 3, 6, 6, 7):
        file.write(GOOD._replace(step=step))
    file.close()
    os.mkfifo(folder / "pipe.parquet")
    nameless = top / os.fsdecode(b"run=\xff\xfe")
    nameless.mkdir()
    (nameless / os.fsdecode(b"\xfe.parquet")).write_bytes(whole)
    for item in FILES:
        item.write(top)
    # A life in two chains, of which the first lost its end, the second its beginning.
    life = [GOOD._replace(step=step) for step in range(9)]
    (top / "run=chains").mkdir()
    for name, rows in {"a": life[:3], "b.s000001": life[3:6], "c": life[6:]}.items():
        write_rows(top / "run=chains" / f"{name}.parquet", rows)
    (top / "run=chains" / "a.s000001.parquet").write_bytes(b"")
    (top / "run=").mkdir()
    (top / "run=" / "a.parquet").write_bytes(whole)


def damaged(source: Path, top: Path, seed: int) -> None:
    """A real trace with some of its files gone, or cut, or with bits turned over."""
    dice = random.Random(seed)
    for path in sorted(source.glob("run=*/*.parquet")):
        data = bytearray(path.read_bytes())
        if dice.random() < 0.1:
            continue
        if dice.random() < 0.2:
            del data[dice.randrange(len(data)) :]
        elif dice.random() < 0.2:
            for _ in range(dice.randrange(1, 4)):
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        target = top / f"{path.parent.name}-{seed}" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def assert_reads_alike(spark: Any, directory: Path) -> Trace:
    trace = read_trace(directory)
    with tempfile.TemporaryDirectory() as top:
        output = Output(top, "part", silver=True, going_on=False)
        files = trace_files(directory)
        days = dict.fromkeys((file.run for file in files), date(2026, 5, 1))
        write_tables(spark, files, days, {}, output)
        events, found = defaultdict(list), []
        for path in files_in(Path(top), "bronze/events"):
            for row in rows_in(path, "bronze/events").to_pylist():
                events[row["run"]].append(tuple(row.values())[1:])
        for path in files_in(Path(top), "bronze/quarantine"):
            rows = rows_in(path, "bronze/quarantine").to_pylist()
            found += [(row["path"], row["row"], row["reason"]) for row in rows]
    for mine in events.values():
        mine.sort(key=lambda row: row[2:5])
    plain = {
        run: [tuple(list(v) if isinstance(v, tuple) else v for v in row) for row in rows]
        for run, rows in trace.runs.items()
    }
    assert dict(events) == plain
    assert sorted(found, key=str) == sorted(
        ((q.path, q.row, q.reason) for q in trace.quarantined), key=str
    )
    assert ends_of(directory) == {
        (history.run, history.protocol, history.group, life.key): life.end
        for history in trace.histories()
        for life in history.lives.values()
    }
    return trace


def ends_of(directory: Path) -> dict[tuple[str, ...], str]:
    """How each life ended, as the judge has it."""
    rows = [row for row in judged_here(directory, {}) if row["what"] == "life"]
    return {(row["run"], row["protocol"], row["group"], row["life"]): row["end"] for row in rows}


def test_a_hostile_directory_reads_as_in_process(spark: Any, tmp_path: Path) -> None:
    hostile_directory(tmp_path)
    trace = assert_reads_alike(spark, tmp_path)
    assert {reason for *_, reason in trace.quarantined} >= {reason for _, reason in BAD_ROWS}
    assert trace.events > 10


def test_damaged_traces_read_as_in_process(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SEGMENT_GROUPS_MAX", 2)
    run(Plan(protocol="rmcast", nodes=4, seed=3, messages=60, trace=tmp_path / "sound"))
    for seed in range(8):
        damaged(tmp_path / "sound", tmp_path / "damaged", seed)
    trace = assert_reads_alike(spark, tmp_path / "damaged")
    assert {reason for *_, reason in trace.quarantined} >= {AFTER_TORN}
    assert trace.torn


def test_each_bad_thing_is_named_and_the_rest_is_judged(spark: Any, tmp_path: Path) -> None:
    from unisono.spark import pipeline
    from unisono.spark.partitioned import read_table

    top, laws = tmp_path / "trace", ["fifo", "no_creation"]
    hostile_directory(top)
    whole = (top / "run=story" / "a-1.parquet").read_bytes()
    (top / "run=story" / "cut.parquet").write_bytes(whole[:-20])
    table = pq.read_table(top / "run=story" / "a-1.parquet", partitioning=None)
    pq.write_table(pa.table({"x": [1]}), top / "run=story" / "other.parquet")
    minus = table.set_column(4, "step", pa.array([-1] * table.num_rows, pa.int64()))
    pq.write_table(minus, top / "run=story" / "minus.parquet")
    trace = read_trace(top)
    protocols = {history.protocol for history in trace.histories()}
    claimed = dict.fromkeys(protocols, laws)
    result = pipeline.run_pipeline(spark, top, tmp_path / "out", claimed, silver=False)
    plain = judge_all(trace.histories(), lambda protocol: laws)
    assert result.as_json() == {
        "runs": {name: verdict_json(verdict) for name, verdict in sorted(plain.items())},
        "events": trace.events,
        "quarantined": len(trace.quarantined),
        "contradicted": {},
        "processed": len(result.processed),
        "skipped": 0,
    }
    told = read_table(tmp_path / "out", "bronze/quarantine").to_pylist()
    found = {(row["path"], row["row"], row["reason"]) for row in told}
    assert found == {(each.path, each.row, each.reason) for each in trace.quarantined}
    reasons = {path.removeprefix("run=story/"): reason for path, _, reason in found}
    expected = {
        "empty.parquet": "torn, or no Parquet: no whole row group in it",
        "garbage.parquet": "torn, or no Parquet: no whole row group in it",
        "other.parquet": "foreign: no column protocol",
        "without.parquet": "foreign: no column kind",
        "words.parquet": "foreign: column step is string, not int64",
        "minus.parquet": "no step, or a negative one",
        "copy.parquet": REPEATED,
        "folder.parquet": "not a regular file",
        "pipe.parquet": "not a regular file",
    }
    assert {name: reasons[name] for name in expected} == expected
    assert reasons["cut.parquet"].startswith("unreadable: ")
    said = {(row, reason) for path, row, reason in found if path == "run=story/short.parquet"}
    assert any(row is None and reason.startswith("torn: ") for row, reason in said)
    assert (0, REPEATED) in said, "what can be read of it is a copy"


def test_other_columns_are_passed_over_and_each_of_the_schema_is_needed(
    spark: Any, tmp_path: Path
) -> None:
    rows = list(story("a: view 1 a | send | a:1 | send | a:2", run="now").rows)
    good = pa.Table.from_batches([batch_of(rows)])
    colours = pa.array(["red"] * good.num_rows)
    for run_, table in (
        ("more", good.append_column("colour", colours)),
        ("fewer", good.drop_columns(["detail"])),
    ):
        path = tmp_path / f"run={run_}" / "a-1.parquet"
        path.parent.mkdir()
        pq.write_table(table, path, compression="zstd", store_schema=False)
    trace = assert_reads_alike(spark, tmp_path)
    assert trace.runs == {"more": rows}
    assert [each.reason for each in trace.quarantined] == ["foreign: no column detail"]


def test_what_was_not_judged_and_what_is_told_in_two_ways_is_counted(
    spark: Any, tmp_path: Path
) -> None:
    """As `verify` counts it, also when nothing has changed since the tables were made."""
    from unisono.spark.pipeline import run_pipeline

    told = story("a: view 1 a b | send | a:1\nb: view 1 a b | a:1", run="two ways")
    rows = [row for row in told.rows if row.node == "b"]
    write_trace(told, tmp_path / "trace")
    folder = tmp_path / "trace" / "run=two%20ways"
    write_rows(folder / "b-1x.parquet", [rows[0], rows[1]._replace(digest=7)])
    write_trace(story("a: view 1 a | send | a:1", run="torn"), tmp_path / "trace")
    path = tmp_path / "trace" / "run=torn" / "a-1.parquet"
    rows = read_trace(path.parent).runs["torn"]
    path.write_bytes(frame_of(batch_of(rows)) + b"rows")
    lost = story("a: view 1 a b | send\nb: view 1 a b | a:1", run="lost")
    write_trace(lost, tmp_path / "trace")
    damaged = [row._replace(kind="?") if row.kind == "send" else row for row in lost.rows]
    mine = [row for row in damaged if row.node == "a"]
    write_rows(tmp_path / "trace" / "run=lost" / "a-1.parquet", mine)
    trace = read_trace(tmp_path / "trace")
    assert (len(trace.quarantined), len(trace.unjudged)) == (4, 3), "the end of a file is one"
    plain = judge_all(trace.histories(), lambda protocol: list(LAWS))["lost"]
    assert plain.uncertain and plain.violations
    for _ in range(2):
        result = run_pipeline(spark, tmp_path / "trace", tmp_path / "out", {"story": list(LAWS)})
        assert result.quarantined == len(trace.quarantined)
        assert result.unjudged_by_run == {"lost": 1, "torn": 0, "two ways": 2}
        assert result.as_json()["contradicted"] == {"two ways": ["b#1"]}
        assert all(verdict.kept for verdict in result.verdicts.values())
        assert not result.kept
        assert result.verdicts["lost"] == plain
    assert "two files differ about <code>b#1</code>" in result.report.read_text()
