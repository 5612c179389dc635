"""Kinds of fields: how one value is read from bytes and written, and its bounds.

Numbers are in network byte order. A record declares its fields by annotations of these kinds: see
`unisono.layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import chain, starmap
from struct import Struct, error
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar

from unisono.errors import BadPacket
from unisono.model import Buffer

T = TypeVar("T")
INCARNATION_MAX: Final = (1 << 63) - 1
"""An incarnation has 63 bits, so that tables and traces hold it as a signed number."""
ARRAYS_MAX: Final = 1024
ARRAY_COUNT_MAX: Final = 128


class Bounds(NamedTuple):
    least: int
    most: int
    reason: str = "malformed"
    """What a value beyond them is counted by."""


class Field(NamedTuple):
    """How one value is read and written."""

    text: str
    """For the documents."""
    read: Callable[[memoryview, int], tuple[Any, int]]
    """The value at this offset, and the offset behind it. Raises `BadPacket`."""
    write: Callable[[Any, list[Buffer]], None]
    least: int = 0
    """Bytes that any value takes."""
    codes: str = ""
    """Of a field of fixed width: a struct code for each of its numbers."""
    load: Callable[..., Any] | None = None
    """These numbers to the value. Without it one number is the value, several are a tuple."""
    dump: Callable[[Any], Sequence[Any]] | None = None
    bounds: Bounds | None = None


class When(NamedTuple):
    """Marks a field that is present only if an earlier one is not zero."""

    name: str


class FieldMark(NamedTuple):
    """Marks a field that is not read and written by itself."""

    what: str


GIVEN: Final = FieldMark("given")
SHARED_BIT: Final = FieldMark("bit")
_arrays: dict[tuple[str, int], Struct] = {}


def array(codes: str, count: int) -> Struct:
    """Cached Struct: byte order, then `count` repeats."""
    known = _arrays.get((codes, count))
    if known is None:
        known = Struct(codes[0] + codes[1:] * count)
        if count <= ARRAY_COUNT_MAX:  # Bounded: a hostile count cannot fill the memory.
            if len(_arrays) >= ARRAYS_MAX:
                _arrays.clear()
            _arrays[codes, count] = known
    return known


def fixed(
    text: str,
    codes: str,
    load: Callable[..., Any] | None = None,
    dump: Callable[[Any], Sequence[Any]] | None = None,
    bounds: Bounds | None = None,
) -> Field:
    """A field of fixed width."""
    if bounds is not None and len(codes) > 1:
        raise TypeError(f"{text}: bounds are of one number, not of {len(codes)}; give each its own")
    struct = Struct("!" + codes)
    unpack_from, pack, size, single = struct.unpack_from, struct.pack, struct.size, len(codes) == 1

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        try:
            numbers = unpack_from(view, at)
        except error:
            raise BadPacket("malformed") from None
        if bounds is not None and not bounds.least <= numbers[0] <= bounds.most:
            raise BadPacket(bounds.reason)
        if load is not None:
            return load(*numbers), at + size
        return (numbers[0] if single else numbers), at + size

    def write(value: Any, parts: list[Buffer]) -> None:
        if dump is not None:
            value = dump(value)
        parts.append(pack(value) if single and dump is None else pack(*value))

    return Field(text, read, write, size, codes, load, dump, bounds)


def bounded(code: str, least: int, most: int, reason: str = "malformed", text: str = "") -> Field:
    """A number with bounds."""
    bits = Struct("!" + code).size * 8
    described = text or f"u{bits}, {least} to {_power(most)}"
    return fixed(described, code, bounds=Bounds(least, most, reason))


def _power(value: int) -> str:
    for less, sign in ((0, ""), (1, "-1")):
        power = value + less
        if power >= 1 << 16 and power & (power - 1) == 0:
            return f"2^{power.bit_length() - 1}{sign}"
    return f"{value}"


def choice(kind: type[IntEnum]) -> Field:
    """A member of an enumeration, in one byte."""
    members = {member.value: member for member in kind}

    def load(value: int) -> IntEnum:
        found = members.get(value)
        if found is None:
            raise BadPacket("malformed")
        return found

    return fixed("u8: " + ", ".join(f"{each.value} {each.name}" for each in kind), "B", load)


def data(count: Field | None, copied: bool = False) -> Field:
    """Bytes after their length; without a count, all that are left."""
    if count is None:
        return Field("the rest", lambda view, at: (view[at:], len(view)), _append)
    struct, bounds = Struct("!" + count.codes), count.bounds

    def read(view: memoryview, at: int) -> tuple[Buffer, int]:
        try:
            (size,) = struct.unpack_from(view, at)
        except error:
            raise BadPacket("malformed") from None
        at += struct.size
        end = at + size
        if end > len(view):
            raise BadPacket("malformed")
        if bounds is not None and not bounds.least <= size <= bounds.most:
            raise BadPacket(bounds.reason)
        return (bytes(view[at:end]) if copied else view[at:end]), end

    def write(value: Buffer, parts: list[Buffer]) -> None:
        parts += (struct.pack(len(value)), value)

    return Field(f"bytes after their length ({count.text})", read, write, count.least)


def _append(value: Buffer, parts: list[Buffer]) -> None:
    parts.append(value)


def raw(size: int) -> Field:
    """This many bytes."""

    def read(view: memoryview, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(view):
            raise BadPacket("malformed")
        return bytes(view[at:end]), end

    return Field(f"{size} bytes", read, _append, size)


def text(count: Field) -> Field:
    """UTF-8 after its length in bytes."""
    struct, inner = Struct("!" + count.codes), data(count)

    def read(view: memoryview, at: int) -> tuple[str, int]:
        found, at = inner.read(view, at)
        try:
            return str(found, "utf-8"), at
        except UnicodeDecodeError:
            raise BadPacket("malformed") from None

    def write(value: str, parts: list[Buffer]) -> None:
        encoded = value.encode()
        parts += (struct.pack(len(encoded)), encoded)

    return Field(f"text after its length ({count.text})", read, write, count.least)


def table(row: Field, count: Field, flat: bool = False) -> Field:
    """A count, then the rows; where it is flat, the value is all numbers in line."""
    described = f"{count.text} count, then each {row.text}"
    if not row.codes:
        return _table_of_each(described, row, count)
    codes, width, load, dump = "!" + row.codes, len(row.codes), row.load, row.dump
    bounds, pack_count = row.bounds, Struct("!" + count.codes).pack
    single = width == 1 and dump is None
    flat = flat or (single and load is None)

    def read(view: memoryview, at: int) -> tuple[tuple[Any, ...], int]:
        times, at = count.read(view, at)
        end = at + times * row.least
        if end > len(view):
            raise BadPacket("malformed")
        numbers = array(codes, times).unpack_from(view, at)
        if bounds is not None and any(not bounds.least <= n <= bounds.most for n in numbers):
            raise BadPacket(bounds.reason)
        if flat:
            return numbers, end
        rows = zip(*[iter(numbers)] * width, strict=True)
        return tuple(rows if load is None else starmap(load, rows)), end

    def write(rows: Sequence[Any], parts: list[Buffer]) -> None:
        times = len(rows) // width if flat else len(rows)
        if flat or single:
            numbers: Iterable[Any] = rows
        else:
            numbers = chain.from_iterable(map(dump, rows) if dump else rows)
        parts += (pack_count(times), array(codes, times).pack(*numbers))

    return Field(described, read, write, count.least)


def _table_of_each(described: str, row: Field, count: Field) -> Field:
    read_row, write_row, pack_count = row.read, row.write, Struct("!" + count.codes).pack

    def read(view: memoryview, at: int) -> tuple[tuple[Any, ...], int]:
        times, at = count.read(view, at)
        rows = []
        for _ in range(times):
            value, at = read_row(view, at)
            rows.append(value)
        return tuple(rows), at

    def write(rows: Sequence[Any], parts: list[Buffer]) -> None:
        parts.append(pack_count(len(rows)))
        for value in rows:
            write_row(value, parts)

    return Field(described, read, write, count.least)


def optional(inner: Field) -> Field:
    """A flag, then the value if it is set."""

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        present, at = FLAG.read(view, at)
        return inner.read(view, at) if present else (None, at)

    def write(value: Any, parts: list[Buffer]) -> None:
        parts.append(b"\0" if value is None else b"\1")
        if value is not None:
            inner.write(value, parts)

    return Field(f"flag, then {inner.text} if set", read, write, FLAG.least)


FLAG: Final = fixed("flag", "B", bool, bounds=Bounds(0, 1))
U8_COUNT: Final = fixed("u8", "B")
U16_COUNT: Final = fixed("u16", "H")
U32_COUNT: Final = fixed("u32", "I")

U8: TypeAlias = Annotated[int, U8_COUNT]
U16: TypeAlias = Annotated[int, U16_COUNT]
U32: TypeAlias = Annotated[int, U32_COUNT]
U64: TypeAlias = Annotated[int, fixed("u64", "Q")]
Incarnation: TypeAlias = Annotated[int, bounded("Q", 0, INCARNATION_MAX, text="incarnation")]
Bit: TypeAlias = Annotated[bool, SHARED_BIT]
"""Adjacent bits share a byte, the first lowest."""
Blob: TypeAlias = Annotated[Buffer, data(U16_COUNT)]
"""Bytes after a 16-bit length, not copied."""
Rest: TypeAlias = Annotated[Buffer, data(None)]
"""All bytes that are left, not copied."""
Given: TypeAlias = Annotated[T, GIVEN]
"""Not in the bytes: handed to `decode` in the order of declaration, left out by `encode`."""
