"""Forged packets: real ones, as declared, with one field that is hostile; their checksum is good.

A packet is read by its protocol's own declarations, one field somewhere in it is replaced by the
largest value, one beside the true one, another of the same packet, or noise, and it is written
again. What the declarations do not allow is kept too, with its bytes changed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Any, NamedTuple

from unisono.errors import BadPacket
from unisono.layout import encode
from unisono.model import Address, Member
from unisono.protocols.mtp import packets as mtp
from unisono.protocols.mtp.reading import FROM_OUTSIDE
from unisono.protocols.mtp.reading import read as read_mtp
from unisono.protocols.ring import packets as ring
from unisono.protocols.ring.codes import KINDS
from unisono.protocols.rmcast import packets as rmcast
from unisono.protocols.rmp import data_packets
from unisono.protocols.rmp import packets as rmp
from unisono.protocols.transis import packets as transis
from unisono.wire import Envelope, group_of, seal, unseal

EDGES = (0, 1, 2, 255, 256, 65_535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32)
EDGES += ((1 << 61) - 1, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)
NEAR = (-1, 1, -2, 2, 3, 9, 64, 300, 5_000)


class Wire(NamedTuple):
    """A protocol's packets: read, and written again."""

    number: int
    kinds: Collection[int]
    of: Callable[[Envelope], Any]
    write: Callable[[Any], bytes]

    def read(self, packet: bytes) -> tuple[Envelope, Any]:
        envelope = unseal(packet, self.number, group_of(packet))
        if envelope.kind not in self.kinds:
            raise BadPacket("kind")
        return envelope, self.of(envelope)


def _write_rmcast(packet: Any) -> bytes:
    if isinstance(packet, rmcast.Data):
        header = rmcast.write_header(packet.header)
        return rmcast.Data.body(header, packet.origin, packet.first, packet.chunks)
    if isinstance(packet, rmcast.Beat | rmcast.StateRequest | rmcast.StatePiece):
        return rmcast.write_header(packet.header) + encode(packet)
    return encode(packet)


def _write_mtp(packet: Any) -> bytes:
    if isinstance(packet, FROM_OUTSIDE):
        return encode(packet)
    header = mtp.write_header(packet.header)
    if isinstance(packet, mtp.Data):
        _, origin, number, first, end, pieces = packet
        return mtp.Data.body(header, origin, number, first, end, pieces[0])
    return header + encode(packet)


def _write_ring(packet: Any) -> bytes:
    if isinstance(packet, ring.TurnPacket):
        front = encode(ring.TurnFront(packet.of, packet.flags, packet.at))
        tail = front + b"".join(map(bytes, packet.pieces))
    else:
        tail = encode(packet)
    return packet.header.packed(ring.HEADER_BYTES + len(tail)) + tail


def _write_rmp(packet: Any) -> bytes:
    if isinstance(packet, data_packets.Data):
        _, number, at, of, resilience, _ = packet
        front = data_packets.BlockFront(packet.sender, number, of, resilience, at)
        return data_packets.DATA.pack(*front) + b"".join(map(bytes, packet.pieces))
    if isinstance(packet, data_packets.Uniform):
        *fields, pieces = packet
        return data_packets.UNIFORM.pack(*fields) + b"".join(map(bytes, pieces))
    return encode(packet)


def _write_transis(packet: Any) -> bytes:
    if isinstance(packet, transis.VertexPiece):
        _, sender, number, of, by, at, pieces = packet
        front = transis.VertexFront(sender, number, of, by, at)
        return encode(front) + b"".join(map(bytes, pieces))
    return encode(packet)


WIRES = {
    "ring": Wire(ring.PROTOCOL, KINDS, lambda e: ring.read(*e), _write_ring),
    "mtp": Wire(mtp.PROTOCOL, mtp.KINDS, lambda e: read_mtp(e.kind, e.body), _write_mtp),
    "rmcast": Wire(
        rmcast.PROTOCOL, rmcast.KINDS, lambda e: rmcast.read(e.kind, e.body), _write_rmcast
    ),
    "rmp": Wire(rmp.PROTOCOL, rmp.KINDS, lambda e: rmp.read(e.kind, e.body), _write_rmp),
    "transis": Wire(transis.PROTOCOL, transis.KINDS, transis.read, _write_transis),
}


def hostile(dice: Random, value: Any) -> Any:
    """Another value of its kind, with one field of it hostile."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return _number(dice, value)
    if isinstance(value, bytes | memoryview | bytearray):
        return _noise(dice, bytes(value))
    if isinstance(value, str):
        return dice.choice((value[:-1], value + "x" * dice.choice((1, 300)), "\0\x1b[2J", ""))
    if isinstance(value, Address):
        return Address(dice.choice(("10.0.0.9", "", "::", "x" * 200)), _number(dice, value.port))
    if isinstance(value, dict):
        return _dict(dice, value)
    if isinstance(value, tuple | list):
        return _tuple(dice, value)
    return value


def _number(dice: Random, value: int) -> int:
    kind = type(value)
    if dice.random() < 0.5:
        return max(0, value + dice.choice(NEAR))
    if kind is not int and hasattr(kind, "__members__"):
        return dice.choice(list(kind.__members__.values()))  # type: ignore[no-any-return]
    return dice.choice((*EDGES, dice.getrandbits(64)))


def _noise(dice: Random, value: bytes) -> bytes:
    match dice.randrange(5):
        case 0:
            return value[: dice.randrange(len(value) + 1)]
        case 1:
            return value + dice.randbytes(dice.randint(1, 40))
        case 2:
            return dice.randbytes(len(value))
        case _:
            changed = bytearray(value or b"\0")
            for _ in range(dice.randint(1, 4)):
                at, width = dice.randrange(len(changed)), dice.choice((1, 1, 2, 4, 8))
                changed[at : at + width] = dice.choice((b"\xff" * width, dice.randbytes(width)))
            return bytes(changed[: len(value) or 1])


def _dict(dice: Random, value: dict[Any, Any]) -> dict[Any, Any]:
    found = dict(value)
    if found and dice.random() < 0.9:
        key = dice.choice(list(found))
        if dice.random() < 0.2:
            del found[key]
        else:
            found[key] = hostile(dice, found[key])
    else:
        found[dice.getrandbits(32)] = next(iter(value.values()), 0)
    return found


def _tuple(dice: Random, value: Any) -> Any:
    is_record = hasattr(value, "_fields")
    if not is_record and (not value or dice.random() < 0.3):
        items = list(value)
        match dice.randrange(3):
            case 0:
                items = items[: dice.randrange(len(items) + 1)]
            case 1:
                items = items * dice.choice((2, 2, 40))
            case _:
                dice.shuffle(items)
        return type(value)(items)
    if not value:
        return value
    items = list(value)
    at = dice.randrange(len(items))
    items[at] = hostile(dice, items[at])
    return type(value)(*items) if is_record else type(value)(items)


class Forger:
    """Forges packets of one protocol."""

    def __init__(self, protocol: str, dice: Random) -> None:
        self._wire = WIRES[protocol]
        self._dice = dice

    def forged(self, packet: bytes) -> tuple[bytes, bool]:
        """A packet like this one; whether all checks of the wire pass but one field's."""
        dice, wire = self._dice, self._wire
        try:
            envelope, read = wire.read(packet)
            body = wire.write(hostile(dice, read))
            made = seal(wire.number, envelope.kind, group_of(packet), envelope.life, body)
            wire.read(made)
        except BadPacket:
            return self.mangled(packet), False
        except Exception:  # A value that no field holds: it cannot be written at all.
            return self.mangled(packet), False
        return made, len(made) <= len(packet) + 400

    def mangled(self, packet: bytes) -> bytes:
        """Its bytes changed, mostly behind a good checksum."""
        dice = self._dice
        if len(packet) < 27 or dice.random() < 0.3:
            return _noise(dice, packet)
        group, life = (int.from_bytes(packet[at : at + 8], "big") for at in (6, 14))
        kind = packet[4] if dice.random() < 0.9 else dice.randrange(40)
        number = self._wire.number
        return bytes(seal(number, kind, group, life, _noise(dice, packet[22:-4])))


__all__ = ["EDGES", "WIRES", "Forger", "Member", "hostile"]
