"""The connection: what a program sees of a replicated database, over an order in this process."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest

from tests.services.test_sqlite_replica import dump, folder, opened
from tests.waiting import run_story
from unisono.errors import Misuse
from unisono.services.sqlite.database import Database
from unisono.services.sqlite.replica import SqliteReplica
from unisono.services.sqlite.statements import NotReplicable
from unisono.services.sqlite.updates import ReadConflict


class Appended:
    """An update that is applied everywhere in the next turn of the event loop."""

    def __init__(self) -> None:
        self.result: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()


class LocalOrder:
    """Gives updates their places in the order of the calls, at replicas of this process."""

    def __init__(self, replicas: list[SqliteReplica]) -> None:
        self._replicas = replicas
        self.position = 0

    def of(self, member: int) -> MemberOrder:
        return MemberOrder(self, member)

    def append(self, update: bytes, member: int) -> Appended:
        handle = Appended()
        asyncio.get_running_loop().call_soon(self._apply, update, member, handle)
        return handle

    def _apply(self, update: bytes, member: int, handle: Appended) -> None:
        self.position += 1
        results = [replica.apply(update, self.position) for replica in self._replicas]
        assert len(set(results)) == 1, "all replicas answer alike"
        handle.result.set_result(results[member])


class MemberOrder:
    def __init__(self, order: LocalOrder, member: int) -> None:
        self._order = order
        self._member = member

    def append(self, update: bytes) -> Appended:
        return self._order.append(update, self._member)


@asynccontextmanager
async def databases(count: int = 2) -> AsyncIterator[list[Database]]:
    """At the end the files are the same."""
    with folder() as where, ExitStack() as stack:
        paths = [where / f"{number}.db" for number in range(count)]
        with ExitStack() as replicas:
            opened_ones = [replicas.enter_context(opened(path)) for path in paths]
            order = LocalOrder(opened_ones)
            found = [
                stack.enter_context(closing(Database(replica, order.of(number))))
                for number, replica in enumerate(opened_ones)
            ]
            yield found
        assert len({tuple(dump(path)) for path in paths}) == 1


def test_a_write_is_seen_at_all_replicas() -> None:
    async def story() -> None:
        async with databases() as (ann, bob):
            await ann.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)")
            insert = "INSERT INTO t(a, b) VALUES (?, datetime('now', 'subsec'))"
            assert (await ann.execute(insert, ("x",))).lastrowid == 1
            assert (await bob.executemany(insert, [("y",), (b"z",)])).rowcount == 2
            sql = "SELECT id, a, b FROM t WHERE id > :least ORDER BY id"
            found = await ann.query(sql, {"least": 0})
            assert found == await bob.query(sql, {"least": 0}, strict=True)
            assert found.columns == ("id", "a", "b") and [row[1] for row in found.rows] == [
                *("x", "y", b"z")
            ]
            assert ann.position == bob.position == 4

    run_story(story())


def test_many_writes_may_be_under_way() -> None:
    async def story() -> None:
        async with databases() as (ann, bob):
            await ann.executescript("CREATE TABLE t(a); INSERT INTO t VALUES (0);")
            add = "UPDATE t SET a = a + 1 RETURNING a"
            found = await asyncio.gather(*(each.execute(add) for each in (ann, bob) * 20))
            assert sorted(result.rows for result in found) == [((n,),) for n in range(1, 41)]

    run_story(story())


def test_an_error_reaches_the_submitter_alone() -> None:
    async def story() -> None:
        async with databases() as (ann, bob):
            await ann.execute("CREATE TABLE t(a UNIQUE)")
            with pytest.raises(sqlite3.IntegrityError, match=r"t\.a"):
                await bob.executemany("INSERT INTO t VALUES (?)", [(1,), (1,)])
            with pytest.raises(sqlite3.OperationalError, match="no such table: u"):
                await bob.execute("INSERT INTO u VALUES (1)")
            with pytest.raises(NotReplicable, match="time zone"):
                await bob.execute("INSERT INTO t VALUES (time('now', 'localtime'))")
            with pytest.raises(NotReplicable, match="ORDER BY"):
                await bob.execute("DELETE FROM t LIMIT 1")
            with pytest.raises(Misuse, match="tuple"):
                await bob.execute("INSERT INTO t VALUES (?)", "x")
            assert (await bob.query("SELECT count(*) FROM t")).rows == ((0,),)

    run_story(story())


def test_a_transaction_is_applied_whole_or_not_at_all() -> None:
    async def story() -> None:
        async with databases() as (ann, bob):
            await ann.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, a)")
            async with bob.transaction() as both:
                both.execute("INSERT INTO t(a) VALUES ('parent')")
                both.execute("INSERT INTO t(a) VALUES (last_insert_rowid())")
                both.executemany("INSERT INTO t(a) VALUES (?)", [(1,), (2,)])
            assert [result.rowcount for result in both.results] == [1, 1, 2]
            with pytest.raises(ZeroDivisionError):
                async with bob.transaction() as never:
                    never.execute("DELETE FROM t")
                    raise ZeroDivisionError
            with pytest.raises(sqlite3.IntegrityError):
                async with bob.transaction() as failing:
                    failing.execute("DELETE FROM t")
                    failing.execute("INSERT INTO t VALUES (1, 1), (1, 1)")
            assert failing.results == ()
            assert (await ann.query("SELECT a FROM t ORDER BY id")).rows == (
                *(("parent",), (1,), (1,), (2,)),
            )

    run_story(story())


def test_of_two_transactions_that_read_the_same_one_conflicts() -> None:
    async def story() -> None:
        async with databases() as (ann, bob):
            await ann.executescript("CREATE TABLE t(a); INSERT INTO t VALUES (10);")

            both_have_read = asyncio.Barrier(2)

            async def draw(database: Database) -> str:
                try:
                    async with database.transaction() as drawing:
                        ((balance,),) = (await drawing.query("SELECT a FROM t")).rows
                        assert isinstance(balance, int)
                        await both_have_read.wait()
                        drawing.execute("UPDATE t SET a = ?", (balance - 7,))
                except ReadConflict as conflict:
                    return str(conflict)
                return "done"

            found = sorted(await asyncio.gather(draw(ann), draw(bob)))
            assert found[0] == "done" and "run it again" in found[1]
            assert (await ann.query("SELECT a FROM t")).rows == ((3,),)

    run_story(story())


def test_a_transaction_reads_first_and_nothing_that_time_or_chance_decide() -> None:
    async def story() -> None:
        async with databases() as (ann, _):
            await ann.execute("CREATE TABLE t(a)")
            with pytest.raises(Misuse, match="before the first execute"):
                async with ann.transaction() as late:
                    late.execute("DELETE FROM t")
                    await late.query("SELECT * FROM t")
            for what in ("random()", "date('now')", "CURRENT_TIME"):
                with pytest.raises(NotReplicable, match="checked later"):
                    async with ann.transaction() as vague:
                        await vague.query(f"SELECT {what}")
                        vague.execute("DELETE FROM t")
            assert (await ann.query("SELECT random()")).rows, "an ordinary one may"

    run_story(story())


def test_reads_are_local_and_cannot_write(tmp_path: Path) -> None:
    async def story() -> None:
        async with databases() as (ann, _):
            await ann.execute("CREATE TABLE t(a)")
            with pytest.raises(Misuse, match="use execute"):
                await ann.query("DELETE FROM t")
            with pytest.raises(Misuse, match="use query"):
                await ann.executemany("SELECT ?", [(1,)])
            assert (await ann.execute("SELECT 1")).rows == ((1,),)
            endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x FROM r) SELECT * FROM r"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ann.query(endless.replace("*", "max(x)")), 0.05)
            assert (await ann.query("SELECT 1")).rows == ((1,),)
            await ann.backup(tmp_path / "copy.db")
            assert any("CREATE TABLE t(a)" in line for line in dump(tmp_path / "copy.db"))

    run_story(story())
