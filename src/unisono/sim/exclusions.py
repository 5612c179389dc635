"""Exclusions: did a group go on without a member that nothing ailed?

The world knows the faults of its run, counts exclusions, and tells its faults in the trace, so that
the laws of exclusion can be judged by the trace alone. A life that others went on without was
excluded for nothing when nothing has ailed its node since shortly before its last view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from unisono.core import Cause, Fail
from unisono.laws.exclusion import AFTER_US
from unisono.model import View
from unisono.sim.plan import FaultEvent, LinkPlan, Weather, node_name
from unisono.trace.record import HEALED, NAMESAKE, NOTHING

if TYPE_CHECKING:
    from unisono.sim.incarnations import SimIncarnation
    from unisono.sim.world import World

LOSS_PPM_MAX: Final = 10_000
"""A link that loses more is a fault, one that loses less is a network."""

DRIFT_PPM_MAX: Final = 20_000
"""The same of clocks."""

WELL: Final = -(1 << 62)
"""Nothing ailed it, ever."""

HARMLESS: Final = ("request", "namesake", "leave")
"""Faults that are no excuse for an exclusion."""


def ails(link: LinkPlan) -> bool:
    """Whether a link by itself excuses that somebody is not heard."""
    return bool(
        link.loss_ppm + link.corrupt_ppm > LOSS_PPM_MAX
        or link.burst_ppm
        or link.hold_ppm
        or link.bytes_per_s
    )


class Exclusions:
    """Until when what ailed each node excuses its exclusion, and who was excluded."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._until_us = _from_the_start(world.weather, world.plan.nodes)
        self._untold: list[tuple[str, int | None, tuple[str, ...] | None]] = []
        """Fault rows that wait for a life which can tell them: detail, until when, who."""
        for until_us in sorted(set(self._until_us) - {WELL}):
            ailing = [at for at, until in enumerate(self._until_us) if until == until_us]
            self._untold.append(("weather", max(until_us, 0), _names(ailing)))
        if not self._untold:
            self._untold.append((NOTHING, None, None))

    def struck(self, event: FaultEvent) -> None:
        """A fault strikes now. What it does to one node it does to those that it hears, too."""
        if event.kind in HARMLESS:
            return
        end_us = self._world.now_us + event.for_us
        everyone = range(len(self._until_us))
        struck = everyone if event.kind == "isolate" else sorted({*event.nodes, *event.to})
        for index in struck:
            self._until_us[index] = max(self._until_us[index], end_us)
        self._tell(event.kind, end_us, struck)

    def healed(self) -> None:
        """No fault strikes any more."""
        self._tell(HEALED, None, ())

    def born(self, life: SimIncarnation) -> None:
        """Whoever lives tells what nobody could tell before."""
        now_us = self._world.now_us
        if life.node.host is not None:
            life.tap.note(now_us, "fault", NAMESAKE)
        untold, self._untold = self._untold, []
        for detail, until_us, names in untold:
            life.tap.note(now_us, "fault", detail, until_us, names)

    def _tell(self, detail: str, until_us: int | None, ailing: Sequence[int]) -> None:
        """In the trace of one of those that it ails, or of anybody that lives."""
        nodes = self._world.nodes
        lives = [nodes[index].life for index in (*ailing, *range(len(nodes)))]
        life = next(filter(None, lives), None)
        names = _names(ailing) or None
        if life is not None:
            life.tap.note(self._world.now_us, "fault", detail, until_us, names)
        else:
            self._untold.append((detail, until_us, names))

    def away(self, index: int) -> None:
        """Its life ended: others have to notice."""
        self._until_us[index] = max(self._until_us[index], self._world.now_us)

    def installed(self, life: SimIncarnation, before: View | None) -> None:
        """Who of the last view is missing, and still there?"""
        view, world = life.view, self._world
        if before is None or view is None:
            return
        for member in before.members:
            other = world.life_of.get(member)
            if other is None or other is life or member in view.members:
                continue
            if not (other.over or other.leaving):
                self._excluded(other)

    def failed(self, life: SimIncarnation, fail: Fail) -> None:
        if fail.cause is Cause.EXCLUDED and not life.leaving:
            self._excluded(life)

    def _excluded(self, life: SimIncarnation) -> None:
        world = self._world
        if life.excluded or life.node.host is not None:
            return
        life.excluded = True
        world.counts["excluded"] += 1
        since_us = life.view_us - AFTER_US
        if self._until_us[life.node.index] >= since_us:
            world.recovery.excluded(life)
            return
        world.counts["excluded_unforced"] += 1
        if max(self._until_us) < since_us:
            world.counts["excluded_for_nothing"] += 1


def _from_the_start(weather: Weather, nodes: int) -> list[int]:
    """What the weather itself excuses, by node."""
    links = [weather.link, *(router.link for router in weather.routers)]
    until_us = [WELL] * nodes
    rough = [weather.fault_us + _held_us(link) for link in links if ails(link)]
    if rough:
        until_us = [max(rough)] * nodes
    for source, target, link in weather.links:
        if ails(link):
            for index in (source, target):
                until_us[index] = max(until_us[index], weather.fault_us + _held_us(link))
    for index, clock in enumerate(weather.clocks[:nodes]):
        if abs(clock.ppm) > DRIFT_PPM_MAX:
            until_us[index] = 1 << 62
    if weather.parts:
        until_us = [1 << 62] * nodes
    return until_us


def _names(indices: Sequence[int]) -> tuple[str, ...]:
    return tuple(map(node_name, indices))


def _held_us(link: LinkPlan) -> int:
    return link.hold_us if link.hold_ppm else 0
