"""What is measured of a run: throughput, latency and protocol work.

Latency is from the message's first send to its delivery, by the clocks of the trace: exact in
simulation and on one machine. A quantile is the smallest latency that at least this part of the
deliveries does not exceed. Rates are per member: deliveries divided by the time from an
incarnation's first message to its last, both summed over incarnations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from unisono.laws.columnar.history import HistoryColumns, MemberEvents
from unisono.spark.work import WorkCounts, work_measures
from unisono.trace.columns import Array

QUANTILES: Final = {
    "p50_us": (50, 100),
    "p90_us": (90, 100),
    "p99_us": (99, 100),
    "p999_us": (999, 1000),
    "max_us": (1, 1),
}
CURVE: Final = (*(step / 50 for step in range(50)), 0.99, 0.995, 0.999, 1.0)
"""The quantiles at which a latency curve is drawn."""
BINS: Final = 60
"""Points of a curve over time."""
BIN_US_MIN: Final = 10_000
"""The least width of a bin."""
WORK: Final = (
    "packets_out",
    "octets_out",
    "retransmissions",
    "naks",
    "drops",
    "token_rotation_p50_us",
    "token_rotation_max_us",
)
"""Measures of protocol work: null if not traced."""


class Latencies(NamedTuple):
    """Ascending values, and the count of each."""

    values: Array
    counts: Array


def latencies_of(data: HistoryColumns) -> list[Latencies]:
    """By member, from a message's first send to its delivery, where the send is known."""
    sent = np.zeros(data.count, np.bool_)
    sent_us = np.zeros(data.count, np.int64)
    for member in data.members:
        rows = member.sends[::-1]
        sent[member.slot[rows]] = True
        sent_us[member.slot[rows]] = member.events.t_us[rows]
    found = []
    for member in data.members:
        rows, slots = member.deliveries, member.slot[member.deliveries]
        known = sent[slots]
        if not known.all():
            rows, slots = rows[known], slots[known]
        found.append(counted(member.events.t_us[rows] - sent_us[slots]))
    return found


def counted(values: Array) -> Latencies:
    if not len(values):
        return Latencies(values, values)
    low, high = int(values.min()), int(values.max())
    if high - low > 4 * len(values) + 1024:
        return Latencies(*np.unique(values, return_counts=True))
    counts = np.bincount(values - low)
    found = np.flatnonzero(counts)
    return Latencies(found + low, counts[found])


def added(parts: Sequence[Latencies]) -> Latencies:
    empty = np.empty(0, np.int64)
    values = np.concatenate([empty, *(part.values for part in parts)])
    counts = np.concatenate([empty, *(part.counts for part in parts)])
    values, index = np.unique(values, return_inverse=True)
    total = np.zeros(len(values), np.int64)
    np.add.at(total, index, counts)
    return Latencies(values, total)


def quantiles(latencies: Latencies) -> dict[str, int | None]:
    """The smallest value that at least this part of all does not exceed."""
    if not len(latencies.values):
        return dict.fromkeys(QUANTILES)
    sums = np.cumsum(latencies.counts)
    count = int(sums[-1])
    return {
        name: int(latencies.values[np.searchsorted(sums, max(1, -(-count * part // of)))])
        for name, (part, of) in QUANTILES.items()
    }


def measures_of(
    histories: Sequence[HistoryColumns],
    latencies: Sequence[Sequence[Latencies]],
    work: WorkCounts,
) -> Iterator[dict[str, Any]]:
    """By protocol, for the run (`node` is None) and for each node. `latencies` are by history and
    member."""
    found: dict[tuple[str, str | None], list[tuple[MemberEvents, Latencies]]] = {}
    for data, of_members in zip(histories, latencies, strict=True):
        for member, mine in zip(data.members, of_members, strict=True):
            if len(member.events) or member.rows.view_sizes:
                for node in (None, member.rows.name[0]):
                    found.setdefault((data.history.protocol, node), []).append((member, mine))
    names = histories[0].codes.incarnations.names if histories else []
    for (protocol, node), parts in found.items():
        row = {"protocol": protocol, "node": node, **_measures(parts)}
        alike = [(code, each) for ((name, _), code), each in work.items() if name == protocol]
        if alike:
            of_node = [each for code, each in alike if node in (None, names[code][0])]
            row |= work_measures(of_node)
        yield row


def _measures(parts: list[tuple[MemberEvents, Latencies]]) -> dict[str, Any]:
    members = [member for member, _ in parts]
    times = [member.events.t_us for member in members if len(member.events)]
    span = sum(int(mine.max()) - int(mine.min()) for mine in times)
    delivered = sum(len(member.deliveries) for member in members)
    nbytes = sum(int(each.events.size[each.deliveries].sum(dtype=np.int64)) for each in members)
    sizes = [size for member in members for size in member.rows.view_sizes]
    return {
        "members": max(sizes, default=None),
        "sent": sum(len(member.sends) for member in members),
        "delivered": delivered,
        "views": len(sizes),
        "octets": nbytes,
        "span_us": span,
        "messages_per_s": delivered * 1e6 / span if span > 0 else None,
        "mb_per_s": nbytes / 1e6 * 1e6 / span if span > 0 else None,
        **quantiles(added([latencies for _, latencies in parts])),
    }
