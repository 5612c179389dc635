"""The gold tables about many runs: the summary, and the joint latency and rate curves.

They are made from the tables of the runs, not from the events, so their cost does not depend on the
length of the runs. What is summed is summed where it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unisono.spark.curves import keys_of, latency_curve
from unisono.spark.measures import BINS, CURVE, QUANTILES

Rows: TypeAlias = Iterator[dict[str, Any]]
Key: TypeAlias = tuple[Any, ...]
Read: TypeAlias = Callable[[str, Callable[[pa.Table], pa.Table]], pa.Table]
"""Reads a table of all runs; this is done to each part of it, and then to what that gave."""

KEYS: Final = ("protocol", "members", "size")
"""Runs are grouped by these: `members` is the largest view, `size` the mean payload in bytes,
rounded up to a power of two."""
SUMMED: Final = (
    "sent", "delivered", "views", "octets", "span_us",
    "packets_out", "octets_out", "retransmissions", "naks", "drops",
)  # fmt: skip
"""Summed over the runs of a row of the summary."""


def grouped(rows: pa.Table, by: Sequence[str], value: str, how: str = "sum") -> pa.Table:
    """The sum of a column, or its largest value, by others."""
    found = rows.group_by(list(by)).aggregate([(value, how)])
    return found.rename_columns([*by, value]).cast(
        pa.schema([rows.schema.field(name) for name in (*by, value)])
    )


def _by_keys(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Key, list[Mapping[str, Any]]]]:
    """In the order of keys."""

    def key(row: Mapping[str, Any]) -> Key:
        return tuple(row[name] for name in KEYS)

    # A run without views has no members.
    ordered = sorted(rows, key=lambda row: [(each is not None, each) for each in key(row)])
    for found, mine in groupby(ordered, key):
        yield found, list(mine)


def latency_curves(read: Read) -> Rows:
    """The latencies of many runs at the quantiles of `CURVE`, by `KEYS`."""
    by = (*KEYS, "latency_us")
    classes = read("gold/latencies", lambda rows: grouped(rows, by, "deliveries"))
    for key, mine in _by_keys(classes.sort_by("latency_us").to_pylist()):
        yield from latency_curve(dict(zip(KEYS, key, strict=True)), mine)


def rate_curves(read: Read) -> Rows:
    """The rates of many runs by `KEYS`: a run's bin is divided among the wider bins that it
    overlaps."""
    by = ("run", *KEYS, "nodes")
    runs = read("gold/rate_curves", lambda rows: grouped(rows, by, "width_s", "max")).to_pylist()
    wide = {key: max(row["width_s"] for row in mine) for key, mine in _by_keys(runs)}
    nodes = {key: sum(row["nodes"] for row in mine) for key, mine in _by_keys(runs)}

    def shared(rows: pa.Table) -> pa.Table:
        if "run" not in rows.column_names:  # summed already, and to be summed once more
            return grouped(rows, (*KEYS, "bin"), "deliveries")
        keys = zip(*(rows.column(name).to_pylist() for name in KEYS), strict=True)
        factor = rows.column("width_s").to_numpy() / np.array([wide[key] for key in keys])
        first, deliveries = (rows.column(name).to_numpy() for name in ("bin", "deliveries"))
        start, end = first * factor, (first + 1) * factor
        within = (np.minimum(end, np.floor(start) + 1) - start) / (end - start)
        parts = []
        for bins, part in ((np.floor(start), within), (np.floor(start) + 1, 1 - within)):
            # Rounding may exceed the last bin.
            to = pa.array(np.minimum(bins, BINS - 1).astype(np.int32))
            kept = rows.select(KEYS).append_column("bin", to)
            parts.append(kept.append_column("deliveries", pa.array(deliveries * part)))
        return grouped(pa.concat_tables(parts), (*KEYS, "bin"), "deliveries")

    for key, mine in _by_keys(read("gold/rate_curves", shared).sort_by("bin").to_pylist()):
        for row in mine:
            if deliveries := round(row["deliveries"], 6):
                rate = deliveries / wide[key] / nodes[key]
                about = {"nodes": nodes[key], "width_s": wide[key], "rate": rate}
                yield {**row, "deliveries": deliveries, **about}


def latency_parts(read: Read) -> list[dict[str, Any]]:
    """The parts of the latency of all runs, by protocol and service."""
    by, parts = ("protocol", "service"), ("token_us", "order_us", "spread_us", "stable_us")

    def summed(rows: pa.Table) -> pa.Table:
        if "run" in rows.column_names:  # else summed already, and to be summed once more
            messages = rows.column("messages")
            for part in parts:
                at, mean = rows.schema.get_field_index(part), rows.column(part)
                rows = rows.set_column(at, part, pc.multiply(mean, messages.cast(pa.float64())))
                known = pc.if_else(pc.is_valid(mean), messages, 0)
                rows = rows.append_column(f"{part}_messages", known)
        names = ("messages", *parts, *(f"{part}_messages" for part in parts))
        found = rows.group_by(list(by)).aggregate([(name, "sum") for name in names])
        return found.rename_columns([*by, *names])

    rows = read("gold/latency_parts", summed).sort_by([(name, "ascending") for name in by])
    return [
        {
            **{name: row[name] for name in (*by, "messages")},
            **{
                part: row[part] / row[f"{part}_messages"] if row[f"{part}_messages"] else None
                for part in parts
            },
        }
        for row in rows.to_pylist()
    ]


def of_runs(rows: pa.Table) -> pa.Table:
    """The measures of runs, without those of their nodes."""
    return rows.filter(pc.is_null(rows.column("node")))


def summary_of(
    read: Read,
    kept: Mapping[str, bool | None],
    curves: Iterable[Mapping[str, Any]],
    measures: Iterable[Mapping[str, Any]],
) -> Rows:
    """A row per protocol, group size and payload size. `kept` has the runs, and `curves`, the
    latency curves by `KEYS`, have the quantiles; `measures` are those of runs."""

    def timed(rows: pa.Table) -> pa.Table:
        rows = rows.select(("run", "protocol", "recovery_us"))
        return rows.filter(pc.is_valid(rows.column("recovery_us")))

    quantiles = {tuple(row[name] for name in KEYS): row["quantiles"] for row in curves}
    recovered: dict[Key, list[int]] = {}
    for row in read("gold/recoveries", timed).to_pylist():
        recovered.setdefault((row["run"], row["protocol"]), []).append(row["recovery_us"])
    for key, mine in _by_keys({**row, **keys_of(row)} for row in measures):
        sums = {name: _present(sum, (row[name] for row in mine)) for name in SUMMED}
        verdicts = [kept.get(row["run"]) for row in mine]
        at = quantiles.get(key)
        times = sorted(
            us for row in mine for us in recovered.get((row["run"], row["protocol"]), ())
        )
        yield {
            **dict(zip(KEYS, key, strict=True)),
            "runs": len(mine),
            "kept": verdicts.count(True),
            "broken": verdicts.count(False),
            **sums,
            "messages_per_s": sums["delivered"] * 1e6 / sums["span_us"]
            if sums["span_us"]
            else None,
            "mb_per_s": sums["octets"] / sums["span_us"] if sums["span_us"] else None,
            **{
                name: at[CURVE.index(part / of)] if at else None
                for name, (part, of) in QUANTILES.items()
                if part < of
            },
            "max_us": _present(max, (row["max_us"] for row in mine)),
            "recoveries": len(times),
            "recovery_p50_us": times[(len(times) + 1) // 2 - 1] if times else None,
            "recovery_max_us": times[-1] if times else None,
        }


def _present(of: Callable[[list[int]], int], values: Iterable[int | None]) -> Any:
    """Of the values that are there; None without any."""
    there = [value for value in values if value is not None]
    return of(there) if there else None
