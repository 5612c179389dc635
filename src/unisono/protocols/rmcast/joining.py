"""Joining, which [RMC II] leaves open: seek the group, found it, or enter it with a welcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import EVERYONE, Arm, Disarm, Effect, Expired, Join, Leave, Send, Target
from unisono.errors import BadPacket
from unisono.layout import decode, encode
from unisono.model import Buffer
from unisono.parts.codec import PacketCodec
from unisono.parts.core_clock import CoreClock
from unisono.protocols.rmcast.ending import Ending
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.merging import Merging
from unisono.protocols.rmcast.packets import (
    MEMBER,
    Announce,
    PacketKind,
    Refuse,
    Seek,
    Welcome,
    WelcomePart,
)
from unisono.protocols.rmcast.parameters import Parameters
from unisono.protocols.rmcast.roster import Roster
from unisono.protocols.rmcast.state_transfer import StateTransfer
from unisono.protocols.rmcast.states import Timer
from unisono.protocols.rmcast.views import Views
from unisono.wire import NO_LIFE

REFUSALS_MAX: Final = 64
"""A seeker that was refused this often gives up; until then the obstacle may go away."""


@dataclass(eq=False)
class Joiner:
    """A process until it is a member."""

    _parameters: Parameters
    _roster: Roster
    _codec: PacketCodec
    _views: Views
    _failures: Failures
    _merging: Merging
    _transfer: StateTransfer
    _ending: Ending
    _clock: CoreClock
    _with_state: bool

    def __post_init__(self) -> None:
        self._refusals = 0
        self._echo = 0
        self._parts: dict[int, Buffer] = {}
        self._parts_of = (0, 0, 0)
        """Incarnation of the group, stamp and count of the welcome in parts."""

    def seek(self, event: Join | Expired, out: list[Effect]) -> None:
        self._request(EVERYONE, out)
        out.append(Arm(Timer.SEEK, self._clock.jittered(self._parameters.seek_us)))
        if isinstance(event, Join):
            out.append(Arm(Timer.FOUND, self._clock.jittered(self._parameters.found_us)))

    def withdraw(self, event: Leave, out: list[Effect]) -> None:
        """A member that has admitted us meanwhile need not wait for us."""
        self._request(EVERYONE, out, withdrawn=True)
        self._ending.depart(event, out)

    def _request(self, to: Target, out: list[Effect], withdrawn: bool = False) -> None:
        seek = Seek(self._roster.me, self._with_state, echo=self._echo, withdrawn=withdrawn)
        out.append(Send(to, [self._codec.seal(PacketKind.SEEK, encode(seek), life=NO_LIFE)]))

    def defers_to(self, packet: Seek) -> bool:
        return packet.member < self._roster.me and not packet.withdrawn

    def await_founder(self, packet: Seek | Announce, out: list[Effect]) -> None:
        """Another process founds the group, or has."""
        out.append(Arm(Timer.FOUND, self._clock.jittered(self._parameters.found_us)))
        if isinstance(packet, Announce) and packet.stamp:
            self._echo = packet.stamp
            self._request((packet.sponsor.address,), out)

    def found(self, event: Expired, out: list[Effect]) -> None:
        self._codec.enter(self._clock.random.getrandbits(64) | 1)
        self._roster.add(self._roster.me, 0, self._clock.now_us)
        self._begin(out)
        self._views.install(out)
        # At once, before others found it too.
        out.append(Send(EVERYONE, [self._merging.announcement()]))

    def assembled(self, part: WelcomePart, life: int) -> Welcome | None:
        """The welcome, once all its parts are here."""
        if part.joiner != self._roster.key:
            return None
        if self._parts_of != (life, part.stamp, part.parts):
            self._parts_of = (life, part.stamp, part.parts)
            self._parts = {}
        self._parts[part.part] = part.piece
        if len(self._parts) < part.parts:
            return None
        whole = b"".join(self._parts[index] for index in range(part.parts))
        self._parts = {}
        welcome = decode(Welcome, whole)
        mine = [line for line in welcome.lines if line.member == self._roster.me]
        if [(line.status, line.delivered, line.message) for line in mine] != [(MEMBER, 0, 0)]:
            raise BadPacket("malformed")  # It does not list us as new.
        return welcome

    def brings_state(self, packet: Welcome) -> bool:
        return self.is_mine(packet) and packet.with_state

    def is_mine(self, packet: Welcome) -> bool:
        return packet.joiner == self._roster.key

    def enter(self, packet: Welcome, out: list[Effect]) -> None:
        self._codec.enter(self._parts_of[0])
        self._roster.enter(packet.lines, packet.tombs, packet.changes, self._clock.now_us)
        self._begin(out)
        if reason := self._roster.oversize():
            self._failures.stop(reason)
        if packet.with_state:
            self._transfer.start(packet.sponsor, out)
        else:
            self._views.install(out, cut=True)

    def _begin(self, out: list[Effect]) -> None:
        self._failures.start()
        out.append(Disarm(Timer.SEEK))
        out.append(Disarm(Timer.FOUND))
        out.append(Arm(Timer.BEAT, self._parameters.beat_us))
        out.append(Arm(Timer.ANNOUNCE, self._clock.jittered(self._parameters.announce_us)))

    def is_rejected(self, packet: Refuse) -> bool:
        last = packet.final or self._refusals + 1 >= REFUSALS_MAX
        return last and packet.joiner == self._roster.key

    def stay_out(self, packet: Refuse, out: list[Effect]) -> None:
        """Refused for now."""
        self._refusals += packet.joiner == self._roster.key
