"""The master as one member knows it: its identity, and whether it is still there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Effect, Probe
from unisono.model import Address, Member
from unisono.parts.detector import Detector
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packets import BALLOTS_AHEAD_MAX, Header, key_of
from unisono.protocols.mtp.parameters import Parameters

QUIET_BEATS: Final = 2
"""A peer that is silent for this many beats is probed."""


@dataclass(eq=False)
class MasterWatch:
    """Follows the master with the highest ballot, and watches for its failure."""

    _parameters: Parameters
    _detector: Detector[int]
    _clock: StepClock
    _pace: Pacing

    def __post_init__(self) -> None:
        self.member: Member | None = None
        self.key = 0
        self._ballot = 0
        self.heard_us = 0
        """Of listening time."""
        self._foreign_us: int | None = None
        """When the master of another web was last heard."""
        self._doubted: int | None = None
        """The master that is probed, if any."""
        self._doubted_us = 0

    def follow(self, master: Member, ballot: int) -> None:
        """The master is the one with the highest ballot."""
        if ballot >= self._ballot:
            if self.member != master:
                self.member, self.key = master, key_of(master)
            self._ballot = ballot
            self.heard_us = self._clock.listened_us
            if self._doubted is not None:
                self._trust()

    def can_reach(self, ballot: int) -> bool:
        """No master stands so often while one of its members is away."""
        return ballot <= self._ballot + BALLOTS_AHEAD_MAX

    def hear(self, header: Header) -> None:
        """Its header sets the pace."""
        self.heard_us = self._clock.listened_us
        self._pace.adopt(header)

    def lead(self) -> None:
        """We are the master ourselves."""
        self.heard_us = self._clock.listened_us

    def hear_foreign(self) -> None:
        """The master of another web sent something."""
        self._foreign_us = self._clock.now_us

    def another_goes_on(self) -> bool:
        """The master of another web was heard lately, and ours was not."""
        detect_us = self._parameters.detect_us
        foreign_us = self._foreign_us
        lately = foreign_us is not None and self._clock.now_us - foreign_us < detect_us
        return lately and self._silent_us > detect_us

    def failure(self) -> str:
        """Why a member with no other master gives up, if it must."""
        if self.another_goes_on():
            return "the web has ended, and another goes on"
        return "the master is silent" if self._silent_us > self._parameters.lost_us else ""

    def probe(self, out: list[Effect]) -> None:
        """Probe a master that is quiet."""
        if self.member is None:
            return
        if self._doubted is not None and (self.key != self._doubted or self._was_heard):
            self._trust()
        if self._silent_us >= QUIET_BEATS * self._parameters.beat_us:
            if self._doubted is None:
                self._doubted, self._doubted_us = self.key, self._clock.listened_us
                self._detector.watch(self.key, self._clock.now_us)
            out.append(Probe((self.member.address,)))

    def is_refused(self, address: Address) -> bool:
        """The network reports that no process listens there; whether the master is dead."""
        if self.member is None or self.member.address != address:
            return False
        if self.key != self._doubted or self._was_heard:
            return False
        return self._detector.refuse(self.key, self._clock.now_us)

    def _trust(self) -> None:
        assert self._doubted is not None
        self._detector.rest(self._doubted)
        self._doubted = None

    @property
    def long_ago_us(self) -> int:
        """A peer last heard at this time has been silent for too long."""
        return self._clock.listened_us - self._parameters.detect_us

    @property
    def _was_heard(self) -> bool:
        """Since it is in doubt."""
        return self.heard_us > self._doubted_us

    @property
    def _silent_us(self) -> int:
        return self._clock.listened_us - self.heard_us
