"""Violations that rows which could not be read may explain: they are uncertain, and accuse no one.

A quarantined row may have been any row of the incarnations that its file is about. It can only add
to a history. So a violation that no further row undoes stays certain; one of a law that is decided
by the rows of its witnesses is uncertain if rows of a witness are missing; and one of any other law
is uncertain if any row of the run is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from unisono.laws.verdict import Violation
from unisono.trace.unread import ANYONE

BROKEN, KEPT, UNCERTAIN, NOT_CLAIMED = "broken", "kept", "uncertain", "not claimed"
NOT_YET: Final = "not yet"
"""The verdict of an eventual law on a run that goes on."""
EVENTUAL: Final = (
    *("gap_free", "every_place", "agreement", "validity", "safe", "received", "stable"),
    *("one_primary", "one_component", "quorum", "one_founding", "begun"),
    *("exclusion", "accuracy", "progress"),
)
"""Liveness: not judged while a run goes on."""
CERTAIN: Final = ("no_duplication", "total_order", "one_place", "uniform_order")
"""No further row undoes these."""
BY_WITNESSES: Final = (
    *("no_creation", "fifo", "fifo_by_level", "validity", "view_order", "self_inclusion"),
    *("local_order", "sending_view", "sender_in_view", "same_view", "virtual_synchrony"),
)


def weighed(law: str, found: Sequence[Violation], unread: Mapping[str, str]) -> list[Violation]:
    """The violations of a law; those that unread rows may explain say so."""
    if not unread or law in CERTAIN:
        return list(found)
    return [_with_doubt(each, unread) for each in found]


def outcome(found: Iterable[Violation]) -> str:
    """The verdict on a law that has these violations."""
    doubts = [each.detail.endswith(_END) for each in found]
    return KEPT if not doubts else UNCERTAIN if all(doubts) else BROKEN


_END: Final = " was not read)"


def _with_doubt(violation: Violation, unread: Mapping[str, str]) -> Violation:
    why = next((unread[life] for life in _witnesses(violation) if life in unread), None)
    if violation.law not in BY_WITNESSES:
        why = why or next(iter(unread.values()))
    why = why or unread.get(ANYONE)
    if why is None:
        return violation
    return violation._replace(detail=f"{violation.detail} (uncertain: {why}{_END}")


def _witnesses(violation: Violation) -> list[str]:
    named = (violation.life, violation.message, violation.other)
    return [re.sub(r":\d+$", "", each) for each in named if each]
