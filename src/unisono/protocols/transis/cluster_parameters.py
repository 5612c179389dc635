"""The options of a group that spans clusters, and the list of its clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from unisono.errors import Misuse
from unisono.model import Address, Member
from unisono.protocols.transis.cluster_messages import CLUSTERS_MAX
from unisono.protocols.transis.parameters import BOUNDS as LOCAL_BOUNDS
from unisono.protocols.transis.parameters import DEFAULTS as LOCAL_DEFAULTS
from unisono.protocols.transis.parameters import MEMBERS_MAX

OWN: Final = ("sites", "dynamic", "one_history", "members_count_max")
"""Options of a cluster's group that follow from the list of clusters."""
DEFAULTS: Final[Mapping[str, int]] = {
    **{name: value for name, value in LOCAL_DEFAULTS.items() if name not in OWN},
    "wide_detect_us": 4_000_000,
    "wide_answer_us": 10_000,
}
"""A cluster that is silent for `wide_detect_us` is gone; `wide_answer_us` is the longest that an
acknowledgment waits before it crosses the wide links."""
BOUNDS: Final = {
    **{name: bounds for name, bounds in LOCAL_BOUNDS.items() if name not in OWN},
    "wide_detect_us": LOCAL_BOUNDS["detect_us"],
    "wide_answer_us": LOCAL_BOUNDS["answer_us"],
}


def check_clusters(me: Member, clusters: Mapping[str, tuple[Address, ...]]) -> None:
    """Refuse a list that does not say where each process is."""
    listed = [address for addresses in clusters.values() for address in addresses]
    if len(clusters) > CLUSTERS_MAX:
        raise Misuse(f"clusters= names {len(clusters)} clusters: {CLUSTERS_MAX} at most")
    if len(set(listed)) < len(listed):
        raise Misuse("clusters= names an address twice: each process is in one cluster")
    for name, addresses in clusters.items():
        if not 0 < len(addresses) <= MEMBERS_MAX:
            raise Misuse(
                f"cluster {name!r} has {len(addresses)} processes: name 1 to {MEMBERS_MAX}"
            )
    if me.address not in listed:
        raise Misuse(f"{me.address} is in none of clusters=: list it in its cluster")
