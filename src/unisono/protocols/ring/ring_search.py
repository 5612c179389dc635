"""The search for a ring: which one is known to exist, and how long a member listens for one."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from unisono.core import Effect
from unisono.model import Member
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import Timer
from unisono.protocols.ring.election import Election
from unisono.protocols.ring.packets import MemberRecord, TurnPacket
from unisono.protocols.ring.parameters import ROUNDS_MAX, Parameters
from unisono.protocols.ring.state import RingState


@dataclass(eq=False)
class RingSearch:
    """A member without a ring: it knows of one to join, or of none."""

    _parameters: Parameters
    _state: RingState
    _agenda: Agenda
    _election: Election
    _seed: int

    def __post_init__(self) -> None:
        self._t_reform_us = self._parameters.t_reform_us
        self._dice = Random(self._seed)
        self.target: Member | None = None
        """The coordinator of a ring in force without this member."""
        self.asked = 0
        """Requests to join since that ring was last seen."""

    def listen(self, out: list[Effect]) -> None:
        """[T_REFORM] For a ring, or for a member that forms one."""
        base_us = self._t_reform_us
        self._agenda.arm(Timer.T_REFORM, base_us + self._dice.randrange(base_us), out)

    def jitter(self, wait_us: int) -> int:
        """A little more, so that two competitors do not stay in step."""
        return wait_us + self._dice.randrange(1 + wait_us // 4)

    def knows_ring(self, event: object) -> bool:
        return self.target is not None and self.asked < ROUNDS_MAX

    def follow(self, member: Member) -> None:
        self.target, self.asked = member, 0

    def note_asked(self) -> None:
        self.asked += 1

    def end(self, out: list[Effect]) -> None:
        """A ring is being formed, or in force."""
        self.target = None
        self.asked = 0
        self._agenda.disarm(Timer.T_REFORM, out)

    def note_ring(self, packet: MemberRecord | TurnPacket) -> bool:
        """A ring is in force without this member; whether none was known before."""
        state = self._state
        is_record = isinstance(packet, MemberRecord)
        if isinstance(packet, MemberRecord):
            behind = packet.rank < state.rank
        else:
            behind = packet.header.version < state.version and not self._election.is_later(packet)
        if behind:
            if is_record and self.target == state.me:
                self.target = None  # Ours precedes it: it waits for this member.
            return False
        fresh = self.target is None
        self.asked = 0
        if isinstance(packet, MemberRecord):
            self.target = packet.other or packet.member
        elif fresh:
            self.target = state.me  # It exists; its coordinator will answer.
        return fresh
