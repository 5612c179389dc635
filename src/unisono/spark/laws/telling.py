"""How a law on Spark tells its violations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from unisono.spark.tables import HISTORY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def message(source: str = "source", number: str = "number") -> Column:
    """The identity of a message, as people read it."""
    return F.concat(F.col(source), F.lit(":"), F.col(number))


def violations(
    rows: DataFrame,
    law: str,
    life: Column | str,
    said: Column,
    other: Column | str,
    detail: Column | str,
) -> DataFrame:
    """The rows as violations of one law: `run, protocol, group, law, life, message, other,
    detail`. The history stays in them: two groups of a run may say the same, and both count."""
    return rows.select(
        *HISTORY,
        F.lit(law).alias("law"),
        _column(life).alias("life"),
        said.alias("message"),
        _column(other).alias("other"),
        _column(detail).alias("detail"),
    )


def _column(value: Column | str) -> Column:
    return F.col(value) if isinstance(value, str) else value
