"""The latency of messages in parts that add up: the token, the order, the spread; and stability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from unisono.laws.columnar.history import HistoryColumns
from unisono.spark.curves import stable_times
from unisono.trace.columns import Array

UNKNOWN: Final = np.iinfo(np.int64).min


def latency_parts_of(
    data: HistoryColumns, turns_us: Mapping[int, list[int]]
) -> Iterator[dict[str, Any]]:
    """By service, the means over the messages that their senders delivered: `token_us` until the
    sender had the token (null where that is not traced, or there is none), then `order_us` until it
    could deliver the message itself, then `spread_us` until the last member did. `stable_us` is
    from its own delivery to its own report of stability. `turns_us` are the times when a sender,
    by its code, had the token."""
    sent, own, last = (np.full(data.count, UNKNOWN, np.int64) for _ in range(3))
    token, service = np.full(data.count, UNKNOWN, np.int64), np.full(data.count, -1, np.int64)
    for member in data.members:
        t_us, slot, mine = member.events.t_us, member.slot, member.deliveries
        sends = member.sends[::-1]
        sent[slot[sends]] = t_us[sends]
        service[slot[sends]] = member.events.service[sends]
        last[slot[mine]] = np.maximum(last[slot[mine]], t_us[mine])
        by_self = mine[member.events.source[mine] == member.rows.code][::-1]
        own[slot[by_self]] = t_us[by_self]
        turns = np.array(turns_us.get(member.rows.code, ()), np.int64)
        if len(turns):
            at = np.searchsorted(turns, t_us[sends])
            waits = np.append(turns, UNKNOWN)[at]
            token[slot[sends]] = np.where(waits == UNKNOWN, UNKNOWN, waits - t_us[sends])
    known = (sent != UNKNOWN) & (own != UNKNOWN)
    stable = _stable(data)
    for code in np.unique(service[known]).tolist():
        rows = np.flatnonzero(known & (service == code))
        until_own = own[rows] - sent[rows]
        # Delivered before the token came: it did not wait for it.
        waited = np.where(token[rows] == UNKNOWN, 0, np.minimum(token[rows], until_own))
        yield {
            "service": data.codes.services.names[code],
            "messages": len(rows),
            "token_us": float(waited.mean()) if (token[rows] != UNKNOWN).any() else None,
            "order_us": float((until_own - waited).mean()),
            "spread_us": float((last[rows] - own[rows]).mean()),
            "stable_us": _mean(stable[rows]),
        }


def _stable(data: HistoryColumns) -> Array:
    """By slot, from the delivery at the sender to its report of stability."""
    found = np.full(data.count, UNKNOWN, np.int64)
    for at, slot, _, us in stable_times(data):
        if data.members[at].rows.code == data.source[slot]:
            found[slot] = us
    return found


def _mean(values: Array) -> float | None:
    values = values[values != UNKNOWN]
    return float(values.mean()) if len(values) else None
