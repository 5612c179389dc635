"""What the master knows of each member: how much it has, what it wants, whether it has failed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from unisono.core import Effect, Probe
from unisono.model import Address
from unisono.parts.detector import Detector
from unisono.protocols.mtp.agreement import Consumer
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.master import QUIET_BEATS
from unisono.protocols.mtp.packets import Pressure, Report
from unisono.protocols.mtp.parameters import Parameters
from unisono.protocols.mtp.web import Web


@dataclass(slots=True)
class Watched:
    """What the master knows of a member."""

    heard_us: int
    taken: int
    """It has all messages below this number."""
    pressure: Pressure = Pressure.CALM
    suspects: tuple[int, ...] = ()
    request: int = 0
    token: int = 0
    """The last token that it was granted, for that request."""


@dataclass(eq=False)
class MemberWatch:
    """The other members, by key, as the coordinator sees them."""

    _key: int
    _parameters: Parameters
    _clock: StepClock
    _detector: Detector[int]
    _web: Web
    _consumer: Consumer

    def __post_init__(self) -> None:
        self.members: dict[int, Watched] = {}
        self.stable = 1
        """Every member has all messages below this number."""

    # -- members -----------------------------------------------------------------------------------

    def reset(self) -> None:
        self.members = {}
        self.align()

    def align(self) -> None:
        """Watch the members of the view."""
        for key in self._web.members:
            if key != self._key and key not in self.members:
                self.watch(key, 1)
        for key in [key for key in self.members if key not in self._web.members]:
            del self.members[key]

    def watch(self, key: int, taken: int) -> None:
        """A new member, which has all messages below this number."""
        self.members[key] = Watched(self._clock.now_us, taken)

    def forget(self, key: int) -> None:
        self.members.pop(key, None)

    # -- what they report --------------------------------------------------------------------------

    def hear(self, key: int, taken: int) -> None:
        watched = self.members.get(key)
        if watched is not None:
            if watched.heard_us != self._clock.now_us:
                watched.heard_us = self._clock.now_us
                self._detector.hear(key, self._clock.now_us)
            if taken > watched.taken:
                watched.taken = taken

    def take_report(self, packet: Report, out: list[Effect]) -> None:
        """Kept at any member; it counts while we are the coordinator."""
        watched = self.members.get(packet.header.sender)
        if watched is not None:
            watched.pressure = max(watched.pressure, packet.pressure)
            watched.suspects = packet.suspects

    def note_grant(self, key: int, request: int, token: int) -> bool:
        """The member was granted this token for its request. Whether it is another than us."""
        watched = self.members.get(key)
        if watched is None:
            return False
        watched.request, watched.token = request, token
        return True

    def pressure(self) -> Pressure:
        """[MTP 4] The strongest since the last call."""
        worst = max((w.pressure for w in self.members.values()), default=Pressure.CALM)
        for watched in self.members.values():
            watched.pressure = Pressure.CALM
        return worst

    def advance_stable(self) -> int:
        next_out = self._consumer.next_out
        floor = min((w.taken for w in self.members.values()), default=next_out)
        self.stable = max(self.stable, min(floor, next_out))
        return self.stable

    def all_have(self, number: int) -> bool:
        """Every other member has all messages below this number."""
        return all(watched.taken >= number for watched in self.members.values())

    # -- failures ----------------------------------------------------------------------------------

    def silent(self) -> list[int]:
        """[MTP 5.3] Members that have been silent for too long."""
        self._detector.keep((self._key, *self.members), self._clock.now_us)
        return [
            key
            for key in self.members
            if self._detector.is_silent(key, 2 if self._suspected(key) else 1)
        ]

    def _suspected(self, key: int) -> bool:
        """[MTP 5.3] Most other members suspect it too."""
        others = [w for k, w in self.members.items() if k != key]
        return 2 * sum(key in w.suspects for w in others) > len(others)

    def probe(self, failing: Collection[int], out: list[Effect]) -> None:
        """Probe the addresses of members that are quiet."""
        quiet_us = QUIET_BEATS * self._parameters.beat_us
        members = self._web.members
        quiet = tuple(
            members[key].address
            for key in self.members
            if self._detector.silence_us(key) >= quiet_us and key in members
            if key not in failing
        )
        if quiet:
            out.append(Probe(quiet))

    def refused(self, address: Address) -> list[int]:
        """The network reports that no process listens there: members that are dead."""
        dead = []
        for key in self.members:
            member = self._web.members.get(key)
            if member is not None and member.address == address:
                if self._detector.refuse(key, self._clock.now_us):
                    dead.append(key)
        return dead
