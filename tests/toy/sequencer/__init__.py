"""A fixed sequencer: one process orders all messages. The protocol of docs/YOUR-OWN-PROTOCOL.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.toy.sequencer.core import DEFAULTS, FIGURE, PACKETS, Sequencer
from unisono.model import Service
from unisono.spec import ProcessRole, ProtocolSpec


def assign_roles(index: int, count: int, options: Mapping[str, int]) -> Mapping[str, int]:
    """The first process is the sequencer."""
    return {**options, "sequencer": int(index == 0)}


def may_continue(part: Sequence[ProcessRole], forgetful: bool) -> bool:
    return any(process.options.get("sequencer") for process in part)


def quorum(options: Mapping[str, int]) -> int:
    """One partition continues, however small."""
    return 1


def advice(options: Mapping[str, int]) -> str:
    return "no sequencer answers: start one member with sequencer=1"


LAWS: Final = """no_creation no_duplication fifo causal total_order prefix uniform_order gap_free
every_place agreement validity virtual_synchrony view_order self_inclusion local_order cut same_view
sender_in_view begun receipts exclusion progress"""

SPEC: Final = ProtocolSpec(
    name="sequencer",
    make=Sequencer,
    title="a fixed sequencer, negative acknowledgments, one total order",
    services=(Service.RELIABLE, Service.FIFO, Service.CAUSAL, Service.AGREED),
    laws=tuple(LAWS.split()),
    options=DEFAULTS,
    wire_number=PACKETS.protocol,
    label=PACKETS.label,
    assign_roles=assign_roles,
    quorum=quorum,
    advice=advice,
    may_continue=may_continue,
    arrows=tuple(FIGURE.names()),
)
