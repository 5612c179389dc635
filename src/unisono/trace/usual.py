"""Page headers and footers as our writer makes them, read by pattern.

A small trace file has more numbers in its headers than in its rows, and hardly any of them matter.
The patterns here match what `compact` reads to the same values, only faster by far; what they do
not match may still be in order, and `compact` decides.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final, NamedTuple

from unisono.trace.compact import LIST, STRUCT, CompactReader, Struct, encoded

_N: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
"""A number: at most ten bytes, as in `compact`."""


def _pattern(text: bytes) -> re.Pattern[bytes]:
    """Blanks are for the reader's eyes, and `N` is a number."""
    return re.compile(text.replace(b" ", b"").replace(b"N", _N))


def _some(kind: int, each: bytes) -> bytes:
    """A list of at most four elements."""
    heads = (rb"\x%02x" % (count << 4 | kind) + each * count for count in range(5))
    return b"(?:" + b"|".join(heads) + b")"


# -- pages -----------------------------------------------------------------------------------------

# Kind, size, compressed size, checksum; then values, encoding and what only readers of values
# need, with no statistics in it.
_page = _pattern(
    rb"\x15 (?: \x00 \x15(N) \x15(N) \x15N \x1c \x15(N) \x15(N) \x15N \x15N (?:\x1c\x00)? \x00"
    rb"       | \x04 \x15(N) \x15(N) \x15N \x3c \x15(N) \x15(N) [\x11\x12]? \x00 ) \x00"
).match


class Head(NamedTuple):
    """A page header."""

    nbytes: int
    """Its own."""
    kind: int
    plain: int
    packed: int
    values: int
    encoding: int


def page_head(data: bytes) -> Head | None:
    """The header at the start of this data, of a page of data or of a dictionary."""
    found = _page(data)
    if found is None:
        return None
    if found.lastindex == 4:
        plain, packed, values, encoding = map(_number, found.group(1, 2, 3, 4))
        return Head(found.end(), 0, plain, packed, values, encoding)
    plain, packed, values, encoding = map(_number, found.group(5, 6, 7, 8))
    return Head(found.end(), 2, plain, packed, values, encoding)


@lru_cache(1 << 14)
def _number(data: bytes) -> int:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1)


# -- the footer ------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column of a row group, by the footer."""

    name: str
    nested: bool
    start: int
    nbytes: int
    values: int


class RowGroupFooter(NamedTuple):
    """A row group, by the footer."""

    rows: int
    columns: list[Column]


_FEW: Final = bytes(count << 4 | STRUCT for count in range(15))
_START: Final = _pattern(rb"\x16(N) \x19 (?: ([" + re.escape(_FEW) + rb"]) | \xfc(N) )")
"""The number of rows and of row groups."""
_END: Final = _pattern(rb"\x16N \x16(N) \x26N \x16N (?:\x14N)? \x00")
"""Of a row group, after its columns."""


class Usual:
    """The footer of a file that differs from the model's only in its row groups."""

    def __init__(self, model: bytes) -> None:
        footer = CompactReader(model).struct()
        empty: Struct = {4: (LIST, (STRUCT, []))}
        rest = {field: value for field, value in footer.items() if field > 4}
        self._front = encoded({field: footer[field] for field in (1, 2)})[:-1]
        self._back = encoded(empty | rest)[len(encoded(empty)) - 1 :]
        columns = [column[3][1] for column in footer[4][1][1][0][1][1][1]]
        self._count = len(columns)
        self._head = encoded({1: (LIST, (STRUCT, [{}] * self._count))})[: -self._count - 1]
        # As the path stands in the bytes: its field, and the list.
        paths = [encoded({1: column[3]})[1:-1] for column in columns]
        self._names = {
            path: (column[3][1][1][0].decode(), len(column[3][1][1]) > 1)
            for path, column in zip(paths, columns, strict=True)
        }
        self._column = _column_pattern(paths)

    def groups(self, footer: bytes) -> tuple[int, list[RowGroupFooter]] | None:
        """The number of rows, and the row groups."""
        start = _START.match(footer, len(self._front))
        if start is None or not footer.startswith(self._front):
            return None
        rows, few, many = start.groups()
        count = few[0] >> 4 if few else _plain(many)
        at, groups = start.end(), []
        while count > 0 and (found := self._group(footer, at)):
            at, about = found
            groups.append(about)
            count -= 1
        if count or footer[at:] != self._back:
            return None
        return _number(rows), groups

    def _group(self, footer: bytes, at: int) -> tuple[int, RowGroupFooter] | None:
        if not footer.startswith(self._head, at):
            return None
        at += len(self._head)
        columns = []
        for _ in range(self._count):
            found = self._column.match(footer, at)
            if found is None:
                return None
            at = found.end()
            values, nbytes, data, dictionary = map(_number, found.group(2, 3, 4, 5))
            name, nested = self._names[found[1]]
            columns.append(Column(name, nested, min(data, dictionary) or data, nbytes, values))
        end = _END.match(footer, at)
        return None if end is None else (end.end(), RowGroupFooter(_number(end[1]), columns))


@cache
def usual_of(model: bytes) -> Usual:
    """By the footer of a model file."""
    return Usual(model)


def _plain(data: bytes) -> int:
    """A count, which has no sign."""
    return sum((byte & 0x7F) << 7 * at for at, byte in enumerate(data))


def _column_pattern(paths: list[bytes]) -> re.Pattern[bytes]:
    """File offset; then type, encodings, path, codec, values, size, compressed size, where the
    data and the dictionary begin; and counts of pages and of values, if any."""
    numbers = _some(6, b"N")
    pages = _some(12, rb"\x15N\x15N\x15N\x00")
    sizes = rb"\x3c (?:\x16N \x19 | \x29)" + numbers + rb"\x19" + numbers + rb"\x00"
    before = rb"\x26N \x1c \x15N \x19" + _some(5, b"N") + rb"\x19"
    after = rb"\x15N \x16(N) \x16N \x16(N) \x26(N) \x26(N)"
    more = rb"(?:\x29" + pages + rb")? (?:" + sizes + rb")? \x00\x00"
    path = b"(" + b"|".join(map(re.escape, paths)) + b")"
    return re.compile(_pattern(before).pattern + path + _pattern(after + more).pattern)
