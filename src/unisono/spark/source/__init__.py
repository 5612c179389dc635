"""The data source `unisono`: reads traces, feeds and logs; writes DataFrames into a group.

Registered by `unisono.spark.register`. Spark pickles the class by reference, so tasks must be able
to import this package.
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
from unisono.spark.source.feed import feed_schema
from unisono.spark.source.options import feed_options, is_feed, is_replica_log
from unisono.spark.source.replica_log import ReplicaLogReader, ReplicaLogStreamReader, log_schema
from unisono.spark.source.sink import batch_sink, stream_sink
from unisono.spark.source.stream import FeedReader, FeedStreamReader
from unisono.spark.source.trace import TraceReader, trace_schema


class UnisonoSource(DataSource):
    """See docs/SPARK.md."""

    @classmethod
    def name(cls) -> str:
        return "unisono"

    def schema(self) -> StructType:
        if is_feed(self.options):
            return feed_schema(feed_options(self.options))
        if is_replica_log(self.options):
            return log_schema()
        return trace_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        if is_replica_log(self.options):
            return ReplicaLogReader(self.options)
        return (FeedReader if is_feed(self.options) else TraceReader)(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if is_replica_log(self.options):
            return ReplicaLogStreamReader(self.options)
        if not is_feed(self.options):
            raise Misuse("a stream is read from a feed or a log's directory, a trace in a batch")
        return FeedStreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        # In complete mode each epoch has all results; messages already sent cannot be replaced.
        return stream_sink(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return batch_sink(self.options, schema, overwrite)
