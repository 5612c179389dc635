"""Damage of a log costs the batches it hit, never others, and is reported in one line."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pytest

from tests.log.test_log import batch, filled, firsts
from unisono.log import BadBatch, BadLog, Log, LogBatch, LogBounds, LogReader
from unisono.log.salvage import DAMAGED_COUNT_MAX

FILE = "log.sqlite"


def execute(directory: Path, *statements: str) -> None:
    with sqlite3.connect(directory / FILE) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def whole(directory: Path, count: int, size: int) -> list[LogBatch]:
    """The batches of a closed log, all of them in its file."""
    filled(directory, count, nbytes=size)
    execute(directory, "PRAGMA wal_checkpoint(TRUNCATE)")
    reader = LogReader(directory)
    try:
        return [*reader.read(1, count)]
    finally:
        reader.close()


def test_a_bad_batch_at_the_end_is_set_aside_and_only_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, 100)
    execute(tmp_path, "UPDATE batch SET blob = x'0102' WHERE first = 98")
    with pytest.raises(BadBatch, match="offsets 98 to 98 does not match"):
        firsts(tmp_path)
    with Log(tmp_path) as log:
        assert log.bounds == LogBounds(1, 97, 100)
        assert log.holes() == [(98, 98)]
        (line,) = caplog.messages
        assert "offsets 98 to 98 does not match its checksum: it is set aside" in line
        assert f"copied to {FILE}.batch-98" in line
        facts, _, blob = (tmp_path / f"{FILE}.batch-98").read_bytes().partition(b"\n")
        assert blob == b"\1\2"
        assert json.loads(facts)["first"] == 98
        assert firsts(tmp_path) == [*range(1, 98), 99, 100]
        log.append([batch(98)])
    assert firsts(tmp_path) == [*range(1, 101)]
    assert LogReader(tmp_path).bounds() == LogBounds(1, 100, 100)


def test_the_offsets_of_a_bad_last_batch_are_not_given_again(tmp_path: Path) -> None:
    filled(tmp_path, 10)
    execute(tmp_path, "UPDATE batch SET rows = 7 WHERE first = 10")
    for _ in range(2):
        with Log(tmp_path) as log:
            assert log.bounds == LogBounds(1, 9, 10)
            assert log.holes() == [(10, 10)]
            assert log.meta("last") == "10"
    with Log(tmp_path) as log:
        log.append([batch(11)])
        assert log.holes() == [(10, 10)]
        log.append([batch(10)])
        assert log.bounds == LogBounds(1, 11, 11)


def test_an_old_batch_is_set_aside_when_a_reader_names_it(tmp_path: Path) -> None:
    filled(tmp_path, 200)
    execute(tmp_path, "UPDATE batch SET blob = x'00' WHERE first = 5")
    with Log(tmp_path) as log:
        assert log.end == 200, "the end alone is read when a log is opened"
        with pytest.raises(BadBatch) as error:
            firsts(tmp_path)
        assert log.set_aside(error.value.first)
        assert not log.set_aside(error.value.first)
        assert not log.set_aside(6), "it is sound"
        assert log.bounds == LogBounds(1, 4, 200)
        assert log.nbytes == 199 * 10
    assert LogReader(tmp_path).bounds() == LogBounds(1, 4, 200)
    assert firsts(tmp_path) == [*range(1, 5), *range(6, 201)]


def test_batches_that_overlap_lose_the_bad_one(tmp_path: Path) -> None:
    filled(tmp_path, 100)
    execute(tmp_path, "UPDATE batch SET last = 3 WHERE first = 2")
    with Log(tmp_path) as log:
        assert log.holes() == [(2, 2)]
    assert (tmp_path / f"{FILE}.damaged-0").exists()


def test_a_bad_batch_that_cannot_be_copied_is_not_removed(tmp_path: Path) -> None:
    filled(tmp_path, 10)
    execute(tmp_path, "UPDATE batch SET blob = x'00' WHERE first = 9")
    (tmp_path / f"{FILE}.batch-9").mkdir()
    with pytest.raises(BadLog, match="cannot copy a damaged batch: Is a directory"):
        Log(tmp_path)
    (tmp_path / f"{FILE}.batch-9").rmdir()
    for at in range(DAMAGED_COUNT_MAX):
        (tmp_path / f"{FILE}.batch-{1000 + at}").touch()
    with Log(tmp_path) as log:
        assert log.holes() == [(9, 9)]
    assert not (tmp_path / f"{FILE}.batch-9").exists(), "copies are bounded"


def test_a_truncated_file_keeps_what_was_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, 200, nbytes=3000)
    path = tmp_path / FILE
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size // 2 // 4096 * 4096 + 100)
    with pytest.raises(BadLog, match="malformed"):
        LogReader(tmp_path).bounds()
    with Log(tmp_path) as log:
        assert 20 < log.end < 200
        assert log.last == 200, "later offsets are not given to other batches"
        (line,) = caplog.messages
        assert "was damaged" in line
        assert f"those of offsets {log.end + 1} to 200 are missing" in line
        log.append([batch(log.end + 1)])
        assert firsts(tmp_path) == list(range(1, log.end + 1))
    assert (tmp_path / f"{FILE}.damaged-0").exists()


@pytest.mark.parametrize("size", [10, 20_000])
def test_a_page_of_garbage_costs_its_batches_only(tmp_path: Path, size: int) -> None:
    """Each page in turn is overwritten. What SQLite cannot read at all is refused in one line."""
    before = {each.first: each for each in whole(tmp_path, 120, size)}
    path = tmp_path / FILE
    image = path.read_bytes()
    refused, sound = 0, list[int]()
    pages = range(0, len(image), 4096)
    for at in random.Random(size).sample(pages, min(len(pages), 12)):
        clear(tmp_path)
        path.write_bytes(image[:at] + b"\xa5" * 4096 + image[at + 4096 :])
        kept = opened(tmp_path, before)
        if kept is None:
            refused += 1
        else:
            sound.append(kept)
    assert refused <= 2, "the header, and the page of the metadata"
    # A page has at most so many batches.
    assert min(sound) >= 120 - 2 - 4096 // size
    assert sum(sound) < 120 * len(sound) or size == 10, "some were hit"


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_costs_a_page_at_most(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    size = draw.choice((10, 700, 9000))
    before = {each.first: each for each in whole(tmp_path, 80, size)}
    path = tmp_path / FILE
    image = path.read_bytes()
    for _ in range(12):
        clear(tmp_path)
        changed = bytearray(image)
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        kept = opened(tmp_path, before)
        assert kept is None or kept >= 80 - 1 - 4096 // size


def clear(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


def opened(directory: Path, before: dict[int, LogBatch]) -> int | None:
    """Open a damaged log, read it whole, and set aside what is bad. Returns how many batches are
    held, each as it was; None if it is refused."""
    for _ in range(3):
        try:
            with Log(directory, durable=False) as log:
                while True:
                    try:
                        reader = LogReader(directory)
                        try:
                            found = [*reader.read(1, 1 << 60)]
                        finally:
                            reader.close()
                    except BadBatch as error:
                        assert log.set_aside(error.first)
                        continue
                    break
                held = {place for each in found for place in range(each.first, each.last + 1)}
                missing = {place for a, b in log.holes() for place in range(a, b + 1)}
                assert not held & missing
                for each in found:
                    assert each[:4] == before[each.first][:4]
                return len(found)
        except BadLog as error:
            assert "\n" not in str(error)
    return None
