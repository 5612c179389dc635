"""A feed through Spark: what is read once, how much at a time, and what is said of what is lost."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install 'unisono[spark]'")

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests import waiting
from tests.feed.stage import Served, filled, message, messages, put, view
from unisono.errors import Misuse
from unisono.feed.client import FeedClient
from unisono.feed.epochs import Counting, stretches_of
from unisono.feed.keeper import Keeper
from unisono.log import Log
from unisono.spark import register
from unisono.spark.source.feed import DataLoss, FeedSource, OffsetRange
from unisono.spark.source.offsets import resumed
from unisono.spark.source.options import COLUMNS, feed_options
from unisono.spark.source.stream import FeedReader, FeedStreamReader, behind_latest, narrowed

SPELLED = from_arrow_schema(COLUMNS)


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    register(spark)
    return spark


@contextmanager
def served(directory: Path) -> Iterator[Served]:
    """A log with its door open, as a feed has it, to which a test appends."""
    with Served(directory) as door:
        yield door


def stream(session: Any, at: str, **options: Any) -> Any:
    reader = session.readStream.format("unisono").option("startingOffsets", "earliest")
    for name, value in {"feed": at, **options}.items():
        reader = reader.option(name, str(value))
    return reader.load()


def run_once(frame: Any, out: Path, kind: str = "parquet") -> Any:
    """All that is available, into Parquet; the query, ended."""
    query = (
        frame.writeStream.format(kind)
        .option("path", str(out))
        .option("checkpointLocation", f"{out}.checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    return query


def places(session: Any, out: Path) -> list[tuple[int, str]]:
    found = session.read.parquet(str(out)).select("place", "kind").collect()
    return sorted((row.place, row.kind) for row in found)


def offsets(out: Path) -> list[int]:
    """What the checkpoint holds, batch by batch, as people may read it."""
    files = sorted(Path(f"{out}.checkpoint/offsets").glob("[0-9]*"), key=lambda p: int(p.name))
    return [json.loads(path.read_text().splitlines()[-1])["place"] for path in files]


def test_a_query_restarts_where_it_was(session: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with served(tmp_path / "log") as door:
        door.say(messages(1, 2500))
        frame = stream(session, door.at, maxOffsetsPerTrigger=1000)
        query = run_once(frame, out)
        assert query.exception() is None
        assert offsets(out) == [1000, 2000, 2500]
        progress = query.recentProgress
        assert sum(each.numInputRows for each in progress) == 2500
        # What was behind at each trigger, and how fast it went.
        assert [behind_latest(each) for each in progress][:3] == [1500, 500, 0]
        assert all(each.processedRowsPerSecond > 0 for each in progress[:3])
        door.say(messages(2501, 2600))
        assert run_once(stream(session, door.at), out).exception() is None
    with Served(tmp_path / "other", incarnation="y") as door:
        door.say(messages(1, 3000))
        with pytest.raises(
            Exception, match="up to offset 2600, message 2600 of the group's incarnation x"
        ):
            run_once(stream(session, door.at), out)
    assert places(session, out) == [(place, "message") for place in range(1, 2601)]
    row = session.read.parquet(str(out)).where("place = 7").collect()[0]
    assert (row.payload, row.sender, row.group, row.life) == (b"m7", "a", "g", "x")


def test_a_running_query_sees_what_is_said_and_survives_its_feed(
    session: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    door = Served(tmp_path / "log")
    door.say(messages(1, 10))
    frame = stream(session, door.at, minPartitions=3)
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", f"{out}.checkpoint")
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        query.processAllAvailable()
        port = door.port
        door.close()
        late = threading.Timer(1.0, lambda: again.append(Served(tmp_path / "log", port)))
        again: list[Served] = []
        late.start()
        late.join()
        again[0].say(messages(11, 30))
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
        door.close()
        for each in again:
            each.close()
    assert places(session, out) == [(place, "message") for place in range(1, 31)]


def test_views_and_gaps_are_rows_when_asked_for(session: Any, tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        keeper = Keeper(log, "g")
        put(log, keeper.enter("x", 4, 1))
        put(log, keeper.lose(1, 2, "nobody has them", 1))
        put(log, keeper.fill(messages(3, 4), 1))
        put(log, keeper.deliver([view(4), message(5)], 1))
    read = session.read.format("unisono").option("failOnDataLoss", "false")
    assert read.load(str(tmp_path)).where("kind = 'view'").count() == 0
    found = read.option("includeViews", "true").load(str(tmp_path)).collect()
    assert [(row.place, row.kind) for row in found] == [
        (2, "gap"),
        (3, "message"),
        (4, "message"),
        (5, "view"),
        (5, "message"),
    ]
    assert found[3].members == ["a#7", "f#8"]
    first = session.read.format("unisono").option("startingOffsets", 1)
    with pytest.raises(Exception, match="at offset 2: offsets 1 to 2 are lost: nobody has them"):
        first.load(str(tmp_path)).count()
    assert session.read.format("unisono").load(str(tmp_path)).count() == 3, "the earliest there is"


def test_retention_is_data_loss(session: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with served(tmp_path / "log") as door:
        for first in range(1, 301, 50):
            door.say(messages(first, first + 49))
        dropped = door.log.trim(bytes_max=1)
        assert dropped is not None and dropped.last == 300
        door.say(messages(301, 310))
        with pytest.raises(Exception, match="offsets 101 to 300 were dropped") as error:
            run_once(stream(session, door.at, startingOffsets=101), out)
        assert "failOnDataLoss" in str(error.value)
        run_once(stream(session, door.at, startingOffsets=101, failOnDataLoss="false"), out)
    assert places(session, out) == [(300, "gap"), *((n, "message") for n in range(301, 311))]
    gap = session.read.parquet(str(out)).where("kind = 'gap'").collect()[0]
    assert (gap.number, gap.detail[:33]) == (200, "offsets 101 to 300 are lost: drop")


def test_a_batch_reads_a_range(session: Any, tmp_path: Path) -> None:
    filled(tmp_path / "log", 5000, batch=700)
    with served(tmp_path / "log") as door:
        read = session.read.format("unisono").option("feed", door.at).option("minPartitions", 4)
        whole = read.load()
        assert whole.rdd.getNumPartitions() == 4
        assert whole.selectExpr("min(place)", "max(place)", "count(*)").collect()[0][:] == (
            1,
            5000,
            5000,
        )
        part = read.option("startingOffsets", 701).option("endingOffsets", 1400).load()
        assert [row.place for row in part.collect()] == list(range(701, 1401))
        beyond = read.option("endingOffsets", 5001)
        with pytest.raises(Exception, match="ends at offset 5000"):
            beyond.load().count()


def test_a_batch_reads_only_what_the_query_asks_for(session: Any, tmp_path: Path) -> None:
    filled(tmp_path, 5000, batch=700)
    read = session.read.format("unisono").option("columns", "place,payload")
    frame = read.load(str(tmp_path))
    assert frame.columns == ["place", "payload"]
    some = frame.where("place > 10 AND place <= 20 AND place <> 15").collect()
    assert [row.place for row in some] == [11, 12, 13, 14, 16, 17, 18, 19, 20]
    assert bytes(some[0].payload) == b"0000000011"
    assert frame.where("place > 5000").count() == 0


def test_filters_narrow_the_range_and_choose_the_rows(tmp_path: Path) -> None:
    filled(tmp_path, 1000, batch=100)
    options = CaseInsensitiveDict({"path": str(tmp_path), "includeViews": "true"})
    one = FeedReader(options, SPELLED)
    odd = GreaterThan(("members", "x"), 3)
    ours = [
        GreaterThan(("place",), 90),
        LessThanOrEqual(("place",), 95),
        EqualTo(("kind",), "view"),
    ]
    assert list(one.pushFilters([*ours, odd])) == [odd]
    (part,) = one.partitions()
    assert (part.after, part.upto) == (90, 95)
    assert not list(one.read(part)), "the only view is at the begin"
    assert narrowed(0, 9, [EqualTo(("place",), 4)]) == (3, 4)
    assert narrowed(0, 9, [LessThan(("place",), 4), GreaterThanOrEqual(("place",), 2)]) == (1, 3)
    assert narrowed(0, 9, [EqualTo(("number",), 4)]) == (0, 9)


def test_an_empty_log_has_no_rows(session: Any, tmp_path: Path) -> None:
    filled(tmp_path, 0)
    assert session.read.format("unisono").load(str(tmp_path)).count() == 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"feed": "h:1", "startingOffset": "latest"}, "unknown option 'startingoffset'"),
        ({"feed": "h:1", "startingOffsets": "0"}, "an offset from 1 on"),
        ({"feed": "h:1", "startingOffsets": "newest"}, "earliest, latest, or an offset"),
        ({"feed": "h:1", "path": "/tmp"}, "keep one"),
        ({"feed": "h:99999"}, "HOST:PORT"),
        ({"feed": "h:1", "maxOffsetsPerTrigger": "0"}, "from 1"),
        ({"feed": "h:1", "minPartitions": "many"}, "minPartitions='many'"),
        ({"feed": "h:1", "failOnDataLoss": "no"}, "true or false"),
        ({"feed": "h:1", "includeViews": "1"}, "true or false"),
        ({"feed": "h:1", "feedTimeout": "soon"}, "feedTimeout='soon'"),
        ({"feed": "h:1", "endingOffsets": "9"}, "for batch reads"),
        ({"feed": "h:1", "endingTimestamp": "9"}, "for batch reads"),
        ({"feed": "h:1", "startingTimestamp": "noon"}, "or ISO 8601 with an offset"),
        ({"feed": "h:1", "startingTimestamp": "2026-05-01T12:00:00"}, "with an offset"),
        ({"feed": "h:1", "startingTimestamp": "9", "startingOffsets": "9"}, "keep one"),
        ({"feed": "h:1", "maxTriggerDelay": "long"}, "maxTriggerDelay='long'"),
        (
            {"feed": "h:1", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger=9 is above",
        ),
        ({"feed": "h:1", "columns": "place,sander"}, "name some of place, kind"),
        ({"feed": "h:1", "columns": "place,place"}, "each once"),
        ({}, "no source: give"),
    ],
)
def test_a_bad_option_is_told(options: dict[str, str], word: str) -> None:
    with pytest.raises(Misuse) as error:
        feed_options(CaseInsensitiveDict(options), streaming=True)
    assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_a_bad_option_is_told_by_spark(session: Any) -> None:
    with pytest.raises(Exception, match=r"unknown option 'starting[oO]ffset'"):
        session.read.format("unisono").option("feed", "h:1").option("startingOffset", 1).load()
    with pytest.raises(Exception, match=r"no feed answered at 127.0.0.1:1 within 0.2 s"):
        read = session.read.format("unisono").option("feed", "127.0.0.1:1")
        read.option("feedTimeout", "200ms").load().count()


# The reader by itself, without Spark around it.


def reader(at: str, **options: str) -> FeedStreamReader:
    return FeedStreamReader(CaseInsensitiveDict({"feed": at, **options}), SPELLED)


def at(place: int, life: str = "x", base: int = 0) -> dict[str, Any]:
    return {"place": place, "life": life, "base": base}


def test_what_is_available_now_has_an_end(tmp_path: Path) -> None:
    with served(tmp_path) as door:
        door.say(messages(1, 10))
        one = reader(door.at)
        assert one.initialOffset() == at(10), "a stream begins at the latest"
        one = reader(door.at, startingOffsets="4")
        assert one.initialOffset() == at(3)
        with pytest.raises(Misuse, match="startingOffsets=12: the feed ends at offset 10"):
            reader(door.at, startingOffsets="12").initialOffset()
        one.prepareForTriggerAvailableNow()
        door.say(messages(11, 20))
        assert one.latestOffset({"place": 3}, one.getDefaultReadLimit()) == at(10)
        assert one.latestOffset(at(10), one.getDefaultReadLimit()) == at(10)
        assert one.reportLatestOffset() == at(20)
        free = reader(door.at)
        assert free.latestOffset({"place": 3}, free.getDefaultReadLimit()) == at(20)
        lax = reader(door.at, failOnDataLoss="false")
        assert lax.latestOffset(at(50), lax.getDefaultReadLimit()) == at(50)
        for each in (one, free, lax):
            each.stop()


def test_a_query_begins_and_ends_at_a_moment(tmp_path: Path) -> None:
    """The moments are those of the feed's clock: message n was logged at n milliseconds."""
    with served(tmp_path) as door:
        for seq in range(1, 21):
            put(door.log, door.keeper.deliver([message(seq)], 1000 * seq))
        for where in ({"feed": door.at}, {"path": str(tmp_path)}):
            source = FeedSource(
                feed_options({**where, "startingTimestamp": "5", "endingTimestamp": "8"}, False)
            )
            assert (source.start(), source.end()) == (4, 7)
            source.close()
        instant = "1970-01-01T01:00:00.012+01:00"
        assert reader(door.at, startingTimestamp=instant).initialOffset() == at(11)
        later = reader(door.at, startingTimestamp="99")
        assert later.initialOffset() == at(20), "nothing is that late: the latest"


def test_a_trigger_waits_for_enough_or_for_long_enough(tmp_path: Path) -> None:
    with served(tmp_path) as door:
        door.say(messages(1, 10))
        one = reader(door.at, minOffsetsPerTrigger="5", maxTriggerDelay="60s")
        every = one.getDefaultReadLimit()
        assert one.latestOffset(at(8), every) == at(10), "the first batch does not wait"
        door.say(messages(11, 12))
        assert one.latestOffset(at(10), every) == at(10)
        door.say(messages(13, 15))
        assert one.latestOffset(at(10), every) == at(15)
        soon = reader(door.at, minOffsetsPerTrigger="5", maxTriggerDelay="1ms")
        assert soon.latestOffset(at(0), every) == at(15)
        door.say(messages(16, 16))
        waiting.until(lambda: soon.latestOffset(at(15), every) == at(16))
        one.prepareForTriggerAvailableNow()
        assert one.latestOffset(at(15), every) == at(16), "what is left is not waited for"


def test_the_tasks_of_a_batch_are_spread_over_the_feeds(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        filled(tmp_path / name, 100)
    with served(tmp_path / "one") as one, served(tmp_path / "two") as two:
        where = {"feed": f"{one.at},{two.at}", "minPartitions": "4"}
        batch = FeedReader(CaseInsensitiveDict(where), SPELLED)
        found = [row for part in batch.partitions() for b in batch.read(part) for row in rows_in(b)]
        assert len(found) == 100
        assert [feed.counts["batches_sent"] for feed in (one, two)] == [2, 2]


def test_a_feed_sends_the_columns_that_are_read(tmp_path: Path) -> None:
    filled(tmp_path, 100, octets=1000)
    with served(tmp_path) as door:
        source = FeedSource(feed_options({"feed": door.at, "columns": "timestamp,place"}, False))
        (found,) = source.rows(OffsetRange(5, 15, Counting()))
        assert found.column_names == ["timestamp", "place"]
        assert found.column("place").to_pylist() == [*range(6, 16)]
        assert {str(each) for each in found.column("timestamp").to_pylist()} == {
            "1970-01-01 00:00:00.000001+00:00"
        }
        client = FeedClient(door.at)
        some = [row for b in client.read(5, 15, ["sender"]) for row in b.to_pylist()]
        client.close()
    assert {row["payload"] for row in some} == {None}
    assert {row["sender"] for row in some} == {"a"}


def test_the_earliest_is_what_there_was_a_feed_for(tmp_path: Path) -> None:
    """One that is the first of a group which has talked before cannot have what nobody keeps."""
    with served(tmp_path) as door:
        put(door.log, door.keeper.enter("x", 100, 1))
        door.say(messages(101, 110))
        soon = reader(door.at, startingOffsets="earliest")
        assert soon.initialOffset() == {"place": 0}, "it may be told of it yet"
        put(door.log, door.keeper.lose(1, 60, "nobody has them any more", 1))
        put(door.log, door.keeper.lose(61, 100, "nobody has them any more", 1))
        late = reader(door.at, startingOffsets="earliest")
        assert late.initialOffset() == at(100)
        for one in (soon, late):
            end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
            assert every(one, {"place": 0}, end) == [b"m%d" % n for n in range(101, 111)]
        asked = reader(door.at, startingOffsets="1")
        with pytest.raises(DataLoss, match="offsets 1 to 60 are lost"):
            every(asked, asked.initialOffset(), at(110))
        put(door.log, door.keeper.enter("x", 112, 1))
        door.say(messages(113, 113))
        put(door.log, door.keeper.lose(111, 112, "nobody has them any more", 1))
        late = reader(door.at, startingOffsets="earliest")
        with pytest.raises(DataLoss, match="offsets 111 to 112 are lost"):
            every(late, late.initialOffset(), at(113))
    with served(tmp_path) as door:
        assert reader(door.at, startingOffsets="earliest").initialOffset() == at(100)


def test_a_log_that_has_become_shorter_is_data_loss(tmp_path: Path) -> None:
    """A range is planned of what is there; when a task reads it, it must be there still."""
    with Log(tmp_path, durable=False) as log:
        keeper = Keeper(log, "g")
        put(log, keeper.enter("x", 0, 1))
        put(log, keeper.deliver(messages(1, 10), 1))
        put(log, keeper.enter("x", 12, 1))
        put(log, keeper.deliver(messages(13, 15), 1))
    strict = FeedSource(feed_options({"path": str(tmp_path)}, True))
    with pytest.raises(DataLoss, match="offsets 16 to 20 were planned"):
        list(strict.rows(OffsetRange(12, 20, Counting())))
    with pytest.raises(DataLoss, match="offsets 11 to 12 were planned"):
        list(strict.rows(OffsetRange(0, 15, Counting())))
    lax = FeedSource(feed_options({"path": str(tmp_path), "failOnDataLoss": "false"}, True))
    told = [row for b in lax.rows(OffsetRange(8, 20, Counting())) for row in rows_in(b)]
    gaps = [each for each in told if isinstance(each, tuple)]
    assert [each for each in told if each not in gaps] == [b"m9", b"m10", b"m13", b"m14", b"m15"]
    assert [place for place, _ in gaps] == [12, 20]
    assert gaps[1][1].startswith("offsets 16 to 20 are lost: the log")


def every(one: FeedStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    """What tasks read between two offsets: a payload, or the place and words of a gap."""
    told = [
        row for part in one.partitions(start, end) for b in one.read(part) for row in rows_in(b)
    ]
    one.stop()
    return told


def rows_in(batch: Any) -> list[Any]:
    return [
        bytes(row["payload"]) if row["kind"] == "message" else (row["place"], row["detail"])
        for row in batch.to_pylist()
    ]


def test_an_offset_knows_the_log_that_it_is_of(tmp_path: Path) -> None:
    """A log of a new life that has come further would be read from its midst."""
    with Served(tmp_path / "new", incarnation="y") as door:
        door.say(messages(1, 30))
        strict = reader(door.at)
        with pytest.raises(
            DataLoss, match="up to offset 10, message 10 of the group's incarnation x; in"
        ):
            strict.latestOffset(at(10), ReadAllAvailable())
        strict.stop()
        # The same of a batch that was planned before the query was started again.
        again = reader(door.at)
        with pytest.raises(DataLoss, match="not the log that was read before"):
            again.partitions(at(10), at(20))
        again.stop()
        lax = reader(door.at, failOnDataLoss="false")
        end = lax.latestOffset(at(10), ReadAllAvailable())
        assert end == at(30, "y")
        gap, *said = every(lax, at(10), end)
        assert gap[0] == 0 and gap[1].endswith("; read on after offset 0")
        assert said == [b"m%d" % n for n in range(1, 31)]
        planned = reader(door.at, failOnDataLoss="false")
        ((place, _),) = every(planned, at(10), at(20))
        assert place == 0, "nothing of what was planned is there"
        # As offsets once were.
        old = reader(door.at)
        assert old.latestOffset({"place": 10}, ReadAllAvailable()) == at(30, "y")
        assert every(old, {"place": 28}, {"place": 30}) == [b"m29", b"m30"]


def test_a_log_that_counts_otherwise_is_read_on_at_the_same_message(tmp_path: Path) -> None:
    Served(tmp_path, incarnation="w").close()
    with Served(tmp_path, incarnation="w") as door:
        door.say(messages(1, 4))
    with Served(tmp_path) as door:
        door.say(messages(1, 20))
        strict = reader(door.at)
        with pytest.raises(
            DataLoss, match="message 10 of the group's incarnation x; in this log that"
        ):
            strict.latestOffset(at(10), ReadAllAvailable())
        strict.stop()
        lax = reader(door.at, failOnDataLoss="false")
        end = lax.latestOffset(at(10), ReadAllAvailable())
        assert end == at(25, base=5)
        gap, *said = every(lax, at(10), end)
        assert gap[0] == 15 and said == [b"m%d" % n for n in range(11, 21)]
        assert reader(door.at).latestOffset(at(12, base=5), ReadAllAvailable()) == end
    same = FeedStreamReader(CaseInsensitiveDict({"path": str(tmp_path)}), SPELLED)
    assert same.latestOffset(at(25, base=5), ReadAllAvailable()) == at(25, base=5)
    with pytest.raises(DataLoss, match="not the log that was read before"):
        same.latestOffset(at(10), ReadAllAvailable())
    same.stop()


def test_a_life_that_a_log_has_left_is_read_on_after_it() -> None:
    counting = Counting(stretches_of([("x", 0, 1), ("y", 10, 11), ("x", 12, 21)]), 30)
    assert resumed(at(9), counting, 1) == (9, "")
    assert resumed(at(15), counting, 1).after == 27, "the message 15 of x is there"
    assert resumed(at(40, "y", 20), counting, 1).after == 19, "y has said less here"
    assert resumed(at(40, "z", 20), counting, 5).after == 4
    assert resumed(at(50, "x", 12), counting, 1) == (50, ""), "it may come so far yet"


def test_a_log_that_ends_before_the_offset_is_noticed(tmp_path: Path) -> None:
    with served(tmp_path) as door:
        door.say(messages(1, 5))
        one = reader(door.at, feedTimeout="700ms")
        with pytest.raises(DataLoss, match="read up to offset 100, and the log ends at 5"):
            one.latestOffset(at(100), ReadAllAvailable())
        late = threading.Timer(0.3, lambda: door.say(messages(6, 100)))
        late.start()
        assert one.latestOffset(at(100), ReadAllAvailable()) == at(100), "it was catching up"
        late.join()
        one.stop()


def test_a_limit_counts_places_that_are_there(tmp_path: Path) -> None:
    with served(tmp_path) as door:
        for first in (1, 11, 21):
            door.say(messages(first, first + 9))
        door.log.trim(bytes_max=door.log.nbytes - 1)
        one = reader(door.at, maxOffsetsPerTrigger="4", failOnDataLoss="false")
        assert one.latestOffset({"place": 0}, one.getDefaultReadLimit()) == at(14)
        assert one.latestOffset({"place": 14}, one.getDefaultReadLimit()) == at(18)
        with pytest.raises(DataLoss, match="offsets 1 to 10 were dropped"):
            strict = reader(door.at)
            strict.latestOffset({"place": 0}, strict.getDefaultReadLimit())
        one.stop()
        strict.stop()


@pytest.mark.parametrize(
    ("after", "upto", "least", "count"),
    [(0, 0, 1, 0), (5, 6, 8, 1), (0, 10, 3, 3), (7, 250_007, 1, 3), (0, 10**9, 1, 64)],
)
def test_partitions_are_the_range(
    tmp_path: Path, after: int, upto: int, least: int, count: int
) -> None:
    with served(tmp_path) as door:
        one = reader(door.at, minPartitions=str(least))
        parts = one.partitions({"place": after}, {"place": upto})
        assert len(parts) == count
        at = after
        for part in parts:
            assert isinstance(part, OffsetRange)
            assert part.after == at < part.upto
            at = part.upto
        assert at == upto
        one.stop()


def test_a_task_reads_with_a_copy_of_its_own(tmp_path: Path) -> None:
    with served(tmp_path) as door:
        door.say([view(0), *messages(1, 10)])
        one = reader(door.at, includeViews="true")
        (part,) = one.partitions({"place": 0}, one.latestOffset({"place": 0}, ReadAllAvailable()))
        copied, its_part = pickle.loads(pickle.dumps((one, part)))
        (batch,) = copied.read(its_part)
        assert batch.column("place").to_pylist() == [1, *range(1, 11)]
        one.stop()


def test_how_far_behind_is_read_off_the_progress() -> None:
    told = {"sources": [{"latestOffset": '{"place": 9}', "endOffset": {"place": 4}}]}
    assert behind_latest(told) == 5
    assert behind_latest({"sources": [{"latestOffset": None, "endOffset": '{"place": 4}'}]}) is None
    assert behind_latest(None) is None
