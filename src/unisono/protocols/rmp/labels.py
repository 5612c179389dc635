"""Labels of RMP's packets, for traces and drawings."""

from __future__ import annotations

from typing import Final

from unisono.parts.labels import labeller
from unisono.protocols.rmp.packets import KINDS, PROTOCOL, read
from unisono.wire import Envelope


def _describe(envelope: Envelope) -> str:
    packet = read(envelope.kind, envelope.body)
    return packet.label() or KINDS[envelope.kind]


label: Final = labeller(PROTOCOL, KINDS, _describe)
"""`ack 12 3f2.5-7`, `data 5 1-2/4`, `nack 12`: slots by timestamp, blocks by the end of their
source's key and their number."""
