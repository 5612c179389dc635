"""Fast path: the packets of a message, sealed a burst at a time while they are sent.

`SealedMessage` holds the values from which the packets follow and nothing else, so that a `Send`
stays a value: the packets are the same whenever, and however often, they are made.
`sealed_one_by_one` is its slow twin, and a property test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from unisono.model import Buffer, Burst
from unisono.protocols.mtp.packets import DATA_BYTES, PROTOCOL, Data, PacketKind
from unisono.wire import ENVELOPE_BYTES, seal, seal_batch

BURST: Final = 44
"""Packets sealed at once: as many full-sized ones as one system call sends."""


@dataclass(frozen=True, slots=True)
class SealedMessage:
    """Consecutive packets of a message. All have one length but the last of the message."""

    group: int
    web: int
    header: bytes
    origin: int
    number: int
    first: int
    """The number of the first packet."""
    slices: tuple[Buffer, ...]
    ends: bool
    """The last of them ends the message."""

    def __iter__(self) -> Iterator[Burst]:
        at, stop = self.first, self.first + len(self.slices)
        last = stop - self.ends
        size = ENVELOPE_BYTES + len(self.header) + DATA_BYTES + len(self.slices[0])
        while at < stop:
            # Packets that are sealed together differ in the lower half of their number alone.
            end = min(at + BURST, last, (at | 0xFFFF) + 1)
            packets = bytearray(self._sealed(at, end, False) if at < end else b"")
            if end == last < stop and end - at < BURST:
                end = stop
                packets += self._sealed(last, stop, True)
            yield Burst(memoryview(packets), size)
            at = end

    def _sealed(self, at: int, end: int, ends: bool) -> bytes:
        head = Data.head(self.header, self.origin, self.number, at, ends)
        pieces = list(map(bytes, self.slices[at - self.first : end - self.first]))
        kind, index = PacketKind.DATA, at & 0xFFFF
        return seal_batch(PROTOCOL, kind, self.group, self.web, head, pieces, index)


def sealed_one_by_one(message: SealedMessage) -> list[bytes]:
    """The slow twin."""
    packets, last = [], len(message.slices) - 1
    for index, piece in enumerate(message.slices):
        ends, packet = message.ends and index == last, message.first + index
        body = Data.body(message.header, message.origin, message.number, packet, ends, piece)
        packets.append(seal(PROTOCOL, PacketKind.DATA, message.group, message.web, body))
    return packets
