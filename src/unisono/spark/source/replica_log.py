"""A replicated log as rows: `spark.read.format("unisono").load("orders-a")`, the directory of any
replica, in use or not. A place is a position of the green order, the same at all replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from unisono.errors import Misuse
from unisono.services.replica_file import placed_updates
from unisono.spark.source.feed import DataLoss
from unisono.spark.source.offsets import PLACE
from unisono.spark.source.options import (
    EARLIEST,
    LATEST,
    boolean_option,
    check_names,
    directory_of,
    integer_option,
    offset_option,
)

COLUMNS: Final = pa.schema(
    [
        (PLACE, pa.int64()),
        ("submitter", pa.string()),
        ("number", pa.int64()),
        ("kind", pa.string()),
        ("payload", pa.binary()),
    ]
)
OPTIONS: Final = (
    "path", "startingOffsets", "endingOffsets", "maxOffsetsPerTrigger", "failOnDataLoss",
)  # fmt: skip
BATCH_ROWS: Final = 10_000
Offset = dict[str, int]


def log_schema() -> StructType:
    return from_arrow_schema(COLUMNS)


@dataclass
class Places(InputPartition):
    """The rows with `after` < place <= `upto`."""

    after: int
    upto: int


class ReplicaOffsets(NamedTuple):
    """The places that a log has."""

    first: int
    end: int


class ReplicaLog:
    """The log that the options name, and what is wanted of it."""

    def __init__(self, options: Mapping[str, str], streaming: bool) -> None:
        check_names(options, OPTIONS, "a replicated log is read with")
        for name, is_for in (("endingOffsets", not streaming), ("maxOffsetsPerTrigger", streaming)):
            if name in options and not is_for:
                raise Misuse(f"{name} is for {'batches' if streaming else 'streams'}: leave it out")
        self.directory = directory_of(options["path"], "log")
        self._starting = offset_option(
            options, "startingOffsets", LATEST if streaming else EARLIEST
        )
        self._ending = offset_option(options, "endingOffsets", LATEST)
        self._fails = boolean_option("failOnDataLoss", options.get("failOnDataLoss", "true"))
        most = options.get("maxOffsetsPerTrigger")
        self.most = None if most is None else integer_option("maxOffsetsPerTrigger", most, 1 << 62)

    def bounds(self) -> ReplicaOffsets:
        first, end = 1, 0
        for place, _ in placed_updates(self.directory):
            first, end = first if place == end + 1 else place, place
        return ReplicaOffsets(first, end)

    def start(self) -> int:
        """The place before the first that is wanted."""
        known = self.bounds()
        if self._starting == LATEST:
            return known.end
        if self._starting == EARLIEST:
            return known.first - 1
        return int(self._starting) - 1

    def end(self) -> int:
        end = self.bounds().end
        if self._ending in (LATEST, EARLIEST):
            return end
        if int(self._ending) > end:
            raise Misuse(f"endingOffsets={self._ending}: the log ends at place {end}")
        return int(self._ending)

    def batches(self, places: Places) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[object, ...]] = []
        after = places.after
        for place, update in placed_updates(self.directory):
            if place <= after:
                continue
            if place > places.upto:
                break
            self._check(after, place)
            after = place
            kind = update.kind.name.lower()
            rows.append((place, update.submitter, update.number, kind, update.content))
            if len(rows) == BATCH_ROWS:
                yield _batch(rows)
                rows = []
        if after < places.upto:
            self._check(after, places.upto + 1)
        if rows:
            yield _batch(rows)

    def _check(self, after: int, place: int) -> None:
        if place > after + 1 and self._fails:
            raise DataLoss(
                f"{self.directory}: places {after + 1} to {place - 1} are not in this log, which"
                " has a checkpoint in their stead, or has lost them"
            )


def _batch(rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(each, kind) for each, kind in zip(columns, COLUMNS.types, strict=True)]
    return pa.record_batch(arrays, schema=COLUMNS)


class ReplicaLogReader(DataSourceReader):
    """A range of a log, in one batch."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._log = ReplicaLog(options, streaming=False)

    def partitions(self) -> list[Places]:
        return [Places(self._log.start(), self._log.end())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Places)
        return self._log.batches(partition)


class ReplicaLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a log that grows, from any place."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._log = ReplicaLog(options, streaming=True)
        self._target: int | None = None
        """Where a query that reads what is available now ends."""

    def initialOffset(self) -> Offset:
        return {PLACE: self._log.start()}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._log.most
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        end = self._log.bounds().end
        if end < start[PLACE]:
            raise DataLoss(
                f"{self._log.directory} ends at place {end}, and the query has read up to"
                f" {start[PLACE]}: it is another log"
            )
        if self._target is not None:
            end = min(end, self._target)
        if isinstance(limit, ReadMaxRows):
            end = min(end, start[PLACE] + limit.max_rows)
        return {PLACE: end}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._log.bounds().end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [Places(start[PLACE], end[PLACE])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Places)
        return self._log.batches(partition)

    def commit(self, end: Offset) -> None:
        """Nothing to do: the log is the replica's."""

    def stop(self) -> None:
        """Nothing is open between batches."""
