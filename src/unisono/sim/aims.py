"""Aimed faults: each waits at a node for a view, an arrow or an effect of its core, and strikes
between two effects of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from unisono.core import Effect, Install
from unisono.sim.plan import FaultEvent

if TYPE_CHECKING:
    from unisono.sim.process import SimProcess

Strike = Callable[[FaultEvent, None], None]
"""Let a fault strike now."""


@dataclass(slots=True, eq=False)
class AimedFault:
    """A fault that waits, and how far it is."""

    event: FaultEvent
    arrows: tuple[str, ...] = ()
    """Those that its arrow may be."""
    met: int = 0
    """Views, arrows or effects of the kind that were seen."""
    left: int = -1
    """Once its arrow was walked: effects to perform before it strikes."""
    struck: bool = False

    def meets(self, limit: int) -> bool:
        self.met += 1
        return self.met >= limit


class AimedFaults:
    """The aimed faults that wait at one node."""

    def __init__(self, index: int, strike: Strike) -> None:
        self._index = index
        self._strike_now = strike
        self.waiting: list[AimedFault] = []
        self._life: SimProcess | None = None
        self._walks: dict[AimedFault, int] = {}
        """By aim, how often the process had taken its arrows before this step."""

    def wait(self, aim: AimedFault) -> None:
        self.waiting.append(aim)

    def clear(self) -> None:
        self.waiting.clear()

    def look(self, process: SimProcess) -> None:
        """A step begins."""
        self.waiting = [aim for aim in self.waiting if not aim.struck]
        for aim in self.waiting:
            aim.left = -1
        if process is not self._life:
            self._life, self._walks = process, {}
        for aim in self.waiting:
            if aim.arrows and aim not in self._walks:
                self._walks[aim] = _walks(process, aim.arrows)

    def walked(self, process: SimProcess) -> None:
        """The core has stepped, and no effect is performed yet: count the arrows it took."""
        for aim in self.waiting:
            if not aim.arrows or aim.struck or aim not in self._walks:
                continue
            walks = _walks(process, aim.arrows)
            aim.met += walks - self._walks[aim]
            self._walks[aim] = walks
            if aim.met >= aim.event.nth:
                aim.left = aim.event.done

    def before(self, effect: Effect | None, at: int) -> bool:
        """The effect is the next of the step, at this index; None: all are performed."""
        point = f"before {type(effect).__name__}"
        struck = False
        for aim in list(self.waiting):
            event = aim.event
            due = event.at_effect == point and aim.meets(event.nth)
            if aim.left >= 0 and (at >= aim.left or effect is None):
                due = True
            struck = (due and self._strike(aim)) or struck
        return struck

    def after(self, effect: Effect) -> bool:
        point = f"after {type(effect).__name__}"
        struck = False
        for aim in list(self.waiting):
            event = aim.event
            due = event.at_effect == point and aim.meets(event.nth)
            if event.at_view and isinstance(effect, Install):
                due = aim.meets(event.at_view)
            struck = (due and self._strike(aim)) or struck
        return struck

    def _strike(self, aim: AimedFault) -> bool:
        """The first of its nodes to get there is struck, the others are not."""
        if aim in self.waiting:
            self.waiting.remove(aim)
        if aim.struck:
            return False
        aim.struck = True
        plain = replace(aim.event, nodes=(self._index,), at_view=0, at_arrow="")
        self._strike_now(plain, None)
        return True


def _walks(process: SimProcess, arrows: Sequence[str]) -> int:
    """How often these arrows were taken."""
    counts = process.tap.transition_counts()
    return sum([counts.get(name, 0) for name in arrows])
