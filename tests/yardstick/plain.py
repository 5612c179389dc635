"""The measures once more, in plain Python, as `unisono.spark.measures` says what they mean."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, TypeAlias

from unisono.trace.history import History
from unisono.trace.record import Row

Key: TypeAlias = tuple[str, str, str | None]
"""Run, protocol and node; no node for the whole run."""

PARTS = {"p50_us": "0.5", "p90_us": "0.9", "p99_us": "0.99", "p999_us": "0.999", "max_us": "1"}


def measures_of(histories: Iterable[History]) -> dict[Key, dict[str, Any]]:
    """One row a run and protocol, and one a node of it: of those that told something."""
    lives: dict[Key, list[list[Row]]] = {}
    took: dict[Key, list[int]] = {}
    for history in histories:
        sent: dict[tuple[str | None, int | None, int | None], int] = {}
        told: dict[tuple[str, int], list[Row]] = {}
        for row in history.rows:
            if row.kind in ("send", "deliver", "view"):
                told.setdefault((row.node, row.incarnation), []).append(row)
            if row.kind == "send":
                # The rows of a life are in order of steps: the first send counts.
                sent.setdefault((row.node, row.incarnation, row.number), row.t_us)
        for (node, _), rows in told.items():
            for at in (None, node):
                key = (history.run, history.protocol, at)
                lives.setdefault(key, []).append(rows)
                took.setdefault(key, []).extend(
                    row.t_us - sent[row[8:11]]
                    for row in rows
                    if row.kind == "deliver" and row[8:11] in sent
                )
    return {key: _measured(*key, mine, sorted(took[key])) for key, mine in lives.items()}


def _measured(
    run: str, protocol: str, node: str | None, lives: list[list[Row]], took: list[int]
) -> dict[str, Any]:
    sends, delivered, views = (
        [row for rows in lives for row in rows if row.kind == kind]
        for kind in ("send", "deliver", "view")
    )
    octets = sum(row.size or 0 for row in delivered)
    times = [[row.t_us for row in rows if row.kind != "view"] for rows in lives]
    span_us = sum(max(mine) - min(mine) for mine in times if mine)
    return {
        "run": run,
        "protocol": protocol,
        "node": node,
        "members": max((len(row.members or ()) for row in views), default=None),
        "sent": len(sends),
        "delivered": len(delivered),
        "views": len(views),
        "octets": octets,
        "span_us": span_us,
        "messages_per_s": len(delivered) / (span_us / 1e6) if span_us else None,
        "mb_per_s": octets / 1e6 / (span_us / 1e6) if span_us else None,
        **{name: _quantile(took, Fraction(part)) for name, part in PARTS.items()},
    }


def _quantile(values: list[int], part: Fraction) -> int | None:
    """The smallest that at least this part of all does not exceed."""
    exceeded = (value for place, value in enumerate(values, 1) if place >= part * len(values))
    return next(exceeded, None)
