"""The laws of who delivers what, as DataFrames; `unisono.laws.delivery` has their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from unisono.spark.laws.telling import message, violations
from unisono.spark.tables import HISTORY, Tables
from unisono.trace.checks import LEVELS
from unisono.trace.history import ALIVE, DEPARTED, VANISHED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RELIABLE = LEVELS["reliable"]


def no_creation(tables: Tables) -> DataFrame:
    """What is delivered was sent, just so, and not before the receiver's time."""
    sources = tables.lives.select(
        *HISTORY,
        F.col("life").alias("source"),
        (F.col("end") == VANISHED).alias("vanished"),
        F.coalesce("last_sent", F.lit(0)).alias("last_sent"),
    )
    suspect = tables.deliveries.where("NOT coalesce(as_sent, false) OR number <= base")
    # Of a message whose send is not known, all deliveries are suspect, so the first is among them.
    everyone = Window.partitionBy(*HISTORY, "source", "number")
    first = F.min(F.struct("life", "size", "digest")).over(everyone)
    rows = suspect.withColumn("first", first).join(sources, [*HISTORY, "source"], "left")
    unlike = (F.col("first.size") != F.col("size")) | (F.col("first.digest") != F.col("digest"))
    unwritten = F.col("vanished") & (F.col("number") > F.col("last_sent"))
    details = F.array(
        F.when(~F.col("as_sent"), F.lit("not as sent")),
        F.when(
            F.col("as_sent").isNull() & F.col("vanished").isNotNull() & ~unwritten,
            F.lit("never sent"),
        ),
        F.when(
            F.col("as_sent").isNull() & unlike,
            F.concat(F.lit("not as at "), F.col("first.life")),
        ),
        F.when(
            F.col("number") <= F.col("base"),
            F.concat(F.lit("before its time: after "), F.col("base")),
        ),
    )
    told = rows.withColumn("detail", F.explode(F.array_compact(details)))
    return violations(told, "no_creation", "life", message(), "source", "detail").distinct()


def no_duplication(tables: Tables) -> DataFrame:
    """A life delivers a message, by its sender and number, at most once."""
    detail = F.concat(F.lit("delivered "), F.col("times"), F.lit(" times"))
    again = tables.heard.where("times > 1")
    return violations(again, "no_duplication", "life", message(), F.lit(""), detail)


def validity(tables: Tables) -> DataFrame:
    """A correct life delivers every reliable message it sent."""
    sent = tables.sends.where(F.col("level") >= RELIABLE).withColumn("source", F.col("life"))
    correct = tables.lives.where("correct").select(*HISTORY, "life")
    owed = sent.join(correct, [*HISTORY, "life"], "left_semi")
    lost = owed.join(tables.heard, [*HISTORY, "life", "source", "number"], "left_anti")
    detail = F.lit("sent, not delivered")
    return violations(lost, "validity", "life", message(), F.lit(""), detail).distinct()


# -- agreement -----------------------------------------------------------------------------------


def agreement(tables: Tables) -> DataFrame:
    """What one correct life delivers, every correct companion delivers."""
    pairs = companions(tables)
    reliable = tables.heard.where(F.col("reliable_step").isNotNull()).select(
        *HISTORY, F.col("life").alias("other"), "source", "number", "reliable_step"
    )
    rows = (
        tables.missing.join(pairs, [*HISTORY, "life"])
        .join(reliable, [*HISTORY, "other", "source", "number"])
        .where("until IS NULL OR reliable_step < until")
    )
    first = rows.groupBy(*HISTORY, "life", "source", "number").agg(F.min("other").alias("other"))
    return violations(first, "agreement", "life", message(), "other", F.lit("not delivered"))


def companions(tables: Tables) -> DataFrame:
    """`life, other, until`: the life must match the other's deliveries, those before the step
    `until` where it is not null. Both are correct."""
    ends = tables.lives.where("correct").select(*HISTORY, "life", "end")
    pairs = ends.join(
        ends.select(*HISTORY, F.col("life").alias("other"), F.col("end").alias("other_end")),
        [*HISTORY],
    ).where("life <> other")
    mine = tables.known.select(
        *HISTORY, "life", F.col("member").alias("other"), F.col("final").alias("other_final")
    )
    yours = tables.known.select(
        *HISTORY,
        F.col("life").alias("other"),
        F.col("member").alias("life"),
        F.col("final").alias("life_final"),
    )
    # Whoever owes has the other in some view, in each of the four cases.
    rows = (
        pairs.join(mine, [*HISTORY, "life", "other"])
        .join(yours, [*HISTORY, "life", "other"], "left")
        .join(partings(tables), [*HISTORY, "life", "other"], "left")
    )
    alive, other_alive = F.col("end") == ALIVE, F.col("other_end") == ALIVE
    in_other = F.coalesce("life_final", F.lit(False))
    owes = (
        F.when(alive & other_alive, in_other & F.col("other_final"))
        .when(alive, in_other)
        .otherwise(
            F.when(F.col("other_final"), F.col("parting").isNotNull()).otherwise(
                ~other_alive & in_other
            )
        )
    )
    until = F.when(~alive & F.col("other_final"), F.col("parting")).alias("until")
    return rows.where(owes).select(*HISTORY, "life", "other", until)


def partings(tables: Tables) -> DataFrame:
    """`life, other, parting`: the step of the other's first view without the life after one with
    it, where the life alone is gone."""
    mine = Window.partitionBy(*HISTORY, "life").orderBy("step")
    gone = F.array_except(F.lag("members").over(mine), F.col("members"))
    rows = tables.views.select(*HISTORY, F.col("life").alias("other"), "step", gone.alias("gone"))
    left = rows.select(
        *HISTORY,
        "other",
        F.explode("gone").alias("life"),
        F.struct("step", (F.size("gone") == 1).alias("alone")).alias("first"),
    )
    first = left.groupBy(*HISTORY, "life", "other").agg(F.min("first").alias("first"))
    alone = first.where("first.alone")
    return alone.select(*HISTORY, "life", "other", F.col("first.step").alias("parting"))


# -- safe, progress ------------------------------------------------------------------------------


def safe(tables: Tables) -> DataFrame:
    """A safe message that anyone delivers, even one that fails right after, all deliver."""
    delivered = tables.deliveries.where("service = 'safe' AND view_step IS NOT NULL").select(
        *HISTORY, F.col("life").alias("other"), "source", "number", "step", "view_step"
    )
    shown = tables.views.select(
        *HISTORY,
        F.col("life").alias("other"),
        F.col("step").alias("view_step"),
        "view",
        "members",
    )
    rows = (
        tables.missing.join(delivered, [*HISTORY, "source", "number"])
        .join(shown, [*HISTORY, "other", "view_step"])
        .where("array_contains(members, life)")
    )
    first = rows.groupBy(*HISTORY, "life", "source", "number").agg(
        F.min(F.struct("other", "step", "view")).alias("first")
    )
    detail = F.concat(F.lit("not delivered; was safe in view "), F.col("first.view"))
    return violations(first, "safe", "life", message(), "first.other", detail)


def progress(tables: Tables) -> DataFrame:
    """After all has healed, the group goes on."""
    alive = tables.lives.where(F.col("end") == ALIVE).select(*HISTORY, "life", "inside")
    sent = tables.sends.where("probe").join(alive, [*HISTORY, "life"], "left_semi")
    probes = sent.select(*HISTORY, F.col("life").alias("source"), "number").distinct()
    outside = alive.where("NOT inside").join(probes, [*HISTORY], "left_semi")
    late = (
        alive.where("inside")
        .join(probes, [*HISTORY])
        .join(tables.bases, [*HISTORY, "life", "source"], "left")
        .where("number > coalesce(base, 0)")
        .join(tables.heard, [*HISTORY, "life", "source", "number"], "left_anti")
    )
    none = F.lit("")
    why_outside = F.lit("alive but in no view, though probes were sent")
    nobody = F.lit("nobody is alive at the end")
    return (
        violations(outside, "progress", "life", none, none, why_outside)
        .union(
            violations(late, "progress", "life", message(), "source", F.lit("probe not delivered"))
        )
        .union(violations(_ended(tables), "progress", none, none, none, nobody))
    )


def _ended(tables: Tables) -> DataFrame:
    """The histories in which nobody is alive, and nothing excuses it."""
    end = F.col("end")
    ends = tables.lives.groupBy(*HISTORY).agg(
        F.max(end.isin(ALIVE, DEPARTED, VANISHED)).alias("excused"),
        F.max("inside").alias("begun"),
    )
    return ends.where("begun AND NOT excused")
