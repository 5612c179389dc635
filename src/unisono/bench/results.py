"""From members' answers to rows: medians over the rounds, each with its spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from unisono.bench.system import Workload
from unisono.processes import RunFailed

HALF: Final = 0.5
"""The load at which delays are always measured, as a share of the peak."""
PERCENTILES: Final = {"p50": 0.50, "p99": 0.99}

Answers = Sequence[Mapping[str, Any]]
Delays = dict[str, float]
"""By the name of the percentile, in microseconds."""


class RowKey(NamedTuple):
    """What a row measures."""

    system: str
    service: str
    via: str
    size: int
    members: int
    senders: int

    @classmethod
    def of(cls, system: str, workload: Workload) -> RowKey:
        size, members, senders = workload.size, workload.members, workload.senders
        return cls(system, workload.service, workload.via, size, members, senders)

    @property
    def load(self) -> tuple[int, int, int]:
        """Rows may be compared where this is equal."""
        return self.size, self.members, self.senders

    @property
    def label(self) -> str:
        """The system, and what differs from the default."""
        service = "" if self.service == "agreed" else f" {self.service}"
        return self.system + service + ("" if self.via == "library" else f" via {self.via}")


@dataclass(frozen=True, slots=True)
class Throughput:
    """One round of throughput."""

    messages_per_s: float
    delivered_share: float
    """Of what was sent, what the member that got least received: 1 except for bare sockets."""
    cpu_us_per_message: float
    rss_mb_max: float


@dataclass(slots=True)
class ResultRow:
    """All rounds of one system under one workload."""

    key: RowKey
    throughput: dict[int, Throughput] = field(default_factory=dict)
    """By round; one may be missing."""
    lone: list[Delays] = field(default_factory=list)
    by_load: dict[float, list[Delays]] = field(default_factory=dict)
    """By the share of the peak that was sent."""


def throughput(
    begin_ns: int, answers: Answers, servers_cpu_ns: int, servers_rss_kb: int
) -> Throughput:
    """Of one `load` command: a message counts when every member has it."""
    rates = []
    for at, each in enumerate(answers):
        took_ns = each["last_ns"] - begin_ns
        if not each["delivered"] or took_ns <= 0:
            raise RunFailed(f"member {at}: nothing was delivered")
        rates.append(each["delivered"] * 1e9 / took_ns)
    delivered = min(each["delivered"] for each in answers)
    sent = sum(each["sent"] for each in answers)
    cpu_ns = servers_cpu_ns + sum(each["cpu_ns"] for each in answers)
    rss_kb = max(servers_rss_kb, *(each["rss_kb"] for each in answers))
    return Throughput(
        messages_per_s=min(rates),
        delivered_share=delivered / sent if sent else 0.0,
        cpu_us_per_message=cpu_ns / 1000 / delivered,
        rss_mb_max=rss_kb * 1024 / 1e6,
    )


def delays(answers: Answers) -> Delays:
    """Of all samples of all members."""
    samples = sorted(value for each in answers for value in each["samples_us"])
    if not samples:
        raise RunFailed("no message arrived, so there is no delay")
    return {name: percentile(samples, share) for name, share in PERCENTILES.items()}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that this share of all does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def rounded(value: float) -> float:
    """To four significant figures: more would be noise."""
    if not value:
        return 0.0
    digits = 3 - math.floor(math.log10(abs(value)))
    kept = round(value, digits)
    return int(kept) if digits <= 0 else kept


def figure(value: float) -> str:
    """For display: three significant digits, but all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def median(values: Sequence[float]) -> float:
    return rounded(statistics.median(values))


def spread(values: Sequence[float]) -> list[float]:
    """The lowest and the highest round."""
    return [rounded(min(values)), rounded(max(values))]


def rows_as_json(rows: Sequence[ResultRow]) -> list[dict[str, Any]]:
    """The rows that have any round, each with its ratios to the others."""
    found = [row for row in rows if row.throughput]
    return [_row_as_json(row) | _against(row, found) for row in found]


def _row_as_json(row: ResultRow) -> dict[str, Any]:
    names = ("messages_per_s", "cpu_us_per_message")
    series = {name: [getattr(each, name) for each in row.throughput.values()] for name in names}
    rates = series["messages_per_s"]
    series["megabytes_per_s"] = [rate * row.key.size / 1e6 for rate in rates]
    found: dict[str, Any] = row.key._asdict()
    found |= {name: median(series[name]) for name in ("messages_per_s", "megabytes_per_s")}
    wide: dict[str, Any] = {name: spread(values) for name, values in series.items()}
    loaded = row.by_load.get(HALF, [])
    for name, rounds in (("latency_us", row.lone), ("loaded_latency_us", loaded)):
        values = {key: [each[key] for each in rounds] for key in PERCENTILES if rounds}
        found[name] = {key: median(each) for key, each in values.items()} or None
        wide[name] = {key: spread(each) for key, each in values.items()} or None
    found["latency_by_load_us"] = {
        f"{share:g}": {key: median([each[key] for each in rounds]) for key in PERCENTILES}
        for share, rounds in sorted(row.by_load.items())
    }
    found["cpu_us_per_message"] = median(series["cpu_us_per_message"])
    found["rss_mb_max"] = rounded(max(each.rss_mb_max for each in row.throughput.values()))
    found["delivered_share"] = min(
        rounded(each.delivered_share) for each in row.throughput.values()
    )
    found["rounds"] = len(row.throughput)
    return found | {"spread": wide}


def _against(row: ResultRow, rows: Sequence[ResultRow]) -> dict[str, Any]:
    """The ratio of its throughput to that of each other system: the median over rounds.

    The n-th rounds of two systems are seconds apart, so other work on the machine slows both: the
    ratio holds where the figures do not.
    """
    ratios = {}
    for other in rows:
        both = sorted(row.throughput.keys() & other.throughput.keys())
        if other is not row and other.key.load == row.key.load and both:
            ratios[other.key.label] = median(
                [
                    row.throughput[at].messages_per_s / other.throughput[at].messages_per_s
                    for at in both
                ]
            )
    return {"against": ratios}
