"""The pipeline: what it reads and puts aside, what it measures, what it says when it cannot."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.laws.stories import story, write_trace
from unisono.errors import BadTrace, Misuse
from unisono.laws import judge_all
from unisono.laws.verdict import verdict_json
from unisono.model import Resilient
from unisono.protocols import specs
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.spark.curves import class_of
from unisono.spark.layout import ALL, JOINT, TABLES, files_in
from unisono.spark.measures import BINS, CURVE, QUANTILES, WORK
from unisono.spark.partitioned import rows_in
from unisono.trace.history import life_of, message_of, number_of, sender_of
from unisono.trace.reading import read_trace
from unisono.trace.record import WORK_KINDS

CLAIMED = {name: spec.laws for name, spec in specs().items()}
DOCS = Path(__file__).parents[2] / "docs" / "SPARK.md"


# -- the whole pipeline --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, list[str]]:
    from unisono.spark.pipeline import run_pipeline

    top = tmp_path_factory.mktemp("pipe [x]*")
    run(Plan(protocol="rmcast", nodes=4, seed=1, messages=60, trace=top / "trace"))
    crash = {"nodes": 4, "seed": 3, "faults": "crash", "messages": 60, "detail": True}
    for protocol, service in (("rmp", Resilient(2)), ("ring", None), ("mtp", None)):
        plan = Plan(protocol=protocol, service=service, trace=top / "trace", **crash)
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
        "contradicted": {},
        "processed": 4,
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
        for name, (part, of) in QUANTILES.items():
            assert row[name] == late[-(-part * len(late) // of) - 1], name


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
    assert all(address.startswith("#") for address in page.addresses if address)
    assert "url(" not in text and "http" not in text
    assert "&lt;img src=x&gt;.parquet" in text
    pictures = re.findall(r"<svg [^>]*>", text)
    assert all('role="img"' in each or 'aria-hidden="true"' in each for each in pictures)
    assert text.count('role="img"') > 2
    for name in result.verdicts:
        assert name in text


def test_the_tables_can_be_read_as_the_docs_say(spark: Any, made: tuple[Path, Any, Any]) -> None:
    top, result, _ = made
    (example,) = re.findall(r"```python\n(# The slowest.*?)```", DOCS.read_text(), re.DOTALL)
    shown: dict[str, Any] = {"spark": spark, "out": str(top / "out").replace("[x]*", "?x??")}
    exec(example, shown)
    assert shown["slowest"].count() == 10
    assert {"data", "token"} <= {row.word for row in shown["sent"].collect()}
    assert shown["edges"].count() > 50
    assert spark.read.parquet(shown["out"] + "/bronze/events").count() == result.events
    lines = re.findall(r"^\| `(\w+/\w+)` \|.*\| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    assert {name for name, _ in lines} == {*TABLES, *JOINT}
    for name, columns in lines:
        told = re.findall(r"`(\w+)`", columns.partition(": `kept`")[0])
        keys = [] if name in JOINT else ["run", "date"]
        columns = spark.read.parquet(f"{shown['out']}/{name}").columns
        assert sorted(columns) == sorted(told + keys), name


def test_every_table_is_read_by_pandas_polars_duckdb_and_spark(
    spark: Any, made: tuple[Path, Any, Any]
) -> None:
    import duckdb
    import pandas as pd
    import polars

    out = made[0] / "out"
    for name in (*TABLES, *JOINT):
        rows = sum(pq.read_metadata(path).num_rows for path in (out / name).glob("**/*.parquet"))
        assert len(pd.read_parquet(out / name)) == rows, name
        pattern = str(out / name).replace("[x]*", "?x??")
        files = f"read_parquet('{pattern}/**/*.parquet', hive_partitioning=true)"
        scanned = polars.scan_parquet(f"{pattern}/**/*.parquet", hive_partitioning=True)
        assert scanned.select(polars.len()).collect().item() == rows, name
        assert duckdb.sql(f"SELECT count(*) FROM {files}").fetchall() == [(rows,)], name
        assert spark.read.parquet(pattern).count() == rows, name


def test_packets_are_told_apart(spark: Any, made: tuple[Path, Any, Any]) -> None:
    top, *_ = made
    rows = [row for rows in read_trace(top / "trace").runs.values() for row in rows]
    packets = spark.read.parquet(str(top / "out" / "silver" / "packets").replace("[x]*", "?x??"))
    for kind in ("packet_out", "packet_in"):
        wanted = [(r.digest, r.size, r.peer, r.detail) for r in rows if r.kind == kind]
        mine = packets.where(packets.kind == kind).select("digest", "size", "peer", "detail")
        assert sorted(map(tuple, mine.collect())) == sorted(wanted)
        assert wanted and all(all(each) for each in wanted)


# -- gold ----------------------------------------------------------------------------------------


def table(made: tuple[Path, Any, Any], name: str) -> list[dict[str, Any]]:
    """The rows of a table; those about all runs have none."""
    rows = [
        row for path in files_in(made[0] / "out", name) for row in rows_in(path, name).to_pylist()
    ]
    return [{**row, "run": None if row["run"] == ALL else row["run"]} for row in rows]


TOKEN_ACTIONS = ("take_turn--> WAITACK", "use_token--> MEMBER", "accept--> TOKEN_SITE")
"""Of each protocol, the action by which a member has the token."""


def test_work_is_measured_where_it_was_traced(made: tuple[Path, Any, Any]) -> None:
    trace = read_trace(made[0] / "trace")
    measures = table(made, "gold/measures")
    assert sum(row["packets_out"] is None for row in measures) == 5, "rmcast, and its four nodes"
    for row in measures:
        if row["protocol"] == "rmcast":
            assert {row[name] for name in WORK} == {None}
            continue
        rows = [each for each in trace.runs[row["run"]] if row["node"] in (None, each.node)]
        of = {kind: [each for each in rows if each.kind == kind] for kind in WORK_KINDS}
        assert row["packets_out"] == len(of["packet_out"])
        assert row["octets_out"] == sum(each.size or 0 for each in of["packet_out"])
        for name, kind in {"retransmissions": "repair", "naks": "nak", "drops": "drop"}.items():
            assert row[name] == sum(each.number or 0 for each in of[kind])
        held = defaultdict(list)
        for each in of["arrow"]:
            action = (each.detail or "").split("/")[-1]
            if action in TOKEN_ACTIONS:
                held[each.node, each.incarnation].append(each.t_us)
        apart = sorted(b - a for times in held.values() for a, b in pairwise(times))
        median = apart[math.ceil(len(apart) / 2) - 1] if apart else None
        assert row["token_rotation_p50_us"] == median
        assert row["token_rotation_max_us"] == max(apart, default=None)
    whole = {row["protocol"]: row for row in measures if row["node"] is None}
    assert whole["ring"]["retransmissions"] and whole["ring"]["token_rotation_p50_us"]
    assert whole["mtp"]["token_rotation_p50_us"] and whole["rmp"]["token_rotation_p50_us"]


def test_parents_are_the_frontier_of_what_was_known(made: tuple[Path, Any, Any]) -> None:
    trace = read_trace(made[0] / "trace")
    found = {(row["run"], row["message"]): row["parents"] for row in table(made, "silver/sends")}
    expected = {}
    for history in trace.histories():
        for life in history.lives.values():
            fresh: dict[str, int] = {}
            own: list[str] = []
            for row in life.events:
                if row.kind == "deliver" and sender_of(row) != life.key:
                    fresh[sender_of(row)] = max(number_of(row), fresh.get(sender_of(row), 0))
                elif row.kind == "send":
                    names = own + [f"{source}:{number}" for source, number in fresh.items()]
                    expected[history.run, message_of(row)] = sorted(names)
                    own, fresh = [message_of(row)], {}
    assert found == expected
    assert max(map(len, expected.values())) > 2


def test_recoveries_tell_who_was_lost_and_how_long_it_took(made: tuple[Path, Any, Any]) -> None:
    trace = read_trace(made[0] / "trace")
    expected = {}
    for history in trace.histories():
        seen: dict[str, dict[str, Any]] = defaultdict(dict)
        for life in history.lives.values():
            for before, view in pairwise(life.views):
                for lost in set(before.members or ()) - set(view.members or ()) - {life.key}:
                    heard = [d.t_us for d in life.deliveries if d.step > view.step]
                    first = min(heard, default=None)
                    seen[lost][life.key] = (view.view, view.t_us, first)
        for lost, by in seen.items():
            end = history.lives[lost].end
            (at,) = [
                row.t_us for row in history.rows
                if life_of(row) == lost and row.kind in ("crash", "leave")
            ] or [None]  # fmt: skip
            last = max(us for _, us, _ in by.values())
            passed = None if at is None else max(last - at, 0)
            expected[history.run, lost] = (end, at, by, passed)
    found = {}
    for row in table(made, "gold/recoveries"):
        by = {s["survivor"]: (s["view"], s["view_us"], s["delivery_us"]) for s in row["survivors"]}
        found[row["run"], row["life"]] = (row["what"], row["at_us"], by, row["recovery_us"])
    assert found == expected
    assert {"left", "crashed"} <= {what for what, *_ in found.values()}
    assert any(passed and len(by) > 1 for _, _, by, passed in found.values())


def test_stability_is_from_the_delivery_at_the_same_member(made: tuple[Path, Any, Any]) -> None:
    expected: Counter[tuple[str, str | None, int]] = Counter()
    for history in read_trace(made[0] / "trace").histories():
        for life in history.lives.values():
            heard = {message_of(row): row.t_us for row in reversed(life.deliveries)}
            for row in life.rows:
                if row.kind == "stable" and message_of(row) in heard:
                    us = class_of(max(row.t_us - heard[message_of(row)], 0))
                    expected[history.run, row.service, us] += 1
    assert {service for _, service, _ in expected} == {"resilient(2)"}
    rows = table(made, "gold/stabilities")
    assert {(r["run"], r["service"], r["stability_us"]): r["messages"] for r in rows} == expected


def test_curves_and_summary_follow_from_the_runs(made: tuple[Path, Any, Any]) -> None:
    measures = {row["run"]: row for row in table(made, "gold/measures") if row["node"] is None}
    for row in table(made, "gold/latency_curves"):
        of = [m for run, m in measures.items() if m["protocol"] == row["protocol"]]
        curve = dict(zip(CURVE, row["quantiles"], strict=True))
        for name, (part, whole) in QUANTILES.items():
            assert 0.99 * of[0][name] < curve[part / whole] <= of[0][name], name
    rates = table(made, "gold/rate_curves")
    for of_run in (None, *measures):
        mine = [row for row in rates if row["run"] == of_run]
        delivered = sum(m["delivered"] for each, m in measures.items() if of_run in (None, each))
        assert sum(row["deliveries"] for row in mine) == pytest.approx(delivered)
        assert all(0 <= row["bin"] < BINS and row["rate"] > 0 for row in mine)
    summary = made[1].summary
    assert [(row["protocol"], row["runs"], row["kept"]) for row in summary] == [
        ("mtp", 1, 1), ("ring", 1, 1), ("rmcast", 1, 1), ("rmp", 1, 1)
    ]  # fmt: skip
    for row in summary:
        (whole,) = (m for m in measures.values() if m["protocol"] == row["protocol"])
        assert row["members"] == whole["members"] == 4
        assert row["size"] / 2 < whole["octets"] / whole["delivered"] <= row["size"]
        for name in ("sent", "delivered", "packets_out", "naks", "max_us", "messages_per_s"):
            assert row[name] == whole[name], name


# -- mistakes ------------------------------------------------------------------------------------


def test_a_killed_pipeline_is_cleared_away_and_one_at_work_is_not(tmp_path: Path) -> None:
    from unisono.spark.layout import MARK
    from unisono.spark.publishing import open_layout

    old, foreign = tmp_path / ".pipeline-killed", tmp_path / ".pipeline-of-theirs"
    (old / "events").mkdir(parents=True)
    (old / MARK).touch()
    foreign.mkdir()
    with open_layout(tmp_path) as where:
        assert sorted(tmp_path.iterdir()) == sorted([where.scratch, foreign])
        with pytest.raises(Misuse, match="in use by another pipeline"), open_layout(tmp_path):
            pass
        assert where.scratch.exists()
    assert list(tmp_path.iterdir()) == [foreign]
    with open_layout(tmp_path) as where:
        assert where.scratch.exists()


def test_mistakes_get_one_clear_line(spark: Any, tmp_path: Path) -> None:
    from unisono.spark.layout import MARK
    from unisono.spark.pipeline import run_pipeline

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
        ("trace", "mine", {}, Misuse, "mine/gold exists and is not a pipeline's"),
        ("trace", "page", {}, Misuse, "page/report.html exists and is not a pipeline's"),
        (
            "trace",
            "plain",
            {},
            Misuse,
            "plain/silver/views exists and is not a pipeline's",
        ),
        ("trace", "linked", {}, Misuse, "linked/bronze exists and is not a pipeline's"),
        ("trace", "turned", {}, Misuse, "turned/report.html exists"),
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
