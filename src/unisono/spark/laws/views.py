"""The laws of views, as DataFrames; `unisono.laws.views` has their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from unisono.spark.laws.delivery import RELIABLE
from unisono.spark.laws.order import inversions
from unisono.spark.laws.telling import message, violations
from unisono.spark.tables import HISTORY, Tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def view_order(tables: Tables) -> DataFrame:
    """Everyone sees the same views in the same order."""
    listed = F.array_join(F.array_sort("members"), " ")
    firsts = (
        tables.views.withColumn("listed", listed)
        .groupBy(*HISTORY, "life", F.col("view").alias("item"))
        .agg(
            F.count("*").alias("times"),
            F.min("place").alias("place"),
            F.min_by("listed", "place").alias("listed"),
        )
    )
    everyone = Window.partitionBy(*HISTORY, "item")
    first = F.min(F.struct("life", "listed")).over(everyone)
    apart = firsts.withColumn("first", first).where("first.listed <> listed")
    again = firsts.where("times > 1")
    crossed = inversions(firsts)
    apart_detail = _said("view ", "item", ": members ", "listed", " here, ", "first.listed")
    apart_detail = F.concat(apart_detail, F.lit(" there"))
    again_detail = F.concat(_said("view ", "item", " installed ", "times"), F.lit(" times"))
    crossed_detail = _said("view ", "item", " after ", "before")
    crossed_detail = F.concat(crossed_detail, F.lit(" here, before it there"))
    law, none = "view_order", F.lit("")
    told = violations(again, law, "life", none, none, again_detail).union(
        violations(crossed, law, "life", none, "other", crossed_detail)
    )
    return tables.union(
        violations(apart, law, "life", none, "first.life", apart_detail), told
    ).distinct()


def _said(*parts: str) -> Column:
    """Words and columns by turns."""
    return F.concat(
        *(F.lit(part) if index % 2 == 0 else F.col(part) for index, part in enumerate(parts))
    )


def self_inclusion(tables: Tables) -> DataFrame:
    """A life is a member of every view that it installs."""
    without = tables.views.where("NOT array_contains(members, life)")
    detail = _said("not in its view ", "view")
    none = F.lit("")
    return violations(without, "self_inclusion", "life", none, none, detail).distinct()


def virtual_synchrony(tables: Tables) -> DataFrame:
    """Lives that go together from one view to the next delivered the same messages in between."""
    passages = _passages(tables)
    together = passages.groupBy(*HISTORY, "view", "following").agg(
        F.collect_set("life").alias("lives")
    )
    delivered = tables.deliveries.where(F.col("level") >= RELIABLE)
    delivered = delivered.select(*HISTORY, "life", "view_step", "source", "number")
    between = delivered.join(passages, [*HISTORY, "life", "view_step"])
    had = between.groupBy(*HISTORY, "view", "following", "source", "number").agg(
        F.collect_set("life").alias("had")
    )
    lacking = had.join(together, [*HISTORY, "view", "following"]).select(
        *HISTORY,
        "view",
        "following",
        "source",
        "number",
        F.array_min("had").alias("other"),
        F.explode(F.array_except("lives", "had")).alias("life"),
    )
    owed = lacking.join(tables.bases, [*HISTORY, "life", "source"]).where("number > base")
    detail = _said("not delivered between views ", "view", " and ", "following")
    return violations(owed, "virtual_synchrony", "life", message(), "other", detail)


def _passages(tables: Tables) -> DataFrame:
    """`life, view, following, view_step`: two consecutive views of a life, the first time that it
    installs them so; `view_step` is the step of the first of them."""
    mine = Window.partitionBy(*HISTORY, "life").orderBy("step")
    pairs = tables.views.select(
        *HISTORY, "life", "view", F.lead("view").over(mine).alias("following"), "step"
    )
    return (
        pairs.where("following IS NOT NULL")
        .groupBy(*HISTORY, "life", "view", "following")
        .agg(F.min("step").alias("view_step"))
    )
