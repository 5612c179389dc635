"""How each law is judged on columns: one line per law.

A law of views and ends needs control rows only: the in-process law judges them. A law about single
messages is screened on columns, and the in-process law judges the suspects. The laws of order are
computed on columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from unisono.laws import LAWS, Violation
from unisono.spark.laws import delivery, order, seqs, sequences, views
from unisono.spark.laws.history import HistoryColumns
from unisono.spark.laws.suspects import Suspects, violations_of

Judge: TypeAlias = Callable[[HistoryColumns], Iterable[Violation]]


def _screened(screen: Callable[[HistoryColumns], Suspects], more: Judge | None = None) -> Judge:
    """`more`: violations that are not about a message."""

    def judge(data: HistoryColumns) -> list[Violation]:
        found = violations_of(data, screen.__name__, screen(data))
        return found + list(more(data) if more else ())

    return judge


ON_COLUMNS: Final[dict[str, Judge]] = {
    "no_creation": _screened(delivery.no_creation),
    "no_duplication": _screened(delivery.no_duplication),
    "fifo": order.fifo,
    "fifo_by_level": order.fifo_by_level,
    "causal": order.causal,
    "total_order": sequences.total_order,
    "prefix": sequences.prefix,
    "one_place": seqs.one_place,
    "uniform_order": seqs.uniform_order,
    "gap_free": seqs.gap_free,
    "every_place": seqs.every_place,
    "agreement": _screened(delivery.agreement),
    "validity": _screened(delivery.validity),
    "virtual_synchrony": _screened(delivery.virtual_synchrony),
    "local_order": _screened(views.local_order, views.ends_and_places),
    "cut": views.cut,
    "same_view": _screened(views.same_view),
    "sending_view": _screened(views.sending_view),
    "sender_in_view": _screened(views.sender_in_view),
    "safe": _screened(delivery.safe),
    "received": _screened(views.received),
    "receipts": views.receipts,
    "stable": views.stable,
    "progress": _screened(delivery.progress, delivery.nobody_goes_on),
}
"""All others are laws on control rows."""


def violations_in(data: HistoryColumns, law: str) -> Iterable[Violation]:
    return ON_COLUMNS[law](data) if law in ON_COLUMNS else LAWS[law].check(data.history)
