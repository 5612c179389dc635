"""Aligns the clocks of different machines so that nothing arrives before it was sent.

Where a packet or message seems to, each node's clock is shifted until the fastest packets take
equally long in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from unisono.trace.history import History, message_of
from unisono.trace.record import Row

Link = tuple[str, str]
"""Sending and receiving node."""

_ARRIVES: Final = {"packet_out": "packet_in", "send": "deliver"}
"""The kind of an arrival row, by that of the sending row."""


def aligned(history: History) -> tuple[History, dict[str, int]]:
    """The history by one clock, and each node's shift; unchanged where the clocks agree."""
    least = _least(history.rows)
    if all(takes_us >= 0 for takes_us in least.values()):
        return history, {}
    ahead = _ahead(sorted({row.node for row in history.rows}), least)
    first_us = min(row.t_us - ahead[row.node] for row in history.rows)
    moved = {node: -us - min(first_us, 0) for node, us in ahead.items()}
    rows = tuple(row._replace(t_us=row.t_us + moved[row.node]) for row in history.rows)
    return replace(history, rows=rows), {node: us for node, us in moved.items() if us}


def _least(rows: Sequence[Row]) -> dict[Link, int]:
    """By link, the least apparent delay. Packets sent more than once are ambiguous and skipped."""
    sent: dict[tuple[str, int | str], tuple[str, int] | None] = {}
    for row in rows:
        if row.kind in _ARRIVES:
            what, here = (_ARRIVES[row.kind], _identity(row)), (row.node, row.t_us)
            sent[what] = here if sent.get(what, here) == here else None
    found: dict[Link, int] = {}
    for row in rows:
        origin = sent.get((row.kind, _identity(row))) if row.kind in _ARRIVES.values() else None
        if origin is not None and origin[0] != row.node:
            link, takes_us = (origin[0], row.node), row.t_us - origin[1]
            found[link] = min(takes_us, found.get(link, takes_us))
    return found


def _identity(row: Row) -> int | str:
    return (row.digest or 0) if row.kind.startswith("packet_") else message_of(row)


def _ahead(nodes: Sequence[str], least: Mapping[Link, int]) -> dict[str, int]:
    """By node, how far its clock is ahead of the first node's."""
    ahead: dict[str, int] = {}
    for start in nodes:
        if start in ahead:
            continue
        ahead[start] = 0
        waiting = [start]
        while waiting:
            here = waiting.pop(0)
            for other in nodes:
                there, back = least.get((here, other)), least.get((other, here))
                if other in ahead or (there is None and back is None):
                    continue
                # Where only one direction is known, its delay is taken as zero.
                if there is None or back is None:
                    gap_us = there if there is not None else -(back or 0)
                else:
                    gap_us = (there - back) // 2
                ahead[other] = ahead[here] + gap_us
                waiting.append(other)
    return ahead
