"""Bytes to packets and back; the only file that knows `struct`.

Every datagram of every protocol has the same envelope: a front, and a checksum at its end. What a
protocol puts in between it writes with a `Writer` and reads with a `Reader`: hostile bytes raise
`BadPacket`, nothing else.

The checksum is a CRC that begins at SOUND and, over a packet with its checksum, ends there again.
So the CRC of packets side by side is SOUND as well, and a burst is checked by one call: an error in
any of them changes what follows, and nothing behind it can change it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from ipaddress import ip_address
from itertools import repeat
from struct import Struct, error
from typing import Any, Final, NamedTuple, TypeVar

from unisono.errors import BadPacket
from unisono.model import Address, Buffer, Member

try:
    from isal.isal_zlib import crc32
except ImportError:  # The same numbers, ten times as slow.
    from zlib import crc32

MAGIC: Final = 0x554E  # "UN"
VERSION: Final = 3
NO_LIFE: Final = 0
"""The life named by those that are not in the group yet."""

#                   magic version protocol kind flags group life
_FRONT: Final = Struct("!HBBBBQQ")
FRONT_BYTES: Final = _FRONT.size
_NOTE: Final = Struct("!HB")
NOTE: Final = 0
"""In place of the version: a note, which is the same in every version."""
_SUM: Final = Struct("<I")
SUM_BYTES: Final = _SUM.size
ENVELOPE_BYTES: Final = FRONT_BYTES + SUM_BYTES
SOUND: Final = 0x2144DF1C
"""What the CRC of any bytes is that end with their own CRC, lowest octet first."""

_U8, _U16, _U32, _U64 = Struct("!B"), Struct("!H"), Struct("!I"), Struct("!Q")
INCARNATION_MAX: Final = (1 << 63) - 1
"""An incarnation has 63 bits, so that tables and traces hold it as a signed number."""

CUT_COUNT: Final = 64
"""So many fields are cut apart at once."""

KEPT_MAX: Final = 1024
KEPT_COUNT_MAX: Final = 128
"""Layouts of so many fields are kept."""

_arrays: dict[tuple[str, int], Struct] = {}
T = TypeVar("T")


class Envelope(NamedTuple):
    """A packet, checked; `body` is what its envelope holds, not copied."""

    kind: int
    life: int
    body: memoryview


class Datagram(bytes):
    """A packet that several receivers of one process are handed: it is read once for all."""

    envelope: Envelope | None = None
    """What is in it, where somebody has found it to be sound."""
    packet: Any = None
    """What it was read as, where somebody has."""


def opened(packet: Buffer, kind: int, life: int, sound: bool) -> Envelope | None:
    """What is in a packet that begins as one of this kind and life that was let in; nothing, where
    it is neither known to be sound nor found to be."""
    shared = packet if type(packet) is Datagram else None
    if shared is not None and shared.envelope is not None:
        return shared.envelope
    if not (sound or are_sound(packet)):
        return None
    found = Envelope(kind, life, memoryview(packet)[FRONT_BYTES:-SUM_BYTES])
    if shared is not None:
        shared.envelope = found
    return found


def read_once(read: Callable[..., T], *envelope: Any) -> T:
    """Read a packet, unless that was done: the fields of an envelope, the body last, are read alike
    by whoever has them."""
    whole = envelope[-1].obj
    if type(whole) is not Datagram:
        return read(*envelope)
    packet: T | None = whole.packet
    if packet is None:
        packet = whole.packet = read(*envelope)
    return packet


def tag_of(text: str) -> int:
    """A 64-bit name for a longer one: of a group, or of a member."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def seal(protocol: int, kind: int, group: int, life: int, body: Buffer) -> bytes:
    """One datagram: front, body, checksum."""
    front = _FRONT.pack(MAGIC, VERSION, protocol, kind, 0, group, life)
    return b"".join((front, body, _SUM.pack(crc32(body, crc32(front, SOUND)))))


def seal_note(body: Buffer) -> bytes:
    """A datagram that belongs to no protocol."""
    whole = _NOTE.pack(MAGIC, NOTE) + body
    return whole + _SUM.pack(crc32(whole, SOUND))


def note_in(packet: Buffer) -> memoryview | None:
    """The body of a note; nothing of any other packet."""
    if len(packet) < _NOTE.size + SUM_BYTES or _NOTE.unpack_from(packet) != (MAGIC, NOTE):
        return None
    return memoryview(packet)[_NOTE.size : -SUM_BYTES] if are_sound(packet) else None


def seal_batch(
    protocol: int,
    kind: int,
    group: int,
    life: int,
    head: bytes,
    pieces: Sequence[bytes],
    first: int = 0,
) -> bytes:
    """Datagrams side by side whose bodies are `head`, a 16-bit index that begins at `first`, and a
    piece; the pieces have one length. Nothing is done for each of them alone."""
    front = _FRONT.pack(MAGIC, VERSION, protocol, kind, 0, group, life) + head
    count = len(pieces)
    indices = _array("!2s", count).unpack(_array("!H", count).pack(*range(first, first + count)))
    fields: list[bytes | int] = [front] * (4 * count)
    fields[1::4], fields[2::4] = indices, pieces
    begun = map(crc32, indices, repeat(crc32(front, SOUND)))
    fields[3::4] = map(crc32, pieces, begun)
    return _array(f"<{len(front)}s2s{len(pieces[0])}sI", count).pack(*fields)


def open_batch(
    packets: memoryview, size: int, octets: int
) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
    """Index and piece of these datagrams, as `seal_batch` put them there. They are sound, of one
    size and side by side, and `octets` is the length of a head; what does not begin as the first
    does ends the row."""
    count, at = len(packets) // size, FRONT_BYTES + octets
    layout = f"!{at}sH{size - at - 2 - SUM_BYTES}s{SUM_BYTES}x"
    fields = _array(layout, count).unpack(packets[: count * size])
    fronts = fields[::3]
    if fronts.count(fronts[0]) < count:
        count = next(n for n in range(count) if fronts[n] != fronts[0])
    return fields[1 : 3 * count : 3], fields[2 : 3 * count : 3]


def heads_match(packets: memoryview, size: int, octets: int) -> bool:
    """Whether the second of these datagrams, of one size and side by side, begins as the first
    does: in its front, and in so many octets of the body."""
    end = FRONT_BYTES + octets
    if len(packets) < 2 * size or size < end + 2 + SUM_BYTES:
        return False
    return packets[:end] == packets[size : size + end]


def cut(octets: Buffer, at: int, length: int, times: int) -> list[bytes]:
    """Fields of one length that lie side by side, so many, the first at this place."""
    whole = memoryview(octets)[at : at + times * length]
    if times <= CUT_COUNT:
        return list(_array(f"!{length}s", times).unpack(whole))
    rows = times // CUT_COUNT * CUT_COUNT * length
    found: list[bytes] = []
    if rows:
        for row in _array(f"!{length}s", CUT_COUNT).iter_unpack(whole[:rows]):
            found += row
    if rows < len(whole):
        found += [field for (field,) in _array(f"!{length}s", 1).iter_unpack(whole[rows:])]
    return found


def numbers(values: Sequence[int]) -> bytes:
    """32 bits each, side by side."""
    return Struct(f"!{len(values)}I").pack(*values)


def read_numbers(octets: Buffer, at: int, count: int) -> tuple[int, ...]:
    """So many of them."""
    try:
        return Struct(f"!{count}I").unpack_from(octets, at)
    except error:
        raise BadPacket("malformed") from None


def are_sound(packets: Buffer) -> bool:
    """Whether the checksum of each of these datagrams, side by side, fits it."""
    return crc32(packets, SOUND) == SOUND


def unseal(packet: Buffer, protocol: int, group: int, sound: bool = False) -> Envelope:
    """Check the envelope; its checksum not where it is known to be sound. What is not ours raises
    `BadPacket` with the reason it is counted by."""
    if len(packet) < ENVELOPE_BYTES:
        raise BadPacket("short")
    magic, version, its_protocol, kind, flags, its_group, life = _FRONT.unpack_from(packet)
    if magic != MAGIC:
        raise BadPacket("foreign")
    if version != VERSION:
        raise BadPacket("version")
    if flags or not (sound or are_sound(packet)):
        raise BadPacket("corrupt")
    if its_group >> 32 != group >> 32:
        raise BadPacket("group")
    if its_protocol != protocol:
        raise BadPacket("protocol")
    if its_group != group:
        raise BadPacket("terms")
    return Envelope(kind, life, memoryview(packet)[FRONT_BYTES:-SUM_BYTES])


def group_of(packet: Buffer) -> int:
    """The group that a packet names."""
    if len(packet) < ENVELOPE_BYTES:
        raise BadPacket("short")
    return int(_FRONT.unpack_from(packet)[5])


def _array(layout: str, count: int) -> Struct:
    """So many times these fields, behind a sign for the order of their octets."""
    known = _arrays.get((layout, count))
    if known is None:
        known = Struct(layout[0] + layout[1:] * count)
        if count <= KEPT_COUNT_MAX:  # Bounded: a hostile count cannot fill the memory.
            if len(_arrays) >= KEPT_MAX:
                _arrays.clear()
            _arrays[layout, count] = known
    return known


class FieldLayout:
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

    def read_all(self, body: memoryview, at: int, count: int) -> Iterator[tuple[int, ...]]:
        """So many side by side."""
        octets = self.octets * count
        if at + octets > len(body):
            raise BadPacket("malformed")
        return self._fields.iter_unpack(body[at : at + octets])


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
        self._parts.append(_array("!" + fields, count).pack(*flat))
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
        return self.incarnation(member.incarnation)

    def incarnation(self, value: int) -> Writer:
        assert 0 <= value <= INCARNATION_MAX, "an incarnation has 63 bits"
        return self.u64(value)

    def done(self) -> bytes:
        return b"".join(self._parts)


@lru_cache(maxsize=4096)
def _is_host(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


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
        table = _array("!" + fields, count)
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
        if not name or not _is_host(host):
            raise BadPacket("malformed")
        return Member(name, Address(host, port), self.incarnation())

    def incarnation(self) -> int:
        value = self._one(_U64)
        if value > INCARNATION_MAX:
            raise BadPacket("malformed")
        return value

    def left(self) -> int:
        return len(self._view) - self._at

    def done(self) -> None:
        """Nothing may follow."""
        if self._at != len(self._view):
            raise BadPacket("long")
