"""A live group as a stream: `spark.readStream.format("unisono").option("feed", "HOST:PORT")`.

An offset is a position in the group's total order, so a query that restarts neither loses nor
repeats messages.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from unisono.feed.epochs import Counting
from unisono.feed.rows import SCHEMA
from unisono.spark.source.feed import DataLoss, FeedBounds, FeedSource, OffsetRange, check_schema
from unisono.spark.source.filters import column_of, is_supported
from unisono.spark.source.offsets import PLACE, Offset, Resumed, offset_at, resumed
from unisono.spark.source.options import FeedOptions, feed_options

POLL_S: Final = 0.5


class FeedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a feed, or a log that grows."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        given = feed_options(options, streaming=True)
        check_schema(schema, given)
        self.__setstate__({"options": given})

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get the options, not the open connection.
        return {"options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.options: FeedOptions = state["options"]
        self._source = FeedSource(self.options)
        self._target: int | None = None
        """Where a query that reads what is available now ends."""
        self._latest: Offset | None = None
        self._triggered_s: float | None = None
        """When the last batch was planned; None before the first, which does not wait."""

    def initialOffset(self) -> Offset:
        place = self._source.start()
        return offset_at(place, self._known().counting)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        known, (after, _) = self._resume(start)
        after = self._source.earliest(after, known)
        self._source.check_retained(after, known)
        self._latest = offset_at(known.end, known.counting)
        end = known.end if self._target is None else min(known.end, self._target)
        if self._target is None and self._too_few(end - max(after, known.first - 1)):
            return start
        if isinstance(limit, ReadMaxRows):
            # What retention dropped does not count: it could take many triggers to get past it.
            end = min(end, max(after, known.first - 1) + limit.max_rows)
        return offset_at(end, known.counting) if end > after else start

    def _too_few(self, count: int) -> bool:
        """Whether to wait for more offsets than these, as `minOffsetsPerTrigger` asks."""
        now = time.monotonic()
        waited = now - self._triggered_s if self._triggered_s is not None else math.inf
        if count < self.options.min_offsets and waited < self.options.delay_s:
            return True
        self._triggered_s = now
        return False

    def _resume(self, offset: Offset, planned: bool = False) -> tuple[FeedBounds, Resumed]:
        """The bounds, and where the offset is within them. A feed that ends before the offset may
        be catching up; after the timeout it is another log."""
        place = int(offset[PLACE])
        # The tasks of a planned batch wait for what is not there yet.
        must_reach = self.options.fail_on_loss and not planned
        deadline = time.monotonic() + self.options.timeout_s
        while True:
            known = self._source.bounds()
            at = resumed(offset, known.counting, known.first)
            is_late = time.monotonic() >= deadline or not self.options.feed
            if known.end < place and not is_late and (at.lost or must_reach):
                time.sleep(POLL_S)
                continue
            if self.options.fail_on_loss and at.lost:
                raise DataLoss(at.lost)
            if must_reach and known.end < place:
                raise DataLoss(
                    f"the query has read up to offset {place}, and the log ends at {known.end}: it"
                    " is not the log that was read before, or its end was lost"
                )
            return known, at

    def _known(self) -> FeedBounds:
        return self._source.known or self._source.bounds()

    def reportLatestOffset(self) -> Offset | None:
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._source.bounds().end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if self._source.known is None:
            # A batch that was planned before the query restarted.
            self._resume(end, planned=True)
            known, at = self._resume(start, planned=True)
            self._source.check_retained(self._source.earliest(at.after, known), known)
        known = self._known()
        after, lost = resumed(start, known.counting, known.first)
        after = self._source.earliest(after, known)
        upto = resumed(end, known.counting, known.first)
        if upto.lost:
            # Planned for another log: nothing of it can be read, and the next batch continues.
            return self._source.partitions(after, after, upto.lost)
        return self._source.partitions(after, upto.after, lost)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        return FeedSource(self.options, partition.counting, start=partition.index).rows(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: the log keeps rows for other readers until retention drops them."""

    def stop(self) -> None:
        self._source.close()


class FeedReader(DataSourceReader):
    """A range of a feed or a log, in one batch. Filters on offsets narrow the range; the others are
    applied where the rows are read."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = feed_options(options, streaming=False)
        check_schema(schema, self.options)
        self.filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            if is_supported(each, SCHEMA):
                self.filters.append(each)
            else:
                yield each

    def partitions(self) -> list[OffsetRange]:
        source = FeedSource(self.options)
        try:
            after, upto = source.start(), source.end()
            source.check_retained(after, source.bounds())
            after, upto = narrowed(after, upto, self.filters)
            # Spark needs at least one partition.
            return source.partitions(after, upto) or [OffsetRange(after, after, Counting())]
        finally:
            source.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        return FeedSource(self.options, partition.counting, self.filters, partition.index).rows(
            partition
        )


def narrowed(after: int, upto: int, filters: Sequence[Filter]) -> tuple[int, int]:
    """The part of the range in which a row can pass the filters."""
    for each in filters:
        if column_of(each) != PLACE:
            continue
        if isinstance(each, GreaterThan):
            after = max(after, each.value)
        elif isinstance(each, GreaterThanOrEqual):
            after = max(after, each.value - 1)
        elif isinstance(each, LessThan):
            upto = min(upto, each.value - 1)
        elif isinstance(each, LessThanOrEqual):
            upto = min(upto, each.value)
        elif isinstance(each, EqualTo):
            after, upto = max(after, each.value - 1), min(upto, each.value)
    return after, upto


def behind_latest(progress: Any) -> int | None:
    """The lag of a query at its last trigger, in offsets, from `query.lastProgress`; None when that
    does not have it."""
    if progress is None:
        return None
    report = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    lags = []
    for source in report.get("sources", ()):
        latest, end = (_place(source.get(name)) for name in ("latestOffset", "endOffset"))
        if latest is not None and end is not None:
            lags.append(max(0, latest - end))
    return sum(lags) if lags else None


def _place(offset: Any) -> int | None:
    try:
        return int((json.loads(offset) if isinstance(offset, str) else offset)[PLACE])
    except (ValueError, TypeError, KeyError):
        return None
