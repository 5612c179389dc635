"""Measures of a run: throughput, latency and protocol work.

Latency is from the message's first send to its delivery, by the clocks of the trace: exact in
simulation and on one machine. A quantile is the smallest latency that at least this part of the
deliveries does not exceed. Rates are per member: deliveries divided by the time from an
incarnation's first message to its last, both summed over incarnations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from unisono.protocols import specs
from unisono.spark.tables import HISTORY, Silver

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

QUANTILES: Final = {
    "p50_us": 0.5,
    "p90_us": 0.9,
    "p99_us": 0.99,
    "p999_us": 0.999,
    "max_us": 1.0,
}
CURVE: Final = (*(step / 50 for step in range(50)), 0.99, 0.995, 0.999, 1.0)
"""The quantiles at which a latency curve is drawn."""
WORK: Final = (
    "packets_out",
    "octets_out",
    "retransmissions",
    "naks",
    "drops",
    "token_rotation_p50_us",
    "token_rotation_max_us",
)
"""Measures of protocol work: null if not traced."""

_WHOLE: Final = ["run", "protocol"]
_NODE: Final = ["run", "protocol", "node"]


def _node(keys: list[str]) -> Column:
    return F.col("node") if "node" in keys else F.lit(None).cast("string").alias("node")


def quantile(part: float, column: str) -> Column:
    disc = F.expr(f"percentile_disc({part}) WITHIN GROUP (ORDER BY {column})")
    return disc.cast("bigint")


# -- protocol work ---------------------------------------------------------------------------------


def with_work(measures: DataFrame, tables: Silver) -> DataFrame:
    """Adds the measures of protocol work: null for a run and protocol without such rows."""
    work = tables.union(_work_by(tables, _WHOLE), _work_by(tables, _NODE))
    traced = work.where("node IS NULL").select(*_WHOLE, F.lit(True).alias("traced"))
    work = work.withColumnRenamed("node", "at")
    same = [measures[name] == work[name] for name in _WHOLE]
    same.append(measures["node"].eqNullSafe(work["at"]))
    joined = measures.join(work.drop("traced"), same, "left").select(
        *(measures[name] for name in measures.columns), *WORK
    )
    counted = [
        F.coalesce(name, F.when(F.col("traced"), F.lit(0).cast("bigint"))).alias(name)
        for name in WORK[:5]
    ]
    return joined.join(traced, _WHOLE, "left").select(*measures.columns, *counted, *WORK[5:])


def _work_by(tables: Silver, keys: list[str]) -> DataFrame:
    def total(kind: str, column: str) -> Column:
        of_kind = F.when(F.col("kind") == kind, F.col(column)).otherwise(0)
        return F.sum(of_kind.cast("bigint"))

    counts = tables.packets.groupBy(*keys).agg(
        F.count(F.when(F.col("kind") == "packet_out", 1)).alias("packets_out"),
        total("packet_out", "size").alias("octets_out"),
        total("repair", "number").alias("retransmissions"),
        total("nak", "number").alias("naks"),
        total("drop", "number").alias("drops"),
    )
    turns = _turns(tables.packets).groupBy(*keys)
    rotation = turns.agg(
        quantile(0.5, "apart_us").alias("token_rotation_p50_us"),
        F.max("apart_us").alias("token_rotation_max_us"),
    )
    return counts.join(rotation, keys, "left").select(*_WHOLE, _node(keys), *WORK)


def _turns(packets: DataFrame) -> DataFrame:
    """`apart_us`: the time between an incarnation's successive possessions of the token."""
    held = F.lit(False)
    for name, spec in specs().items():
        if spec.token_arrow:
            held = held | ((F.col("protocol") == name) & F.col("detail").rlike(spec.token_arrow))
    mine = Window.partitionBy(*HISTORY, "life").orderBy("step")
    apart = F.col("t_us") - F.lag("t_us").over(mine)
    turns = packets.where((F.col("kind") == "arrow") & held).withColumn("apart_us", apart)
    return turns.where("apart_us IS NOT NULL")
