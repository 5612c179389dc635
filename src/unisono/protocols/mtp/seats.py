"""What a replica of the master knows of the others: address, web, and which of them forgot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from unisono.model import Address, Member
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.packets import ReplicaSeat, key_of
from unisono.protocols.mtp.parameters import Parameters

KEYS_COUNT_MAX: Final = 64
FRESH_BEATS: Final = 3
"""A replica that was silent for longer is not counted."""


@dataclass(slots=True)
class ReplicaStatus:
    """What another replica last stated."""

    member: Member
    heard_us: int
    web: int
    leads: bool
    life: int


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """The answer to our query, when we remember nothing."""

    web: int
    ballot: int
    version: int


class SetBack:
    """Replicas that came back with a clock set back, and so with a lower incarnation than known.

    One that learns so before it has joined takes a higher incarnation. One that could not learn it
    may be in another web by now, and has forgotten ours. A late packet of a former incarnation
    looks the same, so the replica is queried: only one that answers is alive.
    """

    def __init__(self, nonce: int) -> None:
        self._nonce = nonce ^ 2
        """For these queries alone. The nonce of the replica is odd, so this is never 0."""
        self._answered_us: dict[int, int] = {}

    def query(self, seat: ReplicaSeat, web: int, now_us: int) -> int:
        """The query to send, if it is in another web; 0 if it has just answered."""
        if not seat.web or seat.web == web:
            return 0
        if seat.echo == self._nonce:
            self._answered_us[seat.rank] = now_us
            return 0
        return self._nonce

    def elsewhere(self, since_us: int) -> set[int]:
        """The ranks of those that answered since then."""
        return {rank for rank, at_us in self._answered_us.items() if at_us >= since_us}


class ReplicaSeats:
    """The other replicas, by rank."""

    def __init__(self, parameters: Parameters, clock: StepClock, nonce: int) -> None:
        self._parameters = parameters
        self._clock = clock
        self.by_rank: dict[int, ReplicaStatus] = {}
        self.keys: set[int] = set()
        """Of those that sit here or did: what a former one says was decided still holds."""
        self._left: dict[int, int] = {}
        """Replicas that left in the order and have not come back, with the life that left."""
        self.set_back = SetBack(nonce)
        self._ended_us = -1
        self._blank_us = -1
        """Since when most replicas have remembered nothing, while one claims to lead."""

    def addresses(self) -> tuple[Address, ...]:
        return tuple(seat.member.address for _, seat in sorted(self.by_rank.items()))

    def member_keys(self) -> set[int]:
        return {key_of(seat.member) for seat in self.by_rank.values()}

    def record(self, seat: ReplicaSeat) -> None:
        if len(self.keys) >= KEYS_COUNT_MAX:
            self.keys = self.member_keys()
        self.keys.add(key_of(seat.member))
        self.by_rank[seat.rank] = ReplicaStatus(
            seat.member, self._clock.now_us, seat.web, seat.leads, seat.life
        )
        if seat.web and seat.life > self._left.get(seat.rank, seat.life):
            del self._left[seat.rank]

    def note_removed(self, gone: Mapping[int, bool]) -> None:
        """Members were removed: a replica that left will not remember the web either."""
        for rank, seat in self.by_rank.items():
            if gone.get(key_of(seat.member)):
                self._left[rank] = seat.life

    def lives(self) -> dict[int, int]:
        return {rank: seat.life for rank, seat in self.by_rank.items()}

    def blank_ranks(self) -> list[int]:
        """Those that remember no web."""
        return [rank for rank, seat in self.by_rank.items() if not seat.web]

    def _fresh(self) -> dict[int, ReplicaStatus]:
        since_us = self._clock.now_us - FRESH_BEATS * self._parameters.beat_us
        return {rank: seat for rank, seat in self.by_rank.items() if seat.heard_us >= since_us}

    def are_blank(self, count: int) -> bool:
        """At least this many remember no web, and no coordinator is about to answer."""
        fresh, now_us = self._fresh(), self._clock.now_us
        if sum(not seat.web for seat in fresh.values()) < count:
            self._blank_us = -1
            return False
        if any(seat.leads for seat in fresh.values()):
            # It may be about to answer; but once we have forgotten its web, it leads no majority.
            self._blank_us = now_us if self._blank_us < 0 else self._blank_us
            if now_us - self._blank_us < self._parameters.detect_us:
                return False
        return True

    def have_forgotten(self, web: int, count: int) -> bool:
        """At least this many have forgotten the web, for long enough."""
        now_us, near = self._clock.now_us, self._fresh()
        since_us = now_us - FRESH_BEATS * self._parameters.beat_us
        forgot = {rank for rank, seat in near.items() if seat.web != web}
        forgot |= self.set_back.elsewhere(since_us) - near.keys()
        forgot |= self._left.keys()
        if len(forgot) < count:
            self._ended_us = -1
            return False
        self._ended_us = now_us if self._ended_us < 0 else self._ended_us
        return now_us - self._ended_us >= self._parameters.detect_us

    def keep(self) -> None:
        """We remember no web that could end."""
        self._ended_us = -1
