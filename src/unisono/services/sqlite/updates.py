"""Updates of a replicated database and their results, as bytes."""

from __future__ import annotations

import json
import math
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from unisono.errors import Misuse, TooLarge, UnisonoError
from unisono.services.sqlite.statements import NotReplicable

UPDATE_BYTES_MAX: Final = 1 << 20
"""All statements and parameters of one update."""
RESULT_BYTES_MAX: Final = 1 << 20
"""All rows that the statements of one update return."""
_MARK: Final = "unisono.sqlite/1"
_INTEGERS: Final = range(-(1 << 63), 1 << 63)

SqlValue: TypeAlias = int | float | str | bytes | None
Parameters: TypeAlias = Sequence[SqlValue] | Mapping[str, SqlValue]
Row: TypeAlias = tuple[SqlValue, ...]


class BadUpdate(UnisonoError, ValueError):
    """Bytes that are not an update. All replicas answer them with the same failure."""


class ReadConflict(UnisonoError):
    """What the transaction had read was changed before its place in the order came: nothing of it
    was applied. Run it again."""


class ReplicatedStatement(NamedTuple):
    sql: str
    parameters: tuple[Parameters, ...]
    """Executed once with each."""


class CheckedRead(NamedTuple):
    """A query of a transaction; if it no longer gives these rows, the transaction conflicts."""

    sql: str
    parameters: Parameters
    digest: str


class SqlUpdate(NamedTuple):
    """Applied whole or not at all."""

    statements: tuple[ReplicatedStatement, ...]
    reads: tuple[CheckedRead, ...]
    now_ms: int
    """The time of its statements."""
    seed: int
    """Of its random values."""
    dialect: str
    """The SQLite for which it is written."""


class SqlResult(NamedTuple):
    """Of one statement, as a cursor of `sqlite3` has it."""

    rowcount: int
    """Rows changed; -1 where that means nothing."""
    lastrowid: int | None
    """Of the last row inserted; None if none was."""
    columns: tuple[str, ...]
    """Of the rows that RETURNING gave."""
    rows: tuple[Row, ...]


class SqlFailure(NamedTuple):
    """Why an update was not applied; the same at all replicas."""

    statement: int
    """The number of the statement in the update, from 0."""
    kind: str
    message: str
    code: int
    """Of SQLite, extended; 0 if it is not an error of SQLite."""

    def error(self) -> Exception:
        """The exception for the submitter: as `sqlite3` would raise it where it is one of its."""
        if self.kind == "NotReplicable":
            return NotReplicable(self.message)
        if self.kind == "ReadConflict":
            return ReadConflict(self.message)
        known = getattr(sqlite3, self.kind, sqlite3.DatabaseError)
        error: Exception = known(self.message)
        if self.code and isinstance(error, sqlite3.Error):
            error.sqlite_errorcode = self.code
        return error


def checked_parameters(parameters: Parameters) -> Parameters:
    """Parameters as values that all replicas bind alike, or `Misuse`."""
    if isinstance(parameters, Mapping):
        return {str(name): _checked_value(value) for name, value in parameters.items()}
    if isinstance(parameters, str | bytes):
        raise Misuse(f"parameters {parameters!r:.40}: write a tuple or a dictionary, as (value,)")
    return tuple(map(_checked_value, parameters))


def _checked_value(value: object) -> SqlValue:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        if value not in _INTEGERS:
            raise Misuse(f"parameter {value}: SQLite's integers have 64 bits")
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value  # As SQLite stores it.
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Misuse(f"parameter {value!r:.40}: half of a surrogate pair is no text") from None
        return value
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise Misuse(
        f"parameter of type {type(value).__name__}: bind None, int, float, str or bytes, as an"
        " adapter of one replica is not known to the others"
    )


def encode_update(update: SqlUpdate) -> bytes:
    fields = {
        "is": _MARK,
        "do": [[each.sql, list(map(_packed, each.parameters))] for each in update.statements],
        "read": [[each.sql, _packed(each.parameters), each.digest] for each in update.reads],
        "at": update.now_ms,
        "seed": update.seed,
        "by": update.dialect,
    }
    body = _dumps(fields)
    if len(body) > UPDATE_BYTES_MAX:
        raise TooLarge(
            f"the update has {len(body)} bytes, over {UPDATE_BYTES_MAX}: split it into several"
        )
    return body


def decode_update(body: bytes) -> SqlUpdate:
    try:
        fields = json.loads(body)
        if fields.pop("is") != _MARK:
            raise ValueError
        return SqlUpdate(
            tuple(
                ReplicatedStatement(_text(sql), tuple(map(_unpacked, rows)))
                for sql, rows in fields["do"]
            ),
            tuple(
                CheckedRead(_text(sql), _unpacked(packed), _text(digest))
                for sql, packed, digest in fields["read"]
            ),
            int(fields["at"]),
            int(fields["seed"]),
            _text(fields["by"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BadUpdate("not an update of a replicated database") from None


def encode_results(results: Iterable[SqlResult]) -> bytes:
    return _dumps([[*each[:3], [list(map(_pack, row)) for row in each.rows]] for each in results])


def encode_failure(failure: SqlFailure) -> bytes:
    return _dumps({"failed": failure})


def decode_results(body: bytes) -> tuple[SqlResult, ...] | SqlFailure:
    """Written by this process's own replica."""
    fields = json.loads(body)
    if isinstance(fields, dict):
        return SqlFailure(*fields["failed"])
    return tuple(
        SqlResult(
            rowcount, lastrowid, tuple(columns), tuple(tuple(map(_unpack, row)) for row in rows)
        )
        for rowcount, lastrowid, columns, rows in fields
    )


def _dumps(fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _text(field: object) -> str:
    if not isinstance(field, str):
        raise ValueError
    field.encode()  # Half of a surrogate pair raises ValueError.
    return field


def _pack(value: SqlValue) -> Any:
    return {"b": b64encode(value).decode()} if isinstance(value, bytes) else value


def _unpack(field: Any) -> SqlValue:
    if isinstance(field, dict):
        return b64decode(field["b"], validate=True)
    return _checked_value(field)


def _packed(parameters: Parameters) -> Any:
    if isinstance(parameters, Mapping):
        return {name: _pack(value) for name, value in parameters.items()}
    return list(map(_pack, parameters))


def _unpacked(fields: Any) -> Parameters:
    if isinstance(fields, dict):
        return {name: _unpack(field) for name, field in fields.items()}
    if not isinstance(fields, list):
        raise ValueError
    return tuple(map(_unpack, fields))
