"""Exclusions: did a group go on without a member that had no fault?

The world knows the faults of its run, counts exclusions, and writes `fault` rows, so that the laws
of exclusion can be judged from the trace alone. A process was excluded for nothing when its node
had no fault since shortly before its last view.
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
    from unisono.sim.process import SimProcess
    from unisono.sim.world import World

LOSS_PPM_MAX: Final = 10_000
"""A link that loses more counts as faulty."""

DRIFT_PPM_MAX: Final = 20_000
"""A clock that drifts more counts as faulty."""

NEVER: Final = -(1 << 62)
"""It had no fault yet."""

HARMLESS: Final = ("request", "namesake", "leave")
"""Faults that do not excuse an exclusion."""


def is_faulty(link: LinkPlan) -> bool:
    """Whether the link by itself excuses an exclusion."""
    return bool(
        link.loss_ppm + link.corrupt_ppm > LOSS_PPM_MAX
        or link.burst_ppm
        or link.hold_ppm
        or link.bytes_per_s
    )


class Exclusions:
    """Until when the faults of each node excuse its exclusion, and what was excluded."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._until_us = _from_the_start(world.weather, world.plan.nodes)
        self._unwritten: list[tuple[str, int | None, tuple[str, ...] | None]] = []
        """Fault rows that wait for a process to write them: detail, end, nodes."""
        for until_us in sorted(set(self._until_us) - {NEVER}):
            faulty = [at for at, until in enumerate(self._until_us) if until == until_us]
            self._unwritten.append(("weather", max(until_us, 0), _names(faulty)))
        if not self._unwritten:
            self._unwritten.append((NOTHING, None, None))

    def struck(self, event: FaultEvent) -> None:
        """A fault strikes now; it affects both sides of a link."""
        if event.kind in HARMLESS:
            return
        end_us = self._world.now_us + event.for_us
        everyone = range(len(self._until_us))
        struck = everyone if event.kind == "isolate" else sorted({*event.nodes, *event.to})
        for index in struck:
            self._until_us[index] = max(self._until_us[index], end_us)
        self._record_fault(event.kind, end_us, struck)

    def healed(self) -> None:
        """No fault strikes any more."""
        self._record_fault(HEALED, None, ())

    def started(self, process: SimProcess) -> None:
        """Write the fault rows that waited for a process."""
        now_us = self._world.now_us
        if process.node.host is not None:
            process.tap.note(now_us, "fault", NAMESAKE)
        rows, self._unwritten = self._unwritten, []
        for detail, until_us, names in rows:
            process.tap.note(now_us, "fault", detail, until_us, names)

    def _record_fault(self, detail: str, until_us: int | None, faulty: Sequence[int]) -> None:
        """In the trace of an affected process, or of any that runs."""
        nodes = self._world.nodes
        processes = [nodes[index].process for index in (*faulty, *range(len(nodes)))]
        process = next(filter(None, processes), None)
        names = _names(faulty) or None
        if process is not None:
            process.tap.note(self._world.now_us, "fault", detail, until_us, names)
        else:
            self._unwritten.append((detail, until_us, names))

    def ended(self, index: int) -> None:
        """Its process ended: the others have to notice."""
        self._until_us[index] = max(self._until_us[index], self._world.now_us)

    def installed(self, process: SimProcess, before: View | None) -> None:
        """Find members of the last view that are missing from this one and still run."""
        view, world = process.view, self._world
        if before is None or view is None:
            return
        for member in before.members:
            other = world.processes.get(member)
            if other is None or other is process or member in view.members:
                continue
            if not (other.over or other.leaving):
                self._excluded(other)

    def failed(self, process: SimProcess, fail: Fail) -> None:
        if fail.cause is Cause.EXCLUDED and not process.leaving:
            self._excluded(process)

    def _excluded(self, process: SimProcess) -> None:
        world = self._world
        if process.excluded or process.node.host is not None:
            return
        process.excluded = True
        world.counts["excluded"] += 1
        since_us = process.view_us - AFTER_US
        if self._until_us[process.node.index] >= since_us:
            world.recovery.excluded(process)
            return
        world.counts["excluded_unforced"] += 1
        if max(self._until_us) < since_us:
            world.counts["excluded_for_nothing"] += 1


def _from_the_start(weather: Weather, nodes: int) -> list[int]:
    """By node, until when the weather itself excuses an exclusion."""
    links = [weather.link, *(router.link for router in weather.routers)]
    until_us = [NEVER] * nodes
    rough = [weather.fault_us + _held_us(link) for link in links if is_faulty(link)]
    if rough:
        until_us = [max(rough)] * nodes
    for source, target, link in weather.links:
        if is_faulty(link):
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
