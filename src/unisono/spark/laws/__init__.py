"""The laws as DataFrames: for all runs at once, the same violations as `unisono.laws` finds.

Nothing here loops over runs or brings data to the driver. `violations_of` makes one DataFrame of
all laws, with no more of each in it than will be told; `verdicts_of` follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from unisono.errors import Misuse
from unisono.laws import LAWS, VIOLATIONS_MAX
from unisono.spark.laws import delivery, order, views
from unisono.spark.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SparkLaw: TypeAlias = Callable[[Tables], DataFrame]

SPARK_LAWS: Final[dict[str, SparkLaw]] = {
    law.__name__: law
    for law in (
        delivery.no_creation,
        delivery.no_duplication,
        order.fifo,
        order.causal,
        order.total_order,
        order.prefix,
        delivery.agreement,
        delivery.validity,
        views.virtual_synchrony,
        views.view_order,
        views.self_inclusion,
        delivery.safe,
        delivery.progress,
    )
}

Claims: TypeAlias = Mapping[str, Sequence[str]]
"""By protocol, the laws that it claims. A protocol that is not named claims none."""


def claims_of(session: SparkSession, claimed: Claims) -> DataFrame:
    """`protocol, law`, one row a claim."""
    rows = sorted({(protocol, law) for protocol, laws in claimed.items() for law in laws})
    unknown = sorted({law for _, law in rows} - LAWS.keys())
    if unknown:
        raise Misuse(f"no law {', '.join(unknown)}; there are {', '.join(LAWS)}")
    return session.createDataFrame(rows, "protocol string, law string")


def violations_of(tables: Tables, claims: DataFrame, wanted: Sequence[str]) -> DataFrame:
    """`run, law, life, message, other, detail` of the claimed laws among those wanted; of each run
    and law the first few in their order, as many as `unisono.laws` tells."""
    found = reduce(DataFrame.union, (SPARK_LAWS[law](tables) for law in wanted))
    broken = found.join(F.broadcast(claims), ["protocol", "law"], "left_semi")
    in_order = Window.partitionBy("run", "law").orderBy("life", "message", "other", "detail")
    return (
        broken.withColumn("rank", F.row_number().over(in_order))
        .where(F.col("rank") <= VIOLATIONS_MAX)
        .select("run", "law", "life", "message", "other", "detail")
    )


def verdicts_of(tables: Tables, claims: DataFrame, violations: DataFrame) -> DataFrame:
    """`run, law, verdict`: `kept`, `broken` or `not claimed`, for every run and every law."""
    runs = tables.lives.select("run", "protocol").distinct()
    claiming = runs.join(F.broadcast(claims), "protocol").select("run", "law").distinct()
    broken = violations.groupBy("run", "law").agg(F.count("*").alias("violations"))
    laws = F.explode(F.array(*(F.lit(law) for law in LAWS))).alias("law")
    every = runs.select("run").distinct().select("run", laws)
    verdict = (
        F.when(F.col("violations").isNotNull(), "broken")
        .when(F.col("claimed"), "kept")
        .otherwise("not claimed")
    )
    return (
        every.join(claiming.withColumn("claimed", F.lit(True)), ["run", "law"], "left")
        .join(broken, ["run", "law"], "left")
        .select("run", "law", verdict.alias("verdict"))
    )
