"""Packet labels for traces: opens the envelope, then asks the protocol to describe the packet."""

from __future__ import annotations

from collections.abc import Callable, Collection

from unisono.errors import BadPacket
from unisono.model import Buffer
from unisono.wire import Envelope, group_of, unseal


def labeller(
    protocol: int, kinds: Collection[int], describe: Callable[[Envelope], str]
) -> Callable[[Buffer], str]:
    """A `ProtocolSpec.label`. A buffer that is not a packet of this protocol has an empty label."""

    def label(packet: Buffer) -> str:
        try:
            # A trace may be of any group: the group in the packet is taken as the right one.
            envelope = unseal(packet, protocol, group_of(packet))
            return describe(envelope) if envelope.kind in kinds else ""
        except BadPacket:
            return ""

    return label


def number_range(first: int, last: int) -> str:
    """`5` or `5-7`."""
    return f"{first}" if first == last else f"{first}-{last}"
