"""The event at hand: its time, and the origin of its packets."""

from __future__ import annotations

from unisono.model import Address
from unisono.parts.detector import Detector
from unisono.wire import NO_LIFE


class StepClock:
    """The step at hand: its time, and where its packet came from."""

    __slots__ = ("_detector", "listened_us", "now_us", "source", "steps", "web")

    def __init__(self, detector: Detector[int], source: Address) -> None:
        self._detector = detector
        self.now_us = 0
        self.listened_us = 0
        """Listening time: see `unisono.parts.detector`."""
        self.steps = 0
        self.source = source
        self.web = NO_LIFE
        """The identifier of the web in the packet's envelope."""

    def tick(self, now_us: int) -> None:
        self.now_us = now_us
        self.steps += 1
        self._detector.look(now_us)
        self.listened_us = self._detector.listened_us

    def arrive(self, source: Address) -> None:
        """The packets of this step came from there."""
        self.source = source

    def note_web(self, web: int) -> None:
        self.web = web
