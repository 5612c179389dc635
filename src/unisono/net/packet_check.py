"""Where a world checks packets before the core sees them [RMP-21].

A check decides packet by packet, for example by a tag made with the group's key. What fails it is
dropped and counted, and the core never learns of it.
"""

from __future__ import annotations

from typing import Protocol

from unisono.model import Address, Buffer, Packets

REJECTED = "drop.unauthenticated"


class PacketCheck(Protocol):
    """Whether a packet from this address is authentic."""

    def __call__(self, source: Address, packet: Buffer) -> bool: ...


def checked(
    found: list[tuple[Address, Packets]], check: PacketCheck, counts: dict[str, int]
) -> list[tuple[Address, Packets]]:
    """The packets that pass."""
    passed: list[tuple[Address, Packets]] = []
    for source, packets in found:
        kept = [packet for packet in packets if check(source, packet)]
        if len(kept) == len(packets):
            passed.append((source, packets))
            continue
        counts[REJECTED] = counts.get(REJECTED, 0) + len(packets) - len(kept)
        if kept:
            passed.append((source, kept))
    return passed
