"""How each law is judged where the files lie: one line a law.

A law of views and ends needs few rows, which the plan of a history has: it is judged there by the
plain function. A law that looks at one message at a time is screened on columns, shard by shard;
the plain function then judges the suspects. The laws of order are written for columns, and what
the shards say of them is put together afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from unisono.laws import LAWS, Violation
from unisono.spark.laws import delivery, folding, order, places, sequence, viewing
from unisono.spark.laws.case import Case
from unisono.spark.laws.delivery import Suspects
from unisono.spark.laws.folding import ShardParts
from unisono.spark.laws.plan import HistoryPlan, merged
from unisono.spark.laws.telling import tell, whole


class Road(NamedTuple):
    """The two steps in which a law is judged."""

    look: Callable[[Case], Any] | None
    """What a shard says; laws with the same function share what it says."""
    fold: Callable[[HistoryPlan, ShardParts], list[Violation]]
    """What all shards of a history say together, and the plan."""


def _of_few(law: str) -> Road:
    def fold(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
        return LAWS[law].check(plan.history)

    return Road(None, fold)


def _whole(law: str) -> Road:
    """For a law that has no road of its own yet: the plain function, on all rows in memory."""

    def look(case: Case) -> None:
        return None

    def fold(plan: HistoryPlan, parts: ShardParts) -> list[Violation]:
        case = Case(merged([part.shard for part in parts]))
        return LAWS[law].check(whole(case))

    return Road(look, fold)


def _screened(
    screen: Callable[[Case], Suspects],
    fold: Callable[[HistoryPlan, ShardParts], list[Violation]] = folding.together,
) -> Road:
    law = screen.__name__

    def look(case: Case) -> list[Violation]:
        return tell(case, law, screen(case))

    look.__name__ = law
    return Road(look, fold)


ROADS: Final[dict[str, Road]] = {
    "no_creation": _screened(delivery.no_creation),
    "no_duplication": _screened(delivery.no_duplication),
    "fifo": Road(order.fifo, folding.fifo),
    "causal": Road(order.causal, folding.together),
    "total_order": Road(sequence.ordered, folding.total_order),
    "prefix": Road(sequence.ordered, folding.prefix),
    "one_place": Road(places.placed, folding.one_place),
    "uniform_order": Road(places.placed, folding.uniform_order),
    "gap_free": Road(places.placed, folding.gap_free),
    "every_place": Road(places.placed, folding.every_place),
    "agreement": _screened(delivery.agreement),
    "validity": _screened(delivery.validity),
    "virtual_synchrony": _screened(delivery.virtual_synchrony),
    "view_order": _of_few("view_order"),
    "self_inclusion": _of_few("self_inclusion"),
    "local_order": _screened(viewing.local_order, folding.local_order),
    "cut": Road(None, folding.cut),
    "same_view": _screened(viewing.same_view),
    "sending_view": _screened(viewing.sending_view),
    "sender_in_view": _screened(viewing.sender_in_view),
    "transitional_set": _of_few("transitional_set"),
    "one_primary": _of_few("one_primary"),
    "quorum": _of_few("quorum"),
    "one_founding": _of_few("one_founding"),
    "begun": _of_few("begun"),
    "exclusion": _of_few("exclusion"),
    "accuracy": _of_few("accuracy"),
    "safe": _screened(delivery.safe),
    "received": _screened(viewing.received),
    "receipts": Road(None, folding.receipts),
    "stable": Road(viewing.notified, folding.gathered("stable")),
    "progress": _screened(delivery.progress, folding.progress),
}


def road_of(law: str) -> Road:
    return ROADS.get(law) or _whole(law)
