"""The data source `unisono`: what Spark reads of groups and writes into them.

Registered by `unisono.spark.register`. The class is pickled by reference, so tasks must be able to
import this package.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from unisono.errors import Misuse
from unisono.spark.source.asking import feed_options, is_feed
from unisono.spark.source.batch import TraceReader, trace_schema
from unisono.spark.source.origin import feed_schema
from unisono.spark.source.sink import batch_sink, stream_sink
from unisono.spark.source.stream import FeedReader, FeedStreamReader


class UnisonoSource(DataSource):
    """`spark.read.format("unisono")` and its sisters; see docs/SPARK.md."""

    @classmethod
    def name(cls) -> str:
        return "unisono"

    def schema(self) -> str:
        if is_feed(self.options):
            return feed_schema(feed_options(self.options))
        return trace_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        if is_feed(self.options):
            return FeedReader(self.options, schema)
        return TraceReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if not is_feed(self.options):
            raise Misuse("a stream is read from a feed or a log's directory, a trace in a batch")
        return FeedStreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        # With complete results each epoch says all of them: what was said stays said.
        return stream_sink(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return batch_sink(self.options, schema, overwrite)
