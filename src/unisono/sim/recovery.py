"""After the faults: within a bound all come together in one view, and deliver each other's probes.

A run may end partitioned. Then this is asked of each part that is to go on by its protocol's
promise, and of the others only that they do nothing wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from unisono.model import Member, Message
from unisono.sim.plan import Weather
from unisono.sim.workload import payload_of
from unisono.spec import ProcessRole
from unisono.trace.record import PROBE

if TYPE_CHECKING:
    from unisono.sim.nodes import Node
    from unisono.sim.process import SimProcess
    from unisono.sim.world import World

SETTLE_US: Final = 100_000
"""All must have been together this long before the probes go out."""

PROBES: Final = 2
"""Probes that each node sends after healing."""


class Recovery:
    """Who is to come together, whether they have, and which probes are still awaited."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.settled = False
        """All came together after healing, and the probes went out."""
        self.progressed = False
        """Every node delivered every probe."""
        self.probes: set[tuple[Member, int]] = set()
        """Our own messages, which are no application's."""
        self.parts = parts_of(world.weather, len(world.nodes))
        self.going_on = [[world.nodes[index] for index in part] for part in self.parts]
        """Those that are to come together: all, or each part that is to go on."""
        self._inside: dict[Member, int] = {}
        """Who was in its part of the group when that was cut off, and its node."""
        self._excluded: set[Member] = set()
        """Who was excluded because of a fault, and has installed nothing since."""
        self._known: set[str] = set()
        """Names that had installed a view, or were in one of the last, when the faults ended. One
        that was only listed in a former view may never have been on a ring in force."""
        self._service = world.plan.service or max(world.spec.services)
        self._waived = False
        self._epoch = 0
        self._awaited: dict[str, set[tuple[str, int]]] = {}
        self._under_way: dict[Member, int] = {}
        """By member, the last message that it sent beside the probes and has not delivered."""

    def begin(self) -> None:
        """The faults are over. Whether a part must go on depends on its members, and on whether
        any node has lost its memory: nodes out of reach may be needed to decide."""
        if len(self.parts) > 1:
            for part in self.going_on:
                inside = _inside(part)
                self._inside |= {me: at for me, at in inside.items() if me not in self._excluded}
            for node in self._world.nodes:
                view = node.process.view if node.process is not None else None
                self._known.update(member.name for member in (view.members if view else ()))
            self._narrow()
        elif not self._may_be_whole():
            self.going_on = []
            self._world.post(self._world.now_us + SETTLE_US, self._nobody_must, None, None)
        if self._waived:
            self.waive()
        self.changed()

    def _may_be_whole(self) -> bool:
        """Whether these nodes are enough, when all of them are there."""
        world = self._world
        roles = [
            ProcessRole(
                world.options_of(node.index),
                known=node.name in self._known,
                durable=node.disk.durable,
            )
            for node in world.nodes
        ]
        return world.spec.may_operate(roles, world.weather.forgetful or world.forgot)

    def installed(self, process: SimProcess) -> None:
        self._excluded.discard(process.me)
        if not self._world.healing:
            self._known.add(process.me.name)
        self.changed()

    def excluded(self, process: SimProcess) -> None:
        """Excluded because of a fault, perhaps before the partition, and noticed only now."""
        self._excluded.add(process.me)
        if self._inside.pop(process.me, None) is not None:
            self._narrow()

    def _narrow(self) -> None:
        """Ask only those parts that are to go on."""
        world, inside = self._world, set(self._inside.values())
        forgetful = world.weather.forgetful or world.forgot
        self.going_on = [
            part
            for part in self.going_on
            if world.spec.may_continue(
                [
                    ProcessRole(
                        world.options_of(node.index),
                        node.index in inside,
                        node.name in self._known,
                        node.disk.durable,
                    )
                    for node in part
                ],
                forgetful,
            )
        ]
        if not self.going_on:
            world.post(world.now_us + SETTLE_US, self._nobody_must, None, None)

    def waive(self) -> None:
        """A program returned, so not all can come together."""
        self._waived = True
        if self._world.healing:
            self.going_on = []
            self._world.post(self._world.now_us + SETTLE_US, self._nobody_must, None, None)

    def _nobody_must(self, _: None, __: None) -> None:
        if not self.progressed:
            self._done()

    def awaited(self) -> list[Node]:
        """Nodes of parts that are to go on."""
        return [node for nodes in self.going_on for node in nodes]

    def spare(self) -> list[Node]:
        """Nodes of parts that need not go on."""
        going_on = {node.index for node in self.awaited()}
        return [node for node in self._world.nodes if node.index not in going_on]

    def lost(self) -> None:
        """A process ended. If that was amid the probes, all must come together and probe again."""
        if self.settled and not self.progressed:
            self._world.counts["probed_in_vain"] += 1
            self.settled = False
            self._awaited = {}
        self.changed()

    def changed(self) -> None:
        """A view or a process came or went: if now all are together, check again in a while."""
        world = self._world
        if world.healing and not self.settled:
            self._epoch += 1
            if self.going_on and all(map(_are_together, self.going_on)):
                world.post(world.now_us + SETTLE_US, self._settle, self._epoch, None)

    def _settle(self, epoch: int, _: None) -> None:
        if epoch != self._epoch or self.settled:
            return
        self.settled = True
        if self._world.programs is not None:  # A program's numbers leave no room for probes.
            self._done()
            return
        self._awaited = {}
        for nodes in self.going_on:
            processes = [node.process for node in nodes if node.process is not None]
            # Until a probe is sent, a number below zero stands for it.
            probes = [
                (str(process.me), -left) for process in processes for left in range(1, PROBES + 1)
            ]
            self._awaited |= {process.node.name: set(probes) for process in processes}
        for nodes in self.going_on:
            for node in nodes:
                if node.process is not None:
                    self._probe(node.process, PROBES)

    def _probe(self, process: SimProcess, left: int) -> None:
        """Multicast a probe, now or as soon as there is room; all of its part shall deliver it."""
        if process.over or not self.settled:
            return
        world = self._world
        payload = payload_of(process.me, process.sent_count + 1, 40)
        if process.tap.send_credit() < len(payload):
            world.post(world.now_us + 10_000, self._probe, process, left)
            return
        for awaited in self._awaited.values():
            if (str(process.me), -left) in awaited:
                awaited.discard((str(process.me), -left))
                awaited.add((str(process.me), process.sent_count + 1))
        self.probes.add((process.me, process.sent_count + 1))
        usual = process.tap.send_detail
        if (
            len(self.parts) == 1
        ):  # The trace does not show what is cut off for good: there only we judge.
            process.tap.send_detail = PROBE
        process.multicast([payload], self._service)
        process.tap.send_detail = usual
        if left > 1:
            self._probe(process, left - 1)

    def sends(self, process: SimProcess, number: int) -> None:
        """A message that is no probe, and may take many packets."""
        if self.settled:
            self._under_way[process.me] = number

    def is_under_way(self) -> bool:
        """Whether a member still waits for a message of its own."""
        processes = [node.process for node in self.awaited()]
        return any(process is not None and process.me in self._under_way for process in processes)

    def delivered(self, process: SimProcess, messages: Sequence[Message]) -> None:
        last = self._under_way.get(process.me)
        if last is not None and any(
            message.sender == process.me and (message.number or 0) >= last for message in messages
        ):
            del self._under_way[process.me]
        mine = self._awaited.get(process.node.name)
        if mine:
            for message in messages:
                mine.discard((str(message.sender), message.number))
            if not any(self._awaited.values()) and not self.progressed:
                self._done()

    def _done(self) -> None:
        self.progressed = True
        self._world.finish()

    def why_stuck(self) -> str:
        """Who stood where when the bound had passed."""
        bound_s = self._world.plan.progress_us / 1e6
        if self.settled:
            return f"not all delivered all probes within {bound_s:g} s of healing"
        stood = []
        for node in self.awaited():
            process = node.process
            if process is None:
                stood.append(f"{node.name} is away")
            elif process.view is None:
                stood.append(f"{process.me} has no view")
            else:
                members = " ".join(map(str, sorted(process.view.members)))
                stood.append(f"{process.me} sees {{{members}}}")
        return f"not together within {bound_s:g} s of healing: {', '.join(stood)}"


def _inside(part: Sequence[Node]) -> dict[Member, int]:
    """Those that have a view, are in the view of each that has one, and have not begun to leave."""
    processes = [
        node.process for node in part if node.process is not None and not node.process.leaving
    ]
    views = [process.view.members for process in processes if process.view is not None]
    return {
        process.me: process.node.index
        for process in processes
        if process.view is not None and all(process.me in members for members in views)
    }


def _are_together(nodes: Sequence[Node]) -> bool:
    """Everyone is alive, and everyone's view is exactly everyone."""
    processes = [node.process for node in nodes]
    everyone = {process.me for process in processes if process is not None and not process.leaving}
    return len(everyone) == len(nodes) and all(
        process is not None and process.view is not None and set(process.view.members) == everyone
        for process in processes
    )


def parts_of(weather: Weather, nodes: int) -> list[tuple[int, ...]]:
    """The parts at the end; a node that none names is alone. One part: all heals."""
    if not weather.parts:
        return [tuple(range(nodes))]
    named = {node for part in weather.parts for node in part}
    alone = [(index,) for index in range(nodes) if index not in named]
    return [*filter(None, weather.parts), *alone]


def apart(parts: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """The directed links between different parts."""
    return [
        (a, b)
        for here in parts
        for there in parts
        if here is not there
        for a in here
        for b in there
    ]
