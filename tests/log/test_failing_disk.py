"""A disk that is full or loses power: what an append reported durable is there, nothing else."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.log.test_log import batch, firsts
from tests.waiting import LIMIT_S
from unisono.log import BadLog, Log

WAL = "log.sqlite-wal"
FULL = """
import sys
from unisono.log import BadLog, Log, LogBatch
log, done = Log(sys.argv[1]), 0
try:
    for at in range(1, 10_000):
        log.append([LogBatch(at, at, bytes(3000), 1)])
        done = at
except BadLog as error:
    assert log.end == done and not log.holes(), "the failed append is no part of the log"
    print(done, error)
"""


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    """The system refuses to let a file grow beyond 200 kB."""

    def bounded() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        preexec_fn=bounded,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stdout.splitlines()
    done, _, reason = line.partition(" ")
    assert "SQLite: " in reason
    assert int(done) > 5
    with Log(tmp_path) as log:
        assert log.end == int(done)
        log.append([batch(log.end + 1)])
    assert firsts(tmp_path) == [*range(1, int(done) + 2)]


def test_a_database_that_cannot_grow_keeps_what_it_has(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([batch(1)])
        log._connection.execute("PRAGMA max_page_count = 12")
        with pytest.raises(BadLog, match="full"):
            log.append([batch(2), batch(3, nbytes=100_000)], {"a": "1"})
        assert (log.end, log.meta("a")) == (1, None)
        log._connection.execute("PRAGMA max_page_count = 1000000")
        log.append([batch(2)])
    assert firsts(tmp_path) == [1, 2]


def test_after_a_power_cut_at_any_write_each_durable_append_is_there(tmp_path: Path) -> None:
    """Between checkpoints a log's file only gets its write-ahead log longer, so the state at each
    cut is a beginning of that file; and with it, what was durable then."""
    live, cut = tmp_path / "live", tmp_path / "cut"
    durable: list[tuple[int, int]] = []
    with Log(live) as log:
        log._connection.execute("PRAGMA wal_autocheckpoint = 0")
        for at in range(1, 9):
            log.append([batch(at, nbytes=900 * at)], {"upto": str(at)})
            durable.append(((live / WAL).stat().st_size, at))
        database, written = (live / "log.sqlite").read_bytes(), (live / WAL).read_bytes()
        frame = 4096 + 24
        cuts = {at + more for at in range(0, len(written), frame) for more in (0, 24, 700)}
        seen = set[int]()
        for size in sorted(min(each, len(written)) for each in cuts):
            shutil.rmtree(cut, ignore_errors=True)
            cut.mkdir()
            (cut / "log.sqlite").write_bytes(database)
            # A torn write: the file has its length, and not all of its bytes.
            (cut / WAL).write_bytes(written[:size] + bytes(-size % frame))
            sure = max((at for end, at in durable if end <= size), default=0)
            try:
                again = Log(cut, durable=False)
            except BadLog:
                assert not sure, "before the first append there is no log yet"
                continue
            with again:
                assert sure <= again.end
                assert again.meta("upto") in (None, str(again.end)), "a batch and its books are one"
                assert not again.holes()
                seen.add(again.end)
            assert firsts(cut) == [*range(1, sure + 1)]
        assert seen == {*range(9)}


def test_a_log_whose_checkpoint_was_cut_is_whole(tmp_path: Path) -> None:
    """A checkpoint writes pages of the write-ahead log into the database, in any order, and the
    power fails after some."""
    live, cut = tmp_path / "live", tmp_path / "cut"
    with Log(live) as log:
        log._connection.execute("PRAGMA wal_autocheckpoint = 0")
        log.append(batch(at, nbytes=2000) for at in range(1, 30))
        before, written = (live / "log.sqlite").read_bytes(), (live / WAL).read_bytes()
        log._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        after = (live / "log.sqlite").read_bytes()
    pages = range(0, len(after), 4096)
    for count in range(len(pages) + 1):
        image = bytearray(before.ljust(len(after), b"\0"))
        for at in pages[-count:] if count else []:
            image[at : at + 4096] = after[at : at + 4096]
        shutil.rmtree(cut, ignore_errors=True)
        cut.mkdir()
        (cut / "log.sqlite").write_bytes(image)
        (cut / WAL).write_bytes(written)
        with Log(cut, durable=False) as log:
            assert (log.end, log.holes()) == (29, [])


FAILING = """
import os, sys
from pathlib import Path
from unisono.log import BadLog, Log, LogBatch

def appended(log, at):
    log.append([LogBatch(at, at, bytes([at]) * 3000, 1)], {"upto": str(at)})

kind, told = sys.argv[2], []
for count in range(1, 30, 3):
    folder, done = Path(sys.argv[1], f"{kind}{count}"), 0
    os.putenv(kind, str(count))
    try:
        with Log(folder) as log:
            for at in range(1, 5):
                try:
                    appended(log, at)
                except BadLog as error:
                    told.append(str(error))
                    assert (log.end, log.holes()) == (done, []), "it is no part of the log"
                    appended(log, at)  # The disk works again.
                done = at
                assert log.meta("upto") == str(done)
    except BadLog as error:  # At its opening, or closing.
        told.append(str(error))
    os.unsetenv(kind)
    with Log(folder) as log:
        assert log.end == done or (not done and not log.end), (count, log.end, done)
        assert not log.holes() and log.meta("upto") in (None, str(log.end))
        appended(log, log.end + 1)
print(len(told), *sorted({text.replace(sys.argv[1], "")[-60:] for text in told}), sep="\\n")
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    built = tmp_path_factory.mktemp("shim") / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", built, source], check=True)
    return built


@pytest.mark.parametrize("kind", ["FAIL_SYNC", "FAIL_WRITE", "FULL_WRITE", "SHORT_WRITE"])
def test_after_any_write_or_sync_that_failed_a_log_goes_on(
    shim: Path, tmp_path: Path, kind: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FAILING, str(tmp_path), kind],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "LD_PRELOAD": str(shim)},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    errors, *texts = ran.stdout.splitlines()
    assert (int(errors) >= 3) == (kind != "SHORT_WRITE"), "a short write is gone on with"
    assert all("SQLite: " in text for text in texts), texts
