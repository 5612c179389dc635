"""Checks Arrow messages from outside before and after Arrow reads them.

Arrow trusts a message: wrong offsets read the process's own memory or crash it, and a compressed
body may claim any length. So the message's metadata is read here, within bounds: it must be a
record batch of this schema's shape, every buffer must lie inside the body, and its unpacked size is
bounded. Then Arrow reads it and validates every offset and text before any value is used.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

from unisono.errors import UnisonoError

CONTINUATION: Final = 0xFFFFFFFF
METADATA_BYTES_MAX: Final = 64 << 10
VERSION: Final = 4
"""V5 of Arrow's metadata."""
RECORD_BATCH: Final = 3
PLAIN: Final = -1
"""The length of a buffer that is not compressed, in a compressed body."""


class BadRows(UnisonoError, ValueError):
    """Bytes that are not rows of a feed."""


class _Front(NamedTuple):
    """A message's metadata, and its body."""

    rows: int
    nodes: list[tuple[int, int]]
    """Of each array: rows and nulls."""
    buffers: list[tuple[int, int]]
    """Of each: position in the body, and length."""
    compressed: bool
    body: memoryview


def read_batch(
    blob: bytes | memoryview, schema: pa.Schema, bytes_max: int, compressed: bool = False
) -> pa.RecordBatch:
    """One message of Arrow's stream format with this schema, checked. `bytes_max` bounds its
    unpacked size; without `compressed` a compressed body is refused."""
    view = memoryview(blob)
    try:
        _check(_front(view), schema, bytes_max, compressed)
        batch = pa.ipc.read_record_batch(pa.py_buffer(view), schema)
        batch.validate(full=True)
        for column in batch.columns:
            column.validate(full=True)
    except BadRows:
        raise
    except (pa.ArrowException, OSError, EOFError, ValueError) as bad:
        raise BadRows(f"bytes that are not rows of a feed: {bad}") from None
    return batch


def _check(front: _Front, schema: pa.Schema, bytes_max: int, compressed: bool) -> None:
    nodes, buffers = _shape(schema)
    if len(front.nodes) != nodes or len(front.buffers) != buffers:
        raise BadRows("rows of another schema than a feed's")
    if front.compressed and not compressed:
        raise BadRows("compressed rows: send them plain")
    end, whole = 0, 0
    for at, length in front.buffers:
        if not length:
            continue
        if at < end or length < 0 or at + length > len(front.body):
            raise BadRows("bytes that are not rows of a feed: a buffer outside the body")
        end = at + length
        whole += _unpacked(front, at, length)
    if whole > bytes_max:
        raise BadRows(f"rows of {whole} bytes: at most {bytes_max} at once")
    for rows, nulls in front.nodes:
        if not 0 <= nulls <= rows or rows > bytes_max:
            raise BadRows("bytes that are not rows of a feed: a count that is none")
    if front.rows < 0 or any(front.rows != rows for rows, _ in _top(front, schema)):
        raise BadRows("bytes that are not rows of a feed: columns of unlike lengths")


def _unpacked(front: _Front, at: int, length: int) -> int:
    if not front.compressed:
        return length
    claimed = _number(front.body, at, 8)
    if length < 8 or claimed < PLAIN:
        raise BadRows("bytes that are not rows of a feed: a length that is none")
    return length if claimed == PLAIN else claimed


def _shape(schema: pa.Schema) -> tuple[int, int]:
    """The number of arrays and of buffers of a batch, including those of list items."""
    nodes = buffers = 0
    for field in schema:
        kind = field.type
        while pa.types.is_list(kind):
            nodes, buffers, kind = nodes + 1, buffers + 2, kind.value_type
        has_offsets = pa.types.is_binary(kind) or pa.types.is_string(kind)
        nodes, buffers = nodes + 1, buffers + 2 + has_offsets
    return nodes, buffers


def _top(front: _Front, schema: pa.Schema) -> list[tuple[int, int]]:
    """The arrays that are columns."""
    found, at = [], 0
    for field in schema:
        found.append(front.nodes[at])
        at += 1 + pa.types.is_list(field.type)
    return found


# -- the message's front, a flatbuffer ----------------------------------------------------------


def _number(data: memoryview, at: int, size: int, signed: bool = True) -> int:
    """A little-endian number; `BadRows` outside the buffer."""
    if not 0 <= at <= len(data) - size:
        raise BadRows("bytes that are not rows of a feed: something lies outside")
    return int.from_bytes(data[at : at + size], "little", signed=signed)


class _Table:
    """A table of a flatbuffer."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._bytes, self._at = data, at
        self._fields = at - _number(data, at, 4)
        self._fields_bytes = _number(data, self._fields, 2, signed=False)

    def _offset(self, field: int) -> int:
        """The position of the field; 0 if it is absent."""
        slot = 4 + 2 * field
        if slot + 2 > self._fields_bytes:
            return 0
        offset = _number(self._bytes, self._fields + slot, 2, signed=False)
        return self._at + offset if offset else 0

    def has(self, field: int) -> bool:
        return self._offset(field) > 0

    def number(self, field: int, size: int) -> int:
        at = self._offset(field)
        return _number(self._bytes, at, size) if at else 0

    def pointed(self, field: int) -> int:
        at = self._offset(field)
        return at + _number(self._bytes, at, 4, signed=False) if at else -1

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of structs of two 64-bit numbers."""
        if not self.has(field):
            return []
        at, data = self.pointed(field), self._bytes
        count = _number(data, at, 4, signed=False)
        _number(data, at + 4 + 16 * count, 0)  # All of it is inside.
        offsets = range(at + 4, at + 4 + 16 * count, 16)
        return [(_number(data, each, 8), _number(data, each + 8, 8)) for each in offsets]


def _front(blob: memoryview) -> _Front:
    nbytes = _number(blob, 4, 4)
    if _number(blob, 0, 4, signed=False) != CONTINUATION or nbytes % 8:
        raise BadRows("bytes that are not rows of a feed: no message of Arrow")
    if not 0 < nbytes <= METADATA_BYTES_MAX:
        raise BadRows("bytes that are not rows of a feed: metadata of no length")
    metadata, body = blob[8 : 8 + nbytes], blob[8 + nbytes :]
    message = _Table(metadata, _number(metadata, 0, 4, signed=False))
    if (message.number(0, 2), message.number(1, 1)) != (VERSION, RECORD_BATCH):
        raise BadRows("bytes that are not rows of a feed: no record batch")
    if message.number(3, 8) != len(body):
        raise BadRows("bytes that are not rows of a feed: a body of another length")
    header = _Table(metadata, message.pointed(2))
    return _Front(header.number(0, 8), header.pairs(1), header.pairs(2), header.has(3), body)
