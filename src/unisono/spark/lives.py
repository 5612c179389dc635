"""Who lived, whom they knew, how they ended, and where their obligations begin.

The same words as `unisono.trace.history`, as DataFrames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from unisono.trace.history import ALIVE, CRASHED, CUT, DEPARTED, STOPPED, VANISHED
from unisono.trace.record import LEFT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HISTORY: Final = ("run", "protocol", "group")


def known_of(views: DataFrame) -> DataFrame:
    """`life, member, final`: each member of some view of a life, and whether the last has it."""
    last = F.max("step").over(Window.partitionBy(*HISTORY, "life"))
    listed = views.withColumn("final", F.col("step") == last).select(
        *HISTORY, "life", "final", F.explode("members").alias("member")
    )
    return listed.groupBy(*HISTORY, "life", "member").agg(F.max("final").alias("final"))


def lives_of(named: DataFrame, views: DataFrame, known: DataFrame, torn: DataFrame) -> DataFrame:
    """One row a life: its end, its first view, and whether it is inside and correct."""
    plain = _plain_lives(named)
    first = views.where("place = 1").select(
        *HISTORY, "life", F.col("view").alias("first_view"), F.col("detail").alias("first_detail")
    )
    cut_short = torn.withColumn("torn", F.lit(True))
    rows = (
        plain.join(first, [*HISTORY, "life"], "left")
        .join(cut_short, ["run", "node", "incarnation"], "left")
        .join(_given_up(plain, known), [*HISTORY, "life"], "left")
    )
    newest = F.max("incarnation").over(Window.partitionBy(*HISTORY, "node"))
    gone = F.col("torn") | F.col("given_up") | (newest > F.col("incarnation"))
    end = F.when((F.col("end") == ALIVE) & F.coalesce(gone, F.lit(False)), VANISHED)
    inside = F.col("first_view").isNotNull()
    return (
        rows.withColumn("torn", F.coalesce("torn", F.lit(False)))
        .withColumn("given_up", F.coalesce("given_up", F.lit(False)))
        .withColumn("end", F.coalesce(end, "end"))
        .withColumn("inside", inside)
        .withColumn("correct", inside & F.col("end").isin(ALIVE, DEPARTED))
    )


def _plain_lives(named: DataFrame) -> DataFrame:
    """Each life with the end that its own rows tell: that of the first `leave` or `crash`."""
    ending = F.when(F.col("kind").isin("leave", "crash"), F.col("step"))
    said = F.when(F.col("kind") == "crash", CRASHED).otherwise(
        F.when(F.col("detail") == LEFT, DEPARTED).otherwise(STOPPED)
    )
    return named.groupBy(*HISTORY, "life", "node", "incarnation").agg(
        F.coalesce(F.min_by(said, ending), F.lit(ALIVE)).alias("end"),
        F.max(F.when(F.col("kind") == "send", F.col("number"))).alias("last_sent"),
        F.coalesce(F.min_by("t_us", ending), F.max_by("t_us", "step")).alias("ended_us"),
    )


def _given_up(plain: DataFrame, known: DataFrame) -> DataFrame:
    """The lives that another, itself without an end or cleanly left, had in a view but not in its
    last one, unless they did the same to it."""
    gave_up = known.where("NOT final").select(
        *HISTORY, F.col("life").alias("other"), F.col("member").alias("life")
    )
    returned = gave_up.select(*HISTORY, F.col("life").alias("other"), F.col("other").alias("life"))
    others = plain.where(F.col("end").isin(ALIVE, DEPARTED))
    others = others.select(*HISTORY, F.col("life").alias("other"))
    one_sided = gave_up.join(returned, [*HISTORY, "other", "life"], "left_anti")
    judged = one_sided.join(others, [*HISTORY, "other"], "left_semi")
    return judged.select(*HISTORY, "life").distinct().withColumn("given_up", F.lit(True))


def bases_of(lived: DataFrame, known: DataFrame) -> DataFrame:
    """`life, source, base`: a life owes the source's messages above its base. The cut of its first
    view says the base; of the other lives it has in some view it is 0."""
    entries = lived.where(F.col("first_detail").rlike(rf"\A{CUT}(?: {CUT})*\z")).select(
        *HISTORY, "life", F.posexplode(F.split("first_detail", " ")).alias("place", "entry")
    )
    cut = entries.groupBy(*HISTORY, "life", _cut_life(F.col("entry")).alias("source")).agg(
        # A life that is named twice: the last entry counts, as in a dictionary.
        F.max_by(F.substring_index("entry", ":", -1).cast("bigint"), "place").alias("cut")
    )
    seen = known.select(*HISTORY, "life", F.col("member").alias("source"))
    rows = cut.join(seen.withColumn("seen", F.lit(0)), [*HISTORY, "life", "source"], "full")
    return rows.select(
        *HISTORY, "life", "source", F.coalesce("cut", "seen").cast("bigint").alias("base")
    )


def _cut_life(entry: Column) -> Column:
    name = F.regexp_extract(entry, r"(?s)\A(.*):[0-9]{1,18}\z", 1)
    for code, character in (("%20", " "), ("%25", "%")):
        name = F.replace(name, F.lit(code), F.lit(character))
    return name
