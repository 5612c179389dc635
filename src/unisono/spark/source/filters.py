"""Filters that Spark pushes down to the source.

A filter is accepted only when it means exactly the same here as in Spark. As in SQL, a comparison
with null is null, and only rows for which all filters are true remain.
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

_COMPARISONS: Final[Mapping[type[Filter], Callable[..., Any]]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_STRING_TESTS: Final[Mapping[type[Filter], Callable[..., Any]]] = {
    StringStartsWith: pc.starts_with,
    StringEndsWith: pc.ends_with,
    StringContains: pc.match_substring,
}
INT64: Final = range(-(1 << 63), 1 << 63)


def column_of(filter_: Filter) -> str:
    """The column that a filter tests; empty for a field within a column."""
    while isinstance(filter_, Not):
        filter_ = filter_.child
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    return path[0] if len(path) == 1 else ""


def is_supported(filter_: Filter, schema: pa.Schema) -> bool:
    """Whether `mask_of` gives exactly Spark's result."""
    if isinstance(filter_, Not):
        return not isinstance(filter_.child, Not) and is_supported(filter_.child, schema)
    name = column_of(filter_)
    if not name or name not in schema.names:
        return False
    kind = schema.field(name).type
    if isinstance(filter_, IsNull | IsNotNull):
        return True
    if isinstance(filter_, In):
        return all(_fits(value, kind) for value in filter_.value)
    if isinstance(filter_, EqualNullSafe) and filter_.value is None:
        return True
    if type(filter_) in _COMPARISONS or isinstance(filter_, EqualNullSafe):
        return _fits(filter_.value, kind)  # type: ignore[attr-defined]
    return type(filter_) in _STRING_TESTS and pa.types.is_string(kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        return type(value) is int and value in INT64
    return pa.types.is_string(kind) and isinstance(value, str)


def mask_of(filter_: Filter, column: Any) -> Any:
    """For each value true, false or null."""
    if isinstance(filter_, Not):
        return pc.invert(mask_of(filter_.child, column))
    if isinstance(filter_, IsNull):
        return pc.is_null(column)
    if isinstance(filter_, IsNotNull):
        return pc.is_valid(column)
    if isinstance(filter_, EqualNullSafe):
        if filter_.value is None:
            return pc.is_null(column)
        return pc.fill_null(pc.equal(column, _scalar(filter_.value)), False)
    if isinstance(filter_, In):
        kind = pa.int64() if pa.types.is_integer(column.type) else pa.string()
        among = pc.is_in(column.cast(kind), value_set=pa.array(filter_.value, kind))
        return pc.if_else(pc.is_valid(column), among, None)
    if type(filter_) in _COMPARISONS:
        return _COMPARISONS[type(filter_)](column, _scalar(filter_.value))  # type: ignore[attr-defined]
    return _STRING_TESTS[type(filter_)](column, filter_.value)  # type: ignore[attr-defined]


def _scalar(value: int | str) -> Any:
    return pa.scalar(value, pa.int64() if isinstance(value, int) else pa.string())


def mask_of_all(filters: list[Filter], table: pa.Table) -> Any:
    """For each row whether it passes all filters; None without filters."""
    mask = None
    for each in filters:
        one = mask_of(each, table.column(column_of(each)))
        mask = one if mask is None else pc.and_kleene(mask, one)
    return mask


def matches(filters: list[Filter], name: str, value: str) -> bool:
    """Whether a value passes all filters on a column."""
    column = pa.array([value], pa.string())
    mine = (each for each in filters if column_of(each) == name)
    return all(mask_of(each, column)[0].as_py() for each in mine)
