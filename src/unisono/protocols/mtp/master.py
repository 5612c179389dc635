"""Whether the master is still there: by its silence, or by what the network says of its address."""

from __future__ import annotations

from typing import Final

from unisono.core import Effect, Probe
from unisono.model import Member
from unisono.parts.detector import Detector
from unisono.protocols.mtp.parameters import Parameters

QUIET_BEATS: Final = 2
"""Who has not been heard for so many beats is in doubt, and the network is asked for it."""


class MasterWatch:
    """What one member knows of the master's life. Times are of listening, unless they say `now`."""

    def __init__(self, parameters: Parameters, silence: Detector[int]) -> None:
        self._parameters = parameters
        self._silence = silence
        self.heard_us = 0
        self.foreign_us: int | None = None
        """When (by `now`) the master of another web was heard."""
        self._doubted: int | None = None
        """Whom the network is asked for."""
        self._doubted_us = 0

    def begin(self) -> None:
        """There is one, and it was heard of just now."""
        self.heard_us = self._silence.listened_us
        self._trust()

    def another_goes_on(self, now_us: int) -> bool:
        """The master of another web was heard lately, and ours was not."""
        detect_us = self._parameters.detect_us
        lately = self.foreign_us is not None and now_us - self.foreign_us < detect_us
        return lately and self._silent_us > detect_us

    def look(self, now_us: int) -> str:
        """Why one that has no other master gives up, if it must."""
        if self.another_goes_on(now_us):
            return "the web has ended, and another goes on"
        return "the master is silent" if self._silent_us > self._parameters.lost_us else ""

    def probe(self, master: Member, key: int, now_us: int, out: list[Effect]) -> None:
        """Ask the network for a master that is quiet."""
        if self._doubted is not None and (key != self._doubted or self._was_heard):
            self._trust()
        if self._silent_us >= QUIET_BEATS * self._parameters.beat_us:
            if self._doubted is None:
                self._doubted, self._doubted_us = key, self._silence.listened_us
                self._silence.watch(key, now_us)
            out.append(Probe((master.address,)))

    def refuse(self, key: int, now_us: int) -> bool:
        """The network says that nobody listens at its address; whether it is dead."""
        if key != self._doubted or self._was_heard:
            return False
        return self._silence.refuse(key, now_us)

    def _trust(self) -> None:
        if self._doubted is not None:
            self._silence.rest(self._doubted)
            self._doubted = None

    @property
    def long_ago_us(self) -> int:
        """Who was last heard then has been silent for too long."""
        return self._silence.listened_us - self._parameters.detect_us

    @property
    def _was_heard(self) -> bool:
        """Since it is in doubt."""
        return self.heard_us > self._doubted_us

    @property
    def _silent_us(self) -> int:
        return self._silence.listened_us - self.heard_us
