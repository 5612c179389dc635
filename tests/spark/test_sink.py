"""DataFrames into a live group: each row once, in the one order, at every member."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install 'unisono[spark]'")

from pyspark.sql import functions as F

from tests.documents import blocks, page, section
from tests.laws.stories import story, write_trace
from tests.spark.sinkstage import Stage, repeated_of, rss_bytes, staged
from unisono.feed.site import IN_FLIGHT_BYTES_MAX
from unisono.spark import register
from unisono.spark.session import in_words
from unisono.spark.source.external_sort import MEMORY_BYTES
from unisono.spark.source.options import PARTITIONS_MAX
from unisono.spark.source.sink import BATCH_OPTIONS, WRITE_ROWS
from unisono.spark.source.trace import MODES

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("sink"), queue_count_max=2000) as made:
        yield made


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    register(spark)
    return spark


def said_since(stage: Stage, before: int, count: int) -> list[bytes]:
    return stage.heard(before + count)[before:]


def test_a_batch_is_said_once_in_the_order_of_its_columns(session: Any, stage: Stage) -> None:
    before = stage.counts()[0]
    rows = [(n, f"row {n}") for n in (3, 1, 2, 10)]
    frame = session.createDataFrame(rows, "n int, payload string").coalesce(1)
    frame.write.format("unisono").option("feed", stage.feed).mode("append").save()
    assert said_since(stage, before, 4) == [b"row 1", b"row 2", b"row 3", b"row 10"]
    # Another job is another one, though its rows are the same.
    frame.write.format("unisono").option("feed", stage.feed).mode("append").save()
    assert len(said_since(stage, before, 8)) == 8


def test_a_task_knows_its_executors_connection_from_others(session: Any) -> None:
    """Spark does not say which it is: this looks whether it is still where we look."""

    def look(batches: Any) -> Any:
        import socket

        import pyarrow as pa

        from unisono.spark.source.sink import check_complete, executor_socket

        here, there = socket.socketpair()
        there.close()  # a connection of the task's own, that its server has closed
        for _ in batches:
            check_complete()
            found = executor_socket()
            yield pa.record_batch([pa.array([found is not None and found != here.fileno()])], ["x"])
        here.close()

    told = session.range(0, 4, 1, 2).mapInArrow(look, "x boolean").collect()
    assert [row.x for row in told] == [True] * len(told) and told


def start(frame: Any, stage: Stage, place: Path, **options: str) -> Any:
    return (
        frame.writeStream.format("unisono")
        .option("feed", stage.feed)
        .option("checkpointLocation", str(place / "checkpoint"))
        .options(**options)
        .trigger(availableNow=True)
    )


def test_a_stream_goes_on_where_it_was(session: Any, stage: Stage, tmp_path: Path) -> None:
    """All of an aggregate in each epoch; stopped and started again."""
    before, lines = stage.counts()[0], tmp_path / "lines"
    lines.mkdir()

    def run(name: str, words: str) -> None:
        (lines / name).write_text(words)
        counted = session.readStream.text(str(lines)).groupBy("value").count().coalesce(1)
        query = start(counted, stage, tmp_path, orderBy="count,value").outputMode("complete")
        assert query.start().awaitTermination(60)

    run("1.txt", "b\na\na\n")
    assert said_since(stage, before, 2) == [
        b'{"value":"b","count":1}',
        b'{"value":"a","count":2}',
    ]
    run("2.txt", "b\n")
    assert said_since(stage, before, 4)[2:] == [
        b'{"value":"a","count":2}',
        b'{"value":"b","count":2}',
    ]


def test_a_batch_with_a_name_and_a_version_is_said_once_though_done_again(
    session: Any, stage: Stage
) -> None:
    before = stage.counts()[0]

    def write(version: int, *words: str) -> None:
        frame = session.createDataFrame([(word,) for word in words], "payload string").coalesce(1)
        named = {"feed": stage.feed, "txnAppId": "sums", "txnVersion": str(version)}
        frame.write.format("unisono").options(**named).mode("append").save()

    write(7, "a", "b")
    write(7, "b", "a")
    write(6, "late")
    write(8, "c")
    assert said_since(stage, before, 3) == [b"a", b"b", b"c"]


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Work that is done while the test writes; what fails in it fails the test."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(work)
        try:
            yield
        finally:
            done.result(90)


def test_a_feed_that_dies_and_returns_loses_and_doubles_nothing(session: Any, stage: Stage) -> None:
    before, count = stage.counts()[0], 40_000
    frame = session.range(0, count, 1, 2).select(
        F.format_string("feed %05d %s", "id", F.repeat(F.lit("x"), 300)).alias("payload")
    )

    def kill() -> None:
        stage.until(before + 1)
        stage.kill_feed()
        said = stage.counts()[0]
        stage.restart_feed()
        assert said < before + count, "all was said before the feed was killed"

    with beside(kill):
        frame.write.format("unisono").option("feed", stage.feed).mode("append").save()
    said = said_since(stage, before, count)
    assert len(said) == count and not repeated_of(said)
    assert sorted(said) == sorted(each.payload.encode() for each in frame.collect())


def test_a_member_that_does_not_listen_holds_the_sink(session: Any, stage: Stage) -> None:
    """What is on its way stays within bounds, however much there is to be said."""
    before, count, octets = stage.counts()[0], 16_000, 2000
    frame = session.range(0, count, 1, 2).select(
        F.format_string("%06d%s", "id", F.repeat(F.lit("y"), octets)).alias("payload")
    )
    stage.members.write("hold")

    def watch() -> None:
        try:
            pid = stage.feed_process.pid
            least, still, told = rss_bytes(pid), 0, -1
            stage.until(before + 1, all_of_them=False)
            while still < 10:
                time.sleep(0.1)
                now = stage.counts()[0]
                still = still + 1 if now == told else 0
                told = now
            assert told - before < count * 3 // 4, "nothing holds the sink"
            assert stage.status()["in_flight_octets"] <= IN_FLIGHT_BYTES_MAX
            assert rss_bytes(pid) - least < 100 << 20
        finally:
            stage.members.write("go")

    with beside(watch):
        arriving = frame.write.format("unisono").option("rowOrder", "arrival")
        arriving.option("feed", stage.feed).mode("append").save()
    said = said_since(stage, before, count)
    assert len(said) == count and not repeated_of(said)


def test_where_no_feed_is_one_line_says_so(session: Any) -> None:
    """Also in a thread of its own, to which the session is new."""
    frame = session.createDataFrame([("x",)], "payload string")
    write = frame.write.format("unisono").option("feed", "127.0.0.1:9")

    def save() -> None:
        register(session)
        write.option("feedTimeout", "1").mode("append").save()

    with ThreadPoolExecutor(1) as thread, pytest.raises(Exception) as raised:
        thread.submit(save).result(60)
    assert "no feed answered at 127.0.0.1:9 within 1 s" in str(raised.value)


def test_spark_tells_the_writer_its_mistakes(session: Any, stage: Stage) -> None:
    before = stage.counts()[0]
    frame = session.createDataFrame([("x", 1), (None, 2)], "payload string, n int").coalesce(1)
    for mode, options, words in (
        ("append", {}, "no feed: give"),
        ("overwrite", {"feed": stage.feed}, "messages cannot be overwritten"),
        ("append", {"feed": stage.feed, "topic": "x"}, "unknown option 'topic'"),
        ("append", {"feed": stage.feed}, "the payload of row"),
    ):
        with pytest.raises(Exception) as raised:
            frame.write.format("unisono").options(**options).mode(mode).save()
        assert words in in_words(raised.value)
    assert stage.counts()[0] == before, "a partition that has a bad row is not said in part"


# -- the page -------------------------------------------------------------------------------------

PAGE = page("SPARK")
PROGRAMS = [
    block
    for part in (
        PAGE.partition("\n## ")[0],
        section("SPARK", "Reading traces"),
        section("SPARK", "Writing to a group"),
    )
    for block in blocks(part, "python")
]


def test_what_the_page_shows_runs(
    session: Any, stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it in one go, as a reader would, in the session that the tests share."""
    before = stage.counts()[0]
    told = "a: view 1 a b | send | a:1\nb: view 1 a b | a:1"
    write_trace(story(told, run="night-7"), tmp_path / "traces")
    (tmp_path / "traces" / "run=night-7" / "bad.parquet").write_bytes(b"")
    whole = "\n".join(PROGRAMS).replace("127.0.0.1:7420", stage.feed)
    whole = whole.replace('open_session("local[2]")', "session")
    # Spark's workers are where the session was opened.
    whole = re.sub(r'"(traces|\w+-checkpoint)"', rf'"{tmp_path}/\1"', whole)
    assert whole.count(stage.feed) == 3 and whole.count(str(tmp_path)) == 6
    exec(compile(whole, "docs/SPARK.md", "exec"), {"session": session})
    assert "torn, or no Parquet" in capsys.readouterr().out
    said = said_since(stage, before, 100 + 1000 + 10)
    assert sorted(said[:100]) == sorted(b"order %d" % n for n in range(100))
    assert sorted(said[100:1100]) == sorted(b"number %d" % n for n in range(1000))
    assert said[1100:1102] == [b'{"digit":0,"count":10}', b'{"digit":1,"count":10}']


def test_every_option_is_on_the_page() -> None:
    for option in (*BATCH_OPTIONS, *MODES):
        assert f"`{option}`" in PAGE, option
    for words in (f"{WRITE_ROWS:,} rows", f"{PARTITIONS_MAX:,} files", f"{MEMORY_BYTES >> 20} MB"):
        assert words in PAGE, words
