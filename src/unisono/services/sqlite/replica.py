"""One member's database file: updates are applied in order, each with its position in the same
transaction."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final, NoReturn

from unisono.errors import Misuse, StorageFailed
from unisono.services.sqlite.functions import FixedFunctions, dialect
from unisono.services.sqlite.statements import KEPT_PRAGMAS, PRAGMA_ADVICE, NotReplicable
from unisono.services.sqlite.updates import (
    RESULT_BYTES_MAX,
    BadUpdate,
    CheckedRead,
    ReadConflict,
    ReplicatedStatement,
    Row,
    SqlFailure,
    SqlResult,
    decode_update,
    encode_failure,
    encode_results,
)

STEPS_COUNT_MAX: Final = 50_000_000
"""Instructions of SQLite's machine for one update; about a second. A statement without an end
would stop all replicas, again after each restart."""
BUSY_S: Final = 1.0
"""How long another program may hold the file's write lock."""
_STEPS_COUNTED: Final = 10_000
_ROWID_MAX: Final = (1 << 63) - 1
_TABLE: Final = "unisono_replica"
_SETTINGS: Final = """
    PRAGMA page_size = 4096;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA foreign_keys = ON;
    PRAGMA recursive_triggers = OFF;
    PRAGMA automatic_index = ON;
"""
"""The log makes an update durable and repeats it here after a power cut: so NORMAL."""
_OF_THIS_MACHINE: Final = frozenset(
    (
        *(sqlite3.SQLITE_INTERNAL, sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED),
        *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT),
        *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL),
        *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS),
        sqlite3.SQLITE_NOTADB,
    )
)
"""Errors that the other replicas need not have."""
_TEMPORARY: Final = frozenset(
    (
        *(sqlite3.SQLITE_CREATE_TEMP_TABLE, sqlite3.SQLITE_CREATE_TEMP_TRIGGER),
        *(sqlite3.SQLITE_CREATE_TEMP_VIEW, sqlite3.SQLITE_CREATE_TEMP_INDEX),
    )
)
_SPANNING: Final = frozenset(
    (sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT, sqlite3.SQLITE_ATTACH)
)
_TABLE_CHANGES: Final = frozenset((sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE))
_NAMING: Final = frozenset(
    (
        *(sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE, sqlite3.SQLITE_CREATE_TABLE),
        *(sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_CREATE_TRIGGER, sqlite3.SQLITE_ALTER_TABLE),
    )
)


class ReplicaFailed(StorageFailed):
    """This replica can no longer follow the group; the message says why, and what to do."""


class SqliteReplica:
    """A state machine whose state is a database file. It holds the file's write lock: other
    programs may read it, and get `database is locked` if they write."""

    def __init__(self, path: Path, group: str) -> None:
        self.path = path
        self._group = group
        self._failed = ""
        self._dialect = dialect()
        self._steps_count = 0
        self._guarding = False
        """A statement of an update is being compiled or executed."""
        self._executed_count = 0
        """Statements of the update that are done."""
        self._inserts = False
        """The statement itself inserts, not only a trigger."""
        self._plans_changed = False
        self._touched: set[str] = set()
        """Tables into which the statement inserts or whose rows it updates."""
        try:
            self._open()
        except sqlite3.Error as error:
            raise Misuse(f"{path}: {_told(error)}") from None

    def _open(self) -> None:
        # No statements are cached, or their steps would be counted from where they stood.
        self._file = sqlite3.connect(
            self.path,
            timeout=BUSY_S,
            isolation_level=None,
            cached_statements=0,
            check_same_thread=False,
        )
        try:
            self._functions = FixedFunctions(self._file)
            self._file.executescript(_SETTINGS)
            self._begin()
            self._create()
            self._file.execute("COMMIT")
        except BaseException:
            self._file.close()
            raise
        self._file.set_authorizer(self._authorize)
        self._file.set_progress_handler(self._count_steps, _STEPS_COUNTED)
        self._begin()
        self._foreign_writes = self._data_version()

    def _create(self) -> None:
        tables = [row[0] for row in self._file.execute("SELECT name FROM sqlite_master")]
        if not tables:
            self._file.execute(
                f"CREATE TABLE {_TABLE} (id INTEGER PRIMARY KEY, of_group TEXT, position INTEGER)"
            )
            self._file.execute(f"INSERT INTO {_TABLE} VALUES (1, ?, 0)", (self._group,))
        elif _TABLE not in tables:
            raise Misuse(
                f"{self.path} is a database of its own, not a replica: name a new file, and load"
                " the old one's dump with `unisono sql`"
            )
        group, self._position = _identity(self._file)
        if group != self._group:
            raise Misuse(
                f"{self.path} is a replica of the group {group!r}, not of {self._group!r}: name"
                " another file"
            )

    def _reopen(self) -> None:
        """A connection reads statistics when it opens and after ANALYZE, and keeps them when that
        is rolled back: so all replicas plan as one that has just started."""
        self._plans_changed = False
        self.close()
        self._open()

    def close(self) -> None:
        self._file.close()
        self._functions.close()

    @property
    def position(self) -> int:
        """Of the last update applied; 0 before the first."""
        return self._position

    @property
    def dialect(self) -> str:
        return self._dialect

    # -- the state machine ----------------------------------------------------------------------

    def apply(self, update: bytes, position: int) -> bytes:
        """Nothing happens if the file has the update already: it is repeated after a crash."""
        if position <= self._position:
            return b""
        if self._failed:
            raise ReplicaFailed(self._failed)
        try:
            self._expect_no_foreign_write()
            answer = self._apply(update, position)
            if self._plans_changed:
                self._reopen()
            else:
                self._begin()
        except (sqlite3.Error, MemoryError) as error:
            self._fail(
                f"{self.path}: {_told(error)}; mend the cause and start again: what is missing is"
                " repeated"
            )
        self._position = position
        return answer

    def snapshot(self) -> bytes:
        """The file, as one of another machine would be."""
        if self._failed:
            raise ReplicaFailed(self._failed)
        state = self._file.serialize()
        # Memory has no write-ahead log, so no database there may claim one.
        return state[:18] + b"\x01\x01" + state[20:]

    def restore(self, state: bytes) -> None:
        """The pages replace those of the file in one transaction; an older state changes nothing:
        the file is ahead of it."""
        with closing(sqlite3.connect(":memory:")) as source:
            try:
                source.deserialize(state)
                group, position = _identity(source)
            except sqlite3.Error as error:
                raise ReplicaFailed(f"this checkpoint is no replica: {error}") from None
            if group != self._group:
                raise ReplicaFailed(f"this checkpoint is of the group {group!r}: check the name")
            if position <= self._position:
                return
            try:
                self._file.execute("ROLLBACK")
                source.backup(self._file)
                self._begin()
            except sqlite3.Error as error:
                self._fail(f"{self.path}: {_told(error)}; mend the cause and start again")
        self._foreign_writes = self._data_version()
        self._position = position

    # -- one update -----------------------------------------------------------------------------

    def _apply(self, body: bytes, position: int) -> bytes:
        self._executed_count = self._steps_count = 0
        try:
            # First: this fixes what last_insert_rowid() and changes() were before the update.
            self._record(position)
            update = decode_update(body)
            if update.dialect != self._dialect:
                self._fail(
                    f"the update at {position} is written for {update.dialect}, and this replica"
                    f" has {self._dialect}: run all replicas with the same SQLite"
                )
            self._functions.fix(update)
            self._guarding = True
            with self._functions.checking_reads():
                self._check_reads(update.reads)
            answer = encode_results(self._execute_all(update.statements))
            self._guarding = False
            self._file.execute("COMMIT")  # Deferred constraints may fail here.
        except (sqlite3.Error, sqlite3.Warning, BadUpdate, ReadConflict, NotReplicable) as error:
            self._guarding = False
            answer = encode_failure(self._failure(error))
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            self._begin()
            self._record(position)
            self._file.execute("COMMIT")
        return answer

    def _record(self, position: int) -> None:
        self._file.execute(f"REPLACE INTO {_TABLE} VALUES (1, ?, ?)", (self._group, position))

    def _check_reads(self, reads: tuple[CheckedRead, ...]) -> None:
        for read in reads:
            with closing(self._file.cursor()) as cursor:
                if rows_digest(cursor.execute(read.sql, read.parameters)) != read.digest:
                    raise ReadConflict(
                        "rows that the transaction read have changed meanwhile, and nothing of it"
                        " was applied: run it again"
                    )

    def _execute_all(self, statements: tuple[ReplicatedStatement, ...]) -> list[SqlResult]:
        results = []
        room = RESULT_BYTES_MAX
        for statement in statements:
            self._touched.clear()
            self._inserts = False
            with closing(self._file.cursor()) as cursor:
                result = _executed(cursor, statement, room)
            results.append(result if self._inserts else result._replace(lastrowid=None))
            room -= _nbytes(results[-1].rows)
            self._check_rowids()
            self._executed_count += 1
        return results

    def _check_rowids(self) -> None:
        """After the largest rowid SQLite draws the next ones at random, by dice of its own."""
        self._guarding = False
        for table in sorted(self._touched):
            quoted = table.replace('"', '""')
            try:
                (largest,) = self._file.execute(
                    f'SELECT max(_rowid_) FROM main."{quoted}"'
                ).fetchone()
            except sqlite3.OperationalError as error:
                if _is_local(error):
                    raise
                continue  # A view, or a table without rowids.
            if largest == _ROWID_MAX:
                raise NotReplicable(
                    f"{table} would have the rowid {_ROWID_MAX}, after which SQLite draws rowids"
                    " at random: choose a smaller one"
                )
        self._guarding = True

    def _failure(self, error: Exception) -> SqlFailure:
        """What all replicas answer; an error of this machine is raised."""
        kind, message, code = type(error).__name__, str(error), 0
        if isinstance(error, sqlite3.Error):
            code = getattr(error, "sqlite_errorcode", 0)
            if self._functions.refusal:
                kind, message, code = "NotReplicable", self._functions.refusal, 0
            elif _is_local(error):
                raise error
        return SqlFailure(self._executed_count, kind, message, code)

    # -- what SQLite asks -----------------------------------------------------------------------

    def _authorize(
        self,
        action: int,
        first: str | None,
        second: str | None,
        schema: str | None,
        trigger: str | None,
    ) -> int:
        if not self._guarding:
            return sqlite3.SQLITE_OK
        name = first or ""
        if action == sqlite3.SQLITE_ANALYZE or name.startswith("sqlite_stat"):
            self._plans_changed = True
        elif action in _TABLE_CHANGES and not name.startswith("sqlite_"):
            self._touched.add(name)
            self._inserts |= action == sqlite3.SQLITE_INSERT and trigger is None
        refusal = self._refusal(action, first, second, trigger)
        if refusal:
            self._functions.refuse(refusal)
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _refusal(
        self, action: int, first: str | None, second: str | None, trigger: str | None
    ) -> str:
        if action in _TABLE_CHANGES or action in _NAMING:
            if _TABLE in (str(first).lower(), str(second).lower()):
                return f"{_TABLE} has the place of this replica in the order: leave it alone"
        elif action == sqlite3.SQLITE_FUNCTION:
            if second in ("changes", "last_insert_rowid") and not (trigger or self._executed_count):
                return (
                    f"{second}() tells of the statement before it, which must be in the same"
                    " update: use `async with db.transaction()`, or the result of execute()"
                )
        elif action in _TEMPORARY:
            return "what is temporary belongs to one connection: create it without TEMP"
        elif action == sqlite3.SQLITE_CREATE_VTABLE:
            return f"a virtual table ({second}) keeps state of its own: use plain tables"
        elif action in _SPANNING:
            return "transactions and attached files are not part of an update"
        elif action == sqlite3.SQLITE_PRAGMA and str(first).upper() not in KEPT_PRAGMAS:
            return f"PRAGMA {first} cannot be replicated: {PRAGMA_ADVICE}"
        return ""

    def _count_steps(self) -> bool:
        self._steps_count += self._guarding * _STEPS_COUNTED
        if self._steps_count <= STEPS_COUNT_MAX:
            return False
        self._functions.refuse(
            f"the update takes more than {STEPS_COUNT_MAX} steps of SQLite, and would hold up all"
            " replicas: split it, or add an index"
        )
        return True

    # -- the file -------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._file.execute("BEGIN IMMEDIATE")

    def _data_version(self) -> int:
        found: int = self._file.execute("PRAGMA data_version").fetchone()[0]
        return found

    def _expect_no_foreign_write(self) -> None:
        if self._data_version() != self._foreign_writes:
            self._fail(
                f"another program wrote to {self.path}, so it differs from the other replicas:"
                " remove the replica, its log too, and let it join anew"
            )

    def _fail(self, reason: str) -> NoReturn:
        """It stays failed, or a later update would be applied without this one."""
        self._failed = reason
        with contextlib.suppress(sqlite3.Error):
            self._file.execute("ROLLBACK")
        raise ReplicaFailed(reason)


def rows_digest(rows: Iterable[Row]) -> str:
    """What two equal answers of a query have in common."""
    digest = hashlib.blake2b(digest_size=16)
    for row in rows:
        digest.update(repr(row).encode())
    return digest.hexdigest()


def _executed(cursor: sqlite3.Cursor, statement: ReplicatedStatement, room: int) -> SqlResult:
    """With `room` bytes for the rows that it returns."""
    if len(statement.parameters) != 1:
        cursor.executemany(statement.sql, statement.parameters)
        return SqlResult(cursor.rowcount, None, (), ())
    rows: list[Row] = []
    for row in cursor.execute(statement.sql, statement.parameters[0]):
        rows.append(row)
        room -= _nbytes((row,))
        if room < 0:
            raise NotReplicable(
                f"the rows that RETURNING gives are over {RESULT_BYTES_MAX} bytes: query them"
                " afterwards"
            )
    columns = tuple(each[0] for each in cursor.description or ())
    lastrowid = cursor.lastrowid if cursor.rowcount > 0 else None
    return SqlResult(cursor.rowcount, lastrowid, columns, tuple(rows))


def _identity(file: sqlite3.Connection) -> tuple[str, int]:
    group, position = file.execute(f"SELECT of_group, position FROM {_TABLE}").fetchone()
    return group, position


def _nbytes(rows: tuple[Row, ...]) -> int:
    return sum(
        16 + (len(value) if isinstance(value, str | bytes) else 0) for row in rows for value in row
    )


def _is_local(error: sqlite3.Error) -> bool:
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _OF_THIS_MACHINE


def _told(error: BaseException) -> str:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
        return "another program writes to it, or it is in use as a replica already: end that first"
    return str(error) or type(error).__name__
