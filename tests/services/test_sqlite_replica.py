"""Replicas that apply the same updates have the same file, wherever they crash."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.errors import Misuse
from unisono.services.sqlite import replica as replica_module
from unisono.services.sqlite.functions import dialect
from unisono.services.sqlite.replica import ReplicaFailed, SqliteReplica, rows_digest
from unisono.services.sqlite.statements import NotReplicable
from unisono.services.sqlite.updates import (
    CheckedRead,
    Parameters,
    ReadConflict,
    ReplicatedStatement,
    SqlFailure,
    SqlResult,
    SqlUpdate,
    decode_results,
    encode_update,
)

DIALECT = dialect()
NOW_MS = 1_700_000_000_123
SCHEMA = """
CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE, b DEFAULT CURRENT_TIMESTAMP CHECK (b <> 'no'),
               c DEFAULT (random()));
CREATE TABLE log(at DEFAULT (strftime('%f')), what, nth DEFAULT (hex(randomblob(4))));
CREATE TABLE child(id INTEGER PRIMARY KEY AUTOINCREMENT,
                   t REFERENCES t ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
CREATE TRIGGER inserted AFTER INSERT ON t
    BEGIN INSERT INTO log(what) VALUES (new.a || last_insert_rowid()); END;
CREATE VIEW dice AS SELECT random() AS r, datetime('now', '+1 day') AS d
"""


def update_of(
    *statements: str | tuple[str, tuple[Parameters, ...]],
    seed: int = 7,
    now_ms: int = NOW_MS,
    reads: tuple[CheckedRead, ...] = (),
    written_for: str = DIALECT,
) -> bytes:
    parts = [each if isinstance(each, tuple) else (each, ((),)) for each in statements]
    return encode_update(
        SqlUpdate(
            tuple(ReplicatedStatement(*part) for part in parts), reads, now_ms, seed, written_for
        )
    )


SET_UP = update_of(*(part for part in SCHEMA.split(";\n") if part))


@contextmanager
def opened(path: Path, group: str = "app") -> Iterator[SqliteReplica]:
    with closing(SqliteReplica(path, group)) as found:
        yield found


@contextmanager
def folder() -> Iterator[Path]:
    """In memory where there is such a place: nothing here is about what a disk keeps."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture
def replica() -> Iterator[SqliteReplica]:
    with folder() as where, opened(where / "app.db") as found:
        yield found


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        file.text_factory = lambda text: text.decode(errors="surrogateescape")
        return list(file.iterdump())


def run(replica: SqliteReplica, *statements: str | tuple[str, tuple[Parameters, ...]]) -> SqlResult:
    """The result of the last one, all in one update."""
    found = decode_results(replica.apply(update_of(*statements), replica.position + 1))
    if isinstance(found, SqlFailure):
        raise found.error()
    return found[-1]


def rows(replica: SqliteReplica, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(replica.path)) as file:
        return file.execute(sql).fetchall()


# -- the same everywhere --------------------------------------------------------------------------

SMALL = st.integers(0, 5)
VALUES = st.none() | SMALL | st.floats(allow_nan=False) | st.text("aé'", max_size=3) | st.binary()
STATEMENTS = st.one_of(
    st.tuples(
        st.sampled_from(
            (
                "INSERT INTO t(a, b) VALUES (?, ?)",
                "INSERT OR REPLACE INTO t(id, a) VALUES (?, ?) RETURNING *",
                "INSERT OR IGNORE INTO t(id, a, b) VALUES (?, ?, datetime('now', 'subsec'))",
                "INSERT OR ROLLBACK INTO t(id, a) VALUES (?, ?)",
                "UPDATE OR FAIL t SET a = ? WHERE id > ?",
                "UPDATE t SET b = ?, c = random() WHERE a > ? RETURNING c, CURRENT_TIME",
                "INSERT INTO log(what, nth) SELECT ?, r FROM dice WHERE d > ?",
                "INSERT INTO child(t) VALUES (?), (?)",
            )
        ),
        st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=1).map(tuple),
    ),
    st.tuples(
        st.just("INSERT INTO t(a) VALUES (?)"),
        st.lists(st.tuples(VALUES), min_size=2, max_size=4).map(tuple),
    ),
    st.sampled_from(
        (
            "INSERT INTO t(a, b) SELECT abs(random()) % 9, julianday() FROM t ORDER BY id",
            "INSERT INTO log(what) SELECT group_concat(a) FROM t",
            "DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY random() LIMIT 1)",
            "INSERT INTO log(what) VALUES (changes() || '/' || last_insert_rowid())",
            "INSERT INTO t DEFAULT VALUES",
            "INSERT INTO t(b) VALUES ('no')",
            "CREATE INDEX IF NOT EXISTS by_b ON t(b, c)",
            "DROP INDEX by_b",
            "ALTER TABLE log ADD COLUMN more DEFAULT 7",
            "ANALYZE",
            "UPDATE t SET id = id + 1",
            "nonsense",
        )
    ),
)
HISTORIES = st.lists(
    st.builds(
        lambda parts, seed, now_ms: update_of(*parts, seed=seed, now_ms=now_ms),
        st.lists(STATEMENTS, min_size=1, max_size=4),
        st.integers(0, (1 << 64) - 1),
        st.integers(0, 1 << 42),
    ),
    max_size=8,
)


def applied(replica: SqliteReplica, history: list[bytes], first: int = 1) -> list[bytes]:
    return [replica.apply(update, number) for number, update in enumerate(history, first)]


@settings(max_examples=30)
@given(HISTORIES, st.data())
def test_replicas_are_equal_wherever_one_crashes(history: list[bytes], data: st.DataObject) -> None:
    """One goes through; of the other the files are taken, at any SQL statement, as a kill leaves
    them; a third joins from a checkpoint."""
    history = [SET_UP, *history]
    with folder() as where:
        whole, crashed, image, late = (where / f"{name}.db" for name in "wcil")
        with opened(whole) as replica:
            results = applied(replica, history)
        with opened(crashed) as replica:
            crash = data.draw(st.integers(1, 12 * len(history)), "crash at statement")
            checkpoint_at = data.draw(st.integers(0, len(history)), "checkpoint at")
            _at_statement(replica, crash, lambda: _take(crashed, image))
            assert applied(replica, history[:checkpoint_at]) == results[:checkpoint_at]
            checkpoint = replica.snapshot()
            first = checkpoint_at + 1
            assert applied(replica, history[checkpoint_at:], first) == results[checkpoint_at:]
        with opened(late) as replica:
            replica.restore(checkpoint)
            assert replica.position == checkpoint_at
            again = applied(replica, history)
            assert again == [b""] * checkpoint_at + results[checkpoint_at:]
        assert dump(whole) == dump(crashed) == dump(late)
        if image.exists():
            with opened(image) as replica:
                done = replica.position
                replica.restore(checkpoint)
                done = max(done, checkpoint_at)
                assert applied(replica, history) == [b""] * done + results[done:]
            assert dump(image) == dump(whole)


def _at_statement(replica: SqliteReplica, number: int, act: Callable[[], None]) -> None:
    left = number

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    replica._file.set_trace_callback(count)


def _take(path: Path, image: Path) -> None:
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{path}{suffix}", f"{image}{suffix}")


# -- time and randomness --------------------------------------------------------------------------


def test_the_clock_and_the_dice_are_those_of_the_submission(replica: SqliteReplica) -> None:
    run(replica, "CREATE TABLE v(a, b, c, d, e, f, g, h)")
    run(
        replica,
        """INSERT INTO v VALUES (CURRENT_TIMESTAMP, datetime('NOW'), date(), unixepoch(),
           strftime('%Y %f'), time('now', '+1 hour'), julianday('now'), current_date)""",
    )
    (found,) = rows(replica, "SELECT * FROM v")
    assert found == (
        *("2023-11-14 22:13:20", "2023-11-14 22:13:20", "2023-11-14", 1_700_000_000),
        *("2023 20.123", "23:13:20", 2460263.4259273494, "2023-11-14"),
    )


def test_other_times_are_as_sqlite_computes_them(replica: SqliteReplica) -> None:
    result = run(
        replica,
        "CREATE TABLE v(a)",
        """INSERT INTO v VALUES (1) RETURNING datetime('2024-02-29', '+1 year'), date(0.5),
           strftime('%s', 'nonsense'), date(NULL), unixepoch(x'323032342d30312d3031')""",
    )
    assert result.rows == (("2025-03-01 00:00:00", "-4713-11-25", None, None, 1704067200),)


def test_each_random_value_is_another(replica: SqliteReplica) -> None:
    result = run(
        replica,
        "CREATE TABLE v(a)",
        """INSERT INTO v VALUES (random()), (random()) RETURNING a, length(randomblob(5)),
           length(randomblob(NULL)), randomblob(8)""",
    )
    (first, *lengths, blob), (second, *_, other) = result.rows
    assert first != second and blob != other and lengths == [5, 1]


# -- results --------------------------------------------------------------------------------------


def test_results_are_those_of_sqlite3(replica: SqliteReplica) -> None:
    run(replica, "CREATE TABLE v(id INTEGER PRIMARY KEY, a)")
    assert run(replica, ("INSERT INTO v(a) VALUES (?)", (("x",),))) == SqlResult(1, 1, (), ())
    assert run(replica, ("INSERT INTO v(a) VALUES (:a)", ({"a": b"y"},))).lastrowid == 2
    many = ("INSERT INTO v(a) VALUES (?)", ((1,), (2,), (3,)))
    assert run(replica, many) == SqlResult(3, None, (), ())
    assert run(replica, "UPDATE v SET a = 0 WHERE id > 3").rowcount == 2
    assert run(replica, "INSERT OR IGNORE INTO v VALUES (1, 1)") == SqlResult(0, None, (), ())
    assert run(replica, "DELETE FROM v WHERE id < 3 RETURNING id, a") == SqlResult(
        2, None, ("id", "a"), ((1, "x"), (2, b"y"))
    )


def test_an_error_is_that_of_sqlite3_and_nothing_is_applied(replica: SqliteReplica) -> None:
    run(replica, "CREATE TABLE v(a UNIQUE, b REFERENCES v(a) DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE .* v\.a") as caught:
        run(replica, "INSERT INTO v(a) VALUES (1)", "INSERT INTO v(a) VALUES (1)")
    assert caught.value.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_UNIQUE
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        run(replica, "INSERT INTO v VALUES (1, 2)")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        run(replica, ("INSERT OR ROLLBACK INTO v(a) VALUES (?)", ((1,), (1,))))
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        run(replica, "INSERT OR FAIL INTO v(a) VALUES (1), (1)")
    with pytest.raises(sqlite3.OperationalError, match="syntax error"):
        run(replica, "nonsense")
    with pytest.raises(sqlite3.ProgrammingError, match="bindings"):
        run(replica, ("INSERT INTO v(a) VALUES (?)", ((),)))
    with pytest.raises(sqlite3.DatabaseError, match="not an update"):
        found = decode_results(replica.apply(b"{}", replica.position + 1))
        assert isinstance(found, SqlFailure)
        raise found.error()
    assert rows(replica, "SELECT * FROM v") == []
    assert rows(replica, "SELECT position FROM unisono_replica") == [(8,)]


@pytest.mark.parametrize(
    ("sql", "advice"),
    [
        ("INSERT INTO t(a) VALUES (last_insert_rowid())", "same update"),
        ("INSERT INTO t(a) VALUES (changes())", "same update"),
        ("INSERT INTO t(a) VALUES (total_changes())", "parameter"),
        ("INSERT INTO t(a) VALUES (sqlite_version())", "parameter"),
        ("INSERT INTO t(a) VALUES (sin(1))", "parameter"),
        ("INSERT INTO sines DEFAULT VALUES", "parameter"),
        ("INSERT INTO t(a) VALUES (datetime('now', 'localtime'))", "time zone"),
        ("INSERT INTO t(a) VALUES (randomblob(1e9))", "bytes"),
        ("CREATE TEMP TABLE x(a)", "without TEMP"),
        ("CREATE TEMP VIEW x AS SELECT 1", "without TEMP"),
        ("CREATE VIRTUAL TABLE x USING fts5(a)", "plain tables"),
        ("PRAGMA foreign_keys = OFF", "foreign_keys is on"),
        ("SAVEPOINT x", "part of an update"),
        ("COMMIT", "part of an update"),
        ("ATTACH 'x' AS x", "part of an update"),
        ("UPDATE unisono_replica SET position = 0", "leave it"),
        ("DELETE FROM unisono_REPLICA", "leave it"),
        ("DROP TABLE unisono_replica", "leave it"),
        ("ALTER TABLE unisono_replica ADD COLUMN x", "leave it"),
        ("CREATE TRIGGER x AFTER UPDATE ON unisono_replica BEGIN SELECT 1; END", "leave it"),
        ("INSERT INTO t(id) VALUES (9223372036854775807)", "smaller"),
        ("UPDATE t SET id = 9223372036854775807", "smaller"),
        (
            "INSERT INTO t(a) WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) "
            "SELECT count(*) FROM r",
            "steps",
        ),
        ("INSERT INTO t(a) VALUES (1) RETURNING randomblob(2000000)", "query them"),
    ],
)
def test_what_could_differ_is_refused_with_advice(
    replica: SqliteReplica, sql: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "STEPS_COUNT_MAX", 1_000_000)
    run(replica, "CREATE TABLE t(id INTEGER PRIMARY KEY, a)", "INSERT INTO t VALUES (1, 1)")
    run(replica, "CREATE TABLE sines(a DEFAULT (sin(1)))")
    before = rows(replica, "SELECT * FROM t")
    with pytest.raises(NotReplicable, match=advice):
        run(replica, sql)
    assert rows(replica, "SELECT * FROM t") == before
    assert run(replica, "INSERT INTO t(a) VALUES (2)").rowcount == 1, "it goes on"


@pytest.mark.parametrize(
    "sql",
    [
        "PRAGMA user_version = 3",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t RENAME COLUMN a TO b",
        "ALTER TABLE t DROP COLUMN a",
        "REINDEX",
        "CREATE TABLE x(a PRIMARY KEY) WITHOUT ROWID",
        """INSERT INTO t(a) SELECT json_group_array(value) FROM json_each('[1,2]')""",
        "INSERT INTO t(a) VALUES (printf('%.2f', sqrt(2)) || ('{\"a\":1}' ->> '$.a'))",
        "WITH q AS (SELECT 1) DELETE FROM t WHERE id IN (SELECT * FROM q)",
    ],
)
def test_what_is_the_same_everywhere_passes(replica: SqliteReplica, sql: str) -> None:
    run(replica, "CREATE TABLE t(id INTEGER PRIMARY KEY, a)", sql)


def test_a_read_that_has_changed_is_a_conflict(replica: SqliteReplica) -> None:
    run(replica, "CREATE TABLE t(a)", "INSERT INTO t VALUES (1)")
    read = CheckedRead("SELECT a FROM t WHERE a < ?", (9,), rows_digest([(1,)]))
    answers = [
        decode_results(
            replica.apply(update_of("UPDATE t SET a = a + 1", reads=(read,)), replica.position + 1)
        )
        for _ in range(2)
    ]
    assert isinstance(answers[0], tuple)
    assert isinstance(answers[1], SqlFailure) and isinstance(answers[1].error(), ReadConflict)
    assert rows(replica, "SELECT a FROM t") == [(2,)]


# -- the file -------------------------------------------------------------------------------------


def test_other_programs_read_the_file_and_cannot_write(replica: SqliteReplica) -> None:
    run(replica, "CREATE TABLE t(a)", "INSERT INTO t VALUES (1)")
    with closing(sqlite3.connect(replica.path, timeout=0)) as other:
        assert other.execute("SELECT a FROM t").fetchall() == [(1,)]
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("INSERT INTO t VALUES (2)")
    with pytest.raises(Misuse, match="in use as a replica already"):
        SqliteReplica(replica.path, "app")


def test_a_write_of_another_program_ends_the_replica(replica: SqliteReplica) -> None:
    run(replica, "CREATE TABLE t(a)")
    replica._file.execute("ROLLBACK")  # As in the moment between two updates.
    with closing(sqlite3.connect(replica.path)) as other, other:
        other.execute("INSERT INTO t VALUES (2)")
    replica._file.execute("BEGIN IMMEDIATE")
    for _ in range(2):
        with pytest.raises(ReplicaFailed, match="another program wrote"):
            run(replica, "INSERT INTO t VALUES (3)")


def test_an_update_for_another_sqlite_ends_the_replica(replica: SqliteReplica) -> None:
    with pytest.raises(ReplicaFailed, match=r"written for SQLite 2\.8, and this replica"):
        replica.apply(update_of("CREATE TABLE t(a)", written_for="SQLite 2.8"), 1)
    assert replica.position == 0 and rows(replica, "SELECT position FROM unisono_replica") == [(0,)]


def test_a_full_disk_is_no_result(replica: SqliteReplica) -> None:
    """The others may have room: so it ends here, and the update is repeated."""
    run(replica, "CREATE TABLE t(a)")
    replica._file.execute("PRAGMA max_page_count = 5")
    big = ("INSERT INTO t VALUES (zeroblob(?))", ((100_000,),))
    with pytest.raises(ReplicaFailed, match="full"):
        run(replica, big)
    with pytest.raises(ReplicaFailed, match="full"):
        replica.snapshot()  # It would lack what the others have at this place.
    replica.close()
    with opened(replica.path) as again:
        assert again.position == 1
        assert run(again, big).rowcount == 1


def test_a_file_that_is_no_replica_of_this_group_is_refused(tmp_path: Path) -> None:
    own, text, others = (tmp_path / name for name in ("own.db", "text.db", "others.db"))
    with closing(sqlite3.connect(own)) as file:
        file.execute("CREATE TABLE t(a)")
    text.write_text("this is a long enough text, and not a database" * 100)
    with opened(others, "others"):
        pass
    for path, told in ((own, "of its own"), (text, "not a database"), (others, "'others'")):
        with pytest.raises(Misuse, match=told):
            SqliteReplica(path, "app")
    with pytest.raises(Misuse, match="unable to open"):
        SqliteReplica(tmp_path / "nowhere" / "app.db", "app")


def test_a_checkpoint_of_another_group_or_none_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "others.db", "others") as others:
        state = others.snapshot()
    with opened(tmp_path / "app.db") as replica:
        for wrong, told in ((state, "'others'"), (b"nonsense" * 100, "no replica")):
            with pytest.raises(ReplicaFailed, match=told):
                replica.restore(wrong)
        run(replica, "CREATE TABLE t(a)")


def test_an_older_checkpoint_changes_nothing(replica: SqliteReplica) -> None:
    old = replica.snapshot()
    run(replica, "CREATE TABLE t(a)", "INSERT INTO t VALUES (1)")
    replica.restore(old)
    assert replica.position == 1 and rows(replica, "SELECT a FROM t") == [(1,)]


def test_statistics_that_are_rolled_back_change_no_plan(replica: SqliteReplica) -> None:
    """The order of rows shows the plan: one that ANALYZE had is gone with it."""
    run(replica, "CREATE TABLE t(a, b)", "CREATE INDEX by_a ON t(a)", "CREATE INDEX by_b ON t(b)")
    run(replica, ("INSERT INTO t VALUES (?, ?)", tuple((1, -n) for n in range(99))), "ANALYZE")
    run(replica, ("UPDATE t SET a = -b, b = 1 WHERE ?", ((1,),)))
    order = "UPDATE t SET a = a WHERE a = 1 AND b = 1 RETURNING (SELECT group_concat(a) FROM t)"
    plan = run(replica, "EXPLAIN QUERY PLAN " + order).rows
    assert "by_b" in str(plan), "as the statistics of before the update have it"
    with pytest.raises(sqlite3.OperationalError):
        run(replica, "ANALYZE", "nonsense")
    assert run(replica, "EXPLAIN QUERY PLAN " + order).rows == plan
