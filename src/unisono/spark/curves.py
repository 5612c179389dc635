"""Gold tables of one run beside verdicts and measures: recoveries, latency and rate curves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from unisono.laws.columnar.history import HistoryColumns, MemberEvents
from unisono.spark.measures import BIN_US_MIN, BINS, CURVE, Latencies
from unisono.trace.history import ALIVE, VANISHED, life_of, sender_of

Rows: TypeAlias = Iterator[dict[str, Any]]


def _first_deliveries(member: MemberEvents) -> dict[int, int]:
    """By the step of a view, the earliest time of a delivery after it and before the next."""
    views, epoch = member.view_epochs
    if not len(epoch):
        return {}
    starts = np.flatnonzero(np.diff(epoch, prepend=epoch[0] - 1))
    low = np.minimum.reduceat(member.events.t_us[member.deliveries], starts)
    times = zip(epoch[starts].tolist(), low.tolist(), strict=True)
    return {views[at].step: us for at, us in times if at >= 0}


def recoveries_of(data: HistoryColumns) -> Rows:
    """A row per incarnation that others lost from their views: when, and the time until all others
    had continued.

    `at_us` is the time of its `crash` or `leave` row, or else of its last row; null for an
    incarnation that goes on by itself, as on the other side of a partition."""
    lost: dict[str, list[dict[str, Any]]] = {}
    for member in data.members:
        last: dict[str, Any] = {}
        for before, view in pairwise(member.trace.views):
            for key in set(before.members or ()) - set(view.members or ()) - {member.key}:
                # If it was lost several times, the last counts.
                last[key] = view
        firsts = _first_deliveries(member) if last else {}
        for key, view in last.items():
            later = [us for step, us in firsts.items() if step >= view.step]
            survivor = {"survivor": member.key, "view": view.view, "view_us": view.t_us}
            lost.setdefault(key, []).append(survivor | {"delivery_us": min(later, default=None)})
    ended = {member.key: member.rows.ended_us for member in data.members}
    for key, survivors in sorted(lost.items()):
        trace = data.history.lives.get(key)
        at_us = ended[key] if trace is not None and trace.end != ALIVE else None
        # One that vanished and has later rows has gone on by itself.
        first_us = min(each["view_us"] for each in survivors)
        if at_us is not None and trace and trace.end == VANISHED and at_us > first_us:
            at_us = None
        seen = [each["view_us"] for each in survivors]
        resumed = [each["delivery_us"] for each in survivors if each["delivery_us"] is not None]
        yield {
            "protocol": data.history.protocol,
            "group": data.history.group,
            "life": key,
            "what": trace.end if trace else "unknown",
            "at_us": at_us,
            "survivors": sorted(survivors, key=lambda each: str(each["survivor"])),
            "recovery_us": _since(at_us, max(seen)),
            "resumed_us": _since(at_us, max(resumed, default=None)),
        }


def _since(at_us: int | None, us: int | None) -> int | None:
    """0 if the others had continued before the end, as with a clean leave."""
    return None if at_us is None or us is None else max(us - at_us, 0)


def stable_times(data: HistoryColumns) -> Iterator[tuple[int, int, str, int]]:
    """Of each report that a message is as resilient as requested: the index of the member, the slot
    of the message, its service, and the time since the member delivered it."""
    at = data.member_index()
    for row in data.history.rows:
        source = data.codes.source(sender_of(row)) if row.kind == "stable" else -1
        slot = data.slot(source, row.number or 0) if source >= 0 else None
        if slot is None:
            continue
        index = at[life_of(row)]
        events, first = data.members[index].events, int(data.delivered[index][slot])
        if first >= 0:
            delivered_us = int(events.t_us[np.searchsorted(events.pos, first)])
            yield index, slot, row.service or "", max(row.t_us - delivered_us, 0)


def stabilities_of(data: HistoryColumns) -> Rows:
    """How many messages took so long, at a member, from their delivery to the report that they are
    as resilient as requested: by service, in the classes of `latency_rows`."""
    found = Counter((service, class_of(us)) for _, _, service, us in stable_times(data))
    for (service, us), messages in sorted(found.items()):
        yield {
            "protocol": data.history.protocol,
            "service": service,
            "stability_us": us,
            "messages": messages,
        }


def class_of(us: int) -> int:
    """Each microsecond up to 255, then 128 classes per doubling."""
    cut = max(us.bit_length() - 8, 0)
    return us >> cut << cut


def keys_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Of a row of measures: `members` is the largest view, `size` the mean payload, in bytes and
    rounded up to a power of two."""
    mean = row["octets"] / row["delivered"] if row["octets"] else 0.0
    size = 2 ** math.ceil(math.log2(max(mean, 1.0))) if mean else 0
    return {"protocol": row["protocol"], "members": row["members"], "size": size}


def latency_rows(keys: Mapping[str, Any], latencies: Latencies) -> Rows:
    """Deliveries by latency class: each microsecond up to 255, then 128 classes per doubling.
    Negative latencies, from differing clocks, are in the first."""
    us = np.maximum(latencies.values, 0)
    # The number of binary digits is exact; a logarithm is not.
    cut = np.array([max(value.bit_length() - 8, 0) for value in us.tolist()], np.int64)
    classes, index = np.unique(us >> cut << cut, return_inverse=True)
    counts = np.zeros(len(classes), np.int64)
    np.add.at(counts, index, latencies.counts)
    for value, count in zip(classes.tolist(), counts.tolist(), strict=True):
        yield {**keys, "latency_us": value, "deliveries": count}


def latency_curve(keys: Mapping[str, Any], classes: Sequence[Mapping[str, Any]]) -> Rows:
    """The first class that is not below each quantile of `CURVE`."""
    if classes:
        sums = np.cumsum([row["deliveries"] for row in classes])
        count = int(sums[-1])
        at = np.searchsorted(sums, [math.ceil(part * count) for part in CURVE])
        quantiles = [classes[index]["latency_us"] for index in at.tolist()]
        yield {**keys, "deliveries": count, "quantiles": quantiles}


def rate_rows(keys: Mapping[str, Any], histories: Sequence[HistoryColumns]) -> Rows:
    """Deliveries per second at a member, in bins of the time since the first one. A bin without
    deliveries has no row."""
    members = [each for data in histories for each in data.members if len(each.deliveries)]
    times = [each.events.t_us[each.deliveries] for each in members]
    if not times:
        return
    start, end = min(int(mine.min()) for mine in times), max(int(mine.max()) for mine in times)
    width_us = max(end - start + 1, BINS * BIN_US_MIN) / BINS
    counts = np.zeros(BINS, np.int64)
    for mine in times:
        counts += np.bincount(((mine - start) // width_us).astype(np.int64), minlength=BINS)
    nodes, width_s = len({each.rows.name[0] for each in members}), width_us / 1e6
    for at in np.flatnonzero(counts).tolist():
        deliveries = float(counts[at])
        yield {
            **keys,
            "nodes": nodes,
            "bin": at,
            "width_s": width_s,
            "deliveries": deliveries,
            "rate": deliveries / width_s / nodes,
        }
