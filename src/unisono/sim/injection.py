"""Fault injection: each scheduled fault of a plan, from its beginning to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unisono.sim.aims import AimedFault
from unisono.sim.clocks import NodeClock
from unisono.sim.plan import FaultEvent

if TYPE_CHECKING:
    from unisono.sim.nodes import Node
    from unisono.sim.world import World

CRASHES: Final = ("crash", "amnesia", "torn", "setback")
CUTS: Final = ("block", "split", "isolate", "flap", "rotate")


class FaultInjector:
    """Lets the faults of a plan strike, and ends them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._namesakes: dict[FaultEvent, Node] = {}

    def expect_namesake(self, event: FaultEvent, node: Node) -> None:
        """This node will be the namesake of the event."""
        self._namesakes[event] = node

    def plan(self, event: FaultEvent) -> None:
        act = self._aim if event.aimed else self.strike
        self._world.post(event.at_us, act, event, None)

    def _aim(self, event: FaultEvent, _: None) -> None:
        text, known = event.at_arrow, self._world.spec.arrows
        aim = AimedFault(event, tuple(name for name in known if text and text in name))
        for index in event.nodes:
            self._world.nodes[index].aims.wait(aim)

    def strike(self, event: FaultEvent, _: None) -> None:
        world, kind = self._world, event.kind
        if world.healing:
            return
        world.exclusions.struck(event)
        if kind in CUTS:
            world.counts[kind] += 1
            self._cut(event)
        for index in event.nodes:
            self._strike_one(event, world.nodes[index])

    def _strike_one(self, event: FaultEvent, node: Node) -> None:
        world, kind = self._world, event.kind
        if kind in CRASHES:
            node.crash(kind, down_us=event.for_us)
        elif kind == "pause":
            node.pause(event.for_us)
        elif kind == "leave":
            node.leave(event.for_us)
        elif kind == "slow":
            node.slow(event.for_us)
        elif kind == "full":
            world.counts["filled"] += 1
            node.fill_disk(event.for_us)
        elif kind == "request":
            if node.request(event.what):
                world.counts["requested"] += 1
        elif kind == "drift":
            world.counts["drifted"] += 1
            node.adjust_clock(lambda clock, now_us: clock.drift(now_us, event.ppm))
            world.post(world.now_us + event.for_us, self._true_again, node, None)
        elif kind == "jump":
            world.counts["jumped"] += 1
            node.adjust_clock(lambda clock, now_us: clock.jump(now_us, event.for_us))
        elif kind == "stand":
            world.counts["stood"] += 1
            node.adjust_clock(lambda clock, now_us: clock.stand(now_us, event.for_us))
        elif kind == "namesake":
            self._call(event)

    def _true_again(self, node: Node, _: None) -> None:
        node.adjust_clock(NodeClock.heal)

    def _call(self, event: FaultEvent) -> None:
        """A namesake tries to join, for a while."""
        world = self._world
        world.counts["namesakes"] += 1
        stranger = self._namesakes[event]
        stranger.plan_return(0)
        world.post(world.now_us + event.for_us, self.dismiss, stranger, None)

    def dismiss(self, stranger: Node, _: None) -> None:
        stranger.vanish()

    # -- cuts -----------------------------------------------------------------------------------

    def _cut(self, event: FaultEvent) -> None:
        world, kind = self._world, event.kind
        until_us = world.now_us + event.for_us
        if kind == "flap":
            self._flap(event, until_us)
        elif kind == "rotate":
            self._rotate((event, until_us), 0)
        else:
            pairs = self._pairs(event)
            world.network.block(pairs, 1)
            world.post(until_us, self._mend, pairs, None)

    def _pairs(self, event: FaultEvent) -> list[tuple[int, int]]:
        """The directed links that are down while the fault lasts."""
        there = event.to
        if event.kind == "isolate":
            there = tuple(node.index for node in self._world.all_nodes)
        pairs = [(here, other) for here in event.nodes for other in there if here != other]
        if event.kind != "block":
            pairs += [(other, here) for here, other in pairs]
        return list(dict.fromkeys(pairs))

    def _mend(self, pairs: list[tuple[int, int]], _: None) -> None:
        if not self._world.healing:
            self._world.network.block(pairs, -1)

    def _flap(self, event: FaultEvent, until_us: int) -> None:
        """Down for a while, up for as long, and so on."""
        world = self._world
        if world.healing or world.now_us >= until_us:
            return
        pairs = self._pairs(event)
        world.network.block(pairs, 1)
        world.post(world.now_us + event.every_us, self._mend, pairs, None)
        world.post(world.now_us + 2 * event.every_us, self._flap, event, until_us)

    def _rotate(self, what: tuple[FaultEvent, int], turn: int) -> None:
        """Each is cut off from one other, and from another in the next turn: connectivity is never
        transitive, and never the same for long."""
        event, until_us = what
        world, nodes = self._world, event.nodes
        if world.healing or world.now_us >= until_us or len(nodes) < 2:
            return
        count = len(nodes) - (len(nodes) + 1) % 2  # Those that move; of an even number one stays.
        row = [nodes[(at + turn) % count] for at in range(count)] + list(nodes[count:])
        ends = [(row[at], row[-1 - at]) for at in range(len(row) // 2)]
        pairs = [pair for here, there in ends for pair in ((here, there), (there, here))]
        world.network.block(pairs, 1)
        world.post(world.now_us + event.every_us, self._mend, pairs, None)
        world.post(world.now_us + event.every_us, self._rotate, what, turn + 1)
