"""Rows as the payloads that a group is told, and by what they are put in order."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
)

from unisono.errors import Misuse

PAYLOAD: Final = "payload"
SCALARS: Final = frozenset(
    """boolean byte short integer long float double decimal string char varchar binary date
    timestamp timestamp_ntz void""".split()
)

Key = tuple[tuple[int, Any], ...]
Entry = tuple[Key, bytes]
"""A row's place among the others, and its payload: equal entries are equal messages."""


class Payloads:
    """Of a DataFrame with this schema: the column `payload` as it is, or else each row as JSON.

    Rows are ordered by the columns `order_by`, then by their payloads; without `order_by` by all
    columns that can be compared, from the first to the last."""

    def __init__(self, schema: StructType, order_by: Sequence[str] = ()) -> None:
        names = schema.fieldNames()
        if not names:
            raise Misuse("a row without columns cannot be said")
        self._names = names
        self._at = _payload_at(schema)
        if self._at is None:
            for field in schema:
                _check_sayable(field.name, field.dataType)
        kinds = {field.name: field.dataType.typeName() for field in schema}
        for name in order_by:
            if name not in kinds:
                raise Misuse(f"orderBy: no column {name!r}; there are {', '.join(names)}")
            if kinds[name] not in SCALARS:
                raise Misuse(f"orderBy: column {name} is {kinds[name]}, which has no order")
        keys = order_by or [name for name in names if kinds[name] in SCALARS]
        self._keys = [names.index(name) for name in keys if names.index(name) != self._at]
        if not order_by and self._at is not None and self._at < max(self._keys, default=-1):
            # The payload takes its turn among the columns; behind them all it stands anyway.
            self._keys = sorted([*self._keys, self._at])

    def of(self, batch: pa.RecordBatch, first_row: int) -> list[bytes]:
        """One a row. `first_row` is the number of the first, for what is said of a bad one."""
        if self._at is None:
            return self._as_json(batch)
        column = batch.column(self._at)
        if column.null_count:
            place = first_row + column.to_pylist().index(None)
            raise Misuse(
                f"the payload of row {place} is null: leave such rows out, as with"
                ' .where("payload IS NOT NULL")'
            )
        return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]

    def entries(self, batch: pa.RecordBatch, first_row: int) -> list[Entry]:
        """Payloads with what they are put in order by."""
        payloads = self.of(batch, first_row)
        columns = [map(_comparable, batch.column(at).to_pylist()) for at in self._keys]
        if not columns:
            return [((), payload) for payload in payloads]
        return list(zip(zip(*columns, strict=True), payloads, strict=True))

    def _as_json(self, batch: pa.RecordBatch) -> list[bytes]:
        columns = [
            list(map(told, column.to_pylist()))
            if (told := _teller(column.type))
            else column.to_pylist()
            for column in batch.columns
        ]
        return [
            json.dumps(
                dict(zip(self._names, row, strict=True)), ensure_ascii=False, separators=(",", ":")
            ).encode("utf-8", "backslashreplace")
            for row in zip(*columns, strict=True)
        ]


def _payload_at(schema: StructType) -> int | None:
    found = [at for at, name in enumerate(schema.fieldNames()) if name.lower() == PAYLOAD]
    if len(found) > 1:
        raise Misuse("two columns are named payload: which one is meant?")
    if not found:
        return None
    kind = schema[found[0]].dataType
    if not isinstance(kind, BinaryType | StringType):
        raise Misuse(f"column payload is {kind.simpleString()}: make it a binary or a string")
    return found[0]


def _check_sayable(name: str, kind: DataType) -> None:
    """What has a form in JSON that everybody knows."""
    if isinstance(kind, ArrayType):
        _check_sayable(name, kind.elementType)
    elif isinstance(kind, MapType):
        _check_sayable(name, kind.keyType)
        _check_sayable(name, kind.valueType)
    elif isinstance(kind, StructType):
        for field in kind:
            _check_sayable(f"{name}.{field.name}", field.dataType)
    elif kind.typeName() not in SCALARS:
        raise Misuse(
            f"column {name} is {kind.simpleString()}, which has no form in JSON here: give a"
            " column payload instead"
        )


def _comparable(value: Any) -> tuple[int, Any]:
    """Nulls first, then values, then what is not a number."""
    if value is None:
        return (0, None)
    if isinstance(value, float) and math.isnan(value):
        return (2, None)
    return (1, value)


def _teller(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """How values of this type are put for JSON; nothing where they can stay."""
    is_ = pa.types
    if is_.is_boolean(kind) or is_.is_integer(kind) or is_.is_string(kind) or is_.is_null(kind):
        return None
    if is_.is_large_string(kind):
        return None
    if is_.is_map(kind):
        inner = _teller(kind.item_type) or _same
        return _unless_null(lambda pairs: {_key(k): inner(v) for k, v in pairs})
    if is_.is_list(kind) or is_.is_large_list(kind):
        inner = _teller(kind.value_type) or _same
        return _unless_null(lambda values: [inner(value) for value in values])
    if is_.is_struct(kind):
        tellers = {
            kind.field(at).name: _teller(kind.field(at).type) or _same
            for at in range(kind.num_fields)
        }
        return _unless_null(lambda value: {n: tell(value[n]) for n, tell in tellers.items()})
    return _plain


def _same(value: Any) -> Any:
    return value


def _unless_null(tell: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else tell(value)


def _key(value: Any) -> str:
    told = _plain(value)
    return told if isinstance(told, str) else json.dumps(told)


def _plain(value: Any) -> Any:
    """Octets in base 64, times in UTC by ISO 8601, decimals with all their digits as text; of
    numbers, those that JSON has no word for as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return value.isoformat()
    return str(value)
