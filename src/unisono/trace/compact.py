"""Thrift's compact protocol, as much of it as the headers and the footer of a Parquet file need.

A struct is a dict from field id to (type, value); a list is (type of its elements, elements).
Whatever is not well formed raises `Malformed`; nothing is allocated that the input does not hold.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
STRUCT: Final = 12

DEPTH_MAX: Final = 16
"""Parquet's own structures nest no deeper than this."""

Struct: TypeAlias = dict[int, tuple[int, Any]]


class Malformed(ValueError):
    """Not the compact protocol, or cut short."""


class CompactReader:
    """Reads values from `data`, moving `at`."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def _take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise Malformed("cut short")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def _byte(self) -> int:
        at = self.at
        try:
            byte = self.data[at]
        except IndexError:
            raise Malformed("cut short") from None
        self.at = at + 1
        return byte

    def _varint(self) -> int:
        # Most numbers are one byte long, and there are a thousand in each small file.
        data, at = self.data, self.at
        try:
            byte = data[at]
            value, shift = byte & 0x7F, 7
            while byte >= 0x80:
                if shift >= 70:
                    raise Malformed("a number without end")
                at += 1
                byte = data[at]
                value |= (byte & 0x7F) << shift
                shift += 7
        except IndexError:
            raise Malformed("cut short") from None
        self.at = at + 1
        return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _value(self, kind: int, depth: int) -> Any:
        if I16 <= kind <= I64:
            return self._zigzag()
        if kind == BINARY:
            return self._take(self._varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self._list(depth + 1)
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self._byte()
        if kind == DOUBLE:
            return self._take(8)
        raise Malformed(f"type {kind}")

    def _list(self, depth: int) -> tuple[int, list[Any]]:
        head = self._byte()
        kind, count = head & 0x0F, head >> 4
        if count == 15:
            count = self._varint()
        if count > len(self.data) - self.at:
            raise Malformed("a list longer than the data")
        if kind in (TRUE, FALSE):
            return kind, [self._byte() == TRUE for _ in range(count)]
        return kind, [self._value(kind, depth) for _ in range(count)]

    def struct(self, depth: int = 0) -> Struct:
        if depth > DEPTH_MAX:
            raise Malformed("nested too deep")
        fields: Struct = {}
        last = 0
        while True:
            head = self._byte()
            if head == 0:
                return fields
            kind, delta = head & 0x0F, head >> 4
            last = last + delta if delta else self._zigzag()
            fields[last] = (kind, self._value(kind, depth))


def encoded(fields: Struct) -> bytes:
    """The struct's bytes."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def _write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_zigzag(out: bytearray, value: int) -> None:
    _write_varint(out, (value << 1) ^ (value >> 63))


def _write_struct(out: bytearray, fields: Struct) -> None:
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        delta = number - last
        if 0 < delta < 16:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            _write_zigzag(out, number)
        last = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind == BYTE:
        out.append(value)
    elif kind in (TRUE, FALSE):
        out.append(TRUE if value else FALSE)
    elif kind in (I16, I32, I64):
        _write_zigzag(out, value)
    elif kind == DOUBLE:
        out += value
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind in (LIST, SET):
        of, elements = value
        if len(elements) < 15:
            out.append(len(elements) << 4 | of)
        else:
            out.append(0xF0 | of)
            _write_varint(out, len(elements))
        for element in elements:
            _write_value(out, of, element)
    elif kind == STRUCT:
        _write_struct(out, value)
    else:
        raise Malformed(f"type {kind}")
