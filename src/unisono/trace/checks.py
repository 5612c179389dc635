"""What a row must be before a law may judge it, in process and on Spark.

A row that fails a check goes to quarantine with the check's reason; the first that fails, in the
order of `ROW_CHECKS`, gives the reason. Two more checks look at other files, which are in the order
of their names; run, node and number identify an incarnation:

`TOLD_TWICE`: a row that passed `ROW_CHECKS`, of an incarnation of which an earlier file holds a row
that passed, with the same step or a later one. So a long trace may span several files, one after
the other, and a copied file is noticed. A row that is not told twice is *fresh*.
`AFTER_TORN`: a fresh row that has an earlier part of its trace missing before it. Either an earlier
file of its own chain (`stem.parquet`, `stem.s000001.parquet`, …) is torn or not there; or an
earlier file with fresh rows of its incarnation is torn, or has such a gap before it.

The rows that remain are judged in the order of their files and within each file, and
their steps are counted anew in that order: a row that someone put in, copied or moved is judged
where it stands, whatever step it claims.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from unisono.trace.record import MESSAGE_KINDS, WORK_KINDS, Row

KINDS: Final = frozenset(MESSAGE_KINDS + WORK_KINDS)
SPOKEN: Final = ("send", "deliver", "stable")
"""Kinds of rows that are about a message."""
VIEWS: Final = ("view", "transitional")
"""Kinds of rows that are about a view."""

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

TOLD_TWICE: Final = "life already told by another file"
TORN: Final = "torn"
"""How the reason begins that a file ends, or has nothing, as when its process was killed."""
AFTER_TORN: Final = "after a torn part"

_resilient = re.compile(RESILIENT).fullmatch
_member = re.compile(MEMBER, re.DOTALL).fullmatch


class RowCheck(NamedTuple):
    """`fails` is true of a row that must not be judged."""

    reason: str
    fails: Callable[[Row], bool]
    kinds: tuple[str, ...] = ()
    """The kinds that it can fail for; all when empty. Only saves time: `fails` also looks."""


@lru_cache(64)
def level_of(service: str | None) -> int:
    """How strong a service is, as a number; resilient messages are ordered like agreed ones."""
    if service is None:
        return -1
    level = LEVELS.get(service)
    if level is not None:
        return level
    return LEVELS["agreed"] if _resilient(service) else -1


def _listed(members: tuple[str | None, ...] | None) -> bool:
    return bool(members) and all(m is not None and _member(m) for m in members or ())


# fmt: off
ROW_CHECKS: Final[tuple[RowCheck, ...]] = (
    RowCheck("no protocol or group",
             lambda r: r.protocol is None or r.group is None),
    RowCheck("no node",
             lambda r: not r.node),
    RowCheck("no incarnation, or a negative one",
             lambda r: r.incarnation is None or r.incarnation < 0),
    RowCheck("no step, or a negative one",
             lambda r: r.step is None or r.step < 0),
    RowCheck("no time, or a negative one",
             lambda r: r.t_us is None or r.t_us < 0),
    RowCheck("unknown kind",
             lambda r: r.kind not in KINDS),
    RowCheck("no view column",
             lambda r: r.view is None),
    RowCheck("message without sender",
             lambda r: r.kind in SPOKEN and (
                 not r.sender or r.sender_incarnation is None or r.sender_incarnation < 0),
             SPOKEN),
    RowCheck("message without number",
             lambda r: r.kind in SPOKEN and (r.number is None or r.number < 1),
             SPOKEN),
    RowCheck("message without service, or an unknown one",
             lambda r: r.kind in SPOKEN and level_of(r.service) < 0,
             SPOKEN),
    RowCheck("message without size and digest",
             lambda r: r.kind in SPOKEN and (r.size is None or r.size < 0 or r.digest is None),
             SPOKEN),
    RowCheck("sent in the name of another",
             lambda r: r.kind == "send" and (
                 r.sender != r.node or r.sender_incarnation != r.incarnation),
             ("send",)),
    RowCheck("view without id",
             lambda r: r.kind in VIEWS and not r.view,
             VIEWS),
    RowCheck("view without members, or misnamed ones",
             lambda r: r.kind in VIEWS and not _listed(r.members),
             VIEWS),
    RowCheck("receipt without sender or number",
             lambda r: r.kind == "receipt" and (
                 not r.sender or r.sender_incarnation is None or r.sender_incarnation < 0
                 or r.number is None or r.number < 1),
             ("receipt",)),
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
