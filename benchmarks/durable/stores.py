"""What a log of our own costs beside SQLite: `python -m benchmarks.durable.stores [DIRECTORY]`.

Updates of 100 bytes, so many in each commit. Processor time, bytes written and syncs are counted,
so other work on the machine matters little; how long a sync takes is the disk's.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.durable.load import SIZE
from unisono.net.stable import StableFile
from unisono.services.replication.records import RedRecord, Update, UpdateKind, record_bytes

COMMITS: Final = 300
Commit = Callable[[list[bytes]], None]


def own_log(directory: Path) -> tuple[Commit, Callable[[], None]]:
    file = StableFile(directory / "log", 1 << 40)

    def commit(updates: list[bytes]) -> None:
        made = tuple(Update("a", n, UpdateKind.APPLICATION, each) for n, each in enumerate(updates))
        file.append(record_bytes(RedRecord(made)))

    return commit, file.close


def sqlite_log(directory: Path) -> tuple[Commit, Callable[[], None]]:
    """In WAL mode; a commit is durable when it returns."""
    log = sqlite3.connect(directory / "log.sqlite", isolation_level=None)
    log.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        "CREATE TABLE log(number INTEGER PRIMARY KEY, submitter TEXT, content BLOB)"
    )

    def commit(updates: list[bytes]) -> None:
        log.execute("BEGIN")
        log.executemany(
            "INSERT INTO log(submitter, content) VALUES ('a', ?)", [(each,) for each in updates]
        )
        log.execute("COMMIT")

    return commit, log.close


def written_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for count in (1, 16, 256):
        updates = [bytes([n % 256]) * SIZE for n in range(count)]
        for name, opened in (("own log", own_log), ("SQLite", sqlite_log)):
            with tempfile.TemporaryDirectory(dir=directory) as top:
                commit, close = opened(Path(top))
                cpu, nbytes, begin = time.process_time(), written_bytes(), time.perf_counter()
                for _ in range(COMMITS):
                    commit(updates)
                took = time.perf_counter() - begin
                cpu, nbytes = time.process_time() - cpu, written_bytes() - nbytes
                close()
            print(
                f"{name:8} {count:4} a commit: {1e6 * cpu / COMMITS / count:7.1f} us of processor"
                f" and {nbytes / COMMITS / count:7.0f} bytes an update,"
                f" {1e3 * took / COMMITS:6.2f} ms a commit",
                flush=True,
            )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build"))
