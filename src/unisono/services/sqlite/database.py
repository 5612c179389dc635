"""A connection to a replicated database: writes go through the group's order, reads are local."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar, Unpack

import unisono
from unisono.errors import Misuse
from unisono.services.replica_handles import UpdateHandle
from unisono.services.replicating import ReplicatedLog, replicate
from unisono.services.sqlite.replica import SqliteReplica, rows_digest
from unisono.services.sqlite.statements import (
    NotReplicable,
    StatementKind,
    checked_write,
    kind_of,
    split,
    tokens_of,
)
from unisono.services.sqlite.updates import (
    CheckedRead,
    Parameters,
    ReadConflict,
    ReplicatedStatement,
    SqlFailure,
    SqlResult,
    SqlUpdate,
    checked_parameters,
    decode_results,
    encode_update,
)

__all__ = ["Database", "NotReplicable", "ReadConflict", "SqlResult", "SqlTransaction", "sqlite"]

INTERRUPT_S: Final = 0.05
LOG_SUFFIX: Final = "-replica"
"""The log is a directory beside the database file."""
T = TypeVar("T")


class SqlTransaction:
    """Statements that are one update: all of them are applied, or none.

    It reads first and writes then. If rows that it read have changed when its place in the order
    comes, `ReadConflict` is raised where it ends, and nothing was applied.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads: list[CheckedRead] = []
        self._statements: list[ReplicatedStatement] = []
        self.results: tuple[SqlResult, ...] = ()
        """Of each statement, once the transaction is applied."""

    async def query(self, sql: str, parameters: Parameters = ()) -> SqlResult:
        """Rows of the local file, which must still be the same when the transaction is applied."""
        if self._statements:
            raise Misuse(
                "this transaction has written, and its writes are applied when it ends: query"
                " before the first execute()"
            )
        found = await self._database.query(sql, parameters)
        checked = checked_parameters(parameters)
        self._reads.append(CheckedRead(sql, checked, rows_digest(found.rows)))
        return found

    def execute(self, sql: str, parameters: Parameters = ()) -> None:
        """Add a statement. It is executed when the transaction ends."""
        self._statements.append(statement_of(sql, [parameters]))

    def executemany(self, sql: str, rows: Iterable[Parameters]) -> None:
        """Add a statement that is executed with each of the rows."""
        self._statements.append(statement_of(sql, rows))

    async def submit(self) -> None:
        """What the end of the `async with` does."""
        if self._statements:
            update = tuple(self._statements), tuple(self._reads)
            self.results = await self._database.submit(*update)


class Database:
    """A replica of a database; `sqlite` gives one. Writes are awaited until they have their place
    in the order for ever, and are applied here; reads are local."""

    def __init__(self, replica: SqliteReplica, log: ReplicatedLog) -> None:
        self._replica = replica
        self._log = log
        uri = f"{replica.path.absolute().as_uri()}?mode=ro"
        self._reader = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self._reading = asyncio.Lock()

    def close(self) -> None:
        """End its reading; what `sqlite` gave is closed by it."""
        self._reader.close()

    @property
    def log(self) -> ReplicatedLog:
        """The order of the updates: its members, who is connected, what is stable."""
        return self._log

    @property
    def position(self) -> int:
        """Of the last update that the file has; 0 before the first."""
        return self._replica.position

    # -- writing --------------------------------------------------------------------------------

    async def execute(self, sql: str, parameters: Parameters = ()) -> SqlResult:
        """Execute one statement at all replicas, at the same place of the order. One that only
        reads is a `query`.

        Returns when it is applied here. What SQLite says against it is raised as by `sqlite3`; then
        it changed nothing anywhere.
        """
        if kind_of(sql) is StatementKind.READ and next(tokens_of(sql)) != "PRAGMA":
            return await self.query(sql, parameters)
        (result,) = await self.submit((statement_of(sql, [parameters]),))
        return result

    async def executemany(self, sql: str, rows: Iterable[Parameters]) -> SqlResult:
        """Execute it with each of the rows, as one update."""
        (result,) = await self.submit((statement_of(sql, rows),))
        return result

    async def executescript(self, script: str) -> tuple[SqlResult, ...]:
        """Execute statements that are separated by semicolons, as one update."""
        return await self.submit(tuple(statement_of(each, [()]) for each in split(script)))

    def deposit(self, sql: str, parameters: Parameters = ()) -> UpdateHandle:
        """Execute it later: `await` the handle, and it is logged here, connected or not; then
        `handle.green` and `handle.stable`. `answer` of the handle tells what SQLite said."""
        return self._append((statement_of(sql, [parameters]),))

    async def answer(self, handle: UpdateHandle) -> tuple[SqlResult, ...]:
        """What its statements did here, or the exception that SQLite raised."""
        answer = decode_results(await handle.result)
        if isinstance(answer, SqlFailure):
            raise answer.error()
        return answer

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[SqlTransaction]:
        """Several statements as one update; it is submitted when the `async with` ends well."""
        transaction = SqlTransaction(self)
        yield transaction
        await transaction.submit()

    async def submit(
        self, statements: tuple[ReplicatedStatement, ...], reads: tuple[CheckedRead, ...] = ()
    ) -> tuple[SqlResult, ...]:
        """Execute these as one update, unless rows that were read have changed."""
        return await self.answer(self._append(statements, reads))

    def _append(
        self, statements: tuple[ReplicatedStatement, ...], reads: tuple[CheckedRead, ...] = ()
    ) -> UpdateHandle:
        update = SqlUpdate(
            statements,
            reads,
            time.time_ns() // 1_000_000,
            secrets.randbits(64),
            self._replica.dialect,
        )
        return self._log.append(encode_update(update))

    # -- reading --------------------------------------------------------------------------------

    async def query(
        self, sql: str, parameters: Parameters = (), *, strict: bool = False
    ) -> SqlResult:
        """Rows of the local file, in a thread. It has what this process has written; with `strict`
        also all that any process had written before the call."""
        if kind_of(sql) is not StatementKind.READ:
            raise Misuse("this statement writes: use execute()")
        if strict:
            await self.submit(())

        def read() -> SqlResult:
            with contextlib.closing(self._reader.execute(sql, parameters)) as cursor:
                columns = tuple(each[0] for each in cursor.description or ())
                return SqlResult(-1, None, columns, tuple(cursor.fetchall()))

        return await self._read(read)

    async def backup(self, path: str | Path) -> None:
        """Copy the database to another file, as of one place of the order, while it is in use."""

        def copy() -> None:
            with contextlib.closing(sqlite3.connect(path)) as target:
                self._reader.backup(target)

        await self._read(copy)

    async def _read(self, read: Callable[[], T]) -> T:
        """One at a time; a caller that is cancelled interrupts it."""
        async with self._reading:
            done = asyncio.ensure_future(asyncio.to_thread(read))
            try:
                return await asyncio.shield(done)
            except asyncio.CancelledError:
                while not done.done():  # Before it has begun, an interrupt has no effect.
                    self._reader.interrupt()
                    await asyncio.wait((done,), timeout=INTERRUPT_S)
                raise


def statement_of(sql: str, rows: Iterable[Parameters]) -> ReplicatedStatement:
    return ReplicatedStatement(checked_write(sql), tuple(map(checked_parameters, rows)))


@contextlib.asynccontextmanager
async def sqlite(
    path: str | Path,
    /,
    *,
    members: Sequence[str],
    log: str | Path | None = None,
    config: str | Path | None = None,
    **options: Unpack[unisono.JoinOptions],
) -> AsyncIterator[Database]:
    """A replica of a database: `async with unisono.sqlite("app.db", group="app", name="a",
    members=["a", "b", "c"]) as db`.

    `path` is this replica's file, which any program may read meanwhile; `log` the directory of its
    log, by default beside it. The rest is as for `replicate`. It returns at once, connected or not.
    """
    path, group = Path(path), options.pop("group", "")
    if not group:
        raise Misuse("a replicated database needs the name of its group: give group=")
    with contextlib.closing(SqliteReplica(path, group)) as replica:
        replicating = replicate(
            group,
            members=members,
            path=log or path.with_name(path.name + LOG_SUFFIX),
            machine=replica,
            config=config,
            **options,
        )
        async with replicating as order:
            if replica.position > order.position:
                raise Misuse(
                    f"{path} has {replica.position} updates, and its log {order.position}: the log"
                    " is of another replica, or lost; remove both from here, and let others"
                    " remove() and add() the member"
                )
            with contextlib.closing(Database(replica, order)) as database:
                yield database
