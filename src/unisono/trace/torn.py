"""What is left of a Parquet file whose end is missing: the row groups that are whole.

A Parquet file is a row of pages, and only its footer says where each begins. A process that is
killed writes no footer. But each page has a header that says how long the page is, and our writer
begins every column chunk with a dictionary page and writes the same columns in every row group: so
the pages can be walked from the front, the row groups that are whole can be counted, and the footer
that would have been written can be written now. Nothing needs to be kept beside the file.

The walk also guards the reader: a header that promises more than the file can hold, or more than
is sane, is found here, before anything is allocated for it.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from unisono.trace.compact import I32, I64, LIST, STRUCT, Malformed, Reader, Struct, encoded

MAGIC: Final = b"PAR1"
PAGE_OCTETS_MAX: Final = 256 << 20
"""A larger page is taken for damage."""
ROWS_MAX: Final = 10_000_000
"""A larger row group is taken for damage."""

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_HEAD_OCTETS: Final = (512, 1 << 16)
"""A header is first looked for in few bytes, then in more: long statistics may be in it."""


class Page(NamedTuple):
    offset: int
    end: int
    kind: int
    values: int
    encoding: int
    octets: int
    """Uncompressed, with the header, as the footer counts."""


class Chunk(NamedTuple):
    pages: list[Page]

    @property
    def values(self) -> int:
        return sum(page.values for page in self.pages if page.kind != _DICTIONARY)


class Group(NamedTuple):
    chunks: list[Chunk]
    rows: int

    @property
    def end(self) -> int:
        return self.chunks[-1].pages[-1].end


def page_at(handle: int, offset: int, size: int) -> Page:
    """The page that begins at `offset`, or `Malformed` when there is no whole one."""
    for octets in _HEAD_OCTETS:
        head = os.pread(handle, min(octets, max(size - offset, 0)), offset)
        reader = Reader(head)
        try:
            return _page(reader.struct(), reader, offset, size)
        except Malformed:
            if len(head) < octets or octets == _HEAD_OCTETS[-1]:
                raise
    raise Malformed("no page")


def _page(head: Struct, reader: Reader, offset: int, size: int) -> Page:
    kind, plain, packed = (_integer(head, field) for field in (1, 2, 3))
    end = offset + reader.at + packed
    if packed < 0 or plain < 0 or plain > PAGE_OCTETS_MAX or end > size:
        raise Malformed("a page longer than the file")
    field = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}.get(kind)
    if field is None or head.get(field, (0, None))[0] != STRUCT:
        raise Malformed("an unknown page")
    about = head[field][1]
    values = _integer(about, 1)
    encoding = _integer(about, 4 if kind == _DATA_V2 else 2)
    if not 0 <= values <= PAGE_OCTETS_MAX:
        raise Malformed("a page of too many values")
    return Page(offset, end, kind, values, encoding, reader.at + plain)


def _integer(fields: Struct, number: int, wanted: int = I32) -> int:
    kind, value = fields.get(number, (0, None))
    if kind != wanted or not isinstance(value, int):
        raise Malformed(f"no field {number}")
    return value


def whole_groups(handle: int, size: int, nested: tuple[bool, ...]) -> list[Group]:
    """The whole row groups from the front; `nested` says of each column whether it is a list."""
    groups: list[Group] = []
    if os.pread(handle, len(MAGIC), 0) != MAGIC:
        return groups
    chunks: list[Chunk] = []
    offset = len(MAGIC)
    while True:
        try:
            page = page_at(handle, offset, size)
        except Malformed:
            return groups
        offset = page.end
        if page.kind == _DICTIONARY:
            chunks.append(Chunk([]))
        elif not chunks:
            return groups
        chunks[-1].pages.append(page)
        rows = chunks[0].values
        done = len(chunks) == len(nested) and chunks[-1].values == rows > 0
        if done:
            if not _even(chunks, rows, nested):
                return groups
            groups.append(Group(chunks, rows))
            chunks = []
        elif len(chunks) > len(nested):
            return groups


def _even(chunks: list[Chunk], rows: int, nested: tuple[bool, ...]) -> bool:
    """Every flat column has a value a row; a list has at least one."""
    return rows <= ROWS_MAX and all(
        chunk.values >= rows if deep else chunk.values == rows
        for chunk, deep in zip(chunks, nested, strict=True)
    )


def rebuilt_footer(groups: list[Group], model: bytes) -> bytes:
    """The footer for these row groups. `model` is a file of the same schema with one row group:
    its footer has all that the pages do not tell."""
    length = int.from_bytes(model[-8:-4], "little")
    footer = Reader(model[-8 - length : -8]).struct()
    columns = [column[3][1] for column in footer[4][1][1][0][1][1][1]]
    footer[3] = (I64, sum(group.rows for group in groups))
    footer[4] = (LIST, (STRUCT, [_group_fields(group, columns) for group in groups]))
    body = encoded(footer)
    return body + len(body).to_bytes(4, "little") + MAGIC


def _group_fields(group: Group, columns: list[Struct]) -> Struct:
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
            6: (I64, sum(page.octets for page in chunk.pages)),
            7: (I64, packed),
            9: (I64, second.offset),
            11: (I64, first.offset),
        }
        fields.append({2: (I64, 0), 3: (STRUCT, about)})
    total = sum(page.octets for chunk in group.chunks for page in chunk.pages)
    start = group.chunks[0].pages[0].offset
    return {
        1: (LIST, (STRUCT, fields)),
        2: (I64, total),
        3: (I64, group.rows),
        5: (I64, start),
        6: (I64, group.end - start),
    }


# -- the footer that is there ----------------------------------------------------------------------


def footer_groups(handle: int, size: int) -> list[Struct]:
    """What a file's own footer says of its row groups; `Malformed` when it has no footer."""
    tail = os.pread(handle, 8, size - 8) if size >= 12 else b""
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - 12:
        raise Malformed("no footer")
    footer = Reader(os.pread(handle, length, size - 8 - length)).struct()
    groups = _structs(footer, 4)
    if _integer(footer, 3, I64) != sum(_integer(group, 3, I64) for group in groups):
        raise Malformed("row groups that do not add up")
    return groups


def check_group(handle: int, size: int, group: Struct, names: set[str]) -> None:
    """Walk all pages of the columns named: they are as many and as long as the footer says."""
    rows = _integer(group, 3, I64)
    if not 0 <= rows <= ROWS_MAX:
        raise Malformed("a row group too large")
    for column in _structs(group, 1):
        kind, about = column.get(3, (0, {}))
        if kind != STRUCT or about.get(3, (0, None))[0] != LIST:
            raise Malformed("a column without description")
        path = [part.decode() for part in about[3][1][1]]
        if path[0] in names:
            start = _integer(about, 9, I64)
            if 11 in about:
                start = min(start, _integer(about, 11, I64)) or start
            values = _walk_chunk(handle, size, start, _integer(about, 7, I64))
            if values != _integer(about, 5, I64) or (len(path) == 1 and values != rows):
                raise Malformed("columns of unlike length")


def _structs(fields: Struct, number: int) -> list[Struct]:
    kind, value = fields.get(number, (0, None))
    if kind != LIST or (value[0] != STRUCT and value[1]):
        raise Malformed(f"no list {number}")
    return list(value[1])


def _walk_chunk(handle: int, size: int, start: int, octets: int) -> int:
    """How many values the pages of a chunk hold; `Malformed` when they do not fill it exactly."""
    values = 0
    offset, end = start, start + octets
    if start < len(MAGIC) or octets < 1 or end > size:
        raise Malformed("a column outside the file")
    while offset < end:
        page = page_at(handle, offset, size)
        if page.kind != _DICTIONARY:
            values += page.values
        offset = page.end
    if offset != end:
        raise Malformed("pages that do not fill their column")
    return values
