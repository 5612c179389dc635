"""The rows of a feed: messages, views and gaps as Arrow record batches, to bytes and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from unisono.feed.untrusted_arrow import BadRows, read_batch
from unisono.log import LogReader
from unisono.log.record import LogBatch
from unisono.model import Address, Member, Message, Service, View, level_named, level_text
from unisono.replay_history import SinkMessage

MESSAGE, VIEW, GAP = "message", "view", "gap"
SCHEMA: Final = pa.schema(
    [
        ("place", pa.int64()),
        ("kind", pa.string()),
        ("group", pa.string()),
        ("life", pa.string()),
        ("sender", pa.string()),
        ("sender_incarnation", pa.int64()),
        ("number", pa.int64()),
        ("view", pa.string()),
        ("service", pa.string()),
        ("payload", pa.binary()),
        ("members", pa.list_(pa.field("element", pa.string()))),
        ("detail", pa.string()),
        ("t_us", pa.int64()),
    ]
)
MARK: Final = b"unirows2"
"""Precedes rows of this schema; eight bytes, which keeps Arrow's alignment."""
COMPRESSED_BYTES_MIN: Final = 4096
"""Smaller batches are not worth compressing."""
UNPACKED_BYTES_MAX: Final = 1 << 30
"""The most memory that an untrusted batch may take."""
ROWS_MAX, BYTES_MAX = 65_536, 32 << 20
"""Of a batch merged for a reader."""
NOWHERE: Final = Address("0.0.0.0", 0)
"""A log does not record addresses."""

_LZ4: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_PLAIN: Final = pa.ipc.IpcWriteOptions()
_SCHEMA_BYTES: Final = SCHEMA.serialize().size
"""A stream begins with its schema."""


# -- making ---------------------------------------------------------------------------------------


def messages_rows(
    messages: Sequence[Message], base: int, group: str, incarnation: str, t_us: int
) -> pa.RecordBatch:
    """Consecutive messages of one incarnation; offset = `base` + sequence number."""
    count = len(messages)
    columns = zip(*messages, strict=True)
    senders, payloads, numbers, views, seqs, services = columns
    details = [_source(each) for each in messages]
    return pa.record_batch(
        [
            pa.array([base + seq for seq in seqs], pa.int64()),
            pa.repeat(pa.scalar(MESSAGE), count),
            pa.repeat(pa.scalar(group), count),
            pa.repeat(pa.scalar(incarnation), count),
            pa.array([sender[0] for sender in senders], pa.string()),
            pa.array([sender[2] for sender in senders], pa.int64()),
            pa.array(numbers, pa.int64()),
            pa.array(views, pa.string()),
            pa.array(map(level_text, services), pa.string()),
            pa.array(payloads, pa.binary()),
            pa.nulls(count, SCHEMA.field("members").type),
            pa.array(details, pa.string()),
            pa.repeat(pa.scalar(t_us, pa.int64()), count),
        ],
        schema=SCHEMA,
    )


def _source(message: Message) -> str | None:
    """Of a row that came through a sink: what identifies it."""
    if not isinstance(message, SinkMessage) or message.source is None:
        return None
    query, partition, epoch = message.source
    return f"query {query} partition {partition} epoch {epoch} row {message.row}"


def row(**cells: Any) -> pa.RecordBatch:
    """One row; columns not given are null."""
    return pa.RecordBatch.from_pylist([cells], schema=SCHEMA)


def view_cells(view: View, offset: int, group: str, incarnation: str, t_us: int) -> dict[str, Any]:
    """A view precedes the message with the same offset."""
    joined = ", ".join(map(str, view.joined))
    left = ", ".join(map(str, view.left))
    detail = [f"joined {joined}" if joined else "", f"left {left}" if left else "", view.detail]
    return {
        "place": offset,
        "kind": VIEW,
        "group": group,
        "life": incarnation,
        "view": view.id,
        "members": list(map(str, view.members)),
        "detail": "; ".join(filter(None, detail)) or None,
        "t_us": t_us,
    }


def together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


# -- bytes ----------------------------------------------------------------------------------------


def encoded(rows: pa.RecordBatch) -> bytes:
    """One message of Arrow's stream format, without the schema."""
    options = _LZ4 if rows.nbytes >= COMPRESSED_BYTES_MIN else _PLAIN
    writer = pa.BufferOutputStream()
    with pa.ipc.new_stream(writer, SCHEMA, options=options) as stream:
        stream.write_batch(rows)
        end = writer.tell()
    return MARK + memoryview(writer.getvalue())[_SCHEMA_BYTES:end]


def decoded(blob: bytes | memoryview) -> pa.RecordBatch:
    """What `encoded` returned; checked, since neither a feed nor a disk is trusted."""
    if blob[: len(MARK)] != MARK:
        raise BadRows("bytes that are not rows of a feed: no mark")
    rows = read_batch(memoryview(blob)[len(MARK) :], SCHEMA, UNPACKED_BYTES_MAX, True)
    if rows.column(0).null_count or rows.column(1).null_count:
        raise BadRows("rows without an offset or a kind")
    return rows


# -- reading --------------------------------------------------------------------------------------


def cut(rows: pa.RecordBatch, after: int, upto: int) -> pa.RecordBatch:
    """The rows with `after` < offset <= `upto`; rows are in the order of offsets."""
    offsets = rows.column(0)
    start = pc.sum(pc.less_equal(offsets, after)).as_py() or 0
    end = pc.sum(pc.less_equal(offsets, upto)).as_py() or 0
    return rows.slice(start, end - start)


def in_range(batches: Iterable[LogBatch], after: int, upto: int) -> Iterator[pa.RecordBatch]:
    """The rows of a log's batches with `after` < offset <= `upto`, each once."""
    for batch in batches:
        found = decoded(batch.blob)
        inside = batch.first > after and batch.last <= upto
        yield found if inside else cut(found, after, upto)
        after = max(after, batch.last)


def offset_at(log: LogReader, t_us: int) -> int:
    """The first offset that was logged at this time (Unix time) or later, before the first hole; or
    the one after the last."""
    end = log.bounds().end
    first = log.first_at(t_us)
    if first is not None and first <= end:
        for found in in_range(log.read(first, end), first - 1, end):
            at = pc.index(pc.greater_equal(found.column("t_us"), t_us), True).as_py()
            if at >= 0:
                return int(found.column(0)[at].as_py())
    return end + 1


def without(found: pa.RecordBatch, columns: Collection[str]) -> pa.RecordBatch:
    """The rows with nulls in all but these columns, `place` and `kind`."""
    keep = {"place", "kind", *columns}
    values = [
        column if field.name in keep else pa.nulls(found.num_rows, field.type)
        for field, column in zip(SCHEMA, found.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(values, schema=SCHEMA)


def merged(blobs: Iterable[bytes]) -> bytes:
    """One batch of several."""
    return encoded(together([decoded(blob) for blob in blobs]))


def gathered(
    batches: Iterable[pa.RecordBatch], rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """Merge small batches, in order; empty ones are left out."""
    waiting: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if waiting and (rows + batch.num_rows > rows_max or nbytes + batch.nbytes > bytes_max):
            yield together(waiting)
            waiting, rows, nbytes = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        nbytes += batch.nbytes
    if waiting:
        yield together(waiting)


def messages_of(rows: pa.RecordBatch, base: int) -> list[Message]:
    """The messages among the rows, with the group's sequence numbers."""
    found = []
    names = ("place", "kind", "sender", "sender_incarnation", "number", "view", "service")
    columns = [rows.column(name).to_pylist() for name in (*names, "payload")]
    for offset, kind, sender, incarnation, number, view, service, payload in zip(
        *columns, strict=True
    ):
        if kind == MESSAGE:
            sender = Member(sender, NOWHERE, incarnation)
            level = level_named(service) or Service.AGREED
            found.append(Message(sender, payload, number, view or "", offset - base, level))
    return found
