"""What a replica of the master knows of the others: where they sit, and who was set back."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.model import Member
from unisono.protocols.mtp.packets import ReplicaSeat


@dataclass(slots=True)
class ReplicaStatus:
    """What was last heard of another replica."""

    member: Member
    heard_us: int
    web: int
    leads: bool
    life: int


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What a replica that remembers told us who do not."""

    web: int
    ballot: int
    version: int


class SetBack:
    """Replicas that came back with a clock set back, and so with a lower incarnation than we know.

    One that hears so before it is in takes a higher incarnation. One that could not hear it may sit
    in another web by now, and has forgotten ours. A late packet of a former life looks the same; so
    it is asked, and only who answers is alive.
    """

    def __init__(self, nonce: int) -> None:
        self._nonce = nonce ^ 2
        """Asked of nobody else. The nonce of the replica is odd, so this is never 0."""
        self._answered_us: dict[int, int] = {}

    def hear(self, seat: ReplicaSeat, web: int, now_us: int) -> int:
        """What to ask it, if it sits in another web; 0 if it has just answered."""
        if not seat.web or seat.web == web:
            return 0
        if seat.echo == self._nonce:
            self._answered_us[seat.rank] = now_us
            return 0
        return self._nonce

    def elsewhere(self, since_us: int) -> set[int]:
        """The ranks of those that answered since then."""
        return {rank for rank, at_us in self._answered_us.items() if at_us >= since_us}
