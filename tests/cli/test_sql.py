"""`unisono sql`: replicas of a database as processes, killed for real; the shell of SQLite opens
their files."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import here, refused, unisono
from tests.harness import ENVIRONMENT, ROOT, UNISONO
from tests.net.recorder import free_port
from tests.waiting import until
from unisono.processes import Process, Processes

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("replication")]


class Shells:
    """`unisono sql` processes by name."""

    def __init__(self, processes: Processes, path: Path, *arguments: str) -> None:
        self.path = path
        self._processes = processes
        self._arguments = ["--port", str(free_port()), "--option", "detect_us=300000", *arguments]
        self.running: dict[str, Process] = {}

    def start(self, names: str) -> None:
        for name in names:
            words = ["sql", str(self.path / f"{name}.db"), "--group", "app", "--name", name]
            command = [*UNISONO, *words, "--members", "a,b,c", "--json", *self._arguments]
            self.running[name] = self._processes.start(name, command, ENVIRONMENT)

    def kill(self, names: str) -> None:
        for name in names:
            self.running[name].signal(signal.SIGKILL)
        for name in names:
            process = self.running.pop(name)
            until(lambda process=process: process.code is not None, f"the end of {name}")

    def ask(self, name: str, line: str) -> dict[str, Any]:
        shell = self.running[name]
        count = len(shell.objects)
        shell.write(line)
        until(lambda: len(shell.objects) > count, line, lambda: shell.errors)
        return shell.objects[count]

    def dumps(self, names: str) -> list[str]:
        """As the files are, also while replicas use them."""
        found = []
        for name in names:
            uri = f"file:{self.path / name}.db?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as file:
                found.append("\n".join(file.iterdump()))
        return found

    def expect_alike(self, names: str) -> None:
        until(lambda: len(set(self.dumps(names))) == 1, f"equal files of {names}")


@pytest.fixture
def shells(tmp_path: Path) -> Iterator[Shells]:
    with Processes() as processes:
        yield Shells(processes, tmp_path)


def test_replicas_are_killed_and_come_back_and_another_joins(shells: Shells) -> None:
    shells.start("abc")
    create = "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE, b DEFAULT (random()));"
    shells.ask("a", create)
    assert shells.ask("b", "INSERT INTO t(a) VALUES ('b');")["lastrowid"] == 1
    shells.kill("c")
    assert shells.ask("a", "INSERT INTO t(a) VALUES ('a') RETURNING id;")["rows"] == [[2]]
    shells.kill("ab")
    shells.start("abc")
    assert shells.ask("c", "INSERT INTO t(a) VALUES (datetime('now'));")["rowcount"] == 1
    failed = shells.ask("c", "INSERT INTO t(a) VALUES ('b');")
    assert failed["kind"] == "IntegrityError" and "t.a" in failed["error"]
    shells.start("d")
    shells.ask("a", ".add d")
    until(lambda: "d" in shells.ask("d", ".status")["members"])
    assert shells.ask("d", "INSERT INTO t(a) VALUES ('d');")["lastrowid"] == 4
    shells.expect_alike("abcd")
    assert shells.ask("d", "SELECT count(*) FROM t;")["rows"] == [[4]]
    status = shells.ask("d", ".status")
    assert status["members"] == ["a", "b", "c", "d"] and not status["blocked"]


def test_transactions_and_refusals(shells: Shells) -> None:
    shells.start("abc")
    shells.ask("a", "CREATE TABLE t(a);")
    one = shells.running["a"]
    one.write("BEGIN;", "INSERT INTO t VALUES (1);", "ROLLBACK;")
    one.write("BEGIN;", "INSERT INTO t", "VALUES (2);")
    assert shells.ask("a", "INSERT INTO t VALUES (3); COMMIT;")["rowcount"] == 1
    until(lambda: len(one.objects) == 3, "an answer of each statement")
    found = shells.ask("a", "SELECT sum(a) AS total, min(a) FROM t;")
    assert found["columns"] == ["total", "min(a)"] and found["rows"] == [[5, 2]]
    for line, advice in (
        ("INSERT INTO t VALUES (time('now', 'localtime'));", "time zone"),
        ("DELETE FROM t LIMIT 1;", "ORDER BY"),
        ("ATTACH 'x.db' AS x;", "copy its rows"),
        ("COMMIT;", "BEGIN first"),
        (".frob", ".help"),
    ):
        assert advice in shells.ask("b", line)["error"]


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="no sqlite3 here")
def test_the_shell_of_sqlite_opens_the_file_of_a_replica(shells: Shells) -> None:
    shells.start("ab")
    shells.ask("a", "CREATE TABLE t(a);")
    shells.ask("a", "INSERT INTO t VALUES (x'00ff'), (NULL), ('ä');")
    shells.expect_alike("ab")

    def opened(name: str, sql: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sqlite3", str(shells.path / f"{name}.db"), sql],
            capture_output=True,
            text=True,
            check=False,
        )

    for name in "ab":
        assert opened(name, "SELECT quote(a) FROM t").stdout == "X'00FF'\nNULL\n'ä'\n"
    assert "locked" in opened("a", "DELETE FROM t").stderr, "only the group writes"
    shells.kill("ab")
    for name in "ab":
        assert opened(name, "PRAGMA integrity_check; SELECT count(*) FROM t").stdout == "ok\n3\n"


def test_what_belongs_to_others_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def started(path: str, group: str = "app", name: str = "a", members: str = "a") -> Any:
        words = ["--group", group, "--name", name, "--members", members, "--port", port]
        return here(capfd, "sql", str(tmp_path / path), *words)

    port = str(free_port())
    with closing(sqlite3.connect(tmp_path / "own.db")) as own:
        own.execute("CREATE TABLE t(a)")
    done = unisono(
        *("sql", "app.db", "--group", "app", "--name", "a", "--members", "a", "--port", port),
        cwd=tmp_path,
        stdin=b"CREATE TABLE t(a); INSERT INTO t VALUES (1.5); SELECT a, NULL, x'ff' FROM t;",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1.5||x'ff'\n", "")
    refused(started("own.db"), "database of its own", "new file")
    refused(started("app.db", group="other"), "'app'", "'other'")
    refused(started("app.db", name="b", members="b"), "member 'a'")
    refused(started("app.db", members="a,b"), "began with")
    refused(started("app.db", members="a,a"), "each once")
    shutil.rmtree(tmp_path / "app.db-replica")
    refused(started("app.db"), "has 2 updates", "lost")


def test_notes_outlive_all_processes(tmp_path: Path) -> None:
    def noting(name: str, *texts: str) -> Process:
        command = [sys.executable, str(ROOT / "examples" / "notes.py"), name, *texts]
        return processes.start(name, command, ENVIRONMENT, tmp_path)

    def shows(process: Process, *texts: str) -> None:
        def is_shown() -> bool:
            return all(any(text.encode() in line for line in process.lines) for text in texts)

        until(is_shown, f"{texts}", lambda: process.errors)

    with Processes() as processes:
        first = noting("a", "of a"), noting("b", "of b")
        for each in first:
            shows(each, "of a", "of b")
        for each in first:
            each.kill()
        for each in noting("a"), noting("b"), noting("c", "of c"):
            shows(each, "#1 ", "#2 ", "#3 ", "of a", "of b", "of c")
