"""The wide links of one process: whose packets came over them, and whom a cluster is reached by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from unisono.core import Everyone, Received, Target
from unisono.errors import BadPacket
from unisono.model import Address
from unisono.protocols.transis.cluster_member import rank_of
from unisono.protocols.transis.cluster_messages import ForeignPacket
from unisono.protocols.transis.packets import PROTOCOL
from unisono.wire import note_in, unseal

RELAYED_MAX: Final = 256
"""Packets of other clusters that wait to be passed on; more are dropped, and requested again."""


class WideLinks:
    """The clusters by rank, as one process of them reaches the others."""

    def __init__(self, here: Address, clusters: Mapping[str, tuple[Address, ...]]) -> None:
        names = sorted(clusters)
        self._addresses = [clusters[name] for name in names]
        self._ranks = {
            address: rank for rank, addresses in enumerate(self._addresses) for address in addresses
        }
        self.rank = self._ranks[here]
        self.name = names[self.rank]
        self.sites = len(self._addresses[self.rank])
        """Processes of this cluster, there or not."""
        self.packets: list[ForeignPacket] = []
        """They wait to be passed on to the cluster."""
        self._heard: dict[int, Address] = {}
        """By cluster, who spoke for it last."""
        self._turn = 0

    def is_foreign(self, source: Address) -> bool:
        """Whether it is a process of another cluster."""
        return self._ranks.get(source, self.rank) != self.rank

    def take(self, event: Received, group_tag: int, count: Callable[[str], None]) -> None:
        """Packets of another cluster: those of the group, as many as there is room for."""
        rank = self._ranks[event.source]
        self._heard[rank] = event.source
        for packet in event.packets:
            try:
                if note_in(packet) is None:
                    unseal(packet, PROTOCOL, group_tag)
            except BadPacket as bad:
                count(f"drop.{bad.reason}")
                continue
            if len(self.packets) >= RELAYED_MAX:
                count("drop.relay")
                continue
            self.packets.append(ForeignPacket(rank, bytes(packet)))

    def drain(self) -> tuple[ForeignPacket, ...]:
        """Those that wait; none do then."""
        packets, self.packets = self.packets, []
        return tuple(packets)

    def targets(self, to: Target) -> tuple[Address, ...]:
        """One address a cluster: of whoever spoke for it last; of its members in turn, if nobody
        did."""
        everywhere = range(len(self._addresses))
        ranks = everywhere if isinstance(to, Everyone) else [rank_of(each) for each in to]
        self._turn += 1
        return tuple(
            self._heard.get(rank) or self._addresses[rank][self._turn % len(self._addresses[rank])]
            for rank in ranks
            if rank in everywhere and rank != self.rank
        )
