"""The next ring: its members and their order, N, the absent members, and its trunk."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packets import (
    NO_TRUNK,
    NO_VERSION,
    Bits,
    MemberRecord,
    Version,
    key_of,
)
from unisono.protocols.ring.parameters import Parameters
from unisono.protocols.ring.quorum import Quorums
from unisono.protocols.ring.requests import MembershipRequests
from unisono.protocols.ring.ring import Ring, Seat
from unisono.protocols.ring.state import RingState

Answers = Mapping[str, MemberRecord]


def staying(answers: Answers) -> dict[str, MemberRecord]:
    """Those that do not leave with the next ring."""
    return {name: each for name, each in answers.items() if not each.has(Bits.LEAVING)}


@dataclass(eq=False)
class Formation:
    """Describes a ring of those that answered. It changes nothing but the order it is based on."""

    _parameters: Parameters
    _state: RingState
    _ordering: Ordering
    _requests: MembershipRequests

    def __post_init__(self) -> None:
        self.unborn: set[Version] = set()
        """Rings that never were in force, as reported by their coordinators, which alone know."""

    def note_unborn(self, version: Version) -> None:
        self.unborn.add(version)

    def note_born(self) -> None:
        """A ring is in force: what came before it no longer matters."""
        self.unborn.clear()

    def size(self, names: Collection[str], answers: Answers, quorums: Quorums) -> int:
        """N of a ring of these members."""
        sites = self._parameters.sites
        if not sites:
            return len(names) + len(self._absent(names, answers))
        size = max(ring.size for ring in quorums.rings)
        small = self._state.ring.seats and size < sites and len(names) <= sites // 2
        return max(size if small else sites, len(names))

    def _absent(self, names: Collection[str], answers: Answers) -> tuple[Seat, ...]:
        ring, parameters = self._state.ring, self._parameters
        gone = answers.keys() - staying(answers).keys()
        gone |= self._requests.leaving() | self._requests.forgotten()
        absent = [
            Seat(seat.member, self._ordering.locals.get(key_of(seat.member), 0), seat.old)
            for seat in (*ring.seats, *ring.absent)
            if seat.member.name not in names and seat.member.name not in gone
            if seat.old or ring.version not in self.unborn  # Else it never joined.
        ]
        # No more than there are sites: a member that was replaced is no longer counted.
        most = (parameters.sites or parameters.members_count_max) - len(names)
        return tuple(absent[: max(0, most)])

    def _trunk(self, names: Collection[str], parted: bool) -> Version:
        """A part that was let go on is the group again when all sites are on it."""
        state = self._state
        if parted:
            return state.ring.rank[0] if state.memory else NO_TRUNK
        return NO_VERSION if len(names) >= self._parameters.sites > 0 else state.record.trunk

    def form(self, version: Version, answers: Answers, quorums: Quorums, parted: bool) -> Ring:
        """R' of those that answered: the coordinator is P0. `parted`: by the operator's request."""
        state, ordering = self._state, self._ordering
        members = staying(answers)
        founding = not state.memory
        if founding:
            ordering.start_anew()
        elif parted:  # It delivers the messages of the last ring: newcomers join the next one.
            members = {n: each for n, each in members.items() if each.has(Bits.MEMORY)}
        seats = self._seats(members, founding)
        names = {seat.member.name for seat in seats}
        self.unborn.add(version)
        return Ring(
            version,
            seats,
            () if parted else self._absent(names, answers),
            len(names) if parted else self.size(names, answers, quorums),
            ordering.S,
            ordering.seq,
            (Ring() if founding else state.ring).history(version, ordering.S),
            state.me,
            self._trunk(names, parted),
            parted,
            min(ordering.S, max(each.header.k for each in answers.values())),
        )

    def _seats(self, members: Answers, founding: bool) -> tuple[Seat, ...]:
        # Deviates [RNG Ring creation]: members of the last ring keep their order. The paper seats
        # them as their answers arrive.
        me, order = self._state.me, {m.name: at for at, m in enumerate(self._state.ring.members)}
        records = sorted(
            members.values(),
            key=lambda e: (e.member != me, order.get(e.member.name, 999), e.member),
        )
        seats = []
        for each in records[: self._parameters.members_count_max]:
            old = each.has(Bits.MEMORY)
            local = self._ordering.locals.get(key_of(each.member), 0) if old else 0
            waits = not old and not founding and each.has(Bits.STATE)
            seats.append(Seat(each.member, local, old, waits))
        return tuple(seats)
