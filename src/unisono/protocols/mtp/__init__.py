"""MTP: a master hands out numbered tokens and decides which messages count; NAK transport below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from unisono.model import Service
from unisono.protocols.mtp.core import Mtp
from unisono.protocols.mtp.figure import FIGURE
from unisono.protocols.mtp.packets import PROTOCOL
from unisono.protocols.mtp.parameters import DEFAULTS, PRESETS
from unisono.protocols.mtp.reading import label
from unisono.spec import ProcessRole, ProtocolSpec


def assign_roles(index: int, count: int, options: Mapping[str, int]) -> Mapping[str, int]:
    """The first processes are the masters."""
    masters = options.get("masters", DEFAULTS["masters"])
    return {**options, "master": index + 1 if index < masters else 0}


def may_continue(part: Sequence[ProcessRole], forgetful: bool) -> bool:
    """A part with a majority of the masters. Of several, one that had not joined when the network
    split remembers nothing, and does not count."""
    masters = max(each.options.get("masters", DEFAULTS["masters"]) for each in part)
    here = [each for each in part if each.options.get("master", 0)]
    return sum(each.inside or masters == 1 for each in here) > masters // 2


def quorum(options: Mapping[str, int]) -> int:
    """The part with the master continues, even alone."""
    return 1


def advice(options: Mapping[str, int]) -> str:
    """No process elects itself: one must be configured as the master."""
    chosen = {**DEFAULTS, **options}
    masters, master = chosen["masters"], chosen["master"]
    if masters == 1:
        return "no master answers: start one member with master=1"
    others = ", ".join(f"master={rank}" for rank in range(1, masters + 1) if rank != master)
    needed = masters // 2 + 1 - bool(master)
    return f"too few of masters={masters} answer: start at least {needed} of {others}"


SPEC: Final = ProtocolSpec(
    name="mtp",
    wire_number=PROTOCOL,
    make=Mtp,
    title="tokens from a master, negative acknowledgments, one total order",
    services=(
        Service.UNRELIABLE,
        Service.RELIABLE,
        Service.FIFO,
        Service.CAUSAL,
        Service.AGREED,
    ),
    laws=tuple(
        """no_creation no_duplication fifo causal total_order prefix uniform_order gap_free
        every_place agreement validity virtual_synchrony view_order self_inclusion
        local_order cut same_view sender_in_view transitional_set one_primary begun
        receipts exclusion progress""".split()
    ),
    options=DEFAULTS,
    presets=PRESETS,
    assign_roles=assign_roles,
    quorum=quorum,
    advice=advice,
    label=label,
    token_arrow=r"/use_token-->",
    packet_categories={
        "token": "propose",
        "join": "stand support",
        "state": "roster",
        "quiet": "seat",
    },
    may_continue=may_continue,
    arrows=tuple(FIGURE.names()),
    swarm={
        "tokens": (1, 2, 3, 4, 5),
        "masters": (1, 1, 3),
        "unicast": (0, 0, 1),
        "dally": (0, 0, 3),
    },
)
