"""What cuts stand for: the last messages that are known of those they name."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from unisono.spark.laws.case import said_of
from unisono.spark.laws.plan import HistoryPlan
from unisono.spark.laws.survey import Piece
from unisono.trace.history import cut_of


def floors_of(plan: HistoryPlan, levels: Iterable[int]) -> dict[tuple[int, str, int], int]:
    """By level, and sender and number of an entry of a cut: the largest number known of the sender
    that is not above it, of a message of that level or above; 0 for none. Of the pieces that may
    have it only the most promising are read."""
    entries = {
        entry
        for row in plan.history.rows
        if row.kind == "view"
        for entry in cut_of(row.detail).items()
    }
    return {
        (level, *entry): _floor(plan, level, *entry)
        for level in levels
        for entry in sorted(entries)
    }


def _floor(plan: HistoryPlan, level: int, sender: str, upto: int) -> int:
    name, _, incarnation = sender.rpartition("#")
    source = plan.codes.lives.get((name, int(incarnation)))
    best = 0
    for bound, piece in _promising(plan, source, upto) if source is not None else ():
        if bound <= best:
            break
        for said in said_of(plan, [piece]):
            known = said.number[(said.source == source) & (said.level >= level)]
            best = max(best, int(known[known <= upto].max(initial=0)))
    return best


def _promising(plan: HistoryPlan, source: int, upto: int) -> list[tuple[int, Piece]]:
    """Pieces with messages of a source up to a number, and the largest that each may have."""
    found = []
    for life in plan.lives:
        for piece in life.pieces:
            at = np.flatnonzero(piece.sources == source)
            if len(at) and piece.low[at[0]] <= upto:
                found.append((min(int(piece.high[at[0]]), upto), piece))
    return sorted(found, key=lambda each: -each[0])
