"""The pipeline: what it reads and puts aside, what it measures, what it says when it cannot."""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.laws.doctoring import FILES, write_rows
from tests.laws.stories import story, write_trace
from tests.trace.test_files import BAD_ROWS, GOOD
from unisono.errors import BadTrace, Misuse
from unisono.laws import judge_all
from unisono.laws.verdict import verdict_json
from unisono.protocols import offers
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.spark.measures import QUANTILES
from unisono.spark.places import SUMMARY, TABLES
from unisono.trace import files
from unisono.trace.checks import AFTER_TORN
from unisono.trace.files import Trace, TraceFile, read_trace
from unisono.trace.parquet import batch_of, writer_to

pytestmark = pytest.mark.timeout(240)
CLAIMED = {name: offer.laws for name, offer in offers().items()}
DOCS = Path(__file__).parents[2] / "docs" / "PIPELINE.md"


def hostile_directory(top: Path) -> None:
    """Everything that a trace directory should not hold, beside some of what it should."""
    write_trace(story("a: view 1 a b | send | a:1\nb: view 1 a b | a:1", torn="b"), top)
    folder = top / "run=story"
    good = pq.read_table(folder / "a-1.parquet", partitioning=None)
    whole = (folder / "a-1.parquet").read_bytes()
    (folder / "empty.parquet").write_bytes(b"")
    (folder / "garbage.parquet").write_bytes(random.Random(1).randbytes(3000))
    (folder / "short.parquet").write_bytes(whole[: len(whole) // 2])
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
    wide = good.set_column(3, "incarnation", good["incarnation"].cast(pa.int64()))
    pq.write_table(wide.append_column("KIND", good["step"]), odd / "wide.parquet")
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


def assert_reads_alike(spark: Any, directory: Path, alone: bool) -> Trace:
    from unisono.spark.bronze import read_bronze

    trace = read_trace(directory)
    bronze = read_bronze(spark, directory, alone)
    bronze.checked.persist()
    try:
        events = defaultdict(list)
        for row in bronze.events.orderBy("run", "node", "incarnation", "step").collect():
            events[row.run].append(tuple(row)[1:])
        found = [(row.path, row.row, row.reason) for row in bronze.quarantine.collect()]
        torn = {(row.run, f"{row.node}#{row.incarnation}") for row in bronze.torn.collect()}
    finally:
        bronze.checked.unpersist()
    plain = {
        run: [tuple(list(v) if isinstance(v, tuple) else v for v in row) for row in rows]
        for run, rows in trace.runs.items()
    }
    assert dict(events) == plain
    assert sorted(found, key=str) == sorted(
        ((q.path, q.row, q.reason) for q in trace.quarantined), key=str
    )
    assert torn == {(run, life) for run, lives in trace.torn.items() for life in lives}
    return trace


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "shared"])
def test_a_hostile_directory_reads_as_in_process(spark: Any, tmp_path: Path, alone: bool) -> None:
    hostile_directory(tmp_path)
    trace = assert_reads_alike(spark, tmp_path, alone)
    assert {reason for *_, reason in trace.quarantined} >= {reason for _, reason in BAD_ROWS}
    assert trace.events > 10


def test_damaged_traces_read_as_in_process(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SEGMENT_GROUPS_MAX", 2)
    run(Plan(protocol="rmcast", nodes=4, seed=3, messages=60, trace=tmp_path / "sound"))
    for seed in range(8):
        damaged(tmp_path / "sound", tmp_path / "damaged", seed)
    trace = assert_reads_alike(spark, tmp_path / "damaged", True)
    assert {reason for *_, reason in trace.quarantined} >= {AFTER_TORN}
    assert trace.torn


# -- the whole pipeline --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, list[str]]:
    from unisono.spark.pipeline import run_pipeline

    top = tmp_path_factory.mktemp("pipe [x]*")
    for seed in (1, 2):
        plan = Plan(protocol="rmcast", nodes=4, seed=seed, messages=60, trace=top / "trace")
        run(plan)
    plan = Plan(protocol="rmcast", nodes=3, faults="none", trace=top / "trace", detail=True)
    run(plan)
    (top / "trace" / f"run={plan.run_name}" / "<img src=x>.parquet").write_text("no Parquet")
    said: list[str] = []
    return top, run_pipeline(spark, top / "trace", top / "out", CLAIMED, said.append), said


def test_the_json_is_that_of_verify(made: tuple[Path, Any, list[str]]) -> None:
    top, result, said = made
    trace = read_trace(top / "trace")
    plain = judge_all(trace.histories(), lambda protocol: CLAIMED[protocol])
    assert json.loads(json.dumps(result.as_json())) == {
        "runs": {name: verdict_json(verdict) for name, verdict in sorted(plain.items())},
        "events": trace.events,
        "quarantined": len(trace.quarantined),
        "processed": 3,
        "skipped": 0,
    }
    assert result.kept
    assert said


def test_measures_are_those_of_plain_python(made: tuple[Path, Any, list[str]]) -> None:
    top, result, _ = made
    trace = read_trace(top / "trace")
    assert [row["run"] for row in result.measures] == sorted(trace.runs)
    for row in result.measures:
        rows = trace.runs[row["run"]]
        sends = [each for each in rows if each.kind == "send"]
        delivered = [each for each in rows if each.kind == "deliver"]
        sent = {(each.sender, each.sender_incarnation, each.number): each.t_us for each in sends}
        late = sorted(d.t_us - sent[d[8:11]] for d in delivered if d[8:11] in sent)
        times = defaultdict(list)
        for each in sends + delivered:
            times[each[2:4]].append(each.t_us)
        span = sum(max(ts) - min(ts) for ts in times.values())
        assert row["sent"] == len(sends)
        assert row["delivered"] == len(delivered)
        assert row["views"] == sum(each.kind == "view" for each in rows)
        assert row["messages_per_s"] == pytest.approx(len(delivered) * 1e6 / span)
        assert row["mb_per_s"] == pytest.approx(sum(d.size or 0 for d in delivered) / span)
        assert row["octets"] == sum(d.size or 0 for d in delivered)
        assert row["members"] == max(len(each.members or ()) for each in rows)
        for name, part in QUANTILES.items():
            assert row[name] == late[math.ceil(part * len(late)) - 1], name


class Tags(HTMLParser):
    """Which tags and outside addresses a page has."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "onerror")]


def test_the_report_stands_alone_and_escapes(made: tuple[Path, Any, list[str]]) -> None:
    _, result, _ = made
    text = result.report.read_text()
    page = Tags()
    page.feed(text)
    assert not page.tags & {"script", "img", "link", "iframe"}
    assert page.addresses == []
    assert "url(" not in text and "http" not in text
    assert "&lt;img src=x&gt;.parquet" in text
    assert text.count('role="img"') == 2
    for name in result.verdicts:
        assert name in text


def test_the_tables_can_be_read_as_the_docs_say(spark: Any, made: tuple[Path, Any, Any]) -> None:
    top, result, _ = made
    (example,) = re.findall(r"```python\n(# The slowest.*?)```", DOCS.read_text(), re.DOTALL)
    shown: dict[str, Any] = {"spark": spark, "out": str(top / "out").replace("[x]*", "?x??")}
    exec(example, shown)
    assert shown["slowest"].count() == 10
    assert {"data", "beat"} <= {row.word for row in shown["sent"].collect()}
    assert shown["edges"].count() > 50
    assert spark.read.parquet(shown["out"] + "/bronze/events").count() == result.events
    lines = re.findall(r"^\| `(\w+/\w+)` \|.*\| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    assert {name for name, _ in lines} == {*TABLES, SUMMARY}
    for name, columns in lines:
        told = re.findall(r"`(\w+)`", columns.partition(": `kept`")[0])
        run = [] if name == SUMMARY else ["run"]
        assert spark.read.parquet(f"{shown['out']}/{name}").columns == told + run, name


def test_packets_are_told_apart(spark: Any, made: tuple[Path, Any, Any]) -> None:
    top, *_ = made
    rows = [row for rows in read_trace(top / "trace").runs.values() for row in rows]
    packets = spark.read.parquet(str(top / "out" / "silver" / "packets").replace("[x]*", "?x??"))
    for kind in ("packet_out", "packet_in"):
        wanted = [(r.digest, r.size, r.peer, r.detail) for r in rows if r.kind == kind]
        mine = packets.where(packets.kind == kind).select("digest", "size", "peer", "detail")
        assert sorted(map(tuple, mine.collect())) == sorted(wanted)
        assert wanted and all(all(each) for each in wanted)


# -- mistakes ------------------------------------------------------------------------------------


def test_a_killed_pipeline_is_cleared_away_and_one_at_work_is_not(tmp_path: Path) -> None:
    from unisono.spark.places import MARK, places

    old, foreign = tmp_path / ".pipeline-killed", tmp_path / ".pipeline-of-theirs"
    (old / "events").mkdir(parents=True)
    (old / MARK).touch()
    foreign.mkdir()
    with places(tmp_path) as where:
        assert sorted(tmp_path.iterdir()) == sorted([where.scratch, foreign])
        with pytest.raises(Misuse, match="another pipeline works there"), places(tmp_path):
            pass
        assert where.scratch.exists()
    assert list(tmp_path.iterdir()) == [foreign]
    with places(tmp_path) as where:
        assert where.scratch.exists()


def test_mistakes_get_one_clear_line(spark: Any, tmp_path: Path) -> None:
    from unisono.spark.pipeline import run_pipeline
    from unisono.spark.places import MARK

    write_trace(story("a: view 1 a"), tmp_path / "trace")
    (tmp_path / "file").write_text("")
    (tmp_path / "mine" / "gold").mkdir(parents=True)
    for name in ("page", "plain", "linked", "turned"):
        (tmp_path / name).mkdir()
    (tmp_path / "page" / "report.html").write_text("my own")
    # These three were ours once, and someone put other things in the places of tables.
    for name in ("plain", "linked", "turned"):
        (tmp_path / name / MARK).touch()
    (tmp_path / "plain" / "silver").mkdir()
    (tmp_path / "plain" / "silver" / "views").write_text("my own")
    (tmp_path / "linked" / "bronze").symlink_to(tmp_path / "mine")
    (tmp_path / "turned" / "report.html").mkdir()
    cases: list[tuple[str, str, dict[str, list[str]], type[Exception], str]] = [
        ("none", "out", {}, BadTrace, "no such directory"),
        ("file", "out", {}, BadTrace, "not a directory"),
        ("mine", "out", {}, BadTrace, "no trace in it"),
        ("trace", "file", {}, Misuse, "cannot write there"),
        ("trace", "file/deeper", {}, Misuse, "cannot write there"),
        ("trace", "mine", {}, Misuse, "mine/gold is there already and is not of our making"),
        ("trace", "page", {}, Misuse, "page/report.html is there already and is not of our making"),
        (
            "trace",
            "plain",
            {},
            Misuse,
            "plain/silver/views is there already and is not of our making",
        ),
        ("trace", "linked", {}, Misuse, "linked/bronze is there already and is not of our making"),
        ("trace", "turned", {}, Misuse, "turned/report.html is there already"),
        ("trace", "out", {"story": ["gravity"]}, Misuse, "no law gravity"),
    ]
    for source, out, claimed, kind, why in cases:
        with pytest.raises(kind, match=why) as caught:
            run_pipeline(spark, tmp_path / source, tmp_path / out, claimed)
        assert "\n" not in str(caught.value)
    assert list((tmp_path / "mine").iterdir()) == [tmp_path / "mine" / "gold"]
    assert (tmp_path / "page" / "report.html").read_text() == "my own"
    assert list((tmp_path / "page").iterdir()) == [tmp_path / "page" / "report.html"]
    assert not list(tmp_path.glob("out/.pipeline-*"))
