"""The log keeps what was appended, at its offset, and reports what it lacks."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.errors import Misuse
from unisono.log import BadLog, Log, LogBatch, LogBounds, LogReader, Trimmed
from unisono.log.ranges import RangeSet


def batch(first: int, last: int | None = None, nbytes: int = 10, t_us: int = 0) -> LogBatch:
    last = last or first
    return LogBatch(first, last, random.Random(first).randbytes(nbytes), last - first + 1, t_us)


def filled(directory: Path, count: int = 10, nbytes: int = 10) -> None:
    with Log(directory, durable=False) as log:
        log.append(batch(at, nbytes=nbytes) for at in range(1, count + 1))


def firsts(directory: Path, first: int = 1, last: int = 1 << 60) -> list[int]:
    reader = LogReader(directory)
    try:
        return [each.first for each in reader.read(first, last)]
    finally:
        reader.close()


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([batch(1, 3), batch(4)], {"life": "x"})
        log.append([batch(5, 9)])
        assert log.bounds == LogBounds(1, 9, 9)
    reader = LogReader(tmp_path)
    assert [each[:4] for each in reader.read(1, 9)] == [
        each[:4] for each in (batch(1, 3), batch(4), batch(5, 9))
    ]
    assert [each.first for each in reader.read(2, 4)] == [1, 4]
    assert [each.first for each in reader.read(6, 6)] == [5]
    assert list(reader.read(10, 20)) == []
    assert reader.meta("life")["life"] == "x"
    assert all(each.t_us > 1e15 for each in reader.read(1, 9))
    reader.close()


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    filled(tmp_path)
    with Log(tmp_path) as log:
        assert log.bounds == LogBounds(1, 10, 10)
        assert log.nbytes == 100
        log.append([batch(11)], {"a": "1", "b": "2"})
        log.append([], {"a": None})
    with Log(tmp_path) as log:
        assert (log.end, log.meta("a"), log.meta("b")) == (11, None, "2")


def test_holes_are_known_and_filled(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        log.append([batch(1, 2), batch(6, 7), batch(10)])
        assert log.bounds == LogBounds(1, 2, 10)
        assert log.holes() == [(3, 5), (8, 9)]
    with Log(tmp_path, durable=False) as log:
        assert log.holes() == [(3, 5), (8, 9)]
        log.append([batch(3, 5)])
        assert log.bounds == LogBounds(1, 7, 10)
        log.append([batch(8, 9)])
        assert log.bounds == LogBounds(1, 10, 10)
        assert not log.holes()


@pytest.mark.parametrize("span", [(1, 1), (2, 4), (5, 6), (4, 9), (7, 7), (1, 20)])
def test_a_place_is_written_once(tmp_path: Path, span: tuple[int, int]) -> None:
    with Log(tmp_path, durable=False) as log:
        log.append([batch(1, 2), batch(6, 7)])
        with pytest.raises(Misuse, match="was appended before"):
            log.append([batch(30), batch(*span)], {"a": "1"})
        assert log.last == 7, "all of it or nothing"
        assert log.meta("a") is None
    assert firsts(tmp_path) == [1, 6]


@pytest.mark.parametrize(
    "bad", [LogBatch(0, 0, b""), LogBatch(2, 1, b""), LogBatch(1, 1 << 63, b"")]
)
def test_places_begin_at_one(tmp_path: Path, bad: LogBatch) -> None:
    with Log(tmp_path) as log, pytest.raises(Misuse, match="begin at 1"):
        log.append([bad])


def test_what_the_log_keeps_itself_is_not_the_callers(tmp_path: Path) -> None:
    with Log(tmp_path) as log, pytest.raises(Misuse, match="reserved keys: end"):
        log.append([], {"end": "7"})


def test_appends_that_wait_together_share_a_transaction(tmp_path: Path) -> None:
    with Log(tmp_path, durable=False) as log:
        log._writing.acquire()  # as if one were being written
        threads = [threading.Thread(target=log.append, args=([batch(at)],)) for at in range(1, 9)]
        for thread in threads:
            thread.start()
        while len(log._waiting) < len(threads):
            pass
        log._writing.release()
        for thread in threads:
            thread.join()
        assert log.end == 8
        assert log.commits == 1


def test_one_of_those_that_wait_may_be_wrong(tmp_path: Path) -> None:
    told: list[str] = []

    def say(log: Log, first: int) -> None:
        try:
            log.append([batch(first)])
        except Misuse as error:
            told.append(str(error))

    with Log(tmp_path, durable=False) as log:
        log.append([batch(1)])
        log._writing.acquire()
        threads = [threading.Thread(target=say, args=(log, at)) for at in (1, 2, 3)]
        for thread in threads:
            thread.start()
        while len(log._waiting) < len(threads):
            pass
        log._writing.release()
        for thread in threads:
            thread.join()
        assert told == ["offset 1 was appended before: append only new ones"]
        assert log.end == 3


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with Log(tmp_path), pytest.raises(Misuse, match="another process writes"):
        Log(tmp_path)
    Log(tmp_path).close()


def test_a_closed_log_refuses_appends(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.close()
    with pytest.raises(Misuse, match="closed"):
        log.append([batch(1)])


WRITER = """
import sys, time
from unisono.log import LogBatch, Log
log = Log(sys.argv[1])
for at in range(1, 100_000):
    log.append([LogBatch(at, at, b"%d" % at, 1)], {"upto": str(at)})
    print(at, flush=True)
"""


@pytest.mark.real
def test_another_process_reads_while_it_is_written_and_killed(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    told = 0
    for line in writer.stdout:
        told = int(line)
        if told == 20:
            assert len(firsts(tmp_path)) >= 20
        if told == 60:
            break
    writer.kill()
    told = max([told, *map(int, writer.stdout.read().split())])
    writer.wait()
    with Log(tmp_path) as log:
        assert log.end >= told, "what was reported durable is there"
        assert log.meta("upto") == str(log.end), "a batch and what is known of it are one"
        assert not log.holes()
        assert firsts(tmp_path) == list(range(1, log.end + 1))


# Retention.


def test_the_oldest_are_dropped_by_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path, 10, nbytes=100)
    caplog.set_level("INFO", "unisono.log")
    with Log(tmp_path) as log:
        assert log.trim(bytes_max=1000) is None
        dropped = log.trim(bytes_max=750)
        assert dropped is not None
        assert (dropped.first, dropped.last, dropped.nbytes) == (1, 3, 300)
        assert "more than 750 bytes" in dropped.reason
        assert "offsets 1 to 3" in caplog.text
        assert log.bounds == LogBounds(4, 10, 10)
        assert log.nbytes == 700
    reader = LogReader(tmp_path)
    with pytest.raises(Trimmed, match="offsets 2 to 3 were dropped") as error:
        list(reader.read(2, 9))
    assert error.value.begins == 4
    assert [each.first for each in reader.read(4, 9)] == [4, 5, 6, 7, 8, 9]
    with Log(tmp_path) as log:
        assert log.bounds == LogBounds(4, 10, 10)


def test_the_oldest_are_dropped_by_age_and_a_hole_stays_one(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([batch(1, 3, t_us=1_000_000), batch(6, 7, t_us=9_000_000)])
        dropped = log.trim(age_s=5, now_us=10_000_000)
        assert dropped is not None
        assert (dropped.first, dropped.last) == (1, 3)
        assert log.bounds == LogBounds(4, 3, 7)
        assert log.holes() == [(4, 5)]
        with pytest.raises(Misuse, match="before"):
            log.append([batch(3)])
        assert log.trim(age_s=5, now_us=20_000_000) is not None
        assert log.bounds == LogBounds(8, 7, 7)


# Damage.


def test_small_batches_are_merged_once_and_read_as_before(tmp_path: Path) -> None:
    """Appends and readers go on; what may still grow, and what a hole ends, is left alone."""
    whole = [batch(at) for at in range(1, 9000)]
    with Log(tmp_path, durable=False) as log:
        log.append(whole[:8500])
        reader = LogReader(tmp_path)
        reading = reader.read(1, 8999)
        first = next(reading)
        assert log.merge(b"".join) == 8192
        log.append(whole[8500:])
        assert log.merge(b"".join) == 0
        log.append([batch(9002)])
        assert log.merge(b"".join) == 8999 - 8192
        assert log.merge(b"".join) == 0
        assert log.nbytes == 9000 * 10
        assert log.holes() == [(9000, 9001)]
        assert firsts(tmp_path) == [1, 8193, 9002]
        # The page that was read before the merge goes on in the middle of a merged batch.
        rest = [first, *reading]
        assert [each.first for each in rest][-2:] == [1, 8193]
        reader.close()
        assert log.trim(bytes_max=20_000) is not None
        assert log.first == 8193
    with Log(tmp_path) as again:
        assert again.merge(b"".join) == 0
        assert again.bounds == LogBounds(8193, 8999, 9002)


def test_a_bad_batch_is_not_merged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path, 200)
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        connection.execute("UPDATE batch SET blob = x'00' WHERE first = 20")
    with Log(tmp_path) as log:
        log.append([batch(300)])
        assert log.merge(b"".join) == 1
        assert log.holes() == [(20, 20), (201, 299)]
        assert [log.merge(b"".join) for _ in range(3)] == [19, 180, 0]
    assert "offsets 20 to 20 does not match its checksum: it is set aside" in caplog.text
    assert firsts(tmp_path) == [1, 21, 300]


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.sqlite").write_text("a letter to the editor")
    for opened in (Log, LogReader):
        with pytest.raises(BadLog, match="not a Unisono log"):
            opened(tmp_path)


def test_another_database_is_refused(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "log.sqlite")
    other.execute("CREATE TABLE t (x)")
    other.close()
    for opened in (Log, LogReader):
        with pytest.raises(BadLog, match="not a Unisono log"):
            opened(tmp_path)


def test_no_log_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(BadLog, match="no log here"):
        LogReader(tmp_path)


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    other = sqlite3.connect(tmp_path / "log.sqlite")
    other.execute("PRAGMA user_version = 9")
    other.close()
    with pytest.raises(BadLog, match="version 9"):
        Log(tmp_path)


# The clever part equals its slow twin.


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 5)), max_size=25),
    st.integers(1, 40),
)
def test_spans_are_a_set_of_places(wanted: list[tuple[int, int]], drop: int) -> None:
    spans, held = RangeSet(), set[int]()
    for first, more in wanted:
        places = set(range(first, first + more + 1))
        assert spans.overlap(first, first + more) == min(places & held, default=None)
        if not places & held:
            spans.add(first, first + more)
            held |= places
    first = 1
    for _ in range(2):
        end = first - 1
        while end + 1 in held:
            end += 1
        last = max([*held, end])
        assert (spans.end, spans.last) == (end, last)
        missing = {place for a, b in spans.holes() for place in range(a, b + 1)}
        assert missing == set(range(end + 1, last + 1)) - held
        first = drop
        spans.drop_before(drop)
        held = {place for place in held if place >= drop}


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "log"):
        with pytest.raises(Misuse, match="is not a directory"):
            Log(path)
