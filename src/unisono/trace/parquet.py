"""One trace file as Parquet: how it is written, and how it is read when it may be damaged."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unisono.trace import torn
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

assert not pa.types.is_list(SCHEMA.types[-1]), "`torn` sees by the last column where a group ends"
OPTIONAL: Final = ("seq", "peer", "joined", "left", "stayed", "changes")
"""Columns that a file may lack: they are null then, which any row's may be. Without one of the
others rows cannot be judged, or would be judged wrongly. A column that comes to the schema later
belongs here, so that older traces still read; columns that are not in it are passed over."""
VERSION: Final = 2
"""Of the schema, for people and tools to see: readers go by the columns that are there."""

_FORMER_NAMES: Final = (
    *("protocol", "group", "node", "incarnation", "step", "t_us", "kind", "view", "sender"),
    *("sender_incarnation", "number", "seq", "service", "size", "digest", "members", "peer"),
    "detail",
)
FORMER: Final = pa.schema(
    (name, pa.int32() if name.endswith("incarnation") else SCHEMA.field(name).type)
    for name in _FORMER_NAMES
)
"""Of version 1. A file with a footer lists its columns; a torn one does not."""
_WORD_BYTES: Final = 8
"""Of an incarnation."""
FLOAT_EXACT_MAX: Final = 1 << 53
LISTS: Final = frozenset(field.name for field in SCHEMA if pa.types.is_list(field.type))
"""Columns whose values are lists of strings."""

_NAMES: Final = frozenset(SCHEMA.names)
_VERSION_KEY: Final = b"unisono.trace"


def writer_to(where: Any, schema: pa.Schema = SCHEMA) -> pq.ParquetWriter:
    # Every column with a dictionary, so that `torn` sees where each chunk begins; checksums, so
    # that a flipped bit is seen; no statistics and no second schema, which no reader needs.
    writer = pq.ParquetWriter(
        where,
        schema,
        compression="zstd",
        use_dictionary=True,
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
        data_page_version="1.0",
    )
    version = VERSION if schema is SCHEMA else 1
    writer.add_key_value_metadata({_VERSION_KEY.decode(): str(version)})
    return writer


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

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = False
        self.lost: str | None = None

    def tables(self) -> Iterator[pa.Table]:
        """Row groups in canonical types, up to the first that cannot be read."""
        handle = -1
        try:
            # Without blocking: a pipe of that name may have no writer.
            handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
            about = os.fstat(handle)
            if stat.S_ISREG(about.st_mode):
                yield from self._tables(torn.FileBytes(handle, about.st_size))
            else:
                self._lose("not a regular file")
        except Exception as error:  # pyarrow raises many kinds; all mean the same here
            self._lose(f"unreadable: {_one_line(error)}")
        finally:
            if handle >= 0:
                os.close(handle)

    def _lose(self, reason: str) -> None:
        self.torn = True
        self.lost = self.lost or reason

    def _tables(self, file_bytes: torn.FileBytes) -> Iterator[pa.Table]:
        opened = self._opened(file_bytes) or self._recovered(file_bytes)
        if opened is None:
            return
        file, count = opened
        with file:
            fault = self._misfit(file.schema_arrow) or _damage(file)
            if fault:
                return self._lose(fault)
            yield from self._groups(file, count)

    def _groups(self, file: pq.ParquetFile, count: int) -> Iterator[pa.Table]:
        for index in range(count):
            table = self._group(file, index)
            if table is not None:
                yield table

    def _group(self, file: pq.ParquetFile, index: int) -> pa.Table | None:
        """One row group; nothing when there is nothing in it to give."""
        return _canonical(file.read_row_group(index, columns=SCHEMA.names, use_threads=False))

    def _opened(self, file_bytes: torn.FileBytes) -> tuple[pq.ParquetFile, int] | None:
        """The file by its own footer, with the number of its row groups, when all is in order.

        The footer is looked through first: some that are damaged make pyarrow end the process."""
        try:
            groups = torn.footer_groups(torn.footer_of(file_bytes), _NAMES, _model())
            for group in groups:
                torn.check_group(file_bytes, group)
            return self._open(file_bytes, None), len(groups)
        except Exception:
            return None

    def _open(
        self, file_bytes: torn.FileBytes, metadata: Any, dictionaries: Sequence[str] | None = None
    ) -> pq.ParquetFile:
        """The file, with these columns as dictionaries."""
        # By the handle: pyarrow opens no file whose name is not text.
        held = file_bytes.held
        return pq.ParquetFile(
            io.FileIO(file_bytes.handle, closefd=False) if held is None else pa.BufferReader(held),
            metadata=metadata,
            read_dictionary=dictionaries,
            page_checksum_verification=True,
            pre_buffer=False,
        )

    def _recovered(self, file_bytes: torn.FileBytes) -> tuple[pq.ParquetFile, int] | None:
        """The file by a footer that is made anew for the row groups that are whole."""
        self.torn = True
        wide = torn.word_bytes(file_bytes, SCHEMA.get_field_index("incarnation")) == _WORD_BYTES
        schema = SCHEMA if wide else FORMER
        nested = tuple(pa.types.is_list(kind) for kind in schema.types)
        groups = torn.whole_groups(file_bytes, nested)
        if not groups:
            self.lost = f"{TORN}, or no Parquet: no whole row group in it"
            return None
        rest = file_bytes.size - groups[-1].end
        if rest:
            self.lost = f"{TORN}: {rest} bytes after the last whole row group"
        footer = torn.rebuilt_footer(groups, _model(schema))
        metadata = pq.read_metadata(io.BytesIO(torn.MAGIC + footer))
        return self._open(file_bytes, metadata), len(groups)

    def _misfit(self, schema: pa.Schema) -> str | None:
        """Why the columns are not those of a trace. Others may stand beside them."""
        if schema.equals(SCHEMA):
            return None
        for field in SCHEMA:
            count = len(schema.get_all_field_indices(field.name))
            if count == 0 and field.name in OPTIONAL:
                continue
            if count != 1:
                return f"foreign: no column {field.name}"
            kind = schema.field(field.name).type
            if kind != field.type and not _castable(kind, field.type):
                return f"foreign: column {field.name} is {kind}, not {field.type}"
        return None


def _damage(file: pq.ParquetFile) -> str | None:
    """A file of this version has all its columns: one that lacks any has lost it. And one that
    lacks a column, and has one that is but a letter away from it, has lost its name."""
    names = set(file.schema_arrow.names)
    version = (file.metadata.metadata or {}).get(_VERSION_KEY)
    for name in sorted(_NAMES - names):
        alike = [other for other in names - _NAMES if len(other) == len(name)]
        if version == str(VERSION).encode() or any(
            sum(map(str.__ne__, name, other)) == 1 for other in alike
        ):
            return f"damaged: no column {name}"
    return None


@cache
def _model(schema: pa.Schema = SCHEMA) -> bytes:
    """The footer of a file with one row."""
    out = io.BytesIO()
    row = pa.Table.from_batches([batch_of([Row("", "", "", 0, 0, 0, "")])])
    with writer_to(out, schema) as writer:
        writer.write_table(row.select(schema.names).cast(schema))
    data = out.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


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


def filled(table: pa.Table, names: Sequence[str] = SCHEMA.names) -> pa.Table:
    """These columns in this order; those of `OPTIONAL` that are not there, as nulls."""
    for name in names:
        if name in OPTIONAL and name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, SCHEMA.field(name).type))
    return table.select(names)


def _canonical(table: pa.Table) -> pa.Table:
    table = filled(table)
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
