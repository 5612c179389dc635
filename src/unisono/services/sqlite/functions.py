"""SQL functions whose values would differ between replicas.

Overridden, not rewritten in the text: so they have the same values also where a default, a view or
a trigger calls them.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from unisono.services.sqlite.updates import SqlUpdate, SqlValue

BLOB_BYTES_MAX: Final = 16 << 20
"""A text or blob, also while a statement computes it."""
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: BLOB_BYTES_MAX,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 2000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 1000,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 500,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 127,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50_000,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 32_766,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
"""Builds differ in these; the defaults of SQLite, except for lengths."""
_DETERMINISTIC: Final = frozenset(
    """-> ->> abs ceil ceiling char coalesce concat concat_ws degrees floor format glob hex if
    ifnull iif instr length like likelihood likely lower ltrim max min mod nullif octet_length pi
    printf quote radians replace round rtrim sign sqrt substr substring subtype trim trunc typeof
    unhex unicode unistr unistr_quote unlikely upper zeroblob changes last_insert_rowid""".split()
)
"""Scalar functions that give the same everywhere; the last two by the order in an update.
`sin`, `exp` and others are not here: C libraries differ in their last digit."""
_OF_TIME: Final = {
    "date": 0,
    "time": 0,
    "datetime": 0,
    "julianday": 0,
    "unixepoch": 0,
    "strftime": 1,
    "timediff": 0,
}
"""Where their time value is."""
_CURRENT: Final = ("current_date", "current_time", "current_timestamp")
_INTERNAL: Final = ("sqlite_rename_", "sqlite_drop_column", "sqlite_fail")
"""Called by ALTER TABLE, and by no statement itself."""


def dialect() -> str:
    """The SQLite of this process, as far as plans, functions and numbers depend on it."""
    connection = sqlite3.connect(":memory:")
    try:
        build = sorted(
            row[0]
            for row in connection.execute("PRAGMA compile_options")
            if row[0].startswith(("ENABLE_", "OMIT_", "DQS", "LIKE_", "CASE_"))
        )
        named = sorted(set(connection.execute("SELECT name, narg FROM pragma_function_list")))
    finally:
        connection.close()
    release = ".".join(map(str, sqlite3.sqlite_version_info[:2]))
    code = zlib.crc32(repr((build, named)).encode())
    return f"SQLite {release} on {platform.machine()}, build {code:08x}"


class FixedFunctions:
    """The functions of one connection; each update fixes their time and their random values."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._original = sqlite3.connect(":memory:", check_same_thread=False)
        """Its functions are the library's own."""
        self._day = 0.0
        self._seed = b""
        self._drawn_count = 0
        self._checks_reads = False
        self.refusal = ""
        """Why a function failed; SQLite tells only that it did."""
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        builtin = "SELECT DISTINCT name, narg FROM pragma_function_list WHERE type = 's'"
        for name, arity in connection.execute(builtin).fetchall():
            if function := self._replacement(name):
                connection.create_function(name, arity, function)

    def fix(self, update: SqlUpdate) -> None:
        # A Julian day, as SQLite computes: exact to the millisecond.
        self._day = update.now_ms / 86_400_000 + 2_440_587.5
        self._seed = update.seed.to_bytes(16, "big", signed=True)
        self._drawn_count = 0
        self.refusal = ""

    @contextlib.contextmanager
    def checking_reads(self) -> Iterator[None]:
        """Meanwhile time and chance are refused: their values differed when the rows were read."""
        self._checks_reads = True
        try:
            yield
        finally:
            self._checks_reads = False

    def refuse(self, reason: str) -> None:
        self.refusal = self.refusal or reason

    def close(self) -> None:
        self._original.close()

    def _replacement(self, name: str) -> Callable[..., SqlValue] | None:
        if name == "random":
            return lambda: int.from_bytes(self._draw(8), "big", signed=True)
        if name == "randomblob":
            return self._random_blob
        if name in _CURRENT:
            original = name.removeprefix("current_").replace("timestamp", "datetime")
            return lambda: self._of_time(original, 0, ())
        if (place := _OF_TIME.get(name)) is not None:
            return lambda *given: self._of_time(name, place, given)
        if name in _DETERMINISTIC or name.startswith(("json", *_INTERNAL)):
            return None
        return lambda *given: self._refused(name)

    def _refused(self, name: str) -> SqlValue:
        self.refuse(
            f"{name}() can differ between replicas: compute its value first, and pass it as a"
            " parameter"
        )
        raise ValueError

    def _expect_no_read(self, what: str) -> None:
        if self._checks_reads:
            self.refuse(
                f"a transaction's query cannot have {what}, as its rows are checked later: pass it"
                " as a parameter"
            )
            raise ValueError

    def _now(self) -> float:
        self._expect_no_read("the time")
        return self._day

    def _draw(self, nbytes: int) -> bytes:
        self._expect_no_read("a random value")
        self._drawn_count += 1
        number = self._drawn_count.to_bytes(8, "big")
        return hashlib.shake_128(self._seed + number).digest(nbytes)

    def _random_blob(self, nbytes: SqlValue) -> bytes:
        (count,) = self._original.execute("SELECT CAST(? AS INTEGER)", (nbytes,)).fetchone()
        if (count or 0) > BLOB_BYTES_MAX:
            self.refuse(f"randomblob({count}) is over {BLOB_BYTES_MAX} bytes")
            raise ValueError
        return self._draw(max(count or 0, 1))

    def _of_time(self, name: str, place: int, given: tuple[SqlValue, ...]) -> SqlValue:
        """The library's own function, with the update's time for `now`."""
        values = [_as_text(value) for value in given]
        if len(values) <= place or _is_word(values[place], "subsec", "subsecond"):
            values.insert(place, self._now())
        last = 2 if name == "timediff" else place + 1
        values[place:last] = [
            self._now() if _is_word(value, "now") else value for value in values[place:last]
        ]
        if any(_is_word(value, "localtime", "utc") for value in values[place + 1 :]):
            self.refuse(
                f"{name}(…, 'localtime' or 'utc') depends on the time zone of a replica: compute"
                " its value first, and pass it as a parameter"
            )
            raise ValueError
        marks = ", ".join("?" * len(values))
        (found,) = self._original.execute(f"SELECT {name}({marks})", values).fetchone()
        return found  # type: ignore[no-any-return]


def _as_text(value: SqlValue) -> SqlValue:
    """SQLite reads a time value as text up to a zero byte."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value.partition("\0")[0] if isinstance(value, str) else value


def _is_word(value: SqlValue, *words: str) -> bool:
    return isinstance(value, str) and value.lower() in words
