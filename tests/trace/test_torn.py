"""Damage: files cut anywhere, bits flipped anywhere, processes killed while they write."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.telling import story, write_trace
from unisono.trace.files import TraceFile
from unisono.trace.parquet import ParquetPart, batch_of
from unisono.trace.reading import read_trace
from unisono.trace.record import Row


def rows_of(count: int) -> list[Row]:
    view = Row("p", "g", "a", 1, 0, 0, "view", "v", members=("a#1", "b#1"), detail="b#1:2")
    view = view._replace(joined=("a#1", "b#1"), changes=("founded", "joined b#1", "failed c#1"))
    blank = Row("p", "g", "a", 1, 0, 0, "deliver", "v", "b", 1, 1, None, "causal", 2, 9)
    said = [blank._replace(step=step, t_us=step * 10, number=step) for step in range(1, count)]
    return [view, *said]


def written(directory: Path, count: int, each: int) -> tuple[Path, list[int]]:
    """A file that was not closed, and its length after each flush."""
    file = TraceFile(directory, "r", "a", 1, row_count_max=each)
    ends = [0]
    for place, row in enumerate(rows_of(count), 1):
        file.write(row)
        if place % each == 0:
            ends.append(file.path.stat().st_size)
    file.abandon()
    return file.path, ends


def test_a_file_cut_anywhere_is_read_up_to_its_last_whole_group(tmp_path: Path) -> None:
    path, ends = written(tmp_path, 4, 2)
    data = path.read_bytes()
    near = {end + offset for end in ends for offset in (-2, -1, 0, 1, 2, 12)}
    for length in sorted({*range(0, len(data), 17), *near}):
        if 0 <= length <= len(data):
            path.write_bytes(data[:length])
            part = ParquetPart(path)
            whole = sum(end <= length for end in ends[1:])
            assert sum(table.num_rows for table in part.tables()) == 2 * whole
            assert part.torn
            assert (part.lost is None) == (length in ends[1:]), length


def test_a_cut_file_has_the_same_rows(tmp_path: Path) -> None:
    path, ends = written(tmp_path, 12, 4)
    path.write_bytes(path.read_bytes()[: ends[2] + 5])
    trace = read_trace(tmp_path)
    assert trace.runs == {"r": rows_of(12)[:8]}
    assert trace.torn == {"r": frozenset({"a#1"})}
    assert [q.reason for q in trace.quarantined] == ["torn: 5 bytes after the last whole row group"]


def test_a_closed_file_that_was_cut_is_quarantined(tmp_path: Path) -> None:
    file = TraceFile(tmp_path, "r", "a", 1)
    for row in rows_of(5):
        file.write(row)
    file.close()
    assert [path.name for path in file.path.parent.iterdir()] == ["a-1.parquet"]
    file.path.write_bytes(file.path.read_bytes()[:-9])
    trace = read_trace(tmp_path)
    (found,) = trace.unjudged
    assert found.reason.startswith("unreadable: ") and trace.events == 0


def test_an_abandoned_file_is_torn(tmp_path: Path) -> None:
    file = TraceFile(tmp_path, "r", "a", 1)
    for row in rows_of(5):
        file.write(row)
    file.flush()
    file.write(rows_of(9)[7])
    path = file.path
    del file
    assert [path.name for path in path.parent.iterdir()] == ["a-1.parquet"]
    trace = read_trace(tmp_path)
    assert (trace.events, trace.quarantined) == (5, [])
    assert trace.torn == {"r": frozenset({"a#1"})}


@pytest.mark.slow
def test_flipped_bits_are_never_an_error_and_never_a_lie(tmp_path: Path) -> None:
    """A row that is read is one that was written: frames and pages have checksums."""
    path, _ = written(tmp_path, 6, 3)
    frames = path.read_bytes()
    file = TraceFile(tmp_path, "r", "a", 1, row_count_max=3)
    for row in rows_of(6):
        file.write(row)
    file.close()
    closed = path.read_bytes()
    truth = set(rows_of(6))
    dice = random.Random(7)
    outcomes = {"whole": 0, "damaged": 0}
    for _ in range(1500):
        bad = bytearray(dice.choice((frames, closed)))
        for _ in range(dice.choice((1, 1, 2, 8))):
            bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        path.write_bytes(bad)
        trace = read_trace(tmp_path)
        assert trace.events + len(trace.quarantined) > 0
        assert set(trace.runs.get("r", [])) <= truth
        outcomes["whole" if trace.events == 6 else "damaged"] += 1
    assert outcomes["damaged"] > 500, outcomes


@given(st.binary(max_size=400))
@settings(max_examples=300)
def test_any_bytes_are_quarantined(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("any") / "run=r"
    folder.mkdir()
    for name, content in {"x": data, "y": b"PAR1" + data, "z": b"PAR1" + data + b"PAR1"}.items():
        (folder / f"{name}.parquet").write_bytes(content)
    trace = read_trace(folder.parent)
    assert trace.events == 0
    assert len(trace.quarantined) == 3


def test_a_promise_of_gigabytes_is_not_believed(tmp_path: Path) -> None:
    path, ends = written(tmp_path, 12, 4)
    data = bytearray(path.read_bytes())
    data[ends[1] + 4 : ends[1] + 8] = (2**32 - 1).to_bytes(4, "little")
    path.write_bytes(data)
    part = ParquetPart(path)
    assert [table.num_rows for table in part.tables()] == [4]
    assert part.lost == f"torn: {len(data) - ends[1]} bytes after the last whole row group"


KILLED = """
import sys
from unisono.trace.files import TraceFile
from unisono.trace.record import Row
file = TraceFile(sys.argv[1], "r", "a", 1, row_count_max=50)
step = 0
while True:
    file.write(Row("p", "g", "a", 1, step, step, "timer", "", detail="x" * (step % 99)))
    step += 1
    if step == 1000:
        print("ready", flush=True)
"""


@pytest.mark.real
def test_a_killed_process_leaves_a_readable_trace(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
    trace = read_trace(tmp_path)
    assert trace.events >= 1000
    assert trace.events % 50 == 0
    assert [row.step for row in trace.runs["r"]] == list(range(trace.events))
    assert trace.torn == {"r": frozenset({"a#1"})}


def test_a_torn_life_owes_nothing_when_it_is_read_back(tmp_path: Path) -> None:
    history = story("a: view 1 a b | send | a:1\nb: view 1 a b", torn="b")
    write_trace(history, tmp_path)
    (read,) = read_trace(tmp_path).histories()
    assert read.lives["b#1"].end == "vanished"


def test_incarnations_have_63_bits(tmp_path: Path) -> None:
    large = (1 << 63) - 1
    file = TraceFile(tmp_path, "r", "a", large, row_count_max=2)
    told = [row._replace(incarnation=large) for row in rows_of(4)]
    told = [row._replace(sender_incarnation=large - 1) if row.sender else row for row in told]
    for row in told:
        file.write(row)
    assert read_trace(tmp_path).runs == {"r": told}
    file.close()
    assert read_trace(tmp_path).runs == {"r": told}


def test_identities_that_became_floating_numbers_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "run=r" / "a-1-0.parquet"
    path.parent.mkdir()
    for incarnation, reads in ((7, True), ((1 << 60) + 1, False)):
        rows = pa.Table.from_batches([batch_of([rows_of(1)[0]._replace(incarnation=incarnation)])])
        floats = pa.array([float(incarnation)])
        pq.write_table(rows.set_column(3, "incarnation", floats), path)
        assert bool(read_trace(tmp_path).runs.get("r")) is reads
