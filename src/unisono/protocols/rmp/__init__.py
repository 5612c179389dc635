"""RMP: NASA's Reliable Multicast Protocol. A rotating token site orders by multicast ACKs."""

from __future__ import annotations

from typing import Final

from unisono.model import Service
from unisono.protocols.rmp.core import Rmp
from unisono.protocols.rmp.figure import REFORMATION, TOKEN
from unisono.protocols.rmp.labels import label
from unisono.protocols.rmp.packets import PROTOCOL
from unisono.protocols.rmp.parameters import DEFAULTS
from unisono.protocols.rmp.requests import REQUESTS
from unisono.spec import ProtocolSpec

SPEC: Final = ProtocolSpec(
    name="rmp",
    wire_number=PROTOCOL,
    make=Rmp,
    title="token ring with multicast ACKs, seven service levels per message",
    services=(Service.UNRELIABLE, Service.RELIABLE, Service.FIFO, Service.AGREED),
    laws=(
        "no_creation",
        "no_duplication",
        "fifo_by_level",
        "causal",
        "one_place",
        "gap_free",
        "every_place",
        "agreement",
        "validity",
        "virtual_synchrony",
        "view_order",
        "self_inclusion",
        "local_order",
        "cut",
        "sender_in_view",
        "one_primary",
        "minimum_size",
        "one_lock_holder",
        "exclusion",
        "stable",
        "receipts",
        "progress",
    ),
    options=DEFAULTS,
    resilient=True,
    levels_overtake=True,
    requests=REQUESTS,
    label=label,
    token_arrow=r"\Atoken: .*/accept--> TOKEN_SITE\Z",
    packet_categories={
        "data": "best",
        "token": "confirm",
        "join": "withdraw gone fault sync new accept commit resume abort",
    },
    # No `may_continue`, no `quorum`: of a partition for good, every part makes progress. A part
    # below the minimum size stops (TOO_FEW), and its next incarnations found another group.
    chaos={
        "detect_us": (None, 300_000, 2_000_000),
        "idle_us": (None, 20_000),
        "block_packets": (None, 1),
        "renew_us": (None, None, 700_000),
    },
    arrows=tuple(f"{f.name}: {name}" for f in (TOKEN, REFORMATION) for name in f.names()),
)
