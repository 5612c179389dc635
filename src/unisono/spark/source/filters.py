"""What Spark asks of the rows, answered by the source: the same rows as Spark itself would keep.

A filter is taken only when it means exactly here what it means to Spark; the others stay Spark's.
As in SQL, a comparison with null is neither true nor false, and only rows with a true one remain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

_COMPARED: Final[Mapping[type[Filter], Callable[..., Any]]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_WORDED: Final[Mapping[type[Filter], Callable[..., Any]]] = {
    StringStartsWith: pc.starts_with,
    StringEndsWith: pc.ends_with,
    StringContains: pc.match_substring,
}
INT64: Final = range(-(1 << 63), 1 << 63)


def column_of(asked: Filter) -> str:
    """The column that a filter is about; empty when it is a field within one."""
    while isinstance(asked, Not):
        asked = asked.child
    path: tuple[str, ...] = getattr(asked, "attribute", ())
    return path[0] if len(path) == 1 else ""


def is_ours(asked: Filter, schema: pa.Schema) -> bool:
    """Whether `mask_of` says of this filter exactly what Spark would."""
    if isinstance(asked, Not):
        return not isinstance(asked.child, Not) and is_ours(asked.child, schema)
    name = column_of(asked)
    if not name or name not in schema.names:
        return False
    kind = schema.field(name).type
    if isinstance(asked, IsNull | IsNotNull):
        return True
    if isinstance(asked, In):
        return all(_fits(value, kind) for value in asked.value)
    if isinstance(asked, EqualNullSafe) and asked.value is None:
        return True
    if type(asked) in _COMPARED or isinstance(asked, EqualNullSafe):
        return _fits(asked.value, kind)  # type: ignore[attr-defined]
    return type(asked) in _WORDED and pa.types.is_string(kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        return type(value) is int and value in INT64
    return pa.types.is_string(kind) and isinstance(value, str)


def mask_of(asked: Filter, column: Any) -> Any:
    """For each value true, false or, where SQL knows no answer, null."""
    if isinstance(asked, Not):
        return pc.invert(mask_of(asked.child, column))
    if isinstance(asked, IsNull):
        return pc.is_null(column)
    if isinstance(asked, IsNotNull):
        return pc.is_valid(column)
    if isinstance(asked, EqualNullSafe):
        if asked.value is None:
            return pc.is_null(column)
        return pc.fill_null(pc.equal(column, _scalar(asked.value)), False)
    if isinstance(asked, In):
        kind = pa.int64() if pa.types.is_integer(column.type) else pa.string()
        among = pc.is_in(column.cast(kind), value_set=pa.array(asked.value, kind))
        return pc.if_else(pc.is_valid(column), among, None)
    if type(asked) in _COMPARED:
        return _COMPARED[type(asked)](column, _scalar(asked.value))  # type: ignore[attr-defined]
    return _WORDED[type(asked)](column, asked.value)  # type: ignore[attr-defined]


def _scalar(value: int | str) -> Any:
    return pa.scalar(value, pa.int64() if isinstance(value, int) else pa.string())


def kept(asked: list[Filter], table: pa.Table) -> Any:
    """Which rows of the table all filters keep; null where one of them has no answer."""
    mask = None
    for each in asked:
        one = mask_of(each, table.column(column_of(each)))
        mask = one if mask is None else pc.and_kleene(mask, one)
    return mask


def keeps(asked: list[Filter], name: str, value: str) -> bool:
    """Whether the filters keep a row whose column `name` has this value."""
    return bool(
        all(
            mask_of(each, pa.array([value], pa.string()))[0].as_py()
            for each in asked
            if column_of(each) == name
        )
    )
