"""rmcast: causal multicast with vector timestamps, heartbeats and ack lists, over unicast."""

from __future__ import annotations

from typing import Final

from unisono.model import Service
from unisono.protocols.rmcast.core import Rmcast
from unisono.protocols.rmcast.figure import FIGURE
from unisono.protocols.rmcast.packets import PROTOCOL, label
from unisono.protocols.rmcast.parameters import DEFAULTS
from unisono.spec import ProtocolSpec

SPEC: Final = ProtocolSpec(
    name="rmcast",
    wire_number=PROTOCOL,
    make=Rmcast,
    title="causal multicast with vector timestamps, heartbeats and ack lists",
    services=(Service.UNRELIABLE, Service.RELIABLE, Service.FIFO, Service.CAUSAL),
    laws=tuple(
        """no_creation no_duplication fifo causal agreement validity self_inclusion
        local_order sender_in_view receipts exclusion progress""".split()
    ),
    options=DEFAULTS,
    label=label,
    arrows=tuple(FIGURE.names()),
)
