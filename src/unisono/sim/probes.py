"""Probes in a simulated world: an address without a process is refused, mostly.

As on a real network a refusal may be lost or late, and a link that is cut carries none. A paused
process still has its port, so it is not refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from unisono.core import Unreachable
from unisono.model import Address
from unisono.sim.plan import dice

if TYPE_CHECKING:
    from unisono.sim.nodes import Node
    from unisono.sim.process import SimProcess
    from unisono.sim.world import World

WAY_US: Final = 1_000
"""The longest that a probe, or its answer, is usually on its way."""
LOST: Final = 0.25
LATE: Final = 0.1
"""Of the answers, how many are lost, and how many are late."""
LATE_US: Final = 500_000
"""The longest that a late one takes: another process may have started there by then."""


class Probes:
    """Carries probes to their nodes, and refusals back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dice = dice(world.plan.seed, "probes")

    def send(self, process: SimProcess, to: Sequence[Address]) -> None:
        world, here = self._world, process.node.index
        for address in to:
            there = world.index_of.get(address)
            world.counts["probed"] += 1
            if there is not None and not world.network.blocked(here, there):
                at_us = world.now_us + self._dice.randint(1, WAY_US)
                world.post(at_us, self._arrive, process, world.all_nodes[there])

    def _arrive(self, process: SimProcess, node: Node) -> None:
        world, roll = self._world, self._dice
        if node.process is not None:
            return
        if world.network.blocked(node.index, process.node.index) or roll.random() < LOST:
            world.counts["refusals_lost"] += 1
            return
        way_us = LATE_US if roll.random() < LATE else WAY_US
        world.post(world.now_us + roll.randint(1, way_us), self._refuse, process, node.address)

    def _refuse(self, process: SimProcess, address: Address) -> None:
        if not process.over:
            self._world.counts["refused"] += 1
            process.feed(Unreachable(address))
