"""Datagrams: the envelope of every packet of every protocol, a front and a checksum at its end.

A protocol declares what is in between (`unisono.layout`); hostile bytes raise only `BadPacket`.

The checksum is a CRC that begins at SOUND and, over a packet with its checksum, ends there again.
So the CRC of packets side by side is SOUND as well, and a burst is checked by one call: an error in
any of them changes what follows, and nothing behind it can change it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import repeat
from struct import Struct, error
from typing import Any, Final, NamedTuple, TypeVar

from unisono.errors import BadPacket
from unisono.fields import array
from unisono.model import Buffer

try:
    from isal.isal_zlib import crc32
except ImportError:  # The same numbers, ten times as slow.
    from zlib import crc32

MAGIC: Final = 0x554E  # "UN"
SEALED: Final = b"US"
"""In place of the magic: a sealed packet (`unisono.sealing`)."""
VERSION: Final = 3
NO_LIFE: Final = 0
"""Sent by processes that are not in the group yet."""

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
"""The CRC of any bytes that end with their own CRC, lowest byte first."""

CUT_COUNT: Final = 64
"""Fields that `cut` separates at once."""

T = TypeVar("T")


class Envelope(NamedTuple):
    """A packet, checked; `body` is what its envelope holds, not copied."""

    kind: int
    life: int
    body: memoryview


class Datagram(bytes):
    """A packet with several receivers in one process, decoded once for all."""

    envelope: Envelope
    group: int | None = None
    """The group of the receiver that has found it to be sound."""
    counter: str
    """What that receiver counts it by."""
    packet: Any = None
    """Set once a receiver has decoded it."""

    def note_opened(self, envelope: Envelope, group: int, counter: str) -> None:
        self.envelope, self.group, self.counter = envelope, group, counter

    def forget(self) -> None:
        """Let go of what was decoded: it refers to these bytes, and they to it, which only a
        garbage collection would end."""
        self.group = self.packet = None
        self.__dict__.pop("envelope", None)


def opened(packet: Buffer, kind: int, life: int, sound: bool) -> Envelope | None:
    """The envelope of a packet whose front is known; None if its checksum is wrong."""
    if not (sound or are_sound(packet)):
        return None
    return Envelope(kind, life, memoryview(packet)[FRONT_BYTES:-SUM_BYTES])


def read_once(read: Callable[..., T], *envelope: Any) -> T:
    """Read a packet, unless another receiver in this process has. The last argument is the body."""
    whole = envelope[-1].obj
    if type(whole) is not Datagram:
        return read(*envelope)
    packet: T | None = whole.packet
    if packet is None:
        packet = whole.packet = read(*envelope)
    return packet


def tag_of(text: str) -> int:
    """A 64-bit hash of a name."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def seal(protocol: int, kind: int, group: int, life: int, body: Buffer) -> bytes:
    """One datagram: front, body, checksum."""
    front, begun = _front(protocol, kind, group, life)
    return b"".join((front, body, _SUM.pack(crc32(body, begun))))


@lru_cache(maxsize=64)
def _front(protocol: int, kind: int, group: int, life: int) -> tuple[bytes, int]:
    """A front, and the checksum of what follows it begins with this."""
    front = _FRONT.pack(MAGIC, VERSION, protocol, kind, 0, group, life)
    return front, crc32(front, SOUND)


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
    piece; the pieces have one length. No Python code runs for each of them."""
    front = _FRONT.pack(MAGIC, VERSION, protocol, kind, 0, group, life) + head
    count = len(pieces)
    indices = array("!2s", count).unpack(array("!H", count).pack(*range(first, first + count)))
    fields: list[bytes | int] = [front] * (4 * count)
    fields[1::4], fields[2::4] = indices, pieces
    begun = map(crc32, indices, repeat(crc32(front, SOUND)))
    fields[3::4] = map(crc32, pieces, begun)
    return array(f"<{len(front)}s2s{len(pieces[0])}sI", count).pack(*fields)


def open_batch(
    packets: memoryview, size: int, head_bytes: int
) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
    """Index and piece of each datagram, as `seal_batch` wrote them. They are sound, of one size and
    side by side; `head_bytes` is the length of a head. The first with another head ends the row."""
    count, at = len(packets) // size, FRONT_BYTES + head_bytes
    layout = f"!{at}sH{size - at - 2 - SUM_BYTES}s{SUM_BYTES}x"
    fields = array(layout, count).unpack(packets[: count * size])
    fronts = fields[::3]
    if fronts.count(fronts[0]) < count:
        count = next(n for n in range(count) if fronts[n] != fronts[0])
    return fields[1 : 3 * count : 3], fields[2 : 3 * count : 3]


def heads_match(packets: memoryview, size: int, head_bytes: int) -> bool:
    """Whether the first two of these datagrams, of one size and side by side, have the same front
    and the same head."""
    end = FRONT_BYTES + head_bytes
    if len(packets) < 2 * size or size < end + 2 + SUM_BYTES:
        return False
    return packets[:end] == packets[size : size + end]


def cut(data: Buffer, at: int, length: int, times: int) -> list[bytes]:
    """`times` fields of one length, side by side from offset `at` on."""
    whole = memoryview(data)[at : at + times * length]
    if times <= CUT_COUNT:
        return list(array(f"!{length}s", times).unpack(whole))
    rows = times // CUT_COUNT * CUT_COUNT * length
    found: list[bytes] = []
    if rows:
        for row in array(f"!{length}s", CUT_COUNT).iter_unpack(whole[:rows]):
            found += row
    if rows < len(whole):
        found += [field for (field,) in array(f"!{length}s", 1).iter_unpack(whole[rows:])]
    return found


def numbers(values: Sequence[int]) -> bytes:
    """32 bits each, side by side."""
    return Struct(f"!{len(values)}I").pack(*values)


def read_numbers(data: Buffer, at: int, count: int) -> tuple[int, ...]:
    """As `numbers` wrote them."""
    try:
        return Struct(f"!{count}I").unpack_from(data, at)
    except error:
        raise BadPacket("malformed") from None


def are_sound(packets: Buffer) -> bool:
    """Whether the checksum of each of these datagrams, side by side, fits it."""
    return crc32(packets, SOUND) == SOUND


def unseal(packet: Buffer, protocol: int, group: int, sound: bool = False) -> Envelope:
    """Check the envelope; the checksum only if it is not known to be sound. A foreign packet raises
    `BadPacket` with the reason that it is counted by."""
    if len(packet) < ENVELOPE_BYTES:
        raise BadPacket("short")
    magic, version, its_protocol, kind, flags, its_group, life = _FRONT.unpack_from(packet)
    if magic != MAGIC:
        raise BadPacket("sealed" if is_sealed(packet, group) else "foreign")
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


def is_open(packet: Buffer, group_tag: bytes) -> bool:
    """Whether it is a packet of this group that is not sealed."""
    if len(packet) < ENVELOPE_BYTES:
        return False
    magic, version, _, _, _, group, _ = _FRONT.unpack_from(packet)
    if magic != MAGIC or not are_sound(packet):
        return False
    return bool(version != NOTE and group.to_bytes(8, "big")[:4] == group_tag)


def is_sealed(packet: Buffer, group: int) -> bool:
    """Whether it is a sealed packet of this group."""
    return bytes(packet[:2]) == SEALED and bytes(packet[3:7]) == group.to_bytes(8, "big")[:4]


def group_of(packet: Buffer) -> int:
    """The group that a packet names."""
    if len(packet) < ENVELOPE_BYTES:
        raise BadPacket("short")
    return int(_FRONT.unpack_from(packet)[5])
