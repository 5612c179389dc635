"""From suspects to violations: the in-process law judges the few messages that a screen found.

Most laws judge each message by itself. Such a law is screened on columns; the suspects are then
judged by the law itself, on a history with all control rows and only the suspects' messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from unisono.laws import LAWS, VIOLATIONS_MAX, Violation
from unisono.laws.columnar.history import HistoryColumns
from unisono.trace.columns import Array, distinct
from unisono.trace.record import Row

Suspects: TypeAlias = Mapping[int, Array]
"""By member, slots of messages: at least all that violate the law there."""

SUSPECTS_PER_BATCH: Final = 2 * VIOLATIONS_MAX
VIOLATIONS_PER_BATCH: Final = 50_000


def first_violations(found: Iterable[Violation]) -> list[Violation]:
    """The first in order, each once; bounded in memory where a law is violated everywhere."""
    best: list[Violation] = []
    violations = iter(found)
    while batch := set(islice(violations, VIOLATIONS_PER_BATCH)):
        best = nsmallest(VIOLATIONS_MAX, batch.union(best))
    return best


def rows_about(data: HistoryColumns, slots: Iterable[int]) -> list[Row]:
    """The sends and deliveries of these messages."""
    wanted = np.zeros(data.count, np.bool_)
    wanted[list(slots)] = True
    return [
        member.row(at, data.codes)
        for member in data.members
        for at in np.flatnonzero(wanted[member.slot]).tolist()
    ]


def violations_of(data: HistoryColumns, law: str, suspects: Suspects) -> list[Violation]:
    """The first violations of a law among the suspects."""
    found: list[Violation] = []
    for batch in _batches(data, suspects):
        chosen = {(data.members[at].key, data.name(slot)) for at, slot in batch}
        # The last send of each incarnation shows how far its trace goes.
        rows = rows_about(data, {slot for _, slot in batch})
        judged = LAWS[law].check(data.with_rows(*data.last_sends, *rows))
        found += [each for each in judged if (each.life, each.message) in chosen]
        if len(found) >= VIOLATIONS_MAX:
            break
    return sorted(found)[:VIOLATIONS_MAX]


def _batches(data: HistoryColumns, suspects: Suspects) -> Iterator[list[tuple[int, int]]]:
    """Members and slots, some at a time, in the order of violations."""
    slots_of = {at: distinct(suspects[at]).tolist() for at in sorted(suspects)}
    if sum(map(len, slots_of.values())) <= SUSPECTS_PER_BATCH:
        batch = [(at, slot) for at, slots in slots_of.items() for slot in slots]
        yield from [batch] if batch else []
        return
    for at, slots in slots_of.items():
        # Where a law is violated everywhere the first batch is enough, and the rest is not sorted.
        first = nsmallest(SUSPECTS_PER_BATCH, slots, key=data.name)
        yield [(at, slot) for slot in first]
        rest = sorted(set(slots).difference(first), key=data.name)
        for start in range(0, len(rest), SUSPECTS_PER_BATCH):
            yield [(at, slot) for slot in rest[start : start + SUSPECTS_PER_BATCH]]
