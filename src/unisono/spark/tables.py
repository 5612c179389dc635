"""Silver: sends, deliveries, views and packets, with one name for each message and incarnation.

The column `life` is `name#incarnation`; `source` is the incarnation that sent a message, which
(source, number) identifies. A history is one run of one protocol and group; laws do not span two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql import Window
from pyspark.sql import functions as F

from unisono.trace.checks import LEVEL_SQL, VIEWS
from unisono.trace.record import PROBE, WORK_KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HISTORY: Final = ("run", "protocol", "group")


@dataclass(frozen=True)
class Silver:
    sends: DataFrame
    deliveries: DataFrame
    views: DataFrame
    packets: DataFrame
    one_partition: bool = False
    """Each table is one partition, and so is what is derived from them."""

    def union(self, one: DataFrame, two: DataFrame) -> DataFrame:
        both = one.union(two)
        return both.coalesce(1) if self.one_partition else both


Keep: TypeAlias = Callable[["DataFrame", str], "DataFrame"]
"""Computes a table now and reads it back, so that later plans start from it and stay small."""


def silver_of(events: DataFrame, keep: Keep, one_partition: bool = False) -> Silver:
    named = events.withColumn("life", F.concat_ws("#", "node", "incarnation"))
    sends = keep(sends_of(named), "sends")
    return Silver(
        sends=sends,
        deliveries=keep(deliveries_of(named, sends), "deliveries"),
        views=keep(views_of(named), "views"),
        packets=keep(packets_of(named), "packets"),
        one_partition=one_partition,
    )


def sends_of(named: DataFrame) -> DataFrame:
    return named.where("kind = 'send'").select(
        *HISTORY,
        *("life", "node", "step", "t_us", "view", "number", "service"),
        F.expr(LEVEL_SQL).alias("level"),
        "size",
        "digest",
        F.coalesce(F.col("detail") == PROBE, F.lit(False)).alias("probe"),
    )


def with_parents(sends: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Adds `message`, the message's name, and `parents`, its direct causal predecessors: the
    sender's previous message, and of each other source the one with the highest number that the
    sender delivered since then. With fifo delivery their closure is the causal past."""
    mine = Window.partitionBy(*HISTORY, "life").orderBy("step")
    sent = sends.select(*HISTORY, "life", "step", "number", F.lit(None).alias("source"))
    delivered = deliveries.where("source <> life")
    rows = sent.union(delivered.select(*HISTORY, "life", "step", "number", "source"))
    sent_before = F.count(F.when(F.col("source").isNull(), 1)).over(
        mine.rowsBetween(Window.unboundedPreceding, -1)
    )
    rows = rows.withColumn("turn", sent_before)
    newest = rows.where("source IS NOT NULL").groupBy(*HISTORY, "life", "turn", "source")
    named = newest.agg(F.max("number").alias("number")).select(
        *HISTORY, "life", "turn", F.concat_ws(":", "source", "number").alias("parent")
    )
    others = named.groupBy(*HISTORY, "life", "turn").agg(F.collect_list("parent").alias("others"))
    previous = F.lag("message").over(mine)
    placed = (
        sends.withColumn("message", F.concat_ws(":", "life", "number"))
        .withColumn("turn", (F.row_number().over(mine) - 1).cast("bigint"))
        .withColumn("own", F.when(previous.isNotNull(), F.array(previous)))
    )
    joined = placed.join(others, [*HISTORY, "life", "turn"], "left")
    none = F.array().cast("array<string>")
    parents = F.array_sort(F.concat(F.coalesce("own", none), F.coalesce("others", none)))
    return joined.select(*sends.columns, "message", parents.alias("parents"))


def views_of(named: DataFrame) -> DataFrame:
    """`place` counts an incarnation's views from 1."""
    mine = Window.partitionBy(*HISTORY, "life").orderBy("step")
    return named.where(F.col("kind").isin(*VIEWS)).select(
        *HISTORY,
        *("life", "node", "step", "t_us"),
        F.row_number().over(mine).alias("place"),
        *("view", "members", "detail"),
        (F.col("kind") == "transitional").alias("transitional"),
        *("joined", "left", "stayed", "changes"),
    )


def packets_of(named: DataFrame) -> DataFrame:
    """Protocol work, if traced: packets, drops, repairs, timers, arrows."""
    return named.where(F.col("kind").isin(*WORK_KINDS)).select(
        *HISTORY,
        *("life", "node", "step", "t_us", "kind", "view"),
        *("number", "peer", "size", "digest", "detail"),
    )


def deliveries_of(named: DataFrame, sends: DataFrame) -> DataFrame:
    """With the message's first send. `view_step` is the step of the incarnation's last view before;
    `as_sent` is null when no send is known."""
    mine = Window.partitionBy(*HISTORY, "life").orderBy("step")
    placed = named.where(F.col("kind").isin("deliver", *VIEWS)).withColumn(
        "view_step", F.max(F.when(F.col("kind") != "deliver", F.col("step"))).over(mine)
    )
    delivered = placed.where("kind = 'deliver'").select(
        *HISTORY,
        *("life", "node", "step", "t_us", "view", "view_step"),
        F.concat_ws("#", "sender", "sender_incarnation").alias("source"),
        *("number", "seq", "service"),
        F.expr(LEVEL_SQL).alias("level"),
        "size",
        "digest",
    )
    sent = sends.groupBy(*HISTORY, F.col("life").alias("source"), "number").agg(
        F.min_by("t_us", "step").alias("sent_us"),
        F.collect_set(F.struct("size", "digest")).alias("forms"),
    )
    joined = delivered.join(sent, [*HISTORY, "source", "number"], "left")
    return joined.select(
        *delivered.columns,
        "sent_us",
        (F.col("t_us") - F.col("sent_us")).alias("latency_us"),
        F.array_contains("forms", F.struct("size", "digest")).alias("as_sent"),
    )
