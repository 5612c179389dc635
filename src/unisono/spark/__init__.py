"""The pipeline on Spark: the laws, measurements, the report; and groups as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `unisono` a format that this session reads and writes, from this thread: Spark looks up
    the format of a write in the session that the thread has, and a new thread has none."""
    from unisono.spark.source import UnisonoSource

    # Without this Spark refuses a Python source that can filter.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(UnisonoSource)
    java: Any = spark.sparkContext._jvm
    java.SparkSession.setActiveSession(spark._jsparkSession)
