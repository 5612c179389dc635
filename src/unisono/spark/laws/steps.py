"""How each law is judged on columns: one line per law.

A law of views and ends needs control rows only, which the plan of a history has: the in-process law
judges them. A law about single messages is screened on columns, shard by shard, and the in-process
law judges the suspects. The laws of order are computed on columns, and the results of the shards
are combined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from unisono.laws import LAWS, Violation
from unisono.spark.laws import combine, delivery, order, seqs, sequences, views
from unisono.spark.laws.combine import ShardResults
from unisono.spark.laws.plan import HistoryPlan
from unisono.spark.laws.shard import ShardData
from unisono.spark.laws.suspects import Suspects, violations_of

Combine: TypeAlias = Callable[[HistoryPlan, ShardResults], list[Violation]]


class LawSteps(NamedTuple):
    shard: Callable[[ShardData], Any] | None
    """For each shard; laws with the same function share its result."""
    combine: Combine
    """For all shards of a history."""


def _control_rows(law: str) -> LawSteps:
    return LawSteps(None, lambda plan, _: LAWS[law].check(plan.history))


def _screened(
    screen: Callable[[ShardData], Suspects], combine_: Combine = combine.concatenated
) -> LawSteps:
    law = screen.__name__

    def shard(data: ShardData) -> list[Violation]:
        return violations_of(data, law, screen(data))

    shard.__name__ = law
    return LawSteps(shard, combine_)


LAW_STEPS: Final[dict[str, LawSteps]] = {
    "no_creation": _screened(delivery.no_creation),
    "no_duplication": _screened(delivery.no_duplication),
    "fifo": LawSteps(order.fifo, combine.fifo),
    "fifo_by_level": LawSteps(order.fifo_by_level, combine.fifo_by_level),
    "causal": LawSteps(order.causal, combine.concatenated),
    "total_order": LawSteps(sequences.total_order, combine.total_order_combined),
    "prefix": LawSteps(sequences.total_order, combine.prefix),
    "one_place": LawSteps(seqs.sequence_numbers, combine.one_place),
    "uniform_order": LawSteps(seqs.sequence_numbers, combine.uniform_order),
    "gap_free": LawSteps(seqs.sequence_numbers, combine.gap_free),
    "every_place": LawSteps(seqs.sequence_numbers, combine.every_place),
    "agreement": _screened(delivery.agreement),
    "validity": _screened(delivery.validity),
    "virtual_synchrony": _screened(delivery.virtual_synchrony),
    "view_order": _control_rows("view_order"),
    "self_inclusion": _control_rows("self_inclusion"),
    "local_order": _screened(views.local_order, combine.local_order),
    "cut": LawSteps(None, combine.cut),
    "same_view": _screened(views.same_view),
    "sending_view": _screened(views.sending_view),
    "sender_in_view": _screened(views.sender_in_view),
    "transitional_set": _control_rows("transitional_set"),
    "one_primary": _control_rows("one_primary"),
    "quorum": _control_rows("quorum"),
    "one_founding": _control_rows("one_founding"),
    "begun": _control_rows("begun"),
    "minimum_size": _control_rows("minimum_size"),
    "one_lock_holder": _control_rows("one_lock_holder"),
    "exclusion": _control_rows("exclusion"),
    "accuracy": _control_rows("accuracy"),
    "safe": _screened(delivery.safe),
    "received": _screened(views.received),
    "receipts": LawSteps(None, combine.receipts),
    "stable": LawSteps(views.stable, combine.stable),
    "progress": _screened(delivery.progress, combine.progress),
}
