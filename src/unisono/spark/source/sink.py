"""DataFrames into a group: each row is said once, whatever task or query is started again.

A row is known by its query, the query's epoch, its partition and its number in the partition; every
member drops, at the same place in the order, one that was ordered before. For that a partition that
is computed again must have the same rows in the same order. Spark promises the first, and the
second only where nothing was shuffled: so rows are put in order here, unless the caller knows that
they come in order (`rowOrder=arrival`).
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
from unisono.spark.source.asking import feed_options
from unisono.spark.source.payloads import Payloads
from unisono.spark.source.sorting import Sorting, cut

OPTIONS: Final = ("feed", "feedTimeout", "orderBy", "rowOrder")
BATCH_OPTIONS: Final = (*OPTIONS, "txnAppId", "txnVersion")
SPARKS_OWN: Final = frozenset(("checkpointlocation", "queryname"))
SORTED, ARRIVAL = "sorted", "arrival"
SAY_ROWS: Final = 8192
"""Rows that are handed to the feed at once; it has logged them before it gets more."""

WORKERS: Final = ("pyspark.worker", "pyspark.daemon", "__main__")
"""Where Spark's workers are; the last is one that was started by itself."""
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


class CutShort(UnisonoError):
    """What Spark gave was not all: the task failed before, or its executor is gone."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What the options ask for, read once."""

    feed: str
    timeout_s: float
    order: str
    payloads: Payloads


def saying(
    options: Mapping[str, str], schema: StructType, names: Sequence[str] = OPTIONS
) -> SinkOptions:
    """`Misuse` says which option is wrong, and what it may be."""
    unknown = sorted(set(map(str.lower, options)) - set(map(str.lower, names)) - SPARKS_OWN)
    if "path" in unknown:
        raise Misuse('a group has no path: name its feed, .option("feed", "HOST:PORT"), and save()')
    if unknown:
        raise Misuse(f"unknown option {unknown[0]!r}: a group is written with {', '.join(names)}")
    feed = options.get("feed", "")
    if not feed:
        raise Misuse('which feed? .option("feed", "HOST:PORT"), where unisono feed listens')
    order = options.get("rowOrder", SORTED).lower()
    if order not in (SORTED, ARRIVAL):
        raise Misuse(f"rowOrder={order!r}: there are {SORTED} and {ARRIVAL}")
    given = options.get("orderBy")
    if given is not None and order == ARRIVAL:
        raise Misuse("orderBy needs rowOrder=sorted: rows that stay as they arrive are not sorted")
    order_by = [name.strip() for name in given.split(",")] if given is not None else []
    return SinkOptions(feed, _timeout_s(options), order, Payloads(schema, order_by))


def transaction(options: Mapping[str, str]) -> tuple[str, int]:
    """The name and epoch of a batch job, by which it is known when it is done again. Drawn anew,
    and so for no other job, when the caller gives none."""
    name, version = options.get("txnAppId"), options.get("txnVersion")
    if name is None and version is None:
        return f"job-{uuid.uuid4()}", 0
    if not name or version is None:
        raise Misuse("txnAppId and txnVersion go together: the writer's name, and its count")
    if not version.strip().isdigit() or int(version) >= 1 << 62:
        raise Misuse(f"txnVersion={version!r}: write a whole number that rises with each write")
    return name, int(version)


def _timeout_s(options: Mapping[str, str]) -> float:
    """As those who read a feed give it; the feed's address is looked at as well."""
    same = {name: options[name] for name in ("feed", "feedTimeout") if name in options}
    return feed_options(same).patience_s


@dataclass
class PartitionWritten(WriterCommitMessage):
    """A partition is ordered and logged."""

    rows: int
    place: int
    """In the feed's log, not before that of the last row; 0 when there was none."""


class StreamSink(DataSourceStreamArrowWriter):
    """`df.writeStream.format("unisono")`: an epoch is a micro-batch."""

    def __init__(self, asked: SinkOptions) -> None:
        self._asked = asked

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartitionWritten:
        context = _context()
        query, epoch = (context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
        if not query or epoch is None:
            raise UnisonoError("Spark did not say which query and batch this is")
        return say(self._asked, query, context.partitionId(), int(epoch), iterator)


class BatchSink(DataSourceArrowWriter):
    """`df.write.format("unisono")`: the job is one epoch of a query that is named in the driver."""

    def __init__(self, asked: SinkOptions, name: str, epoch: int) -> None:
        self._asked = asked
        self._name, self._epoch = name, epoch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartitionWritten:
        return say(self._asked, self._name, _context().partitionId(), self._epoch, iterator)


def stream_sink(options: Mapping[str, str], schema: StructType) -> StreamSink:
    return StreamSink(saying(options, schema))


def batch_sink(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    if overwrite:
        raise Misuse('what a group was told stays told: write with mode("append")')
    return BatchSink(saying(options, schema, BATCH_OPTIONS), *transaction(options))


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context


def say(
    asked: SinkOptions, query: str, partition: int, epoch: int, batches: Iterator[pa.RecordBatch]
) -> PartitionWritten:
    """Say a partition; returns when the feed has all of it ordered and logged."""
    row = place = 0
    with FeedClient(asked.feed, asked.timeout_s) as feed:
        for payloads in _in_order(asked, batches):
            place = feed.write(query, partition, epoch, row, payloads)
            row += len(payloads)
    return PartitionWritten(row, place)


def _in_order(asked: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[list[bytes]]:
    row = 0
    if asked.order == ARRIVAL:
        for batch in batches:
            yield from cut(iter(asked.payloads.of(batch, row)), SAY_ROWS)
            row += batch.num_rows
        return
    with Sorting() as rows:
        for batch in batches:
            rows.add(asked.payloads.entries(batch, row))
            row += batch.num_rows
        check_whole()
        yield from cut(iter(rows), SAY_ROWS)


def check_whole() -> None:
    """`CutShort` when Spark hung up. A task that fails before the sink, or whose executor dies,
    ends the rows as if these were all; put in order, part of them would pass for others. Then the
    socket to the executor has come to its end, which a whole partition never brings."""
    descriptor = executor_socket()
    if descriptor is not None and _is_at_end(descriptor):
        raise CutShort("Spark hung up before all rows were there; nothing was said")


def executor_socket() -> int | None:
    """The connection over which the executor gives this task its rows: what the worker of Spark
    that called us reads from, `infile`. Nothing where no worker did."""
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
        with socket.socket(fileno=os.dup(descriptor)) as talk:
            return talk.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:  # nothing to read yet
        return False
    except OSError:  # broken, as by an executor that was killed
        return True
