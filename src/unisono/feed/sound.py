"""Arrow's messages from outside, looked at before Arrow reads them, and after.

Arrow trusts a message: false offsets read the process's own memory, or end it, and a compressed
body may claim any length. So the front of the message is read here, by hand and within bounds: it
must be a record batch of this schema's shape, in which every buffer lies inside the body, and what
it takes when it is unpacked is bounded. Then Arrow reads it, and checks every offset and text in
full before anything looks at a value.
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
"""As the length of a buffer in a compressed body: this one is not."""


class BadRows(UnisonoError, ValueError):
    """Bytes that are no rows of a feed."""


class _Front(NamedTuple):
    """What a message says of itself."""

    rows: int
    nodes: list[tuple[int, int]]
    """Of each array: rows, and how many are null."""
    buffers: list[tuple[int, int]]
    """Where each lies in the body, and how long it is."""
    compressed: bool
    body: memoryview


def read_batch(
    blob: bytes | memoryview, schema: pa.Schema, bytes_max: int, compressed: bool = False
) -> pa.RecordBatch:
    """One message of Arrow's stream format that has this schema, all of it checked. It takes at
    most so many octets unpacked; only where `compressed` says so it may be that."""
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
        raise BadRows(f"bytes that are no rows of a feed: {bad}") from None
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
            raise BadRows("bytes that are no rows of a feed: a buffer outside the body")
        end = at + length
        whole += _unpacked(front, at, length)
    if whole > bytes_max:
        raise BadRows(f"rows of {whole} octets: at most {bytes_max} at once")
    for rows, nulls in front.nodes:
        if not 0 <= nulls <= rows or rows > bytes_max:
            raise BadRows("bytes that are no rows of a feed: a count that is none")
    if front.rows < 0 or any(front.rows != rows for rows, _ in _top(front, schema)):
        raise BadRows("bytes that are no rows of a feed: columns of unlike lengths")


def _unpacked(front: _Front, at: int, length: int) -> int:
    if not front.compressed:
        return length
    claimed = _number(front.body, at, 8)
    if length < 8 or claimed < PLAIN:
        raise BadRows("bytes that are no rows of a feed: a length that is none")
    return length if claimed == PLAIN else claimed


def _shape(schema: pa.Schema) -> tuple[int, int]:
    """How many arrays and buffers a batch has: of lists, their items' too."""
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


def _number(octets: memoryview, at: int, size: int, signed: bool = True) -> int:
    """So many octets as a number; outside the buffer there is none."""
    if not 0 <= at <= len(octets) - size:
        raise BadRows("bytes that are no rows of a feed: something lies outside")
    return int.from_bytes(octets[at : at + size], "little", signed=signed)


class _Table:
    """A flatbuffer's table: where it lies, and where the list of its fields does."""

    def __init__(self, octets: memoryview, at: int) -> None:
        self._bytes, self._at = octets, at
        self._fields = at - _number(octets, at, 4)
        self._fields_bytes = _number(octets, self._fields, 2, signed=False)

    def _place(self, field: int) -> int:
        """Where the field lies; 0 when it is not there."""
        slot = 4 + 2 * field
        if slot + 2 > self._fields_bytes:
            return 0
        offset = _number(self._bytes, self._fields + slot, 2, signed=False)
        return self._at + offset if offset else 0

    def has(self, field: int) -> bool:
        return self._place(field) > 0

    def number(self, field: int, size: int) -> int:
        at = self._place(field)
        return _number(self._bytes, at, size) if at else 0

    def pointed(self, field: int) -> int:
        at = self._place(field)
        return at + _number(self._bytes, at, 4, signed=False) if at else -1

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of structs of two 64-bit numbers."""
        if not self.has(field):
            return []
        at, octets = self.pointed(field), self._bytes
        count = _number(octets, at, 4, signed=False)
        _number(octets, at + 4 + 16 * count, 0)  # All of it is inside.
        places = range(at + 4, at + 4 + 16 * count, 16)
        return [(_number(octets, each, 8), _number(octets, each + 8, 8)) for each in places]


def _front(blob: memoryview) -> _Front:
    octets = _number(blob, 4, 4)
    if _number(blob, 0, 4, signed=False) != CONTINUATION or octets % 8:
        raise BadRows("bytes that are no rows of a feed: no message of Arrow")
    if not 0 < octets <= METADATA_BYTES_MAX:
        raise BadRows("bytes that are no rows of a feed: metadata of no length")
    metadata, body = blob[8 : 8 + octets], blob[8 + octets :]
    message = _Table(metadata, _number(metadata, 0, 4, signed=False))
    if (message.number(0, 2), message.number(1, 1)) != (VERSION, RECORD_BATCH):
        raise BadRows("bytes that are no rows of a feed: no record batch")
    if message.number(3, 8) != len(body):
        raise BadRows("bytes that are no rows of a feed: a body of another length")
    header = _Table(metadata, message.pointed(2))
    return _Front(header.number(0, 8), header.pairs(1), header.pairs(2), header.has(3), body)
