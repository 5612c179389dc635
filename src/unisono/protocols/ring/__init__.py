"""Ring: a virtual token circles a logical ring, and a majority goes on through any fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from unisono.model import Service
from unisono.protocols.ring.core import Site
from unisono.protocols.ring.figures import COORDINATOR, RECEIVE, REFORMATION, SEND
from unisono.protocols.ring.labels import label
from unisono.protocols.ring.packets import PROTOCOL
from unisono.protocols.ring.parameters import DEFAULTS, PRESETS
from unisono.protocols.ring.ring import Ring
from unisono.requests import GoOn
from unisono.spec import ProcessRole, ProtocolSpec


def assign_roles(index: int, count: int, options: Mapping[str, int]) -> Mapping[str, int]:
    """A process started as one of `count` knows the size of the group."""
    return {"sites": count, **options}


def quorum(options: Mapping[str, int]) -> int:
    """A majority; a group of unknown size begins with whoever is there, and so may begin twice."""
    sites = options.get("sites", 0)
    return sites // 2 + 1 if sites else 0


def may_continue(part: Sequence[ProcessRole], forgetful: bool) -> bool:
    """Where some forgot, a majority may have to wait for those that remember. Where the size is not
    known, what a majority is depends on who had come. Once a group has begun, a name that it does
    not know has no vote: on the other side another may take the free place. One that has not begins
    with a majority only if enough of it keep records."""
    least = [quorum(each.options) for each in part]
    if not all(least) or len(part) < max(least) or forgetful:
        return False
    sites, known = max(each.options["sites"] for each in part), sum(each.known for each in part)
    return (known or sum(each.durable for each in part)) >= Ring(size=sites).voters


def may_operate(everyone: Sequence[ProcessRole], forgetful: bool) -> bool:
    """All `sites` always begin; fewer are as a part that is cut off."""
    sites = max(each.options.get("sites", 0) for each in everyone)
    return len(everyone) >= sites or may_continue(everyone, forgetful)


def advice(options: Mapping[str, int]) -> str:
    """A group whose size is known begins with its majority, or with all if they keep no records."""
    sites = options.get("sites", 0)
    if sites < 2:
        return ""
    return (
        f"too few of sites={sites} are heard: start all of them, or with stable= at least"
        f" {sites // 2 + 1}"
    )


SPEC: Final = ProtocolSpec(
    name="ring",
    wire_number=PROTOCOL,
    make=Site,
    title="a virtual token on a logical ring, safe delivery, a majority goes on",
    services=tuple(Service),
    laws=tuple(
        """no_creation no_duplication fifo causal total_order one_place gap_free
        every_place agreement validity virtual_synchrony view_order self_inclusion
        local_order cut same_view sender_in_view one_primary quorum one_founding begun
        safe received receipts exclusion progress""".split()
    ),
    options=DEFAULTS,
    presets=PRESETS,
    requests=(GoOn,),
    label=label,
    token_arrow=r"\Asend: .*/take_turn--> WAITACK\Z",
    packet_categories={
        "data": "delegate",
        "nak": "ask",
        "refusal": "neg stale",
        "join": "invite pos newtr resume coord info abort",
    },
    may_continue=may_continue,
    may_operate=may_operate,
    arrows=tuple(
        f"{figure.name}: {name}"
        for figure in (SEND, RECEIVE, COORDINATOR, REFORMATION)
        for name in figure.names()
    ),
    chaos={
        "sites": (None, None, 0),
        "detect_us": (None, 300_000, 2_000_000),
        "t_send_us": (None, 500, 20_000),
        "idle_us": (None, 200_000),
        "turn_packets": (None, 1),
    },
    assign_roles=assign_roles,
    quorum=quorum,
    advice=advice,
)
