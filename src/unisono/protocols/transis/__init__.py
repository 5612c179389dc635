"""Transis: acknowledgments form a causal graph; components part, go on and merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unisono.model import Service
from unisono.protocols.transis.cluster_core import ClusteredTransis
from unisono.protocols.transis.cluster_parameters import DEFAULTS as CLUSTERED_DEFAULTS
from unisono.protocols.transis.core import Transis
from unisono.protocols.transis.figure import FIGURE
from unisono.protocols.transis.labels import label
from unisono.protocols.transis.packets import PROTOCOL
from unisono.protocols.transis.parameters import DEFAULTS
from unisono.protocols.transis.primary import may_operate
from unisono.spec import ProcessRole, ProtocolSpec

LAWS: Final = """no_creation no_duplication fifo causal total_order view_prefix agreement validity
virtual_synchrony view_order self_inclusion local_order cut same_view sender_in_view
transitional_set one_component exclusion safe received receipts progress"""


def may_continue_clustered(part: Sequence[ProcessRole], forgetful: bool) -> bool:
    """It depends on whose majorities a part has, which roles do not show: none has to."""
    return False


NOT_OVER_CLUSTERS: Final = ("safe", "received", "one_component", "view_prefix")
"""There is no safe service: that all clusters hold a message does not say that the members of each
have delivered it. And there are no transitional views of members: a side that is cut off may skip
what the other side had of the order."""

CLUSTERED: Final = ProtocolSpec(
    name="transis",
    wire_number=PROTOCOL,
    make=ClusteredTransis,
    title="clusters joined by wide links: each is one member of a group of clusters",
    services=tuple(level for level in Service if level < Service.SAFE),
    laws=tuple(law for law in LAWS.split() if law not in NOT_OVER_CLUSTERS),
    options=CLUSTERED_DEFAULTS,
    levels_overtake=True,
    may_continue=may_continue_clustered,
    label=label,
    arrows=tuple(FIGURE.names()),
    swarm={"token": (0, 1)},
)
"""With `clusters=`."""

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
    clustered=CLUSTERED,
)
