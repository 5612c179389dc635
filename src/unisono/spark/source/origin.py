"""Where rows come from, a feed or a log's directory, and what is said when some are lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.types import StructType

from unisono.errors import Misuse, UnisonoError
from unisono.feed import rows
from unisono.feed.client import FeedClient
from unisono.feed.epochs import Counting, books_of
from unisono.log import BadLog, LogReader, Trimmed
from unisono.spark.source.asking import EARLIEST, LATEST, FeedOptions
from unisono.spark.source.filters import kept

KEY: Final = "feed"
"""Under which a log holds what the feed knows."""
PLACES_PER_PARTITION: Final = 100_000
PARTITIONS_MAX: Final = 64
"""Where `minPartitions` asks for no more."""
_SPELLED: Final = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.binary(): "binary",
    rows.SCHEMA.field("members").type: "array<string>",
}


def feed_schema(options: FeedOptions) -> str:
    """The columns that these options give, as Spark spells them."""
    return ", ".join(f"`{n}` {_SPELLED[rows.SCHEMA.field(n).type]}" for n in options.columns)


class DataLoss(UnisonoError):
    """Rows that a query was to see are gone."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. To go on without them, set failOnDataLoss to false: gap rows then say what"
            " is missing"
        )


class _Missing(Exception):
    """A log has not all that was to be read of it, though it had."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(
            f"places {first} to {last} were to be read, and the log no longer has them: its end was"
            " lost, or it is another log"
        )
        self.first, self.last = first, last


@dataclass
class OffsetRange(InputPartition):
    """The rows with `after` < place <= `upto`."""

    after: int
    upto: int
    counting: Counting
    """Of the feed that was asked: so that none is taken that counts otherwise."""
    lost: str = ""
    """What a gap row is to say before these rows."""


class Seen(NamedTuple):
    """What a feed or a log had when it was last asked."""

    first: int
    end: int
    counting: Counting
    opening: int = 0
    """Up to here it begins with what was lost before there was a feed."""


class Origin:
    """What these options are about. Opened when it is first asked."""

    def __init__(
        self,
        options: FeedOptions,
        counting: Counting | None = None,
        filters: Sequence[Filter] = (),
    ) -> None:
        self._options = options
        self._filters = list(filters)
        self._client: FeedClient | None = None
        self._log: LogReader | None = None
        self._counting = counting or Counting()
        self.seen: Seen | None = None

    def close(self) -> None:
        for opened in (self._client, self._log):
            if opened is not None:
                opened.close()
        self._client = self._log = None

    def _feed(self) -> FeedClient:
        if self._client is None:
            given = self._options
            self._client = FeedClient(given.feed, given.patience_s, self._counting)
        return self._client

    def _directory(self) -> LogReader:
        if self._log is None:
            self._log = LogReader(self._options.directory)
        return self._log

    def bounds(self) -> Seen:
        if self._options.feed:
            known = self._feed().bounds()
            self.seen = Seen(known.first, known.end, known.counting, known.opening)
        else:
            self.seen = self._seen_in(self._directory().meta())
        self._counting = self.seen.counting
        return self.seen

    def _seen_in(self, meta: Mapping[str, str]) -> Seen:
        """All of one moment."""
        first = int(meta.get("first", 1))
        end = int(meta.get("end", first - 1))
        if KEY not in meta:
            if int(meta.get("last", end)) >= first:
                raise Misuse(f"{self._options.directory}: this log is not a feed's")
            return Seen(first, end, Counting())
        try:
            books = books_of(meta[KEY])
        except ValueError as error:
            raise BadLog(f"{self._options.directory}: {error}") from None
        return Seen(first, end, Counting(books.stretches, end), books.opening)

    def read(self, after: int, upto: int) -> Iterator[pa.RecordBatch]:
        if self._options.feed:
            yield from self._feed().read(after, upto)
            return
        at = after
        for batch in self._directory().read(after + 1, upto):
            if batch.first > at + 1:
                raise _Missing(at + 1, batch.first - 1)
            at = batch.last
            found = rows.decoded(batch.blob)
            inside = batch.first > after and batch.last <= upto
            yield found if inside else rows.cut(found, after, upto)
        if at < upto:
            raise _Missing(at + 1, upto)

    # -- what is wanted of it ---------------------------------------------------------------------

    def start(self) -> int:
        """The place before the first that is to be read."""
        wanted, known = self._options.starting, self.bounds()
        if isinstance(wanted, int):
            if wanted > known.end + 1:
                raise Misuse(
                    f"startingOffsets={wanted}: the feed has come to place {known.end} only"
                )
            return wanted - 1
        return self.earliest(known.first - 1, known) if wanted == EARLIEST else known.end

    def earliest(self, after: int, known: Seen) -> int:
        """Who reads from the earliest on is owed nothing of what was said before there was a feed;
        gap rows tell it to those who want them."""
        is_owed = self._options.starting != EARLIEST or not self._options.fail
        return after if is_owed else max(after, min(known.opening, known.end))

    def end(self) -> int:
        """The last place that a batch is to read."""
        wanted = self._options.ending
        known = self.bounds()
        if wanted == LATEST:
            return known.end
        assert isinstance(wanted, int)
        if wanted > known.end:
            raise Misuse(f"endingOffsets={wanted}: the feed has come to place {known.end} only")
        return wanted

    def check(self, after: int, known: Seen) -> None:
        """What is to be read next must not have been dropped, unless that is allowed."""
        if after + 1 < known.first and self._options.fail:
            raise DataLoss(
                f"places {after + 1} to {known.first - 1} were dropped by the feed's retention"
                f" before they were read; it begins at {known.first}"
            )

    def partitions(self, after: int, upto: int, lost: str = "") -> list[OffsetRange]:
        """The range in parts of about the same size; the first of them says what is lost."""
        count = max(0, upto - after)
        usual = min(PARTITIONS_MAX, -(-count // PLACES_PER_PARTITION))
        parts = min(count, max(self._options.min_partitions, usual))
        cuts = [after + count * at // max(1, parts) for at in range(parts + 1)]
        made = [OffsetRange(first, last, self._counting) for first, last in pairwise(cuts)]
        if lost:
            made = made or [OffsetRange(after, after, self._counting)]
            made[0].lost = f"{lost}; read on after place {after}"
        return made

    def rows(self, part: OffsetRange) -> Iterator[pa.RecordBatch]:
        """What a task hands to Spark."""
        try:
            yield from rows.gathered(self._wanted(batch) for batch in self._whole(part))
        finally:
            self.close()

    def _whole(self, part: OffsetRange) -> Iterator[pa.RecordBatch]:
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
            except Trimmed as gone:
                if self._options.fail:
                    raise DataLoss(str(gone)) from None
                first, last = after + 1, min(gone.begins - 1, part.upto)
                why = "dropped by the feed's retention"
            except _Missing as missing:
                if self._options.fail:
                    raise DataLoss(str(missing)) from None
                first, last = missing.first, missing.last
                why = "they were there, and the log no longer has them"
            detail = f"places {first} to {last} are lost: {why}"
            yield rows.row(place=last, kind=rows.GAP, number=last - first + 1, detail=detail)
            after = last

    def _wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if pc.any(pc.not_equal(batch.column(1), rows.MESSAGE)).as_py():
            batch = self._without(batch)
        if self._filters:
            batch = batch.filter(kept(self._filters, batch))
        return batch.select(list(self._options.columns))

    def _without(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without the gaps and views that are not asked for."""
        if self._options.fail:
            gaps = batch.filter(pc.equal(batch.column(1), rows.GAP))
            for gap in gaps.select(["place", "number", "detail"]).to_pylist():
                if gap["number"] != 0:
                    raise DataLoss(f"at place {gap['place']}: {gap['detail']}")
            batch = batch.filter(pc.not_equal(batch.column(1), rows.GAP))
        if not self._options.views:
            batch = batch.filter(pc.not_equal(batch.column(1), rows.VIEW))
        return batch


def check_schema(schema: StructType, options: FeedOptions) -> None:
    """The columns are the feed's own; Spark's `select` chooses among them."""
    told = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema)
    if told != feed_schema(options):
        raise Misuse("a feed's columns are its own: leave .schema() out, and select from them")
