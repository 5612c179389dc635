"""The row checks on Arrow columns: they find rows that may fail, which are then checked singly."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from unisono.trace.checks import KINDS, SPOKEN, level_of, reason_against
from unisono.trace.parquet import SCHEMA
from unisono.trace.record import Row

UNCHECKED: Final = frozenset(("seq", "peer", "detail", "joined", "left", "stayed", "changes"))
"""Columns that no check reads."""
CONTROL: Final = frozenset(("view", "transitional", "receipt"))
"""Kinds with few rows and checks of their own: always checked singly."""
CHECKED: Final = tuple(name for name in SCHEMA.names if name not in UNCHECKED)


def reasons_against(table: pa.Table) -> dict[int, str]:
    """By row number, the reason of `trace.checks`. The table has the columns `CHECKED`."""
    suspects = pc.indices_nonzero(_may_fail(table)).to_pylist()
    if not suspects:
        return {}
    some = table.select(CHECKED).take(suspects)
    columns = {name: some.column(name).to_pylist() for name in CHECKED}
    found: dict[int, str] = {}
    for at, number in enumerate(suspects):
        fields = {name: column[at] for name, column in columns.items()}
        if fields["members"] is not None:
            fields["members"] = tuple(fields["members"])
        reason = reason_against(Row(**fields))
        if reason is not None:
            found[number] = reason
    return found


def _may_fail(table: pa.Table) -> Any:
    """True for at least all rows that fail a check."""

    def missing(name: str, least: int) -> Any:
        return pc.fill_null(pc.less(table.column(name), least), True)

    def empty(name: str) -> Any:
        return pc.fill_null(pc.equal(table.column(name), ""), True)

    kind = table.column("kind")
    of_any_kind = [
        pc.is_null(table.column("protocol")),
        pc.is_null(table.column("group")),
        empty("node"),
        missing("incarnation", 0),
        missing("step", 0),
        missing("t_us", 0),
        pc.invert(pc.is_in(kind, value_set=pa.array(sorted(KINDS - CONTROL)))),
        pc.is_null(table.column("view")),
    ]
    of_message = [
        empty("sender"),
        missing("sender_incarnation", 0),
        missing("number", 1),
        _unknown(table.column("service")),
        missing("size", 0),
        pc.is_null(table.column("digest")),
        pc.and_(pc.equal(kind, "send"), _not_its_own(table)),
    ]
    is_message = pc.is_in(kind, value_set=pa.array(SPOKEN))
    return pc.or_(_any(of_any_kind), pc.and_(is_message, pc.fill_null(_any(of_message), True)))


def _any(masks: list[Any]) -> Any:
    return reduce(pc.or_kleene, masks)


def _unknown(service: Any) -> Any:
    good = [name for name in pc.unique(service).to_pylist() if level_of(name) >= 0]
    return pc.invert(pc.is_in(service, value_set=pa.array(good, pa.string())))


def _not_its_own(table: pa.Table) -> Any:
    same = pc.and_(
        pc.equal(table.column("sender"), table.column("node")),
        pc.equal(table.column("sender_incarnation"), table.column("incarnation")),
    )
    return pc.fill_null(pc.invert(same), True)
