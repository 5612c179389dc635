"""The gold tables about many runs: the summary, and the joint latency and rate curves.

They are made from the tables of the runs, not from the events, so their cost does not depend on the
length of the runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from unisono.spark.measures import BINS, CURVE, QUANTILES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS: Final = ("protocol", "members", "size")
"""Runs are grouped by these: `members` is the largest view, `size` the mean payload in bytes,
rounded up to a power of two."""
SUMMED: Final = (
    "sent", "delivered", "views", "octets", "span_us",
    "packets_out", "octets_out", "retransmissions", "naks", "drops",
)  # fmt: skip
"""Summed over the runs of a row of the summary."""
_EACH: Final = ("run", *KEYS)


def keys_of(measures: DataFrame) -> DataFrame:
    """`run, protocol, members, size` of each run and protocol."""
    mean = F.col("octets") / F.col("delivered")
    size = F.pow(F.lit(2), F.ceil(F.log2(F.greatest(mean, F.lit(1.0)))))
    rounded = F.when(F.col("octets") > 0, size).otherwise(0).cast("bigint")
    whole = measures.where("node IS NULL")
    return whole.select("run", "protocol", "members", rounded.alias("size"))


def latency_curves(latencies: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """The latencies at the quantiles of `CURVE`."""
    classes = latencies.groupBy(*by, "latency_us").agg(F.sum("deliveries").alias("deliveries"))
    upward = Window.partitionBy(*by).orderBy("latency_us")
    classes = classes.withColumn("up_to", F.sum("deliveries").over(upward))
    curve = F.sort_array(F.collect_list(F.struct("latency_us", "up_to"))).alias("classes")
    gathered = classes.groupBy(*by).agg(curve, F.sum("deliveries").alias("deliveries"))
    parts = ", ".join(f"{part}D" for part in CURVE)
    # The first class that is not below each quantile.
    quantiles = F.expr(
        f"transform(array({parts}), part -> element_at(filter(classes,"
        " c -> c.up_to >= ceil(part * deliveries)), 1).latency_us)"
    )
    return gathered.select(*by, "deliveries", quantiles.alias("quantiles"))


def _rate() -> tuple[Column, ...]:
    width = F.col("width_us") / 1e6
    rate = F.col("deliveries") / width / F.col("nodes")
    return width.alias("width_s"), F.col("deliveries"), rate.alias("rate")


def joint_rate_curves(curves: DataFrame) -> DataFrame:
    """The rates of many runs by `KEYS`: a run's bin is divided among the wider bins that it
    overlaps."""
    runs = curves.groupBy(*_EACH, "nodes").agg((F.max("width_s") * BINS).alias("long_s"))
    spans = runs.groupBy(*KEYS).agg(
        F.sum("nodes").alias("all_nodes"), (F.max("long_s") / BINS).alias("wide_s")
    )
    parts = curves.join(spans, [*KEYS])
    start = F.col("bin") * F.col("width_s") / F.col("wide_s")
    end = (F.col("bin") + 1) * F.col("width_s") / F.col("wide_s")
    parts = parts.withColumn("start", start).withColumn("end", end)
    first, second = F.floor("start"), F.floor("start") + 1
    within = (F.least("end", second.cast("double")) - F.col("start")) / (
        F.col("end") - F.col("start")
    )
    shares = F.explode(
        F.array(
            F.struct(first.alias("to"), (F.col("deliveries") * within).alias("share")),
            F.struct(second.alias("to"), (F.col("deliveries") * (1 - within)).alias("share")),
        )
    ).alias("part")
    shared = parts.select(*KEYS, "all_nodes", "wide_s", shares)
    # Rounding may exceed the last bin.
    summed = shared.groupBy(
        *KEYS,
        F.col("all_nodes").alias("nodes"),
        (F.col("wide_s") * 1e6).alias("width_us"),
        F.least("part.to", F.lit(BINS - 1).cast("bigint")).cast("int").alias("bin"),
    ).agg(F.round(F.sum("part.share"), 6).alias("deliveries"))
    return summed.where("deliveries > 0").select(*KEYS, "nodes", "bin", *_rate())


# -- summary ---------------------------------------------------------------------------------------


def summary_of(
    measures: DataFrame, runs: DataFrame, recoveries: DataFrame, curves: DataFrame
) -> DataFrame:
    """A row per protocol, group size and payload size. `curves` are the latency curves by `KEYS`,
    which have the quantiles."""
    keys = keys_of(measures)
    whole = measures.where("node IS NULL").drop("members").join(keys, ["run", "protocol"])
    whole = whole.join(runs.select("run", "kept"), "run", "left")
    sums = whole.groupBy(*KEYS).agg(
        F.count("*").alias("runs"),
        F.count(F.when(F.col("kept"), 1)).alias("kept"),
        F.count(F.when(~F.col("kept"), 1)).alias("broken"),
        *(F.sum(name).alias(name) for name in SUMMED),
        F.max("max_us").alias("max_us"),
    )
    timed = recoveries.where("recovery_us IS NOT NULL").join(keys, ["run", "protocol"])
    recovered = timed.groupBy(*KEYS).agg(
        F.count("*").alias("recoveries"),
        F.expr("percentile_disc(0.5) WITHIN GROUP (ORDER BY recovery_us)")
        .cast("bigint")
        .alias("recovery_p50_us"),
        F.max("recovery_us").alias("recovery_max_us"),
    )
    points = [
        F.element_at("quantiles", CURVE.index(part) + 1).alias(name)
        for name, part in QUANTILES.items()
        if part < 1
    ]
    joined = sums.join(curves.select(*KEYS, *points), [*KEYS], "left")
    joined = joined.join(recovered, [*KEYS], "left")
    rate = F.when(F.col("span_us") > 0, F.col("delivered") * 1e6 / F.col("span_us"))
    volume = F.when(F.col("span_us") > 0, F.col("octets") / F.col("span_us"))
    return joined.select(
        *KEYS,
        *("runs", "kept", "broken", *SUMMED),
        rate.alias("messages_per_s"),
        volume.alias("mb_per_s"),
        *QUANTILES,
        F.coalesce("recoveries", F.lit(0).cast("bigint")).alias("recoveries"),
        *("recovery_p50_us", "recovery_max_us"),
    )
