"""DataFrames into a group: each row is multicast once, whatever task or query restarts.

A row is identified by its query, epoch, partition and number within the partition; every member
drops, at the same point of the total order, one that was ordered before. So a partition that is
computed again must have the same rows in the same order. Spark guarantees the rows, and the order
only without a shuffle: rows are sorted here, unless the caller knows that they arrive in a fixed
order (`rowOrder=arrival`).
"""

from __future__ import annotations

import inspect
import os
import socket
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from unisono.errors import Misuse, UnisonoError
from unisono.feed.client import FeedClient
from unisono.feed.protocol import addresses
from unisono.spark.source.external_sort import ExternalSort, batched
from unisono.spark.source.options import check_names, timeout_s
from unisono.spark.source.payloads import Payloads

OPTIONS: Final = ("feed", "feedTimeout", "feedToken", "feedCa", "orderBy", "rowOrder")
BATCH_OPTIONS: Final = (*OPTIONS, "txnAppId", "txnVersion")
SPARK_OPTIONS: Final = frozenset(("checkpointlocation", "queryname"))
SORTED, ARRIVAL = "sorted", "arrival"
WRITE_ROWS: Final = 8192
"""Rows per request to the feed, which logs them before it accepts more."""

WORKERS: Final = ("pyspark.worker", "pyspark.daemon", "__main__")
"""Modules of Spark's workers; the last is one that was started by itself."""
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


class IncompletePartition(UnisonoError):
    """Spark did not deliver all rows: the task failed before the sink, or its executor is gone."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    feed: str
    timeout_s: float
    order: str
    payloads: Payloads
    token: str | None = None
    """Files, on each machine that runs tasks."""
    ca: str | None = None


def sink_options(
    options: Mapping[str, str], schema: StructType, names: Sequence[str] = OPTIONS
) -> SinkOptions:
    """`Misuse` names the wrong option and its values."""
    given = [name for name in sorted(options) if name.lower() not in SPARK_OPTIONS]
    if "path" in map(str.lower, given):
        raise Misuse('a group has no path: name its feed, .option("feed", "HOST:PORT"), and save()')
    check_names(given, names, "a group is written with")
    feed = options.get("feed", "")
    if not feed:
        raise Misuse('no feed: give .option("feed", "HOST:PORT"), where unisono feed listens')
    addresses(feed)
    order = options.get("rowOrder", SORTED).lower()
    if order not in (SORTED, ARRIVAL):
        raise Misuse(f"rowOrder={order!r}: there are {SORTED} and {ARRIVAL}")
    columns = options.get("orderBy")
    if columns is not None and order == ARRIVAL:
        raise Misuse("orderBy needs rowOrder=sorted: rows in order of arrival are not sorted")
    order_by = [name.strip() for name in columns.split(",")] if columns is not None else []
    files = options.get("feedToken"), options.get("feedCa")
    return SinkOptions(feed, timeout_s(options), order, Payloads(schema, order_by), *files)


def transaction(options: Mapping[str, str]) -> tuple[str, int]:
    """The name and epoch that identify a batch job when it is repeated. Without them the job gets a
    new name."""
    name, version = options.get("txnAppId"), options.get("txnVersion")
    if name is None and version is None:
        return f"job-{uuid.uuid4()}", 0
    if not name or version is None:
        raise Misuse("txnAppId and txnVersion go together: the writer's name, and its count")
    if not version.strip().isdigit() or int(version) >= 1 << 62:
        raise Misuse(f"txnVersion={version!r}: give an integer that rises with each write")
    return name, int(version)


@dataclass
class PartitionWritten(WriterCommitMessage):
    """A partition is ordered and logged."""

    rows: int
    place: int
    """An offset of the feed's log, not before the last row; 0 without rows."""


class StreamSink(DataSourceStreamArrowWriter):
    """`df.writeStream.format("unisono")`: an epoch is a micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartitionWritten:
        context = _context()
        query, epoch = (context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
        if not query or epoch is None:
            raise UnisonoError("Spark did not pass the ids of the query and its batch")
        return write(self._options, query, context.partitionId(), int(epoch), iterator)


class BatchSink(DataSourceArrowWriter):
    """`df.write.format("unisono")`: the job is one epoch of a query that the driver names."""

    def __init__(self, options: SinkOptions, name: str, epoch: int) -> None:
        self._options = options
        self._name, self._epoch = name, epoch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartitionWritten:
        return write(self._options, self._name, _context().partitionId(), self._epoch, iterator)


def stream_sink(options: Mapping[str, str], schema: StructType) -> StreamSink:
    return StreamSink(sink_options(options, schema))


def batch_sink(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    if overwrite:
        raise Misuse('messages cannot be overwritten: write with mode("append")')
    return BatchSink(sink_options(options, schema, BATCH_OPTIONS), *transaction(options))


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context


def write(
    options: SinkOptions, query: str, partition: int, epoch: int, batches: Iterator[pa.RecordBatch]
) -> PartitionWritten:
    """Multicast a partition; returns when the feed has ordered and logged all of it."""
    row = place = 0
    with FeedClient(options.feed, options.timeout_s, token=options.token, ca=options.ca) as feed:
        for payloads in _in_order(options, batches):
            place = feed.write(query, partition, epoch, row, payloads)
            row += len(payloads)
    return PartitionWritten(row, place)


def _in_order(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[list[bytes]]:
    row = 0
    if options.order == ARRIVAL:
        for batch in batches:
            yield from batched(iter(options.payloads.of(batch, row)), WRITE_ROWS)
            row += batch.num_rows
        return
    with ExternalSort() as rows:
        for batch in batches:
            rows.add(options.payloads.entries(batch, row))
            row += batch.num_rows
        check_complete()
        yield from batched(iter(rows), WRITE_ROWS)


def check_complete() -> None:
    """`IncompletePartition` when Spark hung up. If a task fails before the sink or its executor
    dies, the rows end as if they were complete; sorted, some would have other numbers. The socket
    to the executor is then at its end, which never happens with a complete partition."""
    descriptor = executor_socket()
    if descriptor is not None and _is_at_end(descriptor):
        raise IncompletePartition("Spark hung up before all rows had arrived; nothing was sent")


def executor_socket() -> int | None:
    """The connection over which the executor sends this task its rows: `infile` of the calling
    Spark worker. None without one."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "") in WORKERS and "infile" in frame.f_code.co_varnames:
            descriptor = _descriptor(frame.f_locals.get("infile"))
            if descriptor is not None:
                return descriptor
        frame = frame.f_back
    return None


def _descriptor(infile: Any) -> int | None:
    try:
        descriptor = int(infile.fileno())
        return descriptor if stat.S_ISSOCK(os.fstat(descriptor).st_mode) else None
    except (AttributeError, OSError, ValueError):
        return None


def _is_at_end(descriptor: int) -> bool:
    """Whether the other side has closed this connection, and nothing is left to be read."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:  # nothing to read yet
        return False
    except OSError:  # broken, as by an executor that was killed
        return True
