"""Bytes to packets and back; the only file that knows `struct`.

Every datagram of every protocol begins with the same envelope. What a protocol puts behind it,
it writes with a `Writer` and reads with a `Reader`: hostile bytes raise `BadPacket`, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from ipaddress import ip_address
from itertools import repeat
from struct import Struct, error
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.model import Address, Buffer, Member

try:
    from isal.isal_zlib import crc32
except ImportError:  # The same numbers, ten times as slow.
    from zlib import crc32

MAGIC: Final = 0x554E  # "UN"
VERSION: Final = 1
NO_LIFE: Final = 0
"""The life named by those that are not in the group yet."""

#                   magic version protocol kind flags group life checksum
_ENVELOPE: Final = Struct("!HBBBBQQI")
_CHECKED: Final = _ENVELOPE.size - 4
ENVELOPE_OCTETS: Final = _ENVELOPE.size

_U8, _U16, _U32, _U64 = Struct("!B"), Struct("!H"), Struct("!I"), Struct("!Q")
_I32: Final = Struct("!i")

CUT_COUNT: Final = 64
"""So many fields are cut apart by one call."""

KEPT_MAX: Final = 4096
KEPT_COUNT_MAX: Final = 128
"""Layouts of so many fields are kept."""

_arrays: dict[tuple[str, int], Struct] = {}


class Envelope(NamedTuple):
    """The front of a packet, checked; `body` is what follows it, not copied."""

    kind: int
    life: int
    body: memoryview


def tag_of(text: str) -> int:
    """A 64-bit name for a longer one: of a group, or of a member."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def seal(protocol: int, kind: int, group: int, life: int, body: Buffer) -> bytes:
    """One datagram: the envelope with its checksum, then the body."""
    front = _ENVELOPE.pack(MAGIC, VERSION, protocol, kind, 0, group, life, 0)[:_CHECKED]
    return b"".join((front, _U32.pack(crc32(body, crc32(front))), body))


def seal_alike(
    protocol: int,
    kind: int,
    group: int,
    life: int,
    head: bytes,
    pieces: Sequence[bytes],
    first: int = 0,
) -> bytearray:
    """Datagrams side by side whose bodies are `head`, a 16-bit index that begins at `first`, and a
    piece; the pieces have one length. Nothing is done for each of them alone."""
    front = _ENVELOPE.pack(MAGIC, VERSION, protocol, kind, 0, group, life, 0)
    begun = crc32(head, crc32(front[:_CHECKED]))
    packets = bytearray(front + head + bytes(2)).join((b"", *pieces))
    count, at = len(pieces), ENVELOPE_OCTETS + len(head)
    size = at + 2 + len(pieces[0])
    indices = _array("H", count).pack(*range(first, first + count))
    packets[at::size], packets[at + 1 :: size] = indices[::2], indices[1::2]
    sums = _checksums(begun, indices, pieces)
    for place in range(4):
        packets[_CHECKED + place :: size] = sums[place::4]
    return packets


def open_alike(
    packets: memoryview, size: int, octets: int
) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
    """Index and piece of these datagrams, as `seal_alike` put them there. They are of one size and
    side by side, the first is sound, and `octets` is the length of its head; what is not sound, or
    does not begin as the first does, ends the row.

    Each one's checksum is reckoned on from the first's beginning, not its own. It fits only where
    what was sent began in the same way, or by the same chance by which a checksum overlooks an
    error; how the beginning arrived does not matter.
    """
    count, at = len(packets) // size, ENVELOPE_OCTETS + octets
    whole = packets[: count * size]
    indices = bytearray(2 * count)
    indices[::2], indices[1::2] = whole[at::size], whole[at + 1 :: size]
    pieces: tuple[bytes, ...] = _array(f"{at + 2}x{size - at - 2}s", count).unpack(whole)
    begun = crc32(packets[ENVELOPE_OCTETS:at], crc32(packets[:_CHECKED]))
    sums = _checksums(begun, indices, pieces)
    stored = [bytes(whole[_CHECKED + place :: size]) for place in range(4)]
    if any(sums[place::4] != stored[place] for place in range(4)):
        given = list(zip(*stored, strict=True))
        count = next(n for n in range(count) if tuple(sums[4 * n : 4 * n + 4]) != given[n])
    return _array("H", len(pieces)).unpack(indices)[:count], pieces[:count]


def begin_alike(packets: memoryview, size: int, octets: int) -> bool:
    """Whether the second of these datagrams, of one size and side by side, begins as the first
    does: in what a checksum does not look at, and in so many octets of the body."""
    at, end = ENVELOPE_OCTETS, ENVELOPE_OCTETS + octets
    if len(packets) < 2 * size or size < end + 2:
        return False
    front, head = packets[:_CHECKED], packets[at:end]
    return front == packets[size : size + _CHECKED] and head == packets[size + at : size + end]


def _checksums(begun: int, indices: Buffer, pieces: Sequence[bytes]) -> bytes:
    """Of index and piece, each reckoned on from the same beginning."""
    count = len(pieces)
    seeds = map(crc32, _array("2s", count).unpack(indices), repeat(begun))
    return _array("I", count).pack(*map(crc32, pieces, seeds))


def cut(octets: Buffer, at: int, length: int, times: int) -> list[bytes]:
    """Fields of one length that lie side by side, so many, the first at this place."""
    found: list[bytes] = []
    end = at + times * length
    if times >= CUT_COUNT:
        fields = _array(f"{length}s", CUT_COUNT)
        while end - at >= fields.size:
            found += fields.unpack_from(octets, at)
            at += fields.size
    found += [bytes(octets[n : n + length]) for n in range(at, end, length)]
    return found


def unseal(packet: Buffer, protocol: int, group: int) -> Envelope:
    """Check the envelope. What is not ours raises `BadPacket` with the reason it is counted by."""
    if len(packet) < ENVELOPE_OCTETS:
        raise BadPacket("short")
    magic, version, its_protocol, kind, flags, its_group, life, checksum = _ENVELOPE.unpack_from(
        packet
    )
    if magic != MAGIC:
        raise BadPacket("foreign")
    if version != VERSION:
        raise BadPacket("version")
    view = memoryview(packet)
    if crc32(view[ENVELOPE_OCTETS:], crc32(view[:_CHECKED])) != checksum or flags:
        raise BadPacket("corrupt")
    if its_protocol != protocol:
        raise BadPacket("protocol")
    if its_group != group:
        raise BadPacket("group")
    return Envelope(kind, life, view[ENVELOPE_OCTETS:])


def _array(fields: str, count: int) -> Struct:
    known = _arrays.get((fields, count))
    if known is None:
        known = Struct("!" + fields * count)
        if count <= KEPT_COUNT_MAX:  # Bounded: a hostile count cannot fill the memory.
            if len(_arrays) >= KEPT_MAX:
                _arrays.clear()
            _arrays[fields, count] = known
    return known


class Layout:
    """Fields that always stand together, read and written by one call: the front of a packet."""

    __slots__ = ("_fields", "octets", "pack")

    def __init__(self, fields: str) -> None:
        self._fields = Struct("!" + fields)
        self.octets = self._fields.size
        self.pack = self._fields.pack

    def read(self, body: memoryview, at: int = 0) -> tuple[int, ...]:
        try:
            return self._fields.unpack_from(body, at)
        except error:
            raise BadPacket("malformed") from None


class Writer:
    """Fields, one after the other, in network order."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[Buffer] = []

    def u8(self, value: int) -> Writer:
        self._parts.append(_U8.pack(value))
        return self

    def u16(self, value: int) -> Writer:
        self._parts.append(_U16.pack(value))
        return self

    def u32(self, value: int) -> Writer:
        self._parts.append(_U32.pack(value))
        return self

    def u64(self, value: int) -> Writer:
        self._parts.append(_U64.pack(value))
        return self

    def rows(self, fields: str, width: int, flat: list[int] | tuple[int, ...]) -> Writer:
        """A counted table: `fields` is one row's format, `flat` all rows' values in line."""
        count = len(flat) // width
        self._parts.append(_U16.pack(count))
        self._parts.append(_array(fields, count).pack(*flat))
        return self

    def text(self, value: str) -> Writer:
        return self.blob(value.encode())

    def blob(self, value: Buffer) -> Writer:
        """Bytes with a 16-bit length before them."""
        self._parts.append(_U16.pack(len(value)))
        self._parts.append(value)
        return self

    def raw(self, value: Buffer) -> Writer:
        """Bytes as they are: what follows knows their length."""
        self._parts.append(value)
        return self

    def member(self, member: Member) -> Writer:
        self.text(member.name).text(member.address.host).u16(member.address.port)
        self._parts.append(_I32.pack(member.incarnation))
        return self

    def done(self) -> bytes:
        return b"".join(self._parts)


class Reader:
    """Fields, one after the other, from bytes that somebody else wrote."""

    __slots__ = ("_at", "_view")

    def __init__(self, body: Buffer) -> None:
        self._view = memoryview(body)
        self._at = 0

    def _one(self, field: Struct) -> int:
        try:
            (value,) = field.unpack_from(self._view, self._at)
        except error:
            raise BadPacket("malformed") from None
        self._at += field.size
        return int(value)

    def u8(self) -> int:
        return self._one(_U8)

    def u16(self) -> int:
        return self._one(_U16)

    def u32(self) -> int:
        return self._one(_U32)

    def u64(self) -> int:
        return self._one(_U64)

    def rows(self, fields: str) -> tuple[int, ...]:
        """A counted table, its rows' values in line."""
        count = self._one(_U16)
        if count * (len(fields)) > len(self._view) - self._at:  # Each field is at least a byte.
            raise BadPacket("malformed")
        table = _array(fields, count)
        try:
            values = table.unpack_from(self._view, self._at)
        except error:
            raise BadPacket("malformed") from None
        self._at += table.size
        return values

    def text(self) -> str:
        try:
            return bytes(self.blob()).decode()
        except UnicodeDecodeError:
            raise BadPacket("malformed") from None

    def blob(self) -> memoryview:
        return self.raw(self._one(_U16))

    def raw(self, octets: int) -> memoryview:
        start = self._at
        self._at = start + octets
        if self._at > len(self._view):
            raise BadPacket("malformed")
        return self._view[start : self._at]

    def member(self) -> Member:
        name, host, port = self.text(), self.text(), self.u16()
        try:
            ip_address(host)
        except ValueError:
            raise BadPacket("malformed") from None
        incarnation = self._one(_I32)
        if not name or incarnation < 0:
            raise BadPacket("malformed")
        return Member(name, Address(host, port), incarnation)

    def left(self) -> int:
        return len(self._view) - self._at

    def done(self) -> None:
        """Nothing may follow."""
        if self._at != len(self._view):
            raise BadPacket("long")
