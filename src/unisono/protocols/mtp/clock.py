"""The event at hand: its time, and the origin of its packets."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.model import Address
from unisono.parts.detector import Detector
from unisono.wire import NO_LIFE


class StepClock:
    """The time of the step at hand."""

    __slots__ = ("_detector", "listened_us", "now_us", "steps")

    def __init__(self, detector: Detector[int]) -> None:
        self._detector = detector
        self.now_us = 0
        self.listened_us = 0
        """Listening time: see `unisono.parts.detector`."""
        self.steps = 0

    def tick(self, now_us: int) -> None:
        self.now_us = now_us
        self.steps += 1
        self._detector.look(now_us)
        self.listened_us = self._detector.listened_us


@dataclass(slots=True)
class Arrival:
    """The origin of the packet at hand."""

    source: Address
    web: int = NO_LIFE
    """The identifier of the web in its envelope."""
