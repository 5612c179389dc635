"""A feed, or the directory of its log, as a source of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from unisono.errors import Misuse, UnisonoError
from unisono.feed import rows
from unisono.feed.client import FeedClient
from unisono.feed.epochs import Counting, meta_of
from unisono.log import BadLog, LogBatch, LogReader, Trimmed
from unisono.spark.source.filters import column_of, mask_of_all
from unisono.spark.source.options import COLUMNS, EARLIEST, LATEST, TIMESTAMP, FeedOptions, Moment

KEY: Final = "feed"
"""The key of the feed's metadata in its log."""
OFFSETS_PER_PARTITION: Final = 100_000
PARTITIONS_MAX: Final = 64
"""Unless `minPartitions` is larger."""


def feed_schema(options: FeedOptions) -> StructType:
    return from_arrow_schema(pa.schema([COLUMNS.field(name) for name in options.columns]))


def check_schema(schema: StructType, options: FeedOptions) -> None:
    if schema.simpleString() != feed_schema(options).simpleString():
        raise Misuse("the columns of a feed are fixed: leave out .schema() and select from them")


class DataLoss(UnisonoError):
    """Rows that a query should have read are gone."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. To continue without them, set failOnDataLoss to false: gap rows then report"
            " what is missing"
        )


class _Missing(Exception):
    """A log no longer has offsets that it had."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(
            f"offsets {first} to {last} were planned, and the log no longer has them: its end was"
            " lost, or it is another log"
        )
        self.first, self.last = first, last


@dataclass
class OffsetRange(InputPartition):
    """The rows with `after` < offset <= `upto`."""

    after: int
    upto: int
    counting: Counting
    """Of the feed that was queried: a feed that counts otherwise is refused."""
    lost: str = ""
    """The text of a gap row before these rows."""
    index: int = 0
    """Of the range among those of a batch: they are spread over the feeds."""


class FeedBounds(NamedTuple):
    """What a feed or a log had when it was last queried."""

    first: int
    end: int
    counting: Counting
    opening: int = 0
    """Up to here it begins with what was lost before there was a feed."""


class FeedSource:
    """Reads what the options name. Opened on first use."""

    def __init__(
        self,
        options: FeedOptions,
        counting: Counting | None = None,
        filters: Sequence[Filter] = (),
        start: int = 0,
    ) -> None:
        self._options = options
        self._start = start
        self._filters = list(filters)
        self._client: FeedClient | None = None
        self._log: LogReader | None = None
        self._counting = counting or Counting()
        self.known: FeedBounds | None = None

    def close(self) -> None:
        for opened in (self._client, self._log):
            if opened is not None:
                opened.close()
        self._client = self._log = None

    def _feed(self) -> FeedClient:
        if self._client is None:
            options = self._options
            self._client = FeedClient(
                options.feed,
                options.timeout_s,
                self._counting,
                self._start,
                token=options.token,
                ca=options.ca,
            )
        return self._client

    def _directory(self) -> LogReader:
        if self._log is None:
            self._log = LogReader(self._options.directory)
        return self._log

    def bounds(self) -> FeedBounds:
        if self._options.feed:
            status = self._feed().bounds()
            self.known = FeedBounds(status.first, status.end, status.counting, status.opening)
        else:
            self.known = self._log_bounds(self._directory().meta(KEY))
        self._counting = self.known.counting
        return self.known

    def _log_bounds(self, meta: Mapping[str, str]) -> FeedBounds:
        first = int(meta.get("first", 1))
        end = int(meta.get("end", first - 1))
        if KEY not in meta:
            if int(meta.get("last", end)) >= first:
                raise Misuse(f"{self._options.directory}: not the log of a feed")
            return FeedBounds(first, end, Counting())
        try:
            saved = meta_of(meta[KEY])
        except ValueError as error:
            raise BadLog(f"{self._options.directory}: {error}") from None
        return FeedBounds(first, end, Counting(saved.stretches, end), saved.opening)

    def read(self, after: int, upto: int) -> Iterator[pa.RecordBatch]:
        if self._options.feed:
            yield from self._feed().read(after, upto, self._needed())
            return
        yield from rows.in_range(self._without_holes(after, upto), after, upto)

    def _needed(self) -> list[str] | None:
        """The columns that the feed sends; None for all. Rows without payloads are worth the work
        of leaving columns out."""
        names = {*self._options.columns, *map(column_of, self._filters)}
        if "payload" in names:
            return None
        # Gap rows report in these what is lost.
        return sorted({*names, "number", "detail", "t_us"} - {TIMESTAMP.name})

    def _without_holes(self, after: int, upto: int) -> Iterator[LogBatch]:
        for batch in self._directory().read(after + 1, upto):
            if batch.first > after + 1:
                raise _Missing(after + 1, batch.first - 1)
            after = batch.last
            yield batch
        if after < upto:
            raise _Missing(after + 1, upto)

    # -- the range to read -------------------------------------------------------------------------

    def start(self) -> int:
        """The offset before the first to be read."""
        starting, known = self._options.starting, self.bounds()
        if isinstance(starting, Moment):
            return min(self._offset_at(starting), known.end + 1) - 1
        if isinstance(starting, int):
            if starting > known.end + 1:
                raise Misuse(f"startingOffsets={starting}: the feed ends at offset {known.end}")
            return starting - 1
        return self.earliest(known.first - 1, known) if starting == EARLIEST else known.end

    def _offset_at(self, moment: Moment) -> int:
        if self._options.feed:
            return self._feed().offset_at(moment.t_us)
        return rows.offset_at(self._directory(), moment.t_us)

    def earliest(self, after: int, known: FeedBounds) -> int:
        """A read from the earliest offset skips what was lost before there was a feed, unless gap
        rows are wanted."""
        with_opening = self._options.starting != EARLIEST or not self._options.fail_on_loss
        return after if with_opening else max(after, min(known.opening, known.end))

    def end(self) -> int:
        """The last offset that a batch reads."""
        ending, known = self._options.ending, self.bounds()
        if isinstance(ending, Moment):
            return min(self._offset_at(ending) - 1, known.end)
        if ending == LATEST:
            return known.end
        assert isinstance(ending, int)
        if ending > known.end:
            raise Misuse(f"endingOffsets={ending}: the feed ends at offset {known.end}")
        return ending

    def check_retained(self, after: int, known: FeedBounds) -> None:
        """`DataLoss` when retention dropped what is to be read next, unless that is allowed."""
        if after + 1 < known.first and self._options.fail_on_loss:
            raise DataLoss(
                f"offsets {after + 1} to {known.first - 1} were dropped by the feed's retention"
                f" before they were read; it begins at {known.first}"
            )

    def partitions(self, after: int, upto: int, lost: str = "") -> list[OffsetRange]:
        """The range in parts of about equal size; the first of them reports a loss."""
        count = max(0, upto - after)
        usual = min(PARTITIONS_MAX, -(-count // OFFSETS_PER_PARTITION))
        parts = min(count, max(self._options.min_partitions, usual))
        cuts = [after + count * at // max(1, parts) for at in range(parts + 1)]
        made = [
            OffsetRange(first, last, self._counting, index=index)
            for index, (first, last) in enumerate(pairwise(cuts))
        ]
        if lost:
            made = made or [OffsetRange(after, after, self._counting)]
            made[0].lost = f"{lost}; read on after offset {after}"
        return made

    # -- the rows of a range -----------------------------------------------------------------------

    def rows(self, part: OffsetRange) -> Iterator[pa.RecordBatch]:
        try:
            yield from rows.gathered(self._selected(batch) for batch in self._read_range(part))
        finally:
            self.close()

    def _read_range(self, part: OffsetRange) -> Iterator[pa.RecordBatch]:
        """All rows, with gap rows for what is lost."""
        after = part.after
        if part.lost:
            yield rows.row(place=after, kind=rows.GAP, detail=part.lost)
        while after < part.upto:
            try:
                for batch in self.read(after, part.upto):
                    if batch.num_rows:
                        after = batch.column(0)[-1].as_py()
                    yield batch
                return
            except (Trimmed, _Missing) as error:
                if self._options.fail_on_loss:
                    raise DataLoss(str(error)) from None
                if isinstance(error, Trimmed):
                    first, last = after + 1, min(error.begins - 1, part.upto)
                    why = "dropped by the feed's retention"
                else:
                    first, last = error.first, error.last
                    why = "the log no longer has them"
            detail = f"offsets {first} to {last} are lost: {why}"
            yield rows.row(place=last, kind=rows.GAP, number=last - first + 1, detail=detail)
            after = last

    def _selected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without gaps and views that are not wanted, filtered, and with the columns wanted."""
        kind = batch.column(1)
        if pc.any(pc.not_equal(kind, rows.MESSAGE)).as_py():
            if self._options.fail_on_loss:
                gaps = batch.filter(pc.equal(kind, rows.GAP))
                for gap in gaps.select(["place", "number", "detail"]).to_pylist():
                    if gap["number"] != 0:
                        raise DataLoss(f"at offset {gap['place']}: {gap['detail']}")
                batch = batch.filter(pc.not_equal(kind, rows.GAP))
            if not self._options.views:
                batch = batch.filter(pc.not_equal(batch.column(1), rows.VIEW))
        if self._filters:
            batch = batch.filter(mask_of_all(self._filters, batch))
        if TIMESTAMP.name in self._options.columns:
            moments = batch.column("t_us").cast(TIMESTAMP.type)
            batch = batch.append_column(TIMESTAMP, moments)
        return batch.select(list(self._options.columns))
