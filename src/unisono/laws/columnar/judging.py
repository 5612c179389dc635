"""How each law is judged on columns: one line per law.

A law of views and ends needs control rows only: the in-process law judges them. A law about single
messages is screened on columns, and the in-process law judges the suspects. The laws of order are
computed on columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import Final, TypeAlias

from unisono.laws import LAWS, VIOLATIONS_MAX, Verdict, Violation
from unisono.laws.columnar import delivery, order, places, sequences, views
from unisono.laws.columnar.history import HistoryColumns, histories_in
from unisono.laws.columnar.suspects import Suspects, violations_of
from unisono.laws.linearizable import judge_operations
from unisono.laws.unread import EVENTUAL, NOT_CLAIMED, NOT_YET, outcome, weighed
from unisono.trace.columns import Codes
from unisono.trace.files import RunFiles
from unisono.trace.operations import operations_in
from unisono.trace.scan import KeptColumns, RowReader, ScanResult, scanned

Judge: TypeAlias = Callable[[HistoryColumns], Iterable[Violation]]


def _screened(screen: Callable[[HistoryColumns], Suspects], more: Judge | None = None) -> Judge:
    """`more`: violations that are not about a message."""

    def judge(data: HistoryColumns) -> list[Violation]:
        found = violations_of(data, screen.__name__, screen(data))
        return found + list(more(data) if more else ())

    return judge


NO_OPERATIONS: Final = Verdict({}, [])
ON_COLUMNS: Final[dict[str, Judge]] = {
    "no_creation": _screened(delivery.no_creation),
    "no_duplication": _screened(delivery.no_duplication),
    "fifo": order.fifo,
    "fifo_by_level": order.fifo_by_level,
    "causal": order.causal,
    "total_order": sequences.total_order,
    "prefix": sequences.prefix,
    "view_prefix": sequences.view_prefix,
    "one_place": places.one_place,
    "uniform_order": places.uniform_order,
    "gap_free": places.gap_free,
    "every_place": places.every_place,
    "agreement": _screened(delivery.agreement),
    "validity": _screened(delivery.validity),
    "virtual_synchrony": _screened(delivery.virtual_synchrony),
    "local_order": _screened(views.local_order, views.of_members),
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


def read_run(
    run: RunFiles, codes: Codes, *readers: RowReader
) -> tuple[ScanResult, list[HistoryColumns]]:
    """The files of a run, read once: its histories; other readers get the same rows."""
    kept = KeptColumns(codes)
    scan = scanned(run.files, codes, kept, *readers)
    return scan, histories_in(run.name, scan, kept)


def verdict_on(
    histories: Sequence[HistoryColumns],
    claims: Callable[[str], Iterable[str]],
    going_on: bool = False,
    operations: Verdict = NO_OPERATIONS,
) -> Verdict:
    """On the histories of one run; `claims` maps a protocol to the laws it claims. A run of several
    groups keeps a law when each that claims it does; one that goes on is not judged by liveness.
    `operations`: the verdict on its shared objects."""
    by_law: dict[str, list[Violation]] = {}
    for data in histories:
        for law in LAWS.keys() & set(claims(data.history.protocol)):
            mine = by_law.setdefault(law, [])
            if not (going_on and law in EVENTUAL):
                first = nsmallest(VIOLATIONS_MAX, set(violations_in(data, law)))
                mine += weighed(law, first, data.history.unread)
    laws = {
        law: NOT_YET if going_on and law in by_law and law in EVENTUAL
        else outcome(by_law[law]) if law in by_law
        else NOT_CLAIMED
        for law in (LAWS if histories else ())
    }  # fmt: skip
    found = [nsmallest(VIOLATIONS_MAX, by_law[law]) for law in sorted(by_law)]
    all_found = [*(each for some in found for each in some), *operations.violations]
    return Verdict({**laws, **operations.laws}, all_found)


def operations_of(run: RunFiles) -> Verdict:
    """The verdict on what was recorded of shared objects beside its rows."""
    return judge_operations(run.name, operations_in(run.files[0].path.parent))
