"""MTP: a master hands out numbered tokens and decides which messages count; NAK transport below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from unisono.core import Offer
from unisono.model import Service
from unisono.protocols.mtp.core import Mtp
from unisono.protocols.mtp.parameters import DEFAULTS
from unisono.protocols.mtp.words import label


def appoint(index: int, options: Mapping[str, int]) -> Mapping[str, int]:
    """The first processes are the masters."""
    masters = options.get("masters", DEFAULTS["masters"])
    return {**options, "master": index + 1 if index < masters else 0}


OFFER: Final = Offer(
    name="mtp",
    make=Mtp,
    title="tokens from a master, negative acknowledgments, one total order",
    services=(
        Service.UNRELIABLE,
        Service.RELIABLE,
        Service.FIFO,
        Service.CAUSAL,
        Service.AGREED,
    ),
    laws=(
        "no_creation",
        "no_duplication",
        "fifo",
        "causal",
        "total_order",
        "prefix",
        "agreement",
        "validity",
        "virtual_synchrony",
        "view_order",
        "self_inclusion",
        "progress",
    ),
    options=DEFAULTS,
    on_split="those with the master go on",
    appoint=appoint,
    label=label,
    swarm={"tokens": (1, 2, 3, 4, 5), "masters": (1, 1, 3)},
)
