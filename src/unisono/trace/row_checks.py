"""What a row must be before a law may judge it, on the columns of a row group.

The first check that fails, in the order of `ROW_CHECKS`, gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from unisono.trace.checks import ABOUT_MESSAGES, VIEWS
from unisono.trace.columns import KIND, Array

if TYPE_CHECKING:
    from unisono.trace.row_groups import RowGroup

MEMBER: Final = r".+#[0-9]+"
_member = re.compile(MEMBER, re.DOTALL).fullmatch


class RowCheck(NamedTuple):
    """`fails` is true of a row of these kinds (of all, when empty) that must not be judged."""

    reason: str
    fails: Callable[[RowGroup], Array]
    kinds: tuple[str, ...] = ()


def _null(group: RowGroup, name: str) -> Array:
    valid = group.columns.valid(name)
    return np.zeros(len(group.kind), np.bool_) if valid is None else ~valid


def _empty(group: RowGroup, name: str) -> Array:
    index, strings = group.columns.strings(name)
    empty: Array = np.array([*(not each for each in strings), True])[index]
    return empty


def _below(group: RowGroup, name: str, least: int) -> Array:
    below: Array = group.columns.ints(name, -1) < least
    return below


def _without_sender(group: RowGroup) -> Array:
    return _empty(group, "sender") | _below(group, "sender_incarnation", 0)


def _misnamed(group: RowGroup) -> Array:
    """Views of which the members are not listed by name and incarnation."""
    found = np.zeros(len(group.kind), np.bool_)
    for at in np.flatnonzero(np.isin(group.kind, [KIND[kind] for kind in VIEWS])).tolist():
        members = group.columns.value("members", at)
        found[at] = not members or not all(each and _member(each) for each in members)
    return found


# fmt: off
ROW_CHECKS: Final[tuple[RowCheck, ...]] = (
    RowCheck("no protocol or group",
             lambda g: _null(g, "protocol") | _null(g, "group")),
    RowCheck("no node",
             lambda g: _empty(g, "node")),
    RowCheck("no incarnation, or a negative one",
             lambda g: _below(g, "incarnation", 0)),
    RowCheck("no step, or a negative one",
             lambda g: _below(g, "step", 0)),
    RowCheck("no time, or a negative one",
             lambda g: _below(g, "t_us", 0)),
    RowCheck("unknown kind",
             lambda g: g.kind < 0),
    RowCheck("no view column",
             lambda g: _null(g, "view")),
    RowCheck("message without sender",
             _without_sender, ABOUT_MESSAGES),
    RowCheck("message without number",
             lambda g: _below(g, "number", 1), ABOUT_MESSAGES),
    RowCheck("message without service, or an unknown one",
             lambda g: g.events.level < 0, ABOUT_MESSAGES),
    RowCheck("message without size and digest",
             lambda g: _below(g, "size", 0) | _null(g, "digest"), ABOUT_MESSAGES),
    RowCheck("sent in the name of another",
             lambda g: g.events.source != g.incarnation, ("send",)),
    RowCheck("view without id",
             lambda g: _empty(g, "view"), VIEWS),
    RowCheck("view without members, or misnamed ones",
             _misnamed, VIEWS),
    RowCheck("receipt without sender or number",
             lambda g: _without_sender(g) | _below(g, "number", 1), ("receipt",)),
)
# fmt: on

_OF_KIND: Final = {
    kinds: np.array([*(kind in kinds for kind in KIND), False])
    for kinds in {check.kinds for check in ROW_CHECKS}
}
"""By kinds and kind; the last entry is for no kind."""


def failures(group: RowGroup) -> list[tuple[str, Array]]:
    """The reasons of checks that rows fail, each with a mask of these rows."""
    found = []
    of_kinds = {kinds: table[group.kind] for kinds, table in _OF_KIND.items() if kinds}
    for reason, fails, kinds in ROW_CHECKS:
        if kinds and not of_kinds[kinds].any():
            continue
        failed = fails(group)
        if kinds:
            failed = failed & of_kinds[kinds]
        if failed.any():
            found.append((reason, failed))
    return found
