"""Spark: the pipeline over traces, and groups as a data source and sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the format `unisono` for this session, also for one of Spark Connect. Without
    Connect, writes need the same thread: Spark looks up their format in the thread's active
    session."""
    from unisono.spark.source import UnisonoSource

    # Without this Spark refuses a Python source with filter pushdown.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(UnisonoSource)
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is not None:
        java: Any = spark.sparkContext._jvm
        java.SparkSession.setActiveSession(session)
