"""What a run achieved, from what is known of its lives; `unisono.spark.measures` says what each
figure means. Quantiles are exact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from unisono.spark.laws.judging import Latencies, ShardFound, added
from unisono.spark.laws.plan import HistoryPlan, LifePlan

QUANTILES: Final = {
    "p50_us": (50, 100),
    "p90_us": (90, 100),
    "p99_us": (99, 100),
    "p999_us": (999, 1000),
    "max_us": (1, 1),
}


def measured(
    plans: Sequence[HistoryPlan], found: Sequence[Sequence[ShardFound]]
) -> Iterator[dict[str, Any]]:
    """By protocol, for the whole run (`node` is None) and for each node. `found` is by history."""
    lives: dict[tuple[str, str | None], list[tuple[LifePlan, Latencies]]] = {}
    for plan, shards in zip(plans, found, strict=True):
        for at, life in enumerate(plan.lives):
            if life.sent or life.delivered or life.views:
                took = added([shard.latencies[at] for shard in shards])
                for node in (None, life.name[0]):
                    lives.setdefault((plan.history.protocol, node), []).append((life, took))
    for (protocol, node), mine in lives.items():
        yield {"protocol": protocol, "node": node, **_measures(mine)}


def _measures(mine: list[tuple[LifePlan, Latencies]]) -> dict[str, Any]:
    lives = [life for life, _ in mine]
    span = sum(life.span_us for life in lives)
    delivered = sum(life.delivered for life in lives)
    octets = sum(life.octets for life in lives)
    return {
        "members": max((life.members for life in lives if life.members), default=None),
        "sent": sum(life.sent for life in lives),
        "delivered": delivered,
        "views": sum(life.views for life in lives),
        "octets": octets,
        "span_us": span,
        "messages_per_s": delivered * 1e6 / span if span > 0 else None,
        "mb_per_s": octets / 1e6 * 1e6 / span if span > 0 else None,
        **quantiles(added([took for _, took in mine])),
    }


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
