"""Labels of RMP's packets, for traces and drawings."""

from __future__ import annotations

from typing import Final

from unisono.parts.labels import labeller
from unisono.protocols.rmp.packets import KINDS, PROTOCOL, PacketKind, read
from unisono.wire import Envelope


def _describe(envelope: Envelope) -> str:
    text = read(envelope.kind, envelope.body).label()
    if envelope.kind in (PacketKind.COMMIT, PacketKind.ABORT):  # They share a form with others.
        return " ".join((KINDS[envelope.kind], *text.split()[1:]))
    return text or KINDS[envelope.kind]


label: Final = labeller(PROTOCOL, KINDS, _describe)
"""`ack 12 3f2.5-7`, `data 5 1-2/4`, `nack 12`: slots by timestamp, blocks by the end of their
source's key and their number."""
