"""Rows as message payloads, and the keys by which they are sorted."""

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
"""A row's sort key and payload: equal entries are equal messages."""


class Payloads:
    """The column `payload` of a DataFrame as it is, or else each row as JSON.

    Rows are sorted by the columns `order_by`, then by payload; without `order_by` by all comparable
    columns, from the first to the last."""

    def __init__(self, schema: StructType, order_by: Sequence[str] = ()) -> None:
        names = schema.fieldNames()
        if not names:
            raise Misuse("the rows have no columns: select at least one")
        self._names = names
        self._at = _payload_at(schema)
        if self._at is None:
            for field in schema:
                _check_json(field.name, field.dataType)
        kinds = {field.name: field.dataType.typeName() for field in schema}
        for name in order_by:
            if name not in kinds:
                raise Misuse(f"orderBy: no column {name!r}; there are {', '.join(names)}")
            if kinds[name] not in SCALARS:
                raise Misuse(f"orderBy: column {name} is {kinds[name]}, which has no order")
        keys = order_by or [name for name in names if kinds[name] in SCALARS]
        self._keys = [names.index(name) for name in keys if names.index(name) != self._at]
        if not order_by and self._at is not None and self._at < max(self._keys, default=-1):
            # The payload is a key among the columns; behind them all it is one anyway.
            self._keys = sorted([*self._keys, self._at])

    def of(self, batch: pa.RecordBatch, first_row: int) -> list[bytes]:
        """One per row. `first_row` is the number of the first, for errors."""
        if self._at is None:
            return self._as_json(batch)
        column = batch.column(self._at)
        if column.null_count:
            number = first_row + column.to_pylist().index(None)
            raise Misuse(
                f"the payload of row {number} is null: filter such rows, as with"
                ' .where("payload IS NOT NULL")'
            )
        return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]

    def entries(self, batch: pa.RecordBatch, first_row: int) -> list[Entry]:
        payloads = self.of(batch, first_row)
        columns = [map(_comparable, batch.column(at).to_pylist()) for at in self._keys]
        if not columns:
            return [((), payload) for payload in payloads]
        return list(zip(zip(*columns, strict=True), payloads, strict=True))

    def _as_json(self, batch: pa.RecordBatch) -> list[bytes]:
        columns = [
            list(map(encode, column.to_pylist()))
            if (encode := _encoder(column.type))
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
        raise Misuse("two columns are named payload: keep one")
    if not found:
        return None
    kind = schema[found[0]].dataType
    if not isinstance(kind, BinaryType | StringType):
        raise Misuse(f"column payload is {kind.simpleString()}: cast it to binary or string")
    return found[0]


def _check_json(name: str, kind: DataType) -> None:
    if isinstance(kind, ArrayType):
        _check_json(name, kind.elementType)
    elif isinstance(kind, MapType):
        _check_json(name, kind.keyType)
        _check_json(name, kind.valueType)
    elif isinstance(kind, StructType):
        for field in kind:
            _check_json(f"{name}.{field.name}", field.dataType)
    elif kind.typeName() not in SCALARS:
        raise Misuse(
            f"column {name} is {kind.simpleString()}, which has no JSON form here: give a column"
            " payload instead"
        )


def _comparable(value: Any) -> tuple[int, Any]:
    """Nulls first, then values, then NaN."""
    if value is None:
        return (0, None)
    if isinstance(value, float) and math.isnan(value):
        return (2, None)
    return (1, value)


def _encoder(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Converts values of this type for JSON; None where they can stay."""
    is_ = pa.types
    if is_.is_boolean(kind) or is_.is_integer(kind) or is_.is_null(kind):
        return None
    if is_.is_string(kind) or is_.is_large_string(kind):
        return None
    if is_.is_map(kind):
        of_value = _encoder(kind.item_type) or _identity
        return _unless_null(lambda pairs: {_json_key(k): of_value(v) for k, v in pairs})
    if is_.is_list(kind) or is_.is_large_list(kind):
        of_element = _encoder(kind.value_type) or _identity
        return _unless_null(lambda values: list(map(of_element, values)))
    if is_.is_struct(kind):
        of_field = {field.name: _encoder(field.type) or _identity for field in kind}
        return _unless_null(lambda value: {n: of(value[n]) for n, of in of_field.items()})
    return _scalar


def _identity(value: Any) -> Any:
    return value


def _unless_null(encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else encode(value)


def _json_key(value: Any) -> str:
    encoded = _scalar(value)
    return encoded if isinstance(encoded, str) else json.dumps(encoded)


def _scalar(value: Any) -> Any:
    """Bytes in base64, times in ISO 8601 and UTC; decimals, NaN and infinities as text."""
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
