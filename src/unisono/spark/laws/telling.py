"""From suspects to violations: the plain laws judge the few messages that a screen has found.

Most laws say of each message whether it was treated well, whatever else was said. Such a law is
screened on columns, and what does not pass is told by the law itself, on a history that has all
views and ends, and only the rows about the suspects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest

import numpy as np

from unisono.laws import LAWS, VIOLATIONS_MAX, Violation
from unisono.spark.laws.case import Case
from unisono.spark.laws.columns import Array
from unisono.spark.laws.plan import HistoryPlan
from unisono.trace.history import History
from unisono.trace.record import Row

SUSPECTS_AT_ONCE = 2 * VIOLATIONS_MAX


def rows_about(case: Case, messages: Iterable[int]) -> list[Row]:
    """The sends and deliveries of these messages."""
    wanted = np.zeros(case.count + 1, np.bool_)
    wanted[list(messages)] = True
    return [
        told.said.row(at, told.plan.name, case.codes, case.plan.named)
        for told in case.told
        # A row of another shard has the place -1, which is the last and never wanted.
        for at in np.flatnonzero(wanted[told.message]).tolist()
    ]


def with_rows(plan: HistoryPlan, rows: Iterable[Row]) -> History:
    """What is told in few rows, and these besides. A row may be among both."""
    history = plan.history
    every = tuple(dict.fromkeys((*history.rows, *rows)))
    return History(history.run, history.protocol, history.group, every, history.torn)


def restricted(case: Case, messages: Iterable[int]) -> History:
    """The history with no other rows about messages than about these; and of every life the send
    with the largest number, which says how far its trace goes."""
    return with_rows(case.plan, (*case.plan.last_sends, *rows_about(case, messages)))


def whole(case: Case) -> History:
    """The history with all rows about messages."""
    return restricted(case, range(case.count))


def tell(case: Case, law: str, suspects: Mapping[int, Array]) -> list[Violation]:
    """The first violations of a law among the suspects: messages, by life."""
    found: list[Violation] = []
    for batch in _batches(case, suspects):
        chosen = {(case.told[life].plan.key, case.name(place)) for life, place in batch}
        history = restricted(case, {place for _, place in batch})
        told = LAWS[law].check(history)
        found += [each for each in told if (each.life, each.message) in chosen]
        if len(found) >= VIOLATIONS_MAX:
            break
    return sorted(found)[:VIOLATIONS_MAX]


def _batches(case: Case, suspects: Mapping[int, Array]) -> Iterator[list[tuple[int, int]]]:
    """Life and message, a few at a time, in the order in which violations are told."""
    some = {life: np.unique(places) for life, places in suspects.items() if len(places)}
    if sum(map(len, some.values())) <= SUSPECTS_AT_ONCE:
        if some:
            yield [(life, place) for life, places in some.items() for place in places.tolist()]
        return
    for life in sorted(some):
        for places in _in_order(case, some[life]):
            yield [(life, place) for place in places]


def _in_order(case: Case, places: Array) -> Iterator[list[int]]:
    """The messages by their names, some at a time. Who breaks a law everywhere is told of at
    once, without naming everything."""
    rest = places.tolist()
    few = nsmallest(SUSPECTS_AT_ONCE, rest, key=case.name)
    yield few
    if len(rest) > len(few):
        taken = set(few)
        rest = sorted((place for place in rest if place not in taken), key=case.name)
        for at in range(0, len(rest), SUSPECTS_AT_ONCE):
            yield rest[at : at + SUSPECTS_AT_ONCE]
