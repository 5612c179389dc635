"""Invented answers and results, for tests of what is computed from them."""

from __future__ import annotations

import random
from typing import Any

from unisono.bench.measure import Measurements
from unisono.bench.recovery import RecoveryRow
from unisono.bench.results import HALF, ResultRow, RowKey, Throughput
from unisono.bench.system import Workload

ABOUT: dict[str, Any] = {
    "net": "namespaces",
    "seconds": 2.0,
    "warm_s": 0.5,
    "rounds": 3,
    "cores": 2,
    "load_before": 0.4,
    "system": "Linux 6.1",
    "python": "3.11.2",
    "date": "2026-01-01",
}
SYSTEMS = {
    "unisono-ring": 1.0,
    "unisono-mtp": 0.5,
    "corosync": 0.06,
    "jgroups": 0.11,
    "pysyncobj": 0.01,
    "nats": 0.03,
    "redis": 0.02,
    "raw": 3.0,
}


def throughput(rate: float) -> Throughput:
    return Throughput(rate, 1.0, 3e6 / rate, 40.0)


def row(system: str, load: Workload, rates: list[float]) -> ResultRow:
    found = ResultRow(RowKey.of(system, load))
    for turn, rate in enumerate(rates):
        found.throughput[turn] = throughput(rate)
        found.lone.append({"p50": 200.0 + turn, "p99": 900.0})
        found.by_load.setdefault(HALF, []).append({"p50": 700.0, "p99": 5e9 / rate})
    return found


def results(
    sizes: tuple[int, ...] = (64, 1000, 65536, 1 << 20), members: tuple[int, ...] = (3,)
) -> dict[str, Any]:
    """A whole run: the same each time."""
    dice = random.Random(1)
    found = Measurements(skipped={"<b>": "corosync & co. are not installed: make bench-peers"})
    for system, share in SYSTEMS.items():
        for count in members:
            for size in sizes:
                for senders in (1, count):
                    peak = share * 60e6 / (size + 60) * (1 + (senders > 1)) / count**0.5
                    load = Workload(count, size, senders)
                    made = row(system, load, [peak * dice.uniform(0.8, 1.2) for _ in range(3)])
                    found.rows[made.key] = made
    recovery = RecoveryRow(
        "unisono-ring", "agreed", "library", 3, 1_000_000, [900.0, 950.0], [300.0]
    )
    found.recovery.append(recovery)
    return found.as_json(ABOUT)
