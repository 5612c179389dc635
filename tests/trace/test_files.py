"""Trace files: what is written is read, and what is not a trace is said to be none."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness import output_of
from tests.laws.doctoring import cut
from tests.laws.stories import DOCTORED, SOUND
from tests.laws.telling import story, write_trace
from unisono.errors import BadTrace, Misuse
from unisono.laws import LAWS, judge
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.trace import files
from unisono.trace.checks import ABOUT_MESSAGES, AFTER_TORN, KINDS, REPEATED, VIEWS
from unisono.trace.files import SCHEMA, TraceFile, clear_run, safe_name
from unisono.trace.parquet import batch_of, writer_to
from unisono.trace.reading import Quarantined, read_trace
from unisono.trace.record import Row
from unisono.trace.row_checks import ROW_CHECKS

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
I32 = st.integers(0, 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
LIFE = 2**63 - 1
"""The largest incarnation."""


@st.composite
def rows_of_one_life(draw: st.DrawFn) -> list[Row]:
    node = draw(WORDS.filter(bool))
    count = draw(st.integers(1, 20))
    rows = []
    for step in range(count):
        kind = draw(st.sampled_from(sorted(KINDS - {*ABOUT_MESSAGES, *VIEWS, "receipt"})))
        row = Row("p", "g", node, LIFE, step, draw(st.integers(0, 2**40)), kind, draw(WORDS))
        rows.append(
            row._replace(
                number=draw(st.none() | I64),
                seq=draw(st.none() | I64),
                size=draw(st.none() | I32),
                digest=draw(st.none() | I64),
                members=draw(st.none() | st.lists(WORDS, max_size=3).map(tuple)),
                peer=draw(st.none() | WORDS),
                detail=draw(st.none() | WORDS),
                joined=draw(st.none() | st.lists(WORDS, max_size=3).map(tuple)),
                changes=draw(st.none() | st.lists(WORDS, max_size=3).map(tuple)),
            )
        )
    return rows


@given(rows=rows_of_one_life(), name=WORDS.filter(bool), row_count_max=st.integers(1, 9))
@settings(max_examples=60)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], name: str, row_count_max: int
) -> None:
    directory = tmp_path_factory.mktemp("trace")
    file = TraceFile(directory, name, rows[0].node, LIFE, row_count_max)
    for row in rows:
        file.write(row)
    file.close()
    file.close()
    assert file.path.resolve().is_relative_to(directory.resolve())
    trace = read_trace(directory)
    assert trace.runs == {name: rows}
    assert (trace.events, trace.quarantined, trace.torn) == (len(rows), [], {})
    assert read_trace(file.path.parent).runs == trace.runs


@pytest.mark.parametrize(
    "name", ["a/b", "..", ".hidden", "_x", "two words", "naïve", "a\0b", "x" * 999, "ü" * 200]
)
def test_odd_names_make_harmless_files(tmp_path: Path, name: str) -> None:
    file = TraceFile(tmp_path, "r", name, 1)
    file.write(Row("p", "g", name, 1, 0, 0, "join"))
    file.close()
    assert file.path.parent == tmp_path / "run=r"
    assert file.path.name[0] not in "._"
    assert read_trace(tmp_path).runs["r"][0].node == name
    assert safe_name(name) == safe_name(name)


def test_long_names_stay_apart() -> None:
    assert safe_name("x" * 999 + "a") != safe_name("x" * 999 + "b")


def test_a_run_needs_a_name(tmp_path: Path) -> None:
    for name in ("", "r" * 999):
        with pytest.raises(Misuse, match="a run is named with 1 to 150 bytes"):
            TraceFile(tmp_path, name, "a", 1)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadTrace, match="cannot write"):
        TraceFile(tmp_path / "file", "r", "a", 1)


def test_rows_are_written_each_second_of_trace_time(tmp_path: Path) -> None:
    file = TraceFile(tmp_path, "r", "a", 1)
    for step in range(26):
        file.write(Row("p", "g", "a", 1, step, step * 100_000, "join"))
    assert read_trace(tmp_path).events == 22, "a group of rows from each second begun"
    file.flush()
    assert read_trace(tmp_path).events == 26
    file.close()


def test_the_schema_is_that_of_the_record(tmp_path: Path) -> None:
    assert tuple(SCHEMA.names) == Row._fields
    write_trace(story("a: view 1 a"), tmp_path)
    table = pq.read_table(next(tmp_path.glob("*/*")), partitioning=None)
    assert table.schema.equals(SCHEMA)


def test_the_same_rows_make_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_trace(SOUND[3].history, tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").glob("*/*"))
    assert files
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes()


def test_verdicts_survive_the_files(tmp_path: Path) -> None:
    told = [item.history for item in DOCTORED] + [item.history for item in SOUND if item[1].rows]
    for history in told:
        write_trace(history, tmp_path)
    trace = read_trace(tmp_path)
    assert trace.quarantined == []
    read = {history.run: history for history in trace.histories()}
    assert len(read) == len(told)
    for history in told:
        assert judge(read[history.run], LAWS) == judge(history, LAWS)


# -- what is no trace ----------------------------------------------------------------------------


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "x.parquet").write_bytes(b"PAR1")
    (tmp_path / "void" / "run=1").mkdir(parents=True)
    for name, why in {
        "missing": "no such directory; give the one",
        "file": "not a directory; give the one",
        "empty": "no trace in it; give a directory with",
        "foreign": "no trace in it",
        "void": "no trace in it",
    }.items():
        with pytest.raises(BadTrace, match=why) as caught:
            read_trace(tmp_path / name)
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "run=1").mkdir(mode=0)
    with pytest.raises(BadTrace, match="cannot be read"):
        read_trace(tmp_path)


# -- quarantine ----------------------------------------------------------------------------------

GOOD = Row("p", "g", "a", 1, 0, 0, "deliver", "1", "b", 1, 1, None, "fifo", 1, 7)
VIEW = Row("p", "g", "a", 1, 0, 0, "view", "1", members=("a#1",))
# fmt: off
BAD_ROWS = [
    (GOOD._replace(protocol=None),              "no protocol or group"),
    (GOOD._replace(group=None),                 "no protocol or group"),
    (GOOD._replace(node=None),                  "no node"),
    (GOOD._replace(node=""),                    "no node"),
    (GOOD._replace(incarnation=None),           "no incarnation, or a negative one"),
    (GOOD._replace(incarnation=-1),             "no incarnation, or a negative one"),
    (GOOD._replace(step=-1),                    "no step, or a negative one"),
    (GOOD._replace(t_us=-1),                    "no time, or a negative one"),
    (GOOD._replace(t_us=None),                  "no time, or a negative one"),
    (GOOD._replace(kind="explode"),             "unknown kind"),
    (GOOD._replace(kind=None),                  "unknown kind"),
    (GOOD._replace(view=None),                  "no view column"),
    (GOOD._replace(sender=None),                "message without sender"),
    (GOOD._replace(sender_incarnation=None),    "message without sender"),
    (GOOD._replace(number=None),                "message without number"),
    (GOOD._replace(number=0),                   "message without number"),
    (GOOD._replace(service=None),               "message without service, or an unknown one"),
    (GOOD._replace(service="resilient(x)"),     "message without service, or an unknown one"),
    (GOOD._replace(digest=None),                "message without size and digest"),
    (GOOD._replace(size=-1),                    "message without size and digest"),
    (GOOD._replace(kind="send"),                "sent in the name of another"),
    (VIEW._replace(view=""),                    "view without id"),
    (VIEW._replace(members=None),               "view without members, or misnamed ones"),
    (VIEW._replace(members=()),                 "view without members, or misnamed ones"),
    (VIEW._replace(members=("a#1", "a")),       "view without members, or misnamed ones"),
    (VIEW._replace(members=("a#1", None)),      "view without members, or misnamed ones"),
    (VIEW._replace(kind="transitional", view=""), "view without id"),
    (GOOD._replace(kind="receipt", sender=None), "receipt without sender or number"),
    (GOOD._replace(kind="receipt", number=0),   "receipt without sender or number"),
]
# fmt: on


def test_bad_rows_are_quarantined_and_good_ones_judged(tmp_path: Path) -> None:
    rows = [GOOD]
    for step, (row, _) in enumerate(BAD_ROWS, 1):
        rows.append(row if row.step == -1 else row._replace(step=step))
    rows.append(GOOD._replace(step=100, number=2))
    (tmp_path / "run=r").mkdir()
    with writer_to(tmp_path / "run=r" / "a-1.parquet") as writer:
        writer.write_batch(batch_of(rows))
    trace = read_trace(tmp_path)
    assert [row.number for row in trace.runs["r"]] == [1, 2]
    name = "run=r/a-1.parquet"
    assert trace.quarantined == [
        Quarantined(name, place, reason) for place, (_, reason) in enumerate(BAD_ROWS, 1)
    ]


def test_every_check_is_seen_to_fail() -> None:
    assert {reason for _, reason in BAD_ROWS} == {check.reason for check in ROW_CHECKS}
    assert len({check.reason for check in ROW_CHECKS}) == len(ROW_CHECKS)


def test_rows_are_judged_where_they_stand_whatever_their_step(tmp_path: Path) -> None:
    file = TraceFile(tmp_path, "r", "a", 1)
    for number, step in enumerate((0, 5, 5, 3, 6), 1):
        file.write(GOOD._replace(step=step, number=number))
    file.close()
    trace = read_trace(tmp_path)
    assert [(row.step, row.number) for row in trace.runs["r"]] == [(n, n + 1) for n in range(5)]
    assert trace.quarantined == []


def test_a_life_told_by_two_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        file = TraceFile(tmp_path, "r", name, 1)
        file.write(GOOD)
        file.close()
    trace = read_trace(tmp_path)
    assert trace.events == 1
    assert trace.quarantined == [Quarantined("run=r/b-1.parquet", 0, REPEATED)]


def test_a_long_life_is_told_in_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SEGMENT_GROUPS_MAX", 3)
    file = TraceFile(tmp_path, "r", "a", 1, row_count_max=4)
    told = [GOOD._replace(step=step) for step in range(50)]
    for row in told:
        file.write(row)
    file.close()
    names = sorted(path.name for path in (tmp_path / "run=r").iterdir())
    assert names[:2] == ["a-1.parquet", "a-1.s000001.parquet"]
    assert len(names) == 5
    trace = read_trace(tmp_path)
    assert (trace.runs["r"], trace.quarantined, trace.torn) == (told, [], {})


def test_what_follows_a_torn_part_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SEGMENT_GROUPS_MAX", 2)
    file = TraceFile(tmp_path, "r", "a", 1, row_count_max=1)
    for step in range(8):
        file.write(GOOD._replace(step=step))
    file.close()
    middle = tmp_path / "run=r" / "a-1.s000001.parquet"
    cut(middle)
    torn = read_trace(tmp_path)
    assert [row.step for row in torn.runs["r"]] == [0, 1, 2]
    assert torn.torn == {"r": frozenset({"a#1"})}
    assert [(q.path[-9:-8], q.row) for q in torn.quarantined if q.reason == AFTER_TORN] == [
        ("2", 0),
        ("2", 1),
        ("3", 0),
        ("3", 1),
    ]
    middle.unlink()
    gone = read_trace(tmp_path)
    assert (gone.events, gone.torn, len(gone.quarantined)) == (2, torn.torn, 4)


def test_what_an_earlier_run_left_is_not_read_as_the_rest_of_a_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SEGMENT_GROUPS_MAX", 2)
    for count in (9, 1):
        for node in ("a", "a-1.s000001"):
            file = TraceFile(tmp_path, "r", node, 1, row_count_max=1)
            for step in range(count):
                file.write(GOOD._replace(step=step, node=node))
            file.close()
        if count == 9:
            TraceFile(tmp_path, "r", "b", 1, row_count_max=1).close()
            (tmp_path / "run=r" / "a-1.s000001.txt").write_text("notes")
    names = sorted(path.name for path in (tmp_path / "run=r").iterdir())
    assert names == [
        "a-1.parquet",
        "a-1.s000001-1.parquet",
        "a-1.s000001.txt",
        "b-1.parquet",
    ]
    assert read_trace(tmp_path).events == 2


def test_a_run_is_cleared_of_its_trace_and_of_nothing_else(tmp_path: Path) -> None:
    for name in ("r", "other"):
        TraceFile(tmp_path, name, "a", 1).close()
    (tmp_path / "run=r" / "notes.txt").write_text("mine")
    clear_run(tmp_path, "r")
    clear_run(tmp_path, "never")
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*"))
    assert left == ["run=other/a-1.parquet", "run=r/notes.txt"]


def test_a_simulation_replaces_the_trace_of_the_one_before(tmp_path: Path) -> None:
    plan = Plan(protocol="rmcast", nodes=3, seed=1, faults="none", messages=5, trace=tmp_path)
    run(plan)
    before = read_trace(tmp_path)
    folder = tmp_path / f"run={plan.run_name}"
    TraceFile(tmp_path, plan.run_name, "stale", 7).close()
    (folder / "notes.txt").write_text("mine")
    run(plan)
    assert read_trace(tmp_path) == before
    assert not (folder / "stale-7.parquet").exists()
    assert (folder / "notes.txt").exists()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    write_trace(story("a: view 1 a"), tmp_path)
    os.mkfifo(tmp_path / "run=story" / "pipe.parquet")
    trace = read_trace(tmp_path)
    assert trace.events == 1
    assert trace.quarantined == [Quarantined("run=story/pipe.parquet", None, "not a regular file")]


def test_names_that_are_not_text(tmp_path: Path) -> None:
    write_trace(story("a: view 1 a | send | a:1", torn="a"), tmp_path)
    folder = tmp_path / "run=story"
    (folder / "a-1.parquet").rename(folder / os.fsdecode(b"\xfe.parquet"))
    (folder / "bad.parquet").write_bytes(b"")
    folder.rename(tmp_path / os.fsdecode(b"run=\xff\xfe"))
    trace = read_trace(tmp_path)
    assert list(trace.runs) == [r"\udcff\udcfe"]
    assert trace.events == 3
    assert [q.path for q in trace.quarantined] == [r"run=\udcff\udcfe/bad.parquet"]


def test_bad_files_are_quarantined(tmp_path: Path) -> None:
    write_trace(story("a: view 1 a | send | a:1"), tmp_path)
    folder = tmp_path / "run=story"
    good = pq.read_table(folder / "a-1.parquet", partitioning=None)
    (folder / "empty.parquet").write_bytes(b"")
    (folder / "garbage.parquet").write_bytes(os.urandom(3000))
    (folder / "folder.parquet").mkdir()
    (folder / "magic.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    pq.write_table(pa.table({"x": [1]}), folder / "other.parquet")
    step = good.schema.get_field_index("step")
    typed = good.set_column(step, "step", pa.array(["0", "1", "2"]))
    pq.write_table(typed, folder / "typed.parquet")
    (folder / "notes.txt").write_text("ignored")
    trace = read_trace(tmp_path)
    assert trace.events == 3
    reasons = {Path(q.path).stem: q.reason for q in trace.quarantined}
    assert reasons.keys() == {"empty", "garbage", "folder", "magic", "other", "typed"}
    assert reasons["other"] == "foreign: no column protocol"
    assert reasons["typed"] == "foreign: column step is string, not int64"
    assert all(q.row is None and "\n" not in q.reason for q in trace.quarantined)


def test_a_trace_rewritten_by_other_tools_is_still_one(tmp_path: Path) -> None:
    history = story("a: view 1 a b | send | a:1\nb: view 1 a b | a:1")
    write_trace(history, tmp_path)
    before = read_trace(tmp_path)
    for path in tmp_path.glob("*/*"):
        loose = pa.Table.from_pylist(pq.read_table(path).to_pylist())
        assert not loose.select(SCHEMA.names).schema.equals(SCHEMA)
        pq.write_table(loose, path, compression="snappy", use_dictionary=False)
    assert read_trace(tmp_path) == before


def test_importing_unisono_imports_no_pyarrow() -> None:
    code = "import unisono, unisono.laws, unisono.trace.tap, sys; print('pyarrow' in sys.modules)"
    assert output_of("-c", code) == "False\n"
