"""Traces through `spark.read.format("unisono")`: what is read, what is not even opened, and what is
said of what is bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install 'unisono[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tests.laws.doctoring import cut
from tests.spark.test_pipeline_reading import hostile_directory
from tests.trace.test_files import BAD_ROWS, GOOD
from unisono.errors import BadTrace, Misuse
from unisono.spark import register
from unisono.spark.session import in_words
from unisono.spark.source import trace
from unisono.spark.source.filters import column_of, is_supported, mask_of
from unisono.spark.source.trace import FileReader, TraceReader, trace_options
from unisono.trace.checks import AFTER_TORN, REPEATED
from unisono.trace.files import SCHEMA, TraceFile, trace_files
from unisono.trace.parquet import ParquetPart, batch_of
from unisono.trace.reading import read_trace
from unisono.trace.record import Row
from unisono.trace.row_groups import reasons_against

GROUPS, ROWS = 3, 4


def row(node: str, step: int) -> Row:
    kind = "deliver" if step % 2 else "send"
    sender = ("b", 1) if kind == "deliver" else (node, 1)
    detail = f"{node} says {step}" if step % 3 else None
    return Row(
        "ring", "g", node, 1, step, 10 * step, kind, "v1", *sender, step + 1, step, "agreed", 1, 7
    )._replace(detail=detail)


def write_runs(top: Path) -> None:
    """Two runs, two lives in each, three row groups in each file."""
    for run in ("one", "two"):
        for node in ("a", "b"):
            file = TraceFile(top, run, node, 1, row_count_max=ROWS)
            for step in range(GROUPS * ROWS):
                file.write(row(node, step))
            file.close()


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("traces")
    write_runs(top)
    return top


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    register(spark)
    return spark


def reader(directory: Path, *filters: Filter, **options: str) -> TraceReader:
    given = {"path": str(directory), **options}
    made = TraceReader(given, trace.trace_schema(given))
    assert list(made.pushFilters(list(filters))) == []
    return made


def rows_of(made: TraceReader) -> list[dict[str, Any]]:
    return [
        each
        for partition in made.partitions()
        for rows in made.read(partition)
        for each in rows.to_pylist()
    ]


# -- what is read --------------------------------------------------------------------------------


def test_spark_reads_the_rows_that_the_laws_would(session: Any, traces: Path) -> None:
    read = session.read.format("unisono").load(str(traces))
    assert read.columns == ["run", *SCHEMA.names]
    assert read.rdd.getNumPartitions() == 4  # a file each
    found = sorted(map(tuple, read.collect()), key=lambda each: (each[0], each[3], each[5]))
    told = [(run, *each) for run, rows in sorted(read_trace(traces).runs.items()) for each in rows]
    assert found == told
    assert len(found) == 2 * 2 * GROUPS * ROWS


def test_a_query_opens_only_the_files_of_its_runs(session: Any, tmp_path: Path) -> None:
    write_runs(tmp_path)
    (tmp_path / "run=two" / "garbage.parquet").write_bytes(b"no Parquet")
    read = session.read.format("unisono").option("mode", "failfast").load(str(tmp_path))
    one = read.where("run = 'one' AND node = 'a' AND step BETWEEN 5 AND 6").select("detail")
    assert sorted(each.detail or "" for each in one.collect()) == ["", "a says 5"]
    assert read.where("run IN ('one', 'three')").count() == 2 * GROUPS * ROWS
    # The other run was never opened, or this would have been said above.
    with pytest.raises(Exception) as raised:
        read.where("run LIKE 'tw%'").count()
    assert in_words(raised.value) == (
        "run=two/garbage.parquet: torn, or no Parquet: no whole row group in it"
    )


def test_no_run_is_asked_for_and_no_file_is_read(traces: Path) -> None:
    assert reader(traces, EqualTo(("run",), "three")).partitions() == [trace.FilesPartition([])]
    assert rows_of(reader(traces, EqualTo(("run",), "three"))) == []


def test_row_groups_without_a_wanted_row_are_not_read(traces: Path) -> None:
    given = trace_options({"path": str(traces)})
    found = next(f for f in trace_files(traces) if f.run == "one")
    for filters, groups, count in (
        ([], 3, 12),
        ([GreaterThanOrEqual(("step",), 8)], 1, 4),
        ([EqualTo(("node",), "b")], 0, 0),
        ([LessThan(("t_us",), 50), EqualTo(("kind",), "send")], 2, 3),
    ):
        reading = FileReader(given, filters, found.run, found.path, found.name)
        rows = [each for rows in reading.batches() for each in rows.to_pylist()]
        assert (reading.part.groups_count, reading.part.groups_read) == (3, groups)
        assert len(rows) == count
        assert all(each["step"] == each["seq"] for each in rows)


def test_damage_in_what_is_not_asked_for_is_not_met(tmp_path: Path) -> None:
    """A flipped bit in one column of one row group: who reads neither does not see it."""
    write_runs(tmp_path)
    path = tmp_path / "run=one" / "a-1.parquet"
    group = pq.read_metadata(path).row_group(1)
    about = group.column(group.num_columns - 1)
    assert about.path_in_schema == "detail"
    octets = bytearray(path.read_bytes())
    octets[about.data_page_offset + about.total_compressed_size // 4 + 12] ^= 0xFF
    octets[about.dictionary_page_offset + 40] ^= 0xFF
    path.write_bytes(octets)
    one = (EqualTo(("run",), "one"), EqualTo(("node",), "a"))
    assert len(rows_of(reader(tmp_path, *one))) == ROWS  # up to the damage, and no further
    with pytest.raises(BadTrace, match=r"run=one/a-1\.parquet: unreadable"):
        rows_of(reader(tmp_path, *one, mode="failfast"))
    beyond = (*one, GreaterThanOrEqual(("step",), 8))
    assert len(rows_of(reader(tmp_path, *beyond, mode="failfast"))) == ROWS
    narrow = reader(tmp_path, *one, mode="failfast", columns="step,number")
    assert len(rows_of(narrow)) == GROUPS * ROWS


def test_columns_are_named_by_an_option_or_by_a_schema(session: Any, traces: Path) -> None:
    read = session.read.format("unisono")
    some = read.option("columns", "step, run").load(str(traces))
    assert some.columns == ["step", "run"]
    assert some.where("step > 10").distinct().collect() == [(11, "one"), (11, "two")]
    other = session.read.format("unisono").schema("number bigint, members array<string>")
    assert other.load(str(traces)).where("number = 1").collect() == [(1, None)] * 4


@pytest.mark.parametrize("mode", trace.MODES)
def test_any_columns_go_with_any_filter(traces: Path, mode: str) -> None:
    for columns in ("run", "step", "run,node", "node,detail", ",".join(SCHEMA.names)):
        for filters, count in (
            ((), 48),
            ((EqualTo(("step",), 3),), 4),
            ((EqualTo(("node",), "a"), GreaterThan(("step",), 5)), 12),
        ):
            told = rows_of(reader(traces, *filters, mode=mode, columns=columns))
            assert len(told) == count
            assert all(list(each) == columns.split(",") for each in told)


def test_many_files_share_partitions(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "PARTITIONS_MAX", 3)
    made = reader(traces)
    assert [len(each.files) for each in made.partitions()] == [1, 1, 2]
    assert len(rows_of(made)) == 2 * 2 * GROUPS * ROWS


# -- filters -------------------------------------------------------------------------------------

# fmt: off
MEANT: list[tuple[str, Filter]] = [
    ("n = 2",                   EqualTo(("n",), 2)),
    ("NOT n = 2",               Not(EqualTo(("n",), 2))),
    ("n <=> 2",                 EqualNullSafe(("n",), 2)),
    ("NOT (n <=> 2)",           Not(EqualNullSafe(("n",), 2))),
    ("n <=> NULL",              EqualNullSafe(("n",), None)),
    ("n > 1",                   GreaterThan(("n",), 1)),
    ("n >= 2",                  GreaterThanOrEqual(("n",), 2)),
    ("n < 2",                   LessThan(("n",), 2)),
    ("n <= 2",                  LessThanOrEqual(("n",), 2)),
    ("n IN (1, 3)",             In(("n",), (1, 3))),
    ("n NOT IN (1, 3)",         Not(In(("n",), (1, 3)))),
    ("n IS NULL",               IsNull(("n",))),
    ("n IS NOT NULL",           IsNotNull(("n",))),
    ("NOT (n IS NULL)",         Not(IsNull(("n",)))),
    ("t = 'b'",                 EqualTo(("t",), "b")),
    ("t > 'b'",                 GreaterThan(("t",), "b")),
    ("t < 'é'",                 LessThan(("t",), "é")),
    ("t IN ('a', '')",          In(("t",), ("a", ""))),
    ("startswith(t, 'é')",      StringStartsWith(("t",), "é")),
    ("endswith(t, '_%')",       StringEndsWith(("t",), "_%")),
    ("contains(t, '_')",        StringContains(("t",), "_")),
    ("NOT contains(t, '_')",    Not(StringContains(("t",), "_"))),
    ("m IS NULL",               IsNull(("m",))),
]
# fmt: on
NUMBERS = [1, 2, 3, None, -1, 2]
TEXTS = ["a", "b", None, "é_%", "", "\U0001f600b"]
LISTS = [["a"], None, [], [None], None, ["b"]]


def test_a_filter_means_here_what_it_means_to_spark(session: Any) -> None:
    values = list(zip(NUMBERS, TEXTS, LISTS, strict=True))
    frame = session.createDataFrame(values, "n int, t string, m array<string>").coalesce(1)
    theirs = frame.selectExpr(*(f"{sql} AS c{at}" for at, (sql, _) in enumerate(MEANT))).collect()
    kinds = {"n": pa.int32(), "t": pa.string(), "m": pa.list_(pa.string())}
    columns = dict(zip(kinds, (NUMBERS, TEXTS, LISTS), strict=True))
    schema = pa.schema(list(kinds.items()))
    for at, (sql, meant) in enumerate(MEANT):
        assert is_supported(meant, schema), sql
        name = column_of(meant)
        ours = mask_of(meant, pa.chunked_array([pa.array(columns[name], kinds[name])]))
        assert ours.to_pylist() == [each[at] for each in theirs], sql


def test_what_it_cannot_say_exactly_stays_with_spark() -> None:
    schema = pa.schema([("n", pa.int32()), ("t", pa.string()), ("m", pa.list_(pa.string()))])
    for strange in (
        EqualTo(("n",), 1.5),
        EqualTo(("n",), True),
        EqualTo(("n",), 1 << 70),
        EqualTo(("t",), 1),
        EqualTo(("m",), ["a"]),
        EqualTo(("t", "inner"), "a"),
        EqualTo(("other",), 1),
        In(("n",), (1, None)),
        StringContains(("n",), "1"),
    ):
        assert not is_supported(strange, schema)
        assert not is_supported(Not(strange), schema)


def test_spark_gives_the_same_rows_with_filters_it_keeps(session: Any, traces: Path) -> None:
    read = session.read.format("unisono").load(str(traces))
    mixed = "step % 2 = 0 AND seq IN (2, 4, NULL) AND size(array(node)) = 1 AND run <> 'two'"
    assert read.where(mixed).select("run", "node", "step").orderBy("node", "step").collect() == [
        ("one", "a", 2),
        ("one", "a", 4),
        ("one", "b", 2),
        ("one", "b", 4),
    ]


# -- what is bad ---------------------------------------------------------------------------------


def test_whole_columns_are_checked_as_single_rows_are() -> None:
    good = [GOOD, GOOD._replace(step=1), row("a", 0), row("a", 1)]
    bad = [each for each, _ in BAD_ROWS]
    mixed = [*good, *bad, *good]
    found = reasons_against(pa.Table.from_batches([batch_of(mixed)]))
    assert found == {len(good) + at: reason for at, (_, reason) in enumerate(BAD_ROWS)}
    assert reasons_against(pa.Table.from_batches([batch_of(good)])) == {}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("hostile")
    hostile_directory(top)
    return top


def test_what_is_bad_is_left_out_or_told_with_its_reason(hostile: Path) -> None:
    """The same reasons as the quarantine of `unisono verify`, but for those that need a look at
    other files, which a source that reads each by itself cannot take."""
    told = rows_of(reader(hostile, mode="permissive"))
    bad = [(each["path"], each["row"], each["reason"]) for each in told if each["reason"]]
    among = (AFTER_TORN, REPEATED)
    put_aside = [
        tuple(each) for each in read_trace(hostile).quarantined if each.reason not in among
    ]
    assert sorted(bad, key=str) == sorted(put_aside, key=str)
    assert {reason.split(":")[0] for _, _, reason in bad} > {"foreign", "torn", "unreadable"}
    sound = [each["reason"] is None for each in told]
    assert len(rows_of(reader(hostile))) == sum(sound) > 0


def test_spark_shows_what_is_bad(session: Any, tmp_path: Path) -> None:
    write_runs(tmp_path)
    (tmp_path / "run=two" / "garbage.parquet").write_bytes(b"no Parquet")
    read = session.read.format("unisono").option("mode", "PERMISSIVE").load(str(tmp_path))
    assert read.columns == ["run", *SCHEMA.names, "path", "row", "reason"]
    bad = read.where("run = 'two' AND reason IS NOT NULL").select("path", "row", "reason")
    assert bad.collect() == [
        ("run=two/garbage.parquet", None, "torn, or no Parquet: no whole row group in it")
    ]


def test_a_closed_file_is_parquet_that_anything_reads(session: Any, tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    write_runs(tmp_path)
    path = tmp_path / "run=one" / "a-1.parquet"
    counts = len(pandas.read_parquet(path)), polars.read_parquet(path).height
    assert {*counts, session.read.parquet(str(path)).count()} == {GROUPS * ROWS}


def test_a_torn_file_is_read_to_its_last_whole_row_group(traces: Path, tmp_path: Path) -> None:
    write_runs(tmp_path)
    path = tmp_path / "run=one" / "a-1.parquet"
    cut(path)
    one = (EqualTo(("run",), "one"), EqualTo(("node",), "a"))
    assert [each["step"] for each in rows_of(reader(tmp_path, *one))] == list(range(2 * ROWS))
    (told,) = rows_of(
        reader(tmp_path, EqualTo(("run",), "one"), IsNull(("node",)), mode="permissive")
    )
    assert told["reason"].startswith("torn: ") and told["path"] == "run=one/a-1.parquet"
    assert told["row"] is None and told["step"] is None


def test_places_in_the_file_survive_a_filter(traces: Path) -> None:
    asks = (EqualTo(("run",), "one"), GreaterThan(("step",), 9))
    told = rows_of(reader(traces, *asks, mode="permissive"))
    assert [(each["step"], each["row"]) for each in told] == [(10, 10), (11, 11)] * 2


def test_unchecked_rows_are_as_they_are(hostile: Path) -> None:
    there = sum(
        table.num_rows
        for found in trace_files(hostile)
        for table in ParquetPart(found.path).tables()
    )
    assert len(rows_of(reader(hostile, mode="unchecked", columns="step"))) == there
    assert len(rows_of(reader(hostile, mode="dropmalformed", columns="step"))) < there


# -- the caller's mistakes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "loose"}, "mode='loose': there are dropmalformed"),
        ({"columns": "step,speed"}, "columns='step,speed': name some of run, protocol"),
        ({"columns": "reason"}, "columns='reason': name some of run"),
        ({"columns": "step,step"}, "each once"),
        ({"colums": "step"}, "unknown option 'colums': a trace is read with columns, mode, path"),
        ({"path": ""}, "no trace: give .load"),
        ({"path": "s3://bucket/x"}, "all machines see"),
    ],
)
def test_a_bad_option_is_one_clear_line(options: dict[str, str], words: str) -> None:
    with pytest.raises(Misuse, match=r"^[^\n]*$") as raised:
        trace_options({"path": "traces", **options})
    assert words in str(raised.value)


def test_spark_says_it_to_the_user(session: Any, traces: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception) as raised:
        session.read.format("unisono").option("mode", "loose").load(str(traces))
    assert in_words(raised.value).startswith("mode='loose': there are")
    with pytest.raises(Exception) as raised:
        session.read.format("unisono").schema("step string").load(str(traces)).count()
    assert in_words(raised.value) == "column step is bigint, not string"
    with pytest.raises(Exception) as raised:
        session.read.format("unisono").load(str(tmp_path / "nowhere")).count()
    assert "nowhere: no such directory" in in_words(raised.value)


def test_a_path_may_be_a_uri_or_one_run(traces: Path) -> None:
    assert trace_options({"path": f"file://{traces}"}).directory == str(traces)
    assert trace_options({"path": f"file:{traces}"}).directory == str(traces)
    assert len(rows_of(reader(traces / "run=one"))) == 2 * GROUPS * ROWS
