"""A live group as a stream: `spark.readStream.format("unisono").option("feed", "HOST:PORT")`.

An offset is a place in the group's order, so a query that restarts neither loses nor repeats.
"""

from __future__ import annotations

import json
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
from unisono.spark.source.asking import FeedOptions, feed_options
from unisono.spark.source.filters import column_of, is_ours
from unisono.spark.source.offsets import PLACE, Offset, Resumed, offset_at, resumed
from unisono.spark.source.origin import DataLoss, OffsetRange, Origin, Seen, check_schema

LOOK_S: Final = 0.5


class FeedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a feed, or a log that grows. What an offset says is in `offsets`."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options: FeedOptions = feed_options(options, streaming=True)
        check_schema(schema, self.options)
        self._origin = Origin(self.options)
        self._target: int | None = None
        """Where a query that reads what is available now is to end."""
        self._latest: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get the options; what is open here stays here.
        return {"options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.options = state["options"]
        self._origin = Origin(self.options)
        self._target = self._latest = None

    def initialOffset(self) -> Offset:
        place = self._origin.start()
        return offset_at(place, self._now().counting)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_places
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        known, (after, _) = self._found(start)
        after = self._origin.earliest(after, known)
        self._origin.check(after, known)
        self._latest = offset_at(known.end, known.counting)
        end = known.end if self._target is None else min(known.end, self._target)
        if isinstance(limit, ReadMaxRows):
            # What retention took away does not count, or it could take many triggers to get past.
            end = min(end, max(after, known.first - 1) + limit.max_rows)
        return offset_at(end, known.counting) if end > after else start

    def _found(self, offset: Offset, planned: bool = False) -> tuple[Seen, Resumed]:
        """What is there, and where the offset is in it. A feed that has not come so far as we have
        may be one that catches up; one that never does has another log than the one we read."""
        place = int(offset[PLACE])
        # Of what was planned before, tasks wait for what is not there yet.
        must_reach = self.options.fail and not planned
        deadline = time.monotonic() + self.options.patience_s
        while True:
            known = self._origin.bounds()
            at = resumed(offset, known.counting, known.first)
            is_late = time.monotonic() >= deadline or not self.options.feed
            if known.end < place and not is_late and (at.lost or must_reach):
                time.sleep(LOOK_S)
                continue
            if self.options.fail and at.lost:
                raise DataLoss(at.lost)
            if must_reach and known.end < place:
                raise DataLoss(
                    f"the query has read up to place {place}, and the log ends at {known.end}: it"
                    " is not the log that was read before, or its end was lost"
                )
            return known, at

    def _now(self) -> Seen:
        return self._origin.seen or self._origin.bounds()

    def reportLatestOffset(self) -> Offset | None:
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._origin.bounds().end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if self._origin.seen is None:
            # A batch that was planned before the query was started again.
            self._found(end, planned=True)
            known, at = self._found(start, planned=True)
            self._origin.check(self._origin.earliest(at.after, known), known)
        known = self._now()
        after, lost = resumed(start, known.counting, known.first)
        after = self._origin.earliest(after, known)
        upto = resumed(end, known.counting, known.first)
        if upto.lost:
            # Planned of another log: there is nothing of it to be read, and the next batch goes on.
            return self._origin.partitions(after, after, upto.lost)
        return self._origin.partitions(after, upto.after, lost)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        return Origin(self.options, partition.counting).rows(partition)

    def commit(self, end: dict[str, int]) -> None:
        """What is read stays in the log for others, as long as its retention lets it."""

    def stop(self) -> None:
        self._origin.close()


class FeedReader(DataSourceReader):
    """A range of a feed or a log, in one batch. What the query asks of the rows is answered where
    they are read, and of places, before they are."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = feed_options(options, streaming=False)
        check_schema(schema, self.options)
        self.filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            if is_ours(each, SCHEMA):
                self.filters.append(each)
            else:
                yield each

    def partitions(self) -> list[OffsetRange]:
        origin = Origin(self.options)
        try:
            after, upto = origin.start(), origin.end()
            origin.check(after, origin.bounds())
            after, upto = narrowed(after, upto, self.filters)
            # Where there is nothing, one task says so.
            return origin.partitions(after, upto) or [OffsetRange(after, after, Counting())]
        finally:
            origin.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        return Origin(self.options, partition.counting, self.filters).rows(partition)


def narrowed(after: int, upto: int, filters: Sequence[Filter]) -> tuple[int, int]:
    """The part of the range in which the filters can keep a row."""
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
    """How many places a query was behind its feed at its last trigger, from `query.lastProgress`;
    nothing when that does not say."""
    if progress is None:
        return None
    told = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    found = None
    for source in told.get("sources", ()):
        ends = [_place(source.get(name)) for name in ("latestOffset", "endOffset")]
        if None not in ends:
            found = (found or 0) + max(0, ends[0] - ends[1])  # type: ignore[operator]
    return found


def _place(offset: Any) -> int | None:
    try:
        told = json.loads(offset) if isinstance(offset, str) else offset
        return int(told[PLACE])
    except (ValueError, TypeError, KeyError):
        return None
