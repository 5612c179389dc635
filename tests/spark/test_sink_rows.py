"""A sink's rows before they are said: as payloads, in order, and only when all are there."""

from __future__ import annotations

import json
import math
import os
import random
import socket
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install 'unisono[spark]'")

import pyarrow as pa
from pyspark.sql import types as T

from tests.feed.stage import Served
from unisono.errors import Misuse
from unisono.feed.client import FeedGone
from unisono.spark.source import sink
from unisono.spark.source.external_sort import ExternalSort, batched
from unisono.spark.source.payloads import Payloads
from unisono.spark.source.sink import (
    batch_sink,
    check_complete,
    sink_options,
    stream_sink,
    transaction,
    write,
)

ONE = T.StructType().add("payload", T.StringType())
KINDS: dict[str, tuple[T.DataType, pa.DataType]] = {
    "n": (T.IntegerType(), pa.int32()),
    "x": (T.DoubleType(), pa.float64()),
    "payload": (T.StringType(), pa.string()),
    "raw": (T.BinaryType(), pa.binary()),
    "when": (T.TimestampType(), pa.timestamp("us", tz="UTC")),
    "day": (T.DateType(), pa.date32()),
    "price": (T.DecimalType(10, 2), pa.decimal128(10, 2)),
    "tags": (T.ArrayType(T.BinaryType()), pa.list_(pa.binary())),
    "map": (T.MapType(T.IntegerType(), T.DateType()), pa.map_(pa.int32(), pa.date32())),
    "inner": (T.StructType().add("a", T.LongType()), pa.struct([("a", pa.int64())])),
}


def made(*rows: tuple[Any, ...], columns: str) -> tuple[T.StructType, pa.RecordBatch]:
    names = columns.split()
    schema = T.StructType([T.StructField(name, KINDS[name][0]) for name in names])
    arrays = [
        pa.array(column, KINDS[name][1])
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    ]
    return schema, pa.record_batch(arrays, names=names)


# -- payloads -------------------------------------------------------------------------------------


def test_the_column_payload_is_said_as_it_is() -> None:
    schema, batch = made((1, "é"), (2, ""), columns="n payload")
    assert Payloads(schema).of(batch, 0) == ["é".encode(), b""]
    schema, batch = made((b"\xff\0",), columns="raw")
    renamed = T.StructType().add("Payload", T.BinaryType())
    assert Payloads(renamed).of(batch, 0) == [b"\xff\0"]


def test_without_one_the_row_is_said_as_json() -> None:
    row = (
        1,
        math.inf,
        b"\xff",
        datetime(2026, 1, 2, 3, 4, 5, 600, UTC),
        date(2026, 1, 2),
        Decimal("1.50"),
        [b"a", None],
        [(7, date(2026, 1, 3))],
        {"a": None},
    )
    schema, batch = made(row, (None,) * 9, columns="n x raw when day price tags map inner")
    first, second = map(json.loads, Payloads(schema).of(batch, 0))
    assert first == {
        "n": 1,
        "x": "inf",
        "raw": "/w==",
        "when": "2026-01-02T03:04:05.000600Z",
        "day": "2026-01-02",
        "price": "1.50",
        "tags": ["YQ==", None],
        "map": {"7": "2026-01-03"},
        "inner": {"a": None},
    }
    assert second == dict.fromkeys(first)


def test_a_payload_that_is_null_is_refused_with_its_row() -> None:
    schema, batch = made(("a",), (None,), columns="payload")
    with pytest.raises(Misuse, match=r"the payload of row 41 is null"):
        Payloads(schema).of(batch, 40)


@pytest.mark.parametrize(
    ("schema", "order_by", "words"),
    [
        (T.StructType(), (), "rows have no columns"),
        (T.StructType().add("payload", T.LongType()), (), "payload is bigint: cast it to binary"),
        (
            T.StructType([*ONE, T.StructField("PAYLOAD", T.StringType())]),
            (),
            "two columns are named payload",
        ),
        (T.StructType().add("v", T.VariantType()), (), "column v is variant"),
        (
            T.StructType().add("s", T.StructType().add("i", T.DayTimeIntervalType())),
            (),
            "column s.i is interval",
        ),
        (T.StructType().add("n", T.LongType()), ("m",), "orderBy: no column 'm'"),
        (T.StructType().add("a", T.ArrayType(T.LongType())), ("a",), "which has no order"),
    ],
)
def test_columns_that_cannot_be_said_are_named(
    schema: T.StructType, order_by: tuple[str, ...], words: str
) -> None:
    with pytest.raises(Misuse, match=r"^[^\n]*$") as raised:
        Payloads(schema, order_by)
    assert words in str(raised.value)


# -- order ----------------------------------------------------------------------------------------

ROWS = [
    (2, 1.5, "b"),
    (None, math.nan, "a"),
    (2, None, "c"),
    (1, math.nan, "a"),
    (2, -math.inf, "a"),
    (2, 1.5, "a"),
    (2, 1.5, "a"),
]


def in_order(rows: list[tuple[Any, ...]], *order_by: str, memory_bytes: int = 1 << 20) -> list[str]:
    schema, batch = made(*rows, columns="n x payload")
    payloads = Payloads(schema, order_by)
    with ExternalSort(memory_bytes) as sorting:
        for at in range(batch.num_rows):
            sorting.add(payloads.entries(batch.slice(at, 1), at))
        return [payload.decode() for payload in sorting]


def test_rows_come_in_one_order_however_they_arrived() -> None:
    told = {tuple(in_order(random.Random(seed).sample(ROWS, len(ROWS)))) for seed in range(50)}
    # By n, nulls first; by x, nulls first and what is no number last; then by the payload.
    assert told == {("a", "a", "c", "a", "a", "a", "b")}
    assert in_order(ROWS, "payload") == list("aaaaabc")
    assert in_order(ROWS, "x", "n") == list("caaabaa")


def test_what_is_too_much_for_memory_is_sorted_on_disk() -> None:
    rng = random.Random(3)
    entries = [(((1, rng.randrange(50)),), b"%05d" % rng.randrange(1000)) for _ in range(5000)]
    with ExternalSort(memory_bytes=50_000) as sorting:
        for start in range(0, len(entries), 77):
            sorting.add(entries[start : start + 77])
        assert len(sorting.runs) > 20
        assert list(sorting) == [payload for _, payload in sorted(entries)]
    assert list(batched(iter([b"a", b"b", b"c"]), 2)) == [[b"a", b"b"], [b"c"]]


# -- whole or not ---------------------------------------------------------------------------------


def test_rows_that_were_cut_short_are_not_said(tmp_path: Path) -> None:
    """A worker's connection to its executor comes to its end when the task failed before."""
    with Served(tmp_path / "log") as feed:
        told = tmp_path / "told"
        for closed in (False, True):
            with socket.create_server(("127.0.0.1", 0)) as door:
                worker = subprocess.Popen(
                    [sys.executable, "-c", WORKER, str(door.getsockname()[1]), feed.at, str(told)]
                )
                executor, _ = door.accept()
                if closed:
                    executor.shutdown(socket.SHUT_WR)
                executor.settimeout(30)
                assert executor.recv(1) == b"r"
                executor.close() if closed else executor.sendall(b"e")
                worker.wait(30)
            assert told.read_text() == ("IncompletePartition" if closed else "said 2")
        assert [(query, rows) for query, *_, rows in feed.taken] == [("q", [b"a", b"b"])]


WORKER = """
import socket, sys, time, pathlib
import pyarrow as pa
from pyspark.sql.types import StructType, StringType
from unisono.spark.source.sink import sink_options, write
port, feed, told = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
executor = socket.create_connection(("127.0.0.1", port))
def rows():
    yield pa.record_batch([pa.array(["b", "a"])], names=["payload"])
    executor.sendall(b"r")
    executor.recv(1)
asked = sink_options({"feed": feed}, StructType().add("payload", StringType()))
def main(infile):
    try:
        told.write_text(f"said {write(asked, 'q', 0, 0, rows()).rows}")
    except Exception as error:
        told.write_text(type(error).__name__)
main(executor.makefile("rb"))
"""


def as_a_worker(infile: Any) -> None:
    """As Spark's own calls what it was given."""
    code = "def main(infile):\n    check_complete()"
    room = {"__name__": "pyspark.worker", "check_complete": check_complete}
    exec(code, room)
    room["main"](infile)  # type: ignore[operator]


def test_what_is_whole_is_not_taken_for_cut() -> None:
    here, there = socket.socketpair()
    with here, there:
        as_a_worker(here)
        there.sendall(b"x")
        as_a_worker(here)
        there.close()
        as_a_worker(here)  # there is still something to be read
        here.recv(1)
        with pytest.raises(sink.IncompletePartition):
            as_a_worker(here)
        check_complete()  # nothing but the executor's connection counts
        other, executor = socket.socketpair()
        with other, executor:
            as_a_worker(other)
    as_a_worker(None)


def test_rows_are_numbered_through_and_said_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "WRITE_ROWS", 3)
    _, batch = made(*((str(7 - n),) for n in range(7)), columns="payload")
    with Served(tmp_path) as feed:
        for order in ("sorted", "arrival"):
            asked = sink_options({"feed": feed.at, "rowOrder": order}, ONE)
            assert write(asked, order, 2, 9, iter([batch.slice(0, 4), batch.slice(4)])).rows == 7
        assert write(asked, "none", 0, 0, iter([])) == sink.PartitionWritten(0, 0)
        assert feed.taken == [
            ("sorted", 2, 9, 0, [b"1", b"2", b"3"]),
            ("sorted", 2, 9, 3, [b"4", b"5", b"6"]),
            ("sorted", 2, 9, 6, [b"7"]),
            ("arrival", 2, 9, 0, [b"7", b"6", b"5"]),
            ("arrival", 2, 9, 3, [b"4"]),
            ("arrival", 2, 9, 4, [b"3", b"2", b"1"]),
        ]


def test_a_feed_that_is_away_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    _, batch = made(("a",), columns="payload")
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    asked = sink_options({"feed": f"127.0.0.1:{port}", "feedTimeout": "0.3"}, ONE)
    with pytest.raises(FeedGone, match=r"within 0\.3 s"):
        write(asked, "q", 0, 0, iter([batch]))


# -- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no feed: give"),
        ({"feed": "nowhere:x"}, "write HOST:PORT"),
        ({"feed": "h:1", "path": "/x"}, "a group has no path"),
        ({"feed": "h:1", "topic": "x"}, "unknown option 'topic': a group is written with feed, "),
        ({"feed": "h:1", "rowOrder": "random"}, "rowOrder='random': there are sorted and arrival"),
        ({"feed": "h:1", "rowOrder": "arrival", "orderBy": "payload"}, "orderBy needs rowOrder"),
        ({"feed": "h:1", "orderBy": "speed"}, "orderBy: no column 'speed'"),
        ({"feed": "h:1", "feedTimeout": "soon"}, "feedTimeout='soon'"),
        ({"feed": "h:1", "feedTimeout": "-1"}, "feedTimeout='-1'"),
    ],
)
def test_a_bad_option_is_one_clear_line(options: dict[str, str], words: str) -> None:
    for make in (
        lambda: stream_sink(options, ONE),
        lambda: batch_sink(options, ONE, False),
    ):
        with pytest.raises(Misuse, match=r"^[^\n]*$") as raised:
            make()
        assert words in str(raised.value)


def test_a_batch_has_a_name_of_its_own_or_the_one_given() -> None:
    assert transaction({"txnAppId": "totals", "txnVersion": "12"}) == ("totals", 12)
    drawn = {transaction({}) for _ in range(10)}
    assert len(drawn) == 10 and {epoch for _, epoch in drawn} == {0}
    for bad in ({"txnAppId": "x"}, {"txnVersion": "1"}, {"txnAppId": "", "txnVersion": "1"}):
        with pytest.raises(Misuse, match="go together"):
            transaction(bad)
    with pytest.raises(Misuse, match="txnVersion='-1'"):
        transaction({"txnAppId": "x", "txnVersion": "-1"})
    with pytest.raises(Misuse, match="unknown option 'txnAppId'"):
        stream_sink({"feed": "h:1", "txnAppId": "x"}, ONE)
    with pytest.raises(Misuse, match="cannot be overwritten"):
        batch_sink({"feed": "h:1"}, ONE, True)
    assert os.sep not in drawn.pop()[0]
