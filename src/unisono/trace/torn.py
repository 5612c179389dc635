"""What is left of a Parquet file whose end is missing: the row groups that are whole.

A Parquet file is a row of pages, and only its footer has their offsets. A process that is
killed writes no footer. But each page has a header with its length, and our writer
begins every column chunk with a dictionary page and writes the same columns in every row group: so
the pages can be walked from the front, the row groups that are whole can be counted, and the footer
that would have been written can be written now. Nothing needs to be kept beside the file.

The walk also guards the reader: a header that promises more than the file can hold, or more than
is sane, is found here, before anything is allocated for it.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from unisono.trace.compact import I32, I64, LIST, STRUCT, CompactReader, Malformed, Struct, encoded
from unisono.trace.usual import Column, Head, RowGroupFooter, page_head, usual_of

MAGIC: Final = b"PAR1"
PAGE_BYTES_MAX: Final = 256 << 20
"""A larger page is taken for damage."""
ROWS_MAX: Final = 10_000_000
"""A larger row group is taken for damage."""

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_HEAD_BYTES: Final = (512, 1 << 16)
"""A header is first looked for in few bytes, then in more: long statistics may be in it."""
_HELD_BYTES_MAX: Final = 1 << 20
"""A smaller file is read at once: asking for each page takes longer."""


class FileBytes:
    """A file, or the start of it: a small one in memory, a large one read on demand."""

    def __init__(self, handle: int, size: int) -> None:
        self.handle = handle
        self.size = size
        self.held: bytes | None = None
        if size <= _HELD_BYTES_MAX:
            self.held = os.pread(handle, size, 0)
            # It may have been cut since its size was read.
            self.size = len(self.held)

    def at(self, offset: int, count: int) -> bytes:
        """This many bytes from there on, or fewer at the end."""
        count = max(0, min(count, self.size - offset))
        if self.held is not None:
            return self.held[offset : offset + count]
        return os.pread(self.handle, count, offset)


class Page(NamedTuple):
    offset: int
    end: int
    kind: int
    values: int
    encoding: int
    nbytes: int
    """Uncompressed, with the header, as the footer counts."""
    plain: int
    """Uncompressed, without it."""


class ColumnChunk(NamedTuple):
    pages: list[Page]

    @property
    def values(self) -> int:
        return sum(page.values for page in self.pages if page.kind != _DICTIONARY)


class TornRowGroup(NamedTuple):
    chunks: list[ColumnChunk]
    rows: int

    @property
    def end(self) -> int:
        return self.chunks[-1].pages[-1].end


def page_at(file: FileBytes, offset: int) -> Page:
    """The page that begins at `offset`, or `Malformed` when there is no whole one."""
    for nbytes in _HEAD_BYTES:
        head = file.at(offset, nbytes)
        try:
            return _page(page_head(head) or _any_head(head), offset, file.size)
        except Malformed:
            if len(head) < nbytes or nbytes == _HEAD_BYTES[-1]:
                raise
    raise Malformed("no page")


def _any_head(data: bytes) -> Head:
    """Any header that is well formed."""
    reader = CompactReader(data)
    fields = reader.struct()
    kind, plain, packed = (_integer(fields, field) for field in (1, 2, 3))
    field = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}.get(kind)
    if field is None or fields.get(field, (0, None))[0] != STRUCT:
        raise Malformed("an unknown page")
    about = fields[field][1]
    encoding = _integer(about, 4 if kind == _DATA_V2 else 2)
    return Head(reader.at, kind, plain, packed, _integer(about, 1), encoding)


def _page(head: Head, offset: int, size: int) -> Page:
    nbytes, kind, plain, packed, values, encoding = head
    end = offset + nbytes + packed
    if packed < 0 or plain < 0 or plain > PAGE_BYTES_MAX or end > size:
        raise Malformed("a page longer than the file")
    if not 0 <= values <= PAGE_BYTES_MAX:
        raise Malformed("a page of too many values")
    return Page(offset, end, kind, values, encoding, nbytes + plain, plain)


def _integer(fields: Struct, number: int, wanted: int = I32) -> int:
    kind, value = fields.get(number, (0, None))
    if kind != wanted or not isinstance(value, int):
        raise Malformed(f"no field {number}")
    return value


def word_bytes(file: FileBytes, column: int) -> int:
    """The size of the values in this column's first dictionary: tells 32-bit numbers from 64-bit
    ones in a file without a footer. 0 when there is no such dictionary."""
    offset = len(MAGIC)
    try:
        while True:
            page = page_at(file, offset)
            offset = page.end
            if page.kind != _DICTIONARY:
                continue
            if column == 0:
                return page.plain // page.values if page.values else 0
            column -= 1
    except Malformed:
        return 0


def whole_groups(file: FileBytes, nested: tuple[bool, ...]) -> list[TornRowGroup]:
    """The whole row groups from the front; `nested`: which columns are lists."""
    groups: list[TornRowGroup] = []
    if file.at(0, len(MAGIC)) != MAGIC:
        return groups
    chunks: list[ColumnChunk] = []
    offset = len(MAGIC)
    while True:
        try:
            page = page_at(file, offset)
        except Malformed:
            return groups
        offset = page.end
        if page.kind == _DICTIONARY:
            chunks.append(ColumnChunk([]))
        elif not chunks:
            return groups
        chunks[-1].pages.append(page)
        rows = chunks[0].values
        done = len(chunks) == len(nested) and chunks[-1].values == rows > 0
        if done:
            if not _even(chunks, rows, nested):
                return groups
            groups.append(TornRowGroup(chunks, rows))
            chunks = []
        elif len(chunks) > len(nested):
            return groups


def _even(chunks: list[ColumnChunk], rows: int, nested: tuple[bool, ...]) -> bool:
    """Every flat column has a value a row; a list has at least one."""
    return rows <= ROWS_MAX and all(
        chunk.values >= rows if deep else chunk.values == rows
        for chunk, deep in zip(chunks, nested, strict=True)
    )


def rebuilt_footer(groups: list[TornRowGroup], model: bytes) -> bytes:
    """The footer for these row groups. `model` is that of a file of the same schema with one row
    group: it has all that the pages lack."""
    footer = CompactReader(model).struct()
    columns = [column[3][1] for column in footer[4][1][1][0][1][1][1]]
    footer[3] = (I64, sum(group.rows for group in groups))
    footer[4] = (LIST, (STRUCT, [_group_fields(group, columns) for group in groups]))
    body = encoded(footer)
    return body + len(body).to_bytes(4, "little") + MAGIC


def _group_fields(group: TornRowGroup, columns: list[Struct]) -> Struct:
    fields: list[Struct] = []
    for chunk, column in zip(group.chunks, columns, strict=True):
        first, second = chunk.pages[0], chunk.pages[1]
        encodings = sorted({page.encoding for page in chunk.pages} | {3})
        packed = chunk.pages[-1].end - first.offset
        about: Struct = {
            1: column[1],
            2: (LIST, (I32, encodings)),
            3: column[3],
            4: column[4],
            5: (I64, chunk.values),
            6: (I64, sum(page.nbytes for page in chunk.pages)),
            7: (I64, packed),
            9: (I64, second.offset),
            11: (I64, first.offset),
        }
        fields.append({2: (I64, 0), 3: (STRUCT, about)})
    total = sum(page.nbytes for chunk in group.chunks for page in chunk.pages)
    start = group.chunks[0].pages[0].offset
    return {
        1: (LIST, (STRUCT, fields)),
        2: (I64, total),
        3: (I64, group.rows),
        5: (I64, start),
        6: (I64, group.end - start),
    }


# -- the footer that is there ----------------------------------------------------------------------


def footer_of(file: FileBytes) -> bytes:
    """A file's own footer; `Malformed` when it has none."""
    tail = file.at(file.size - 8, 8) if file.size >= 12 else b""
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > file.size - 12:
        raise Malformed("no footer")
    return file.at(file.size - 8 - length, length)


def footer_groups(footer: bytes, names: frozenset[str], model: bytes) -> list[RowGroupFooter]:
    """The row groups of a footer with the columns named, which are among the model's."""
    rows, groups = usual_of(model).groups(footer) or _any_groups(footer, names)
    if rows != sum(group.rows for group in groups):
        raise Malformed("row groups that do not add up")
    return groups


def _any_groups(footer: bytes, names: frozenset[str]) -> tuple[int, list[RowGroupFooter]]:
    """The same of any footer that is well formed."""
    fields = CompactReader(footer).struct()
    groups = [
        RowGroupFooter(_integer(group, 3, I64), _columns(group, names))
        for group in _structs(fields, 4)
    ]
    return _integer(fields, 3, I64), groups


def _columns(group: Struct, names: frozenset[str]) -> list[Column]:
    columns = []
    for column in _structs(group, 1):
        kind, about = column.get(3, (0, {}))
        if kind != STRUCT or about.get(3, (0, None))[0] != LIST:
            raise Malformed("a column without description")
        path = [part.decode() for part in about[3][1][1]]
        if path[0] in names:
            start = _integer(about, 9, I64)
            if 11 in about:
                start = min(start, _integer(about, 11, I64)) or start
            nbytes, values = _integer(about, 7, I64), _integer(about, 5, I64)
            columns.append(Column(path[0], len(path) > 1, start, nbytes, values))
    return columns


def check_group(file: FileBytes, group: RowGroupFooter) -> None:
    """Walk all pages of the columns: their number and length match the footer."""
    if not 0 <= group.rows <= ROWS_MAX:
        raise Malformed("a row group too large")
    for column in group.columns:
        values = _walk_chunk(file, column.start, column.nbytes)
        if values != column.values or not (column.nested or values == group.rows):
            raise Malformed("columns of unlike length")


def _structs(fields: Struct, number: int) -> list[Struct]:
    kind, value = fields.get(number, (0, None))
    if kind != LIST or (value[0] != STRUCT and value[1]):
        raise Malformed(f"no list {number}")
    return list(value[1])


def _walk_chunk(file: FileBytes, start: int, nbytes: int) -> int:
    """How many values the pages of a chunk hold; `Malformed` when they do not fill it exactly."""
    values = 0
    offset, end = start, start + nbytes
    if start < len(MAGIC) or nbytes < 1 or end > file.size:
        raise Malformed("a column outside the file")
    while offset < end:
        page = page_at(file, offset)
        if page.kind != _DICTIONARY:
            values += page.values
        offset = page.end
    if offset != end:
        raise Malformed("pages that do not fill their column")
    return values
