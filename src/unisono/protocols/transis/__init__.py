"""Transis: acknowledgments form a causal graph; components part, go on and merge."""

from __future__ import annotations

from typing import Final

from unisono.model import Service
from unisono.protocols.transis.core import Transis
from unisono.protocols.transis.figure import FIGURE
from unisono.protocols.transis.labels import label
from unisono.protocols.transis.packets import PROTOCOL
from unisono.protocols.transis.parameters import DEFAULTS
from unisono.protocols.transis.primary import may_operate
from unisono.spec import ProtocolSpec

LAWS: Final = """no_creation no_duplication fifo causal total_order view_prefix agreement validity
virtual_synchrony view_order self_inclusion local_order cut same_view sender_in_view
transitional_set one_component exclusion safe received receipts progress"""

SPEC: Final = ProtocolSpec(
    name="transis",
    wire_number=PROTOCOL,
    make=Transis,
    title="a causal graph of acknowledgments; every component goes on and merges",
    services=tuple(Service),
    laws=tuple(LAWS.split()),
    options=DEFAULTS,
    levels_overtake=True,
    one_history_by=("one_history",),
    may_continue=may_operate,
    may_operate=may_operate,
    label=label,
    arrows=tuple(FIGURE.names()),
    swarm={"token": (0, 1)},
    chaos={
        "detect_us": (None, 300_000, 2_000_000),
        "answer_us": (None, 0, 20_000),
        "vertex_packets": (None, 1),
    },
)
