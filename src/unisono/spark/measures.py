"""What a run achieved: how fast messages were delivered, and how many.

Latency is from the message's first send to its delivery, by the clocks of the trace: true in
simulation and on one machine. Quantiles are exact: the smallest latency that at least this part of
the deliveries does not exceed. Rates are what a member sees: deliveries by the time from a life's
first message to its last, summed over the lives in question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from unisono.spark.tables import HISTORY, Tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

QUANTILES: Final = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "max_us": 1.0}
CURVE: Final = (*(step / 50 for step in range(50)), 0.99, 0.995, 0.999, 1.0)
"""The quantiles at which a latency curve is drawn."""
BINS: Final = 60
"""How many points a curve over time has."""
BIN_US_MIN: Final = 10_000
"""None stands for less time than this."""


def measures_of(tables: Tables) -> DataFrame:
    """By run and protocol, for the whole run (`node` is null) and for each node."""
    lives = _of_lives(tables)
    whole = F.lit(None).cast("string").alias("node")
    rows = []
    for keys in (["run", "protocol"], ["run", "protocol", "node"]):
        sums = lives.groupBy(*keys).agg(
            *(F.sum(name).alias(name) for name in ("sent", "delivered", "views", "octets")),
            F.sum("span_us").alias("span_us"),
        )
        latency = tables.deliveries.where("latency_us IS NOT NULL").groupBy(*keys)
        quantiles = latency.agg(*(_quantile(part, name) for name, part in QUANTILES.items()))
        node = [F.col("node")] if "node" in keys else [whole]
        joined = sums.join(quantiles, keys, "left")
        rows.append(
            joined.select(
                "run",
                "protocol",
                *node,
                *("sent", "delivered", "views", "span_us"),
                _rate(F.col("delivered")).alias("messages_per_s"),
                _rate(F.col("octets") / 1e6).alias("mb_per_s"),
                *QUANTILES,
            )
        )
    return rows[0].union(rows[1])


def _quantile(part: float, name: str) -> Column:
    return F.expr(f"percentile_disc({part}) WITHIN GROUP (ORDER BY latency_us)").alias(name)


def _rate(amount: Column) -> Column:
    return F.when(F.col("span_us") > 0, amount * 1e6 / F.col("span_us"))


def _of_lives(tables: Tables) -> DataFrame:
    """One row a life: what it sent, delivered and installed, and how long it took."""
    sizes = {"sent": tables.sends, "delivered": tables.deliveries, "views": tables.views}
    told = None
    for kind, table in sizes.items():
        size = F.lit(0) if kind == "views" else F.col("size")
        when = F.lit(None) if kind == "views" else F.col("t_us")
        rows = table.select(
            *HISTORY,
            *("life", "node"),
            F.lit(kind).alias("kind"),
            size.cast("bigint").alias("size"),
            when.cast("bigint").alias("t_us"),
        )
        told = rows if told is None else told.union(rows)
    assert told is not None
    counts = [F.count(F.when(F.col("kind") == kind, 1)).alias(kind) for kind in sizes]
    octets = F.sum(F.when(F.col("kind") == "delivered", F.col("size")).otherwise(0))
    span = F.coalesce(F.max("t_us") - F.min("t_us"), F.lit(0))
    return told.groupBy(*HISTORY, "life", "node").agg(
        *counts, octets.alias("octets"), span.alias("span_us")
    )


# -- curves for the report -----------------------------------------------------------------------


def latency_curves(tables: Tables, by: str) -> DataFrame:
    """`series, quantiles`: the latencies at the quantiles of `CURVE`, by run or by protocol."""
    parts = ", ".join(map(str, CURVE))
    curve = F.expr(f"percentile_disc(array({parts})) WITHIN GROUP (ORDER BY latency_us)")
    timed = tables.deliveries.where("latency_us IS NOT NULL")
    return timed.groupBy(F.col(by).alias("series")).agg(curve.alias("quantiles"))


def rate_curves(tables: Tables, by: str) -> DataFrame:
    """`series, bin, width_s, rate`: deliveries a second at a member, over the time since the run's
    first delivery."""
    starts = tables.deliveries.groupBy("run").agg(F.min("t_us").alias("start_us"))
    timed = tables.deliveries.join(starts, "run").select(
        F.col(by).alias("series"), "run", "node", (F.col("t_us") - F.col("start_us")).alias("at_us")
    )
    spans = timed.groupBy("series").agg(
        F.greatest(F.max("at_us") + 1, F.lit(BINS * BIN_US_MIN)).alias("span_us"),
        F.count_distinct("run", "node").alias("members"),
    )
    width = F.col("span_us") / BINS
    binned = timed.join(spans, "series").withColumn("bin", F.floor(F.col("at_us") / width))
    counted = binned.groupBy("series", "bin", "span_us", "members").agg(F.count("*").alias("n"))
    rate = F.col("n") * 1e6 / width / F.col("members")
    return counted.select("series", "bin", (width / 1e6).alias("width_s"), rate.alias("rate"))
