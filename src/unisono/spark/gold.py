"""Gold, besides verdicts and measures: recoveries, latency and rate curves, and the summary.

Each table but the summary is per run. The summary and the joint curves are made from those tables,
not from the events, so their cost does not depend on the length of the runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from unisono.spark.measures import CURVE, QUANTILES, quantile
from unisono.spark.tables import HISTORY, Silver
from unisono.trace.history import ALIVE, VANISHED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BINS: Final = 60
"""Points of a curve over time."""
BIN_US_MIN: Final = 10_000
"""The least width of a bin."""
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


# -- recoveries ------------------------------------------------------------------------------------


def recoveries_of(tables: Silver, lives: DataFrame) -> DataFrame:
    """A row per incarnation that others lost from their views: when, and the time until all others
    had continued. `lives` are those of `laws.judged`.

    `at_us` is the time of its `crash` or `leave` row, or else of its last row; null for an
    incarnation that goes on by itself, as on the other side of a partition."""
    mine = Window.partitionBy(*HISTORY, "life").orderBy("step")
    before = F.lag("members").over(mine)
    regular = tables.views.where("NOT transitional")
    dropped = regular.withColumn("before", before).where("before IS NOT NULL")
    lost = dropped.select(
        *HISTORY,
        F.col("life").alias("survivor"),
        F.explode(F.array_except("before", "members")).alias("life"),
        "view",
        F.col("step").alias("view_step"),
        F.col("t_us").alias("view_us"),
    ).where("life <> survivor")
    # If it was lost several times, the last counts.
    last = lost.groupBy(*HISTORY, "survivor", "life").agg(
        F.max(F.struct("view_step", "view_us", "view")).alias("at")
    )
    last = last.select(*HISTORY, "survivor", "life", "at.*")
    first = tables.deliveries.groupBy(*HISTORY, F.col("life").alias("survivor"), "view_step").agg(
        F.min("t_us").alias("delivered_us")
    )
    after = first.withColumnRenamed("view_step", "delivered_step")
    joined = last.join(after, [*HISTORY, "survivor"], "left")
    delivered = F.min(F.when(F.col("delivered_step") >= F.col("view_step"), F.col("delivered_us")))
    seen = joined.groupBy(*HISTORY, "survivor", "life", "view", "view_us").agg(
        delivered.alias("delivery_us")
    )
    each = F.struct("survivor", "view", "view_us", "delivery_us")
    gathered = seen.groupBy(*HISTORY, "life").agg(
        F.array_sort(F.collect_list(each)).alias("survivors"),
        F.min("view_us").alias("first_us"),
        F.max("view_us").alias("all_us"),
        F.max("delivery_us").alias("again_us"),
    )
    ends = lives.select(*HISTORY, "life", F.col("end").alias("what"), "ended_us")
    rows = gathered.join(ends, [*HISTORY, "life"], "left")
    # One that vanished and has later rows has gone on by itself.
    went_on = (F.col("what") == VANISHED) & (F.col("ended_us") > F.col("first_us"))
    at = F.when((F.col("what") != ALIVE) & ~went_on, F.col("ended_us"))
    rows = rows.withColumn("at_us", at)
    return rows.select(
        *HISTORY,
        "life",
        F.coalesce("what", F.lit("unknown")).alias("what"),
        "at_us",
        "survivors",
        _since("all_us").alias("recovery_us"),
        _since("again_us").alias("resumed_us"),
    )


def _since(when: str) -> Column:
    """0 if the others had continued before the end, as with a clean leave."""
    passed = F.col(when) - F.col("at_us")
    return F.when(passed.isNotNull(), F.greatest(passed, F.lit(0).cast("bigint")))


# -- latency ---------------------------------------------------------------------------------------


def latencies_of(tables: Silver, keys: DataFrame) -> DataFrame:
    """Deliveries by latency class: each microsecond up to 255, then 128 classes per doubling.
    Negative latencies, from differing clocks, are in the first."""
    timed = tables.deliveries.where("latency_us IS NOT NULL")
    late = timed.select(
        "run", "protocol", F.greatest("latency_us", F.lit(0).cast("bigint")).alias("us")
    )
    # The number of binary digits is exact; a logarithm is not.
    wide = late.withColumn("cut", F.expr("greatest(length(bin(us)) - 8, 0)"))
    low = F.expr("shiftleft(shiftright(us, cut), cut)")
    counted = wide.groupBy("run", "protocol", low.alias("latency_us")).agg(
        F.count("*").alias("deliveries")
    )
    joined = counted.join(keys, ["run", "protocol"])
    return joined.select(*_EACH, "latency_us", "deliveries")


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


# -- rates -----------------------------------------------------------------------------------------


def rate_curves(tables: Silver, keys: DataFrame) -> DataFrame:
    """Deliveries per second at a member, by bins of the time since the run's first delivery. A bin
    without deliveries has no row."""
    spans = tables.deliveries.groupBy("run", "protocol").agg(
        F.min("t_us").alias("start_us"),
        (F.max("t_us") - F.min("t_us") + 1).alias("long_us"),
        F.count_distinct("node").alias("nodes"),
    )
    span = F.greatest("long_us", F.lit(BINS * BIN_US_MIN).cast("bigint"))
    spans = spans.select("run", "protocol", "start_us", "nodes", (span / BINS).alias("width_us"))
    timed = tables.deliveries.join(spans, ["run", "protocol"])
    bin_ = F.floor((F.col("t_us") - F.col("start_us")) / F.col("width_us")).cast("int")
    counted = timed.groupBy("run", "protocol", "nodes", "width_us", bin_.alias("bin")).agg(
        F.count("*").cast("double").alias("deliveries")
    )
    joined = counted.join(keys, ["run", "protocol"])
    return joined.select(*_EACH, "nodes", "bin", *_rate())


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
        quantile(0.5, "recovery_us").alias("recovery_p50_us"),
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
