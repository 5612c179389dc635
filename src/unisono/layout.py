"""Declared records to bytes and back: the one codec of packets, frames, records and log entries.

A NamedTuple declares its fields once, by annotations. `encode`, `decode`, the bounds that hostile
bytes meet as `BadPacket`, and the documented wire format (`describe`) follow from them:

    class Nak(NamedTuple):
        header: Given[Header]          # not in these bytes: handed to decode
        ranges: tuple[Range, ...]      # a 16-bit count, then the rows

        def is_valid(self) -> bool:    # optional: what bounds of single fields cannot express
            return all(first <= last for _, first, last in self.ranges)

As for dataclasses, code is generated from the declaration, when a record is first used: adjacent
fields of fixed width are one `Struct`, and a table of such rows is read by one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from ipaddress import ip_address
from struct import Struct, error
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from unisono.errors import BadPacket
from unisono.fields import (
    FLAG,
    GIVEN,
    INCARNATION_MAX,
    SHARED_BIT,
    U16_COUNT,
    Bounds,
    Field,
    When,
    choice,
    data,
    fixed,
    optional,
    table,
    text,
)
from unisono.model import Address, Buffer, Member

T = TypeVar("T")


# -- annotations to fields ------------------------------------------------------------------------


def field_of(hint: Any) -> Field:
    """The field that an annotation declares."""
    marks = getattr(hint, "__metadata__", ())
    kind = hint.__origin__ if marks else hint
    for mark in marks:
        if isinstance(mark, Field):
            return mark
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        present = field_of(next(each for each in arguments if each is not NoneType))
        return present if any(isinstance(mark, When) for mark in marks) else optional(present)
    if origin is tuple and arguments[-1] is ...:
        return table(field_of(arguments[0]), U16_COUNT)
    if origin is tuple:
        return _Compiler({f"_{n}": each for n, each in enumerate(arguments)}, tuple).layout().field
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return choice(kind)
    return _PLAIN.get(kind) or layout_of(kind).field


_TEXT: Final = text(U16_COUNT)
_PORT: Final = Struct("!H")
_PORT_AND_INCARNATION: Final = Struct("!HQ")


HOST_CHARS_MAX: Final = 64
"""An IPv6 address with its scope fits. Longer text is not looked at, nor kept in the cache."""


def _is_host(host: str) -> bool:
    return len(host) <= HOST_CHARS_MAX and _is_address(host)


@lru_cache(maxsize=4096)
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _read_address(view: memoryview, at: int) -> tuple[Address, int]:
    host, at = _TEXT.read(view, at)
    port, at = U16_COUNT.read(view, at)
    if not _is_host(host):
        raise BadPacket("malformed")
    return Address(host, port), at


def _write_address(address: Address, parts: list[Buffer]) -> None:
    _TEXT.write(address.host, parts)
    parts.append(_PORT.pack(address.port))


def _read_member(view: memoryview, at: int) -> tuple[Member, int]:
    name, at = _TEXT.read(view, at)
    host, at = _TEXT.read(view, at)
    try:
        port, incarnation = _PORT_AND_INCARNATION.unpack_from(view, at)
    except error:
        raise BadPacket("malformed") from None
    if not name or incarnation > INCARNATION_MAX or not _is_host(host):
        raise BadPacket("malformed")
    return Member(name, Address(host, port), incarnation), at + _PORT_AND_INCARNATION.size


def _write_member(member: Member, parts: list[Buffer]) -> None:
    name, (host, port), incarnation = member
    assert 0 <= incarnation <= INCARNATION_MAX, "an incarnation has 63 bits"
    _TEXT.write(name, parts)
    _TEXT.write(host, parts)
    parts.append(_PORT_AND_INCARNATION.pack(port, incarnation))


_PLAIN: Final[dict[Any, Field]] = {
    bool: FLAG,
    str: _TEXT,
    bytes: data(U16_COUNT, copied=True),
    Address: Field("address", _read_address, _write_address, 4),
    Member: Field("member", _read_member, _write_member, 14),
}


# -- fields to records ----------------------------------------------------------------------------


class RecordLayout(NamedTuple):
    """A compiled declaration."""

    read: Callable[..., tuple[Any, int]]
    """From a buffer, an offset and the values that are given: the record, the offset behind it."""
    write: Callable[[Any, list[Buffer]], None]
    field: Field
    """The record as a field of another."""
    rows: list[tuple[str, str]]
    """Name and form of each field."""
    pack: Callable[..., bytes]
    """Of fields that are all plain numbers: these to bytes."""


class _Compiler:
    """Generates the functions of a layout, field by field."""

    def __init__(self, hints: dict[str, Any], record: Any) -> None:
        defaults: dict[str, Any] = getattr(record, "_field_defaults", {})
        self._record = record
        self._space: dict[str, Any] = {"error": error, "BadPacket": BadPacket}
        """What the generated code names."""
        self._reads: list[str] = []
        self._writes: list[str] = []
        self._least = 0
        self._run: list[tuple[str, list[str], list[str], str]] = []
        """Adjacent fields of fixed width: struct codes, names of the numbers, how to load and dump
        them."""
        self._runs: list[tuple[str, str, list[str], str]] = []
        self._bits: list[str] = []
        self._values = [f"v_{name}" for name in hints]
        self._given: list[str] = []
        self.rows: list[tuple[str, str]] = []
        for name, hint in hints.items():
            marks = getattr(hint, "__metadata__", ())
            when = next((mark.name for mark in marks if isinstance(mark, When)), None)
            if GIVEN in marks:
                self._given.append(f"v_{name}")
            elif SHARED_BIT in marks:
                self._bits.append(f"v_{name}")
                self.rows.append((name, "bit"))
            else:
                self._add(name, field_of(hint), when, defaults.get(name))
        self._close()

    def _add(self, name: str, field: Field, when: str | None, default: Any) -> None:
        self.rows.append((name, field.text + (f", unless {when} is 0" if when else "")))
        if field.codes and when is None:
            self._close_bits()
            self._run.append(self._numbers(f"v_{name}", field))
            return
        self._close()
        read, write = self._named(field.read), self._named(field.write)
        reads, writes = f"v_{name}, at = {read}(view, at)", f"{write}(v_{name}, parts)"
        if when is None:
            self._least += field.least
            self._reads.append(reads)
            self._writes.append(writes)
        else:
            self._reads += [f"v_{name} = {self._named(default)}", f"if v_{when}: {reads}"]
            self._writes.append(f"if v_{when}: {writes}")

    def _named(self, thing: Any) -> str:
        name = f"x{len(self._space)}"
        self._space[name] = thing
        return name

    def _numbers(self, value: str, field: Field) -> tuple[str, list[str], list[str], str]:
        single = len(field.codes) == 1
        names = [value] if single else [f"{value}_{n}" for n in range(len(field.codes))]
        loads = self._checked(value, field.bounds) if field.bounds is not None else []
        if field.load is not None:
            loads.append(f"{value} = {self._named(field.load)}({', '.join(names)})")
        elif not single:
            loads.append(f"{value} = ({', '.join(names)})")
        dumped = f"*{self._named(field.dump)}({value})" if field.dump else value
        return field.codes, names, loads, dumped if single or field.dump else f"*{value}"

    def _checked(self, value: str, bounds: Bounds) -> list[str]:
        low = f"{bounds.least} <= " if bounds.least else ""
        return [f"if not {low}{value} <= {bounds.most}: raise BadPacket({bounds.reason!r})"]

    def _close_bits(self) -> None:
        """Booleans in a row are one number."""
        if self._bits:
            byte = f"{self._bits[0]}_byte"
            loads = self._checked(byte, Bounds(0, (1 << len(self._bits)) - 1))
            loads += [f"{bit} = {byte} & {1 << n} != 0" for n, bit in enumerate(self._bits)]
            dumped = " | ".join(f"{bit} << {n}" for n, bit in enumerate(self._bits))
            self._run.append(("B", [byte], loads, dumped))
            self._bits = []

    def _close(self) -> None:
        """Read and write the fields of fixed width up to here by one call."""
        self._close_bits()
        if self._run:
            codes = "".join(codes for codes, _, _, _ in self._run)
            numbers = ", ".join(name for _, names, _, _ in self._run for name in names)
            loads = [line for _, _, loads, _ in self._run for line in loads]
            dumps = ", ".join(dumped for _, _, _, dumped in self._run)
            struct = Struct("!" + codes)
            self._reads.append(f"{numbers}, = {self._named(struct.unpack_from)}(view, at)")
            self._reads += [f"at += {struct.size}", *loads]
            self._writes.append(f"parts.append({self._named(struct.pack)}({dumps}))")
            self._least += struct.size
            self._runs.append((codes, numbers, loads, dumps))
            self._run = []

    def _function(self, head: str, lines: Sequence[str]) -> Any:
        """Wrong lengths make `struct` fail: that is the sender's fault."""
        body = "\n    ".join(lines) or "pass"
        exec(f"def function({head}):\n    {body}", self._space)
        return self._space["function"]

    def layout(self) -> RecordLayout:
        values = ", ".join(self._values)
        check = getattr(self._record, "is_valid", None)
        new, record = self._named(tuple.__new__), self._named(self._record)
        made = [f"made = {new}({record}, ({values}{',' * bool(values)}))"]
        if check is not None:
            made.append(f"if not {self._named(check)}(made): raise BadPacket('malformed')")
        guarded = [
            "try:",
            *(f"    {line}" for line in self._reads or ["pass"]),
            "except error: raise BadPacket('malformed') from None",
        ]
        given = "".join(f", {name}" for name in self._given)
        read = self._function(f"view, at{given}", [*guarded, *made, "return made, at"])
        unpacked = [f"{values}, = record"] if values else []
        write = self._function("record, parts", [*unpacked, *self._writes])
        names = [name.lstrip("_0123456789") for name, _ in self.rows]
        forms = [f"{n} {form}".lstrip() for n, (_, form) in zip(names, self.rows, strict=True)]
        form = f"({', '.join(forms)})"
        if len(self._runs) != 1 or len(self._writes) != 1 or self._given:
            field = Field(form, read, write, self._least)
            return RecordLayout(read, write, field, self.rows, _not_fixed)
        codes, numbers, loads, dumps = self._runs[0]
        load = self._function(numbers, [*loads, *made, "return made"])
        plain = dumps == values and len(codes) > 1  # The record is the tuple of its numbers.
        dump = None if plain else self._function("record", [*unpacked, f"return ({dumps},)"])
        field = fixed(form, codes, load, dump)._replace(read=read, write=write)
        return RecordLayout(read, write, field, self.rows, Struct("!" + codes).pack)


def _not_fixed(*values: Any) -> bytes:
    raise TypeError("a record of variable length: encode it")


_layouts: dict[Any, RecordLayout] = {}


def layout_of(record: Any) -> RecordLayout:
    known = _layouts.get(record)
    if known is None:
        assert hasattr(record, "_fields"), f"{record!r} declares no fields: annotate it"
        hints = get_type_hints(record, include_extras=True)
        known = _Compiler({name: hints[name] for name in record._fields}, record).layout()
        _layouts[record] = known
    return known


def encode(record: Any) -> bytes:
    """The record's bytes, without the fields that are `Given`."""
    parts: list[Buffer] = []
    layout_of(type(record)).write(record, parts)
    return b"".join(parts)


def encode_parts(record: Any) -> list[Buffer]:
    """The same in parts, for a caller that joins them with others: large ones are copied once."""
    parts: list[Buffer] = []
    layout_of(type(record)).write(record, parts)
    return parts


def decode(record: type[T], body: Buffer, *given: Any) -> T:
    """The record that these bytes are, all of them; else `BadPacket`."""
    found, at = layout_of(record).read(memoryview(body), 0, *given)
    if at != len(body):
        raise BadPacket("long")
    return found  # type: ignore[no-any-return]


def decode_front(record: type[T], body: Buffer) -> tuple[T, memoryview]:
    """The record that these bytes begin with, and the rest."""
    view = memoryview(body)
    found, at = layout_of(record).read(view, 0)
    return found, view[at:]


def size_of(kind: Any) -> int:
    """Bytes of a record, or of a bare tuple of numbers; where they vary, the least."""
    return field_of(kind).least


def describe(record: type[Any]) -> list[tuple[str, str]]:
    """Name and form of each field, in the order of the bytes."""
    return layout_of(record).rows
