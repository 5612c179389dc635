"""The row checks on whole columns: which rows may fail one, so that only those are looked at."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from unisono.trace.checks import KINDS, SPOKEN, level_of, reason_against
from unisono.trace.parquet import SCHEMA
from unisono.trace.record import Row

UNCHECKED: Final = frozenset(("seq", "peer", "detail", "joined", "left", "stayed", "changes"))
"""Columns that no check looks at."""
FEW: Final = frozenset(("view", "transitional", "receipt"))
"""Kinds of which there are few rows, with checks of their own."""
CHECKED: Final = tuple(name for name in SCHEMA.names if name not in UNCHECKED)


def reasons_against(table: pa.Table) -> dict[int, str]:
    """By the place in the table, why a row must not be judged. The table has at least the columns
    `CHECKED`. What `trace.checks` says, only faster: most rows pass and are never looked at."""
    suspects = pc.indices_nonzero(_may_fail(table)).to_pylist()
    if not suspects:
        return {}
    some = table.select(CHECKED).take(suspects)
    columns = {name: some.column(name).to_pylist() for name in CHECKED}
    found: dict[int, str] = {}
    for at, place in enumerate(suspects):
        fields = {name: column[at] for name, column in columns.items()}
        if fields["members"] is not None:
            fields["members"] = tuple(fields["members"])
        reason = reason_against(Row(**fields))
        if reason is not None:
            found[place] = reason
    return found


def _may_fail(table: pa.Table) -> Any:
    """True at least for all rows that fail a check. The few are looked at one by one."""

    def missing(name: str, least: int) -> Any:
        return pc.fill_null(pc.less(table.column(name), least), True)

    def empty(name: str) -> Any:
        return pc.fill_null(pc.equal(table.column(name), ""), True)

    kind = table.column("kind")
    told = [
        pc.is_null(table.column("protocol")),
        pc.is_null(table.column("group")),
        empty("node"),
        missing("incarnation", 0),
        missing("step", 0),
        missing("t_us", 0),
        pc.invert(pc.is_in(kind, value_set=pa.array(sorted(KINDS - FEW)))),
        pc.is_null(table.column("view")),
    ]
    spoken = [
        empty("sender"),
        missing("sender_incarnation", 0),
        missing("number", 1),
        _unknown(table.column("service")),
        missing("size", 0),
        pc.is_null(table.column("digest")),
        pc.and_(pc.equal(kind, "send"), _not_its_own(table)),
    ]
    about = pc.is_in(kind, value_set=pa.array(SPOKEN))
    return pc.or_(_any(told), pc.and_(about, pc.fill_null(_any(spoken), True)))


def _any(masks: list[Any]) -> Any:
    whole = masks[0]
    for mask in masks[1:]:
        whole = pc.or_kleene(whole, mask)
    return whole


def _unknown(service: Any) -> Any:
    good = [name for name in pc.unique(service).to_pylist() if level_of(name) >= 0]
    return pc.invert(pc.is_in(service, value_set=pa.array(good, pa.string())))


def _not_its_own(table: pa.Table) -> Any:
    same = pc.and_(
        pc.equal(table.column("sender"), table.column("node")),
        pc.equal(table.column("sender_incarnation"), table.column("incarnation")),
    )
    return pc.fill_null(pc.invert(same), True)
