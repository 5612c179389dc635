"""What a row must be before a law may look at it. Python and Spark share these names and meanings.

A row that fails a check goes to quarantine with the check's reason; the first that fails, in the
order of `ROW_CHECKS`, gives the reason. Two more checks look at the rows around a row:

`STEP_NOT_RISING`: among the rows of one file, node and incarnation that passed `ROW_CHECKS`, in the
order of the file, a row whose step is not above every step before it.
`TOLD_TWICE`: a row, sound so far, of a life (run, node, incarnation) of which a file that sorts
earlier by its name holds a sound row with the same step or a later one. So a long life may be told
in several files, one after the other, and a copied file is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from unisono.trace.record import MESSAGE_KINDS, WORK_KINDS, Row

KINDS: Final = frozenset(MESSAGE_KINDS + WORK_KINDS)
SPOKEN: Final = ("send", "deliver", "stable")
"""Kinds of rows that are about a message."""

LEVELS: Final = {
    "unreliable": 0,
    "reliable": 1,
    "fifo": 2,
    "causal": 3,
    "agreed": 4,
    "safe": 5,
}
RESILIENT: Final = r"resilient\(([0-9]+|majority|all)\)"
MEMBER: Final = r".+#[0-9]+"

STEP_NOT_RISING: Final = "step not above the one before"
TOLD_TWICE: Final = "life already told by another file"

_resilient = re.compile(RESILIENT).fullmatch
_member = re.compile(MEMBER, re.DOTALL).fullmatch

_SPOKEN_SQL = "kind IN ('send', 'deliver', 'stable')"


class RowCheck(NamedTuple):
    """`fails` and `sql` say the same: true of a row that must not be judged. The text is never null
    for a row that passed the checks before it."""

    reason: str
    fails: Callable[[Row], bool]
    sql: str
    """Spark SQL over the columns of the schema."""
    kinds: tuple[str, ...] = ()
    """The kinds that it can fail for; all when empty. Only saves time: `fails` also looks."""


def level_of(service: str | None) -> int:
    """How strong a service is, as a number; resilient messages are ordered like agreed ones."""
    if service is None:
        return -1
    level = LEVELS.get(service)
    if level is not None:
        return level
    return LEVELS["agreed"] if _resilient(service) else -1


LEVEL_SQL: Final = (
    "CASE service WHEN 'unreliable' THEN 0 WHEN 'reliable' THEN 1 WHEN 'fifo' THEN 2 "
    "WHEN 'causal' THEN 3 WHEN 'agreed' THEN 4 WHEN 'safe' THEN 5 "
    "ELSE CASE WHEN service RLIKE '^resilient[(]([0-9]+|majority|all)[)]\\\\z' THEN 4 ELSE -1 "
    "END END"
)
"""The same as `level_of`, in Spark SQL. There a dollar sign also stands before a last newline;
`\\z` is the end and only that."""


def _listed(members: tuple[str | None, ...] | None) -> bool:
    return bool(members) and all(m is not None and _member(m) for m in members or ())


# fmt: off
ROW_CHECKS: Final[tuple[RowCheck, ...]] = (
    RowCheck("no protocol or group",
             lambda r: r.protocol is None or r.group is None,
             "protocol IS NULL OR `group` IS NULL"),
    RowCheck("no node",
             lambda r: not r.node,
             "node IS NULL OR node = ''"),
    RowCheck("no incarnation, or a negative one",
             lambda r: r.incarnation is None or r.incarnation < 0,
             "incarnation IS NULL OR incarnation < 0"),
    RowCheck("no step, or a negative one",
             lambda r: r.step is None or r.step < 0,
             "step IS NULL OR step < 0"),
    RowCheck("no time, or a negative one",
             lambda r: r.t_us is None or r.t_us < 0,
             "t_us IS NULL OR t_us < 0"),
    RowCheck("unknown kind",
             lambda r: r.kind not in KINDS,
             "kind IS NULL OR kind NOT IN ("
             + ", ".join(f"'{kind}'" for kind in MESSAGE_KINDS + WORK_KINDS) + ")"),
    RowCheck("no view column",
             lambda r: r.view is None,
             "view IS NULL"),
    RowCheck("message without sender",
             lambda r: r.kind in SPOKEN and (
                 not r.sender or r.sender_incarnation is None or r.sender_incarnation < 0),
             f"{_SPOKEN_SQL} AND (sender IS NULL OR sender = '' OR sender_incarnation IS NULL"
             " OR sender_incarnation < 0)",
             SPOKEN),
    RowCheck("message without number",
             lambda r: r.kind in SPOKEN and (r.number is None or r.number < 1),
             f"{_SPOKEN_SQL} AND (number IS NULL OR number < 1)",
             SPOKEN),
    RowCheck("message without service, or an unknown one",
             lambda r: r.kind in SPOKEN and level_of(r.service) < 0,
             f"{_SPOKEN_SQL} AND ({LEVEL_SQL}) < 0",
             SPOKEN),
    RowCheck("message without size and digest",
             lambda r: r.kind in SPOKEN and (r.size is None or r.size < 0 or r.digest is None),
             f"{_SPOKEN_SQL} AND (size IS NULL OR size < 0 OR digest IS NULL)",
             SPOKEN),
    RowCheck("sent in the name of another",
             lambda r: r.kind == "send" and (
                 r.sender != r.node or r.sender_incarnation != r.incarnation),
             "kind = 'send' AND (NOT (sender <=> node) OR"
             " NOT (sender_incarnation <=> incarnation))",
             ("send",)),
    RowCheck("view without id",
             lambda r: r.kind == "view" and not r.view,
             "kind = 'view' AND view = ''",
             ("view",)),
    RowCheck("view without members, or misnamed ones",
             lambda r: r.kind == "view" and not _listed(r.members),
             "kind = 'view' AND (members IS NULL OR size(members) < 1 OR"
             " exists(members, m -> m IS NULL OR NOT (m RLIKE '(?s)^.+#[0-9]+\\\\z')))",
             ("view",)),
)
# fmt: on

_BY_KIND: Final = {
    kind: tuple(check for check in ROW_CHECKS if not check.kinds or kind in check.kinds)
    for kind in KINDS
}


def reason_against(row: Row) -> str | None:
    """Why the row must not be judged, or None."""
    for check in _BY_KIND.get(row.kind, ROW_CHECKS):
        if check.fails(row):
            return check.reason
    return None
