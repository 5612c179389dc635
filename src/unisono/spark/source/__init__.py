"""The data source `unisono`: what Spark reads of groups and writes into them.

Registered by `unisono.spark.register`. The class is pickled by reference, so tasks must be able to
import this package.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from unisono.spark.source.batch import TraceReader, trace_schema


class UnisonoSource(DataSource):
    """`spark.read.format("unisono")` and its sisters; see docs/SPARK.md."""

    @classmethod
    def name(cls) -> str:
        return "unisono"

    def schema(self) -> str:
        return trace_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TraceReader(self.options, schema)
