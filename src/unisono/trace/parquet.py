"""One trace file: how it is written, and how it is read when it may be damaged.

A closed file is plain Parquet, which has its index at its end. Until then its place is held by
frames: each has a length, a checksum, and a batch of rows as a small Parquet file of its own. What
a killed process leaves is read up to its last whole frame.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unisono.trace.checks import TORN
from unisono.trace.record import Row

SCHEMA: Final = pa.schema(
    [
        ("protocol", pa.string()),
        ("group", pa.string()),
        ("node", pa.string()),
        ("incarnation", pa.int64()),
        ("step", pa.int64()),
        ("t_us", pa.int64()),
        ("kind", pa.string()),
        ("view", pa.string()),
        ("sender", pa.string()),
        ("sender_incarnation", pa.int64()),
        ("number", pa.int64()),
        ("seq", pa.int64()),
        ("service", pa.string()),
        ("size", pa.int32()),
        ("digest", pa.int64()),
        ("members", pa.list_(pa.string())),
        ("joined", pa.list_(pa.string())),
        ("left", pa.list_(pa.string())),
        ("stayed", pa.list_(pa.string())),
        ("changes", pa.list_(pa.string())),
        ("peer", pa.string()),
        ("detail", pa.string()),
    ]
)

FLOAT_EXACT_MAX: Final = 1 << 53
LISTS: Final = frozenset(field.name for field in SCHEMA if pa.types.is_list(field.type))
"""Columns whose values are lists of strings."""

HELD_BYTES_MAX: Final = 1 << 20
"""A smaller file is read at once: asking for each page takes longer."""
_PARQUET: Final = b"PAR1"
_FRAME: Final = b"rows"
"""Before the length and the checksum of a Parquet file."""
_SEAL: Final = b"crc:"
"""Before the checksum of the footer."""


def writer_to(where: Any) -> pq.ParquetWriter:
    # Checksums, so that a flipped bit is seen; no statistics and no second schema, which no reader
    # needs.
    return pq.ParquetWriter(
        where,
        SCHEMA,
        compression="zstd",
        use_dictionary=True,
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
        data_page_version="1.0",
    )


def frame_of(batch: pa.RecordBatch) -> bytes:
    out = io.BytesIO()
    with writer_to(out) as writer:
        writer.write_batch(batch)
    data = out.getvalue()
    return _FRAME + _word(len(data)) + _word(crc32(data)) + data


def frames_in(file: BinaryIO) -> Iterator[bytes]:
    """The whole frames from the front; the file is left where the last of them ends."""
    size = os.fstat(file.fileno()).st_size
    while True:
        start, magic, length, checksum = file.tell(), file.read(4), _number(file), _number(file)
        # A damaged length may promise what no memory holds.
        data = file.read(length) if magic == _FRAME and length <= size else b""
        if not data or len(data) < length or crc32(data) != checksum:
            file.seek(start)
            return
        yield data


def seal(path: Path) -> None:
    """Add a checksum to the footer, after what readers read of it: pages have their own."""
    with path.open("r+b") as file:
        footer = _footer_in(file)
        file.seek(-8, os.SEEK_END)
        file.write(_SEAL + _word(crc32(footer)) + _word(len(footer) + 8) + _PARQUET)


def _check_seal(file: BinaryIO) -> None:
    """A file that another program wrote has none."""
    footer = _footer_in(file)
    if footer[-8:-4] == _SEAL and footer[-4:] != _word(crc32(footer[:-8])):
        raise ValueError("its footer is damaged")
    file.seek(0)


def _footer_in(file: BinaryIO) -> bytes:
    file.seek(-8, os.SEEK_END)
    length = _number(file)
    file.seek(-length - 8, os.SEEK_END)
    return file.read(length)


def _word(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _number(file: BinaryIO) -> int:
    return int.from_bytes(file.read(4), "little")


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def warm_up() -> None:
    """Now rather than with the first row: the first array made of Python objects imports pandas,
    a fifth of a second on an idle machine, and a member must not be deaf for so long."""
    pa.array([0], pa.int64())


class ParquetPart:
    """One file, read group by group; `torn` and `lost` are known afterwards."""

    dictionaries: tuple[str, ...] | None = None
    """The columns that are read as dictionaries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = False
        self.lost: str | None = None

    def tables(self) -> Iterator[pa.Table]:
        """Row groups in canonical types, up to the first that cannot be read."""
        try:
            # Looked at before it is opened: a pipe of that name may have no writer.
            about = self.path.stat()
            if not stat.S_ISREG(about.st_mode):
                return self._lose("not a regular file")
            with self.path.open("rb") as file:
                if file.peek(4)[:4] == _PARQUET:
                    _check_seal(file)
                    small = about.st_size <= HELD_BYTES_MAX
                    yield from self._closed(pa.BufferReader(file.read()) if small else file)
                else:
                    yield from self._open(file)
        except Exception as error:  # pyarrow raises many kinds; all mean the same here
            self._lose(f"unreadable: {_one_line(error)}")

    def _lose(self, reason: str) -> None:
        self.torn = True
        self.lost = self.lost or reason

    def _open(self, file: BinaryIO) -> Iterator[pa.Table]:
        """A file that was not closed."""
        self.torn = True
        for data in frames_in(file):
            yield from self._closed(pa.BufferReader(data))
        rest = os.fstat(file.fileno()).st_size - file.tell()
        if not file.tell():
            self._lose(f"{TORN}, or no Parquet: no whole row group in it")
        elif rest:
            self._lose(f"{TORN}: {rest} bytes after the last whole row group")

    def _closed(self, source: Any) -> Iterator[pa.Table]:
        with self._parquet(source) as file:
            fault = self._misfit(file.schema_arrow)
            if fault:
                self._lose(fault)
            else:
                yield from self._groups(file)

    def _parquet(self, source: Any) -> pq.ParquetFile:
        options = {"page_checksum_verification": True, "pre_buffer": False}
        try:
            return pq.ParquetFile(source, read_dictionary=self.dictionaries, **options)
        except KeyError:  # It lacks a column; `_misfit` names it.
            return pq.ParquetFile(source, **options)

    def _groups(self, file: pq.ParquetFile) -> Iterator[pa.Table]:
        for index in range(file.num_row_groups):
            table = self._group(file, index)
            if table is not None:
                yield table

    def _group(self, file: pq.ParquetFile, index: int) -> pa.Table | None:
        """One row group; nothing when there is nothing in it to give."""
        return _canonical(file.read_row_group(index, columns=SCHEMA.names, use_threads=False))

    def _misfit(self, schema: pa.Schema) -> str | None:
        """Why the columns are not those of a trace. Others may stand beside them."""
        if schema.equals(SCHEMA):
            return None
        for field in SCHEMA:
            if len(schema.get_all_field_indices(field.name)) != 1:
                return f"foreign: no column {field.name}"
            kind = schema.field(field.name).type
            if kind != field.type and not _castable(kind, field.type):
                return f"foreign: column {field.name} is {kind}, not {field.type}"
        return None


def _castable(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a rewritten trace may have this type instead, as some tools change them."""
    is_ = pa.types
    if is_.is_null(kind):
        return True
    if is_.is_dictionary(kind):
        kind = kind.value_type
    if is_.is_integer(wanted):
        return bool(is_.is_integer(kind) or is_.is_floating(kind))
    if is_.is_list(wanted):
        listed = is_.is_list(kind) or is_.is_large_list(kind)
        return listed and _castable(kind.value_type, wanted.value_type)
    return bool(is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind))


def _canonical(table: pa.Table) -> pa.Table:
    table = table.select(SCHEMA.names)
    if not table.schema.equals(SCHEMA):
        for field in table.schema:
            if pa.types.is_floating(field.type):
                _check_whole(field.name, table.column(field.name))
        table = table.cast(SCHEMA)
    table.validate(full=True)
    return table


def _check_whole(name: str, column: pa.ChunkedArray) -> None:
    """Some tools make floating numbers of whole ones, and then an incarnation is another's."""
    largest = pc.max(pc.abs(column)).as_py()
    if largest is not None and largest >= FLOAT_EXACT_MAX:
        raise ValueError(f"column {name} has floating numbers too large to be exact")


def protocols_of(path: Path) -> set[str]:
    """The protocols in the first rows of a file: one, since a file is of one incarnation; none when
    nothing in it can be read."""
    table = next(iter(ParquetPart(path).tables()), None)
    names = [] if table is None else table.column("protocol").unique().to_pylist()
    return {name for name in names if name}


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:200]
