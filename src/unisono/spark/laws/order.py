"""The laws of order, as DataFrames; `unisono.laws.order` has their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from unisono.laws import VIOLATIONS_MAX
from unisono.spark.laws.telling import message, violations
from unisono.spark.tables import HISTORY, Tables
from unisono.trace.checks import LEVELS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIFO, CAUSAL, AGREED = LEVELS["fifo"], LEVELS["causal"], LEVELS["agreed"]


# -- fifo ----------------------------------------------------------------------------------------


def fifo(tables: Tables) -> DataFrame:
    """The messages of one sender are delivered in its order, without holes."""
    mine = Window.partitionBy(*HISTORY, "life", "source").orderBy("step")
    earlier = F.max("number").over(mine.rowsBetween(Window.unboundedPreceding, -1))
    numbers = _numbers_known(tables)
    rows = (
        tables.deliveries.where(F.col("level") >= FIFO)
        .select(*HISTORY, "life", "source", "number", "base", earlier.alias("earlier"))
        .withColumn("before", F.greatest("base", "earlier"))
        .join(numbers, [*HISTORY, "source", "number"])
    )
    late = rows.where("number < earlier")
    late_detail = F.concat(F.lit("after "), F.col("earlier"))
    # There is a hole just when the number known before this one is above `before`.
    holes = rows.where("(earlier IS NULL OR number >= earlier) AND known_before > before")
    hole_detail = F.concat(F.lit("without "), F.col("hole"))
    said = message()
    return tables.union(
        violations(late, "fifo", "life", said, "source", late_detail),
        violations(_with_hole(holes, numbers), "fifo", "life", said, "source", hole_detail),
    ).distinct()


def _numbers_known(tables: Tables) -> DataFrame:
    """By sender, the numbers of its messages with level fifo or above, each with the one before."""
    sent = tables.sends.where(F.col("level") >= FIFO).select(
        *HISTORY, F.col("life").alias("source"), "number"
    )
    delivered = tables.deliveries.where(F.col("level") >= FIFO).select(*HISTORY, "source", "number")
    of_one = Window.partitionBy(*HISTORY, "source").orderBy("number")
    numbers = tables.union(sent, delivered).distinct()
    return numbers.withColumn("known_before", F.lag("number").over(of_one))


def _with_hole(holes: DataFrame, numbers: DataFrame) -> DataFrame:
    """The smallest known number of each hole, looked up only for those that will be told."""
    in_order = Window.partitionBy(*HISTORY).orderBy("life", message())
    told = holes.withColumn("rank", F.dense_rank().over(in_order)).where(
        F.col("rank") <= VIOLATIONS_MAX
    )
    told = told.select(*HISTORY, "life", "source", "number", "before").distinct()
    inside = numbers.select(*HISTORY, "source", F.col("number").alias("lost"))
    found = told.join(inside, [*HISTORY, "source"]).where("lost > before AND lost < number")
    return found.groupBy(*HISTORY, "life", "source", "number", "before").agg(
        F.min("lost").alias("hole")
    )


# -- causal --------------------------------------------------------------------------------------


def causal(tables: Tables) -> DataFrame:
    """A message is delivered after all that its sender knew when it sent it."""
    delivered = tables.deliveries.where(F.col("level") >= CAUSAL).select(
        *HISTORY, "life", "step", "source", "number"
    )
    asked = (
        delivered.join(_needs(tables, delivered), [*HISTORY, "source", "number"])
        .join(tables.bases.withColumnRenamed("source", "needed"), [*HISTORY, "life", "needed"])
        .where("base < need")
        .select(
            *HISTORY, "life", "step", "needed", F.lit(0).alias("tag"), "source", "number", "need"
        )
    )
    nothing = F.lit(None)
    had = delivered.select(
        *HISTORY,
        "life",
        "step",
        F.col("source").alias("needed"),
        F.lit(1).alias("tag"),
        nothing.cast("string").alias("source"),
        "number",
        nothing.cast("bigint").alias("need"),
    )
    # At one step the question comes before the delivery, which therefore does not answer it.
    mine = Window.partitionBy(*HISTORY, "life", "needed").orderBy("step", "tag")
    largest = F.max(F.when(F.col("tag") == 1, F.col("number"))).over(mine)
    early = (
        tables.union(asked, had)
        .withColumn("largest", F.coalesce(largest, F.lit(0)))
        .where("tag = 0 AND largest < need")
    )
    detail = F.lit("delivered before what it depends on")
    other = message("needed", "need")
    return violations(early, "causal", "life", message(), other, detail).distinct()


def _needs(tables: Tables, delivered: DataFrame) -> DataFrame:
    """`source, number, needed, need`: what a message's sender had of each other sender, and of its
    own messages, when it first sent it."""
    mine = Window.partitionBy(*HISTORY, "life").orderBy("step")
    again = Window.partitionBy(*HISTORY, "life", "number").orderBy("step")
    own = F.max("number").over(mine.rowsBetween(Window.unboundedPreceding, -1))
    sends = (
        tables.sends.where(F.col("level") >= CAUSAL)
        .select(*HISTORY, "life", "step", "number", own.alias("own"))
        .withColumn("nth", F.row_number().over(again))
        .where("nth = 1")
    )
    heard = delivered.where("source <> life")
    heard = heard.select(*HISTORY, "life", "step", F.col("source").alias("needed"), "number")
    asked = sends.join(heard.select(*HISTORY, "life", "needed").distinct(), [*HISTORY, "life"])
    of_one = Window.partitionBy(*HISTORY, "life", "needed").orderBy("step")
    need = F.max(F.when(F.col("tag") == 1, F.col("number"))).over(of_one)
    columns = (*HISTORY, "life", "step", "needed", "number")
    asking = asked.select(*columns, F.lit(0).alias("tag"))
    of_others = (
        tables.union(asking, heard.select(*columns, F.lit(1).alias("tag")))
        .withColumn("need", need)
        .where("tag = 0 AND need IS NOT NULL")
        .select(*HISTORY, F.col("life").alias("source"), "number", "needed", "need")
    )
    of_self = sends.where("own IS NOT NULL").select(
        *HISTORY,
        F.col("life").alias("source"),
        "number",
        F.col("life").alias("needed"),
        F.col("own").alias("need"),
    )
    return tables.union(of_others, of_self)


# -- total order, prefix -------------------------------------------------------------------------


def ordered(tables: Tables) -> DataFrame:
    """Deliveries of level agreed or above, each message once; `place` counts them from 1."""
    again = Window.partitionBy(*HISTORY, "life", "source", "number").orderBy("step")
    mine = Window.partitionBy(*HISTORY, "life").orderBy("step")
    return (
        tables.deliveries.where(F.col("level") >= AGREED)
        .withColumn("nth", F.row_number().over(again))
        .where("nth = 1")
        .select(
            *HISTORY,
            "life",
            "step",
            "seq",
            message().alias("item"),
            F.row_number().over(mine).alias("place"),
        )
    )


def inversions(items: DataFrame) -> DataFrame:
    """`life, other, item, before`: for lives with life < other, neighbours `before` and `item` in
    the life's order of what both have, which stand the other way in the other's."""
    yours = items.select(
        *HISTORY, F.col("life").alias("other"), "item", F.col("place").alias("their_place")
    )
    shared = items.select(*HISTORY, "life", "item", "place").join(yours, [*HISTORY, "item"])
    pair = Window.partitionBy(*HISTORY, "life", "other").orderBy("place")
    return (
        shared.where("life < other")
        .withColumn("before", F.lag("item").over(pair))
        .withColumn("before_place", F.lag("their_place").over(pair))
        .where("before_place > their_place")
    )


def total_order(tables: Tables) -> DataFrame:
    """Any two lives deliver the messages they share in the same order."""
    items = ordered(tables)
    crossed = inversions(items)
    crossed_detail = F.concat(F.lit("after "), F.col("before"), F.lit(" here, before it there"))
    placed = items.where("seq IS NOT NULL")
    everyone = Window.partitionBy(*HISTORY, "item")
    first = F.min(F.struct("life", "seq")).over(everyone)
    apart = placed.withColumn("first", first).where("first.seq <> seq")
    apart_detail = F.concat(
        *(F.lit("place "), F.col("seq"), F.lit(" here, "), F.col("first.seq"), F.lit(" there"))
    )
    mine = Window.partitionBy(*HISTORY, "life").orderBy("step")
    fallen = placed.withColumn("last", F.lag("seq").over(mine)).where("seq <= last")
    fallen_detail = F.concat(F.lit("place "), F.col("seq"), F.lit(" after "), F.col("last"))
    law, item = "total_order", F.col("item")
    return (
        violations(crossed, law, "life", item, "other", crossed_detail)
        .union(violations(apart, law, "life", item, "first.life", apart_detail))
        .union(violations(fallen, law, "life", item, F.lit(""), fallen_detail))
    )


def prefix(tables: Tables) -> DataFrame:
    """Of any two lives' sequences of ordered messages, one begins the other."""
    items = ordered(tables)
    left = items.select(*HISTORY, "life", F.col("item").alias("left"), F.col("place").alias("at"))
    right = items.select(
        *HISTORY,
        F.col("life").alias("other"),
        F.col("item").alias("right"),
        F.col("place").alias("their_at"),
    )
    # Each of our messages beside the one that stands at its place in the other's sequence.
    beside = (
        left.join(_aligned(tables, items), [*HISTORY, "life"])
        .where("at >= start")
        .withColumn("their_at", F.expr("at - start + their_start"))
        .join(right, [*HISTORY, "other", "their_at"])
        .where("left <> right")
    )
    first = beside.groupBy(*HISTORY, "life", "other").agg(
        F.min(F.struct("at", "left", "right")).alias("first")
    )
    detail = F.concat(F.col("first.right"), F.lit(" there"))
    return violations(first, "prefix", "life", F.col("first.left"), "other", detail)


def _aligned(tables: Tables, items: DataFrame) -> DataFrame:
    """`life, other, start, their_start`: from which places on two sequences are laid side by
    side, for life < other."""
    begun = items.where("place = 1").join(
        tables.lives.select(*HISTORY, "life", "first_view"), [*HISTORY, "life"]
    )
    mine = begun.select(*HISTORY, "life", F.col("item").alias("first"), "first_view")
    yours = begun.select(
        *HISTORY,
        F.col("life").alias("other"),
        F.col("item").alias("their_first"),
        F.col("first_view").alias("their_view"),
    )
    pairs = mine.join(yours, [*HISTORY]).where("life < other")
    in_theirs = items.select(
        *HISTORY,
        F.col("life").alias("other"),
        F.col("item").alias("first"),
        F.col("place").alias("there"),
    )
    in_mine = items.select(
        *HISTORY, "life", F.col("item").alias("their_first"), F.col("place").alias("here")
    )
    found = pairs.join(in_theirs, [*HISTORY, "other", "first"], "left").join(
        in_mine, [*HISTORY, "life", "their_first"], "left"
    )
    start = F.when(F.col("there").isNotNull(), 1).otherwise(F.coalesce("here", F.lit(1)))
    their_start = F.coalesce("there", F.lit(1))
    return found.where("there IS NOT NULL OR here IS NOT NULL OR first_view = their_view").select(
        *HISTORY, "life", "other", start.alias("start"), their_start.alias("their_start")
    )
