"""Which answers to an invitation count as votes, and whether they are enough.

A ring is in force when W = ⌊N/2⌋ + 1 sites have accepted it, N - W + 1 of which vote. A site votes
if it cannot have forgotten what it promised: it was on a ring in force in this incarnation, or has
its records, or keeps records and has none, so that it never had a past. Any other may have promised
or accepted something and forgotten it: the voters admit it, and it votes from then on. The same
holds for a name that the group does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from unisono.protocols.ring.packets import NO_VERSION, Bits, MemberRecord, Version
from unisono.protocols.ring.ring import Ring

People: TypeAlias = Mapping[str, MemberRecord]
WAY_ON: Final = "start the others again, or let this part go on with request('go_on')"


class Quorums(NamedTuple):
    """The quorums that the next ring needs."""

    rings: tuple[Ring, ...]
    """The last ring in force, and any after it that may have been: a quorum of each."""
    version: Version
    """Of the last of them."""

    def without(self, unborn: Collection[Version], founding: Ring) -> Quorums:
        """Rings that never were in force need no quorum; without any other, it is a founding."""
        rings = tuple(ring for ring in self.rings if ring.version not in unborn)
        return self._replace(rings=rings or (founding,))

    def proves_unborn(self, packet: MemberRecord) -> bool:
        """Its sender formed one of these rings, never put it in force, and promised another."""
        version = packet.header.version
        ours = any(ring.version == version for ring in self.rings)
        return ours and version.leader == packet.header.sender and not packet.has(Bits.IN_FORCE)

    def voting(self, people: People) -> set[str]:
        """A live member that accepted a ring in force votes too, even if it never learned that it
        was. One that is known to have been on a ring and reports none is another of that name, or
        lost its records: it does not vote."""
        known = any(
            each.header.version == self.version and each.has(Bits.IN_FORCE)
            for each in people.values()
        )
        seats = [seat for ring in self.rings for seat in (*ring.seats, *ring.absent)]
        seated = {seat.member.name for seat in seats if seat.old or known}
        return {
            name
            for name, each in people.items()
            if (each.has(Bits.VOTES) and (each.header.version > NO_VERSION or name not in seated))
            or (known and each.header.version == self.version)
        }

    def are_met(self, people: People) -> bool:
        """[RNG-12] The voters are enough; or all are present and none was on a ring in force in
        this incarnation, so that nothing can be lost."""
        voting = self.voting(people)
        if self.have_majority(people, voting):
            return True
        if any(each.has(Bits.INSIDE) for each in people.values()):
            return False
        return self.are_all(people)

    def have_majority(self, names: Collection[str], voting: Collection[str]) -> bool:
        """A group of unknown size begins with those present."""
        return all(
            ring.votes(names) > ring.size // 2 and ring.remembered(voting) >= ring.voters
            for ring in self.rings
            if ring.size
        )

    def are_all(self, names: Collection[str]) -> bool:
        """None is missing, so no absent member remembers anything."""
        return all(ring.votes(names) >= ring.size for ring in self.rings)

    def may_have_gone_on(self, people: People, after: Version) -> bool:
        """A later ring may have been in force: enough sites report one, have forgotten, or are
        absent."""
        voting = self.voting(people)
        not_on = {name for name in voting if people[name].header.version <= after}
        return all(ring.size - ring.remembered(not_on) > ring.size // 2 for ring in self.rings)

    def why_not(self, people: People) -> str:
        """What the operator has to do."""
        voting = self.voting(people)
        each = [self._replace(rings=(ring,)) for ring in self.rings]
        ring = ([one for one in each if not one.are_met(people)] or each)[0].rings[0]
        present, forgot = ring.votes(people), sorted(people.keys() - voting)
        text = f"blocked: {present} of {ring.size} members are heard"
        known = {seat.member.name for seat in (*ring.seats, *ring.absent)}
        missing = ", ".join(sorted(known - people.keys()))
        away = f" ({missing} {'is' if len(known - people.keys()) == 1 else 'are'} missing)"
        text += away if missing else ""
        if present <= ring.size // 2:
            return f"{text}, and more than half are needed; {WAY_ON}"
        if not any(each.has(Bits.INSIDE) for each in people.values()):
            return (
                f"{text}, and {ring.size} are needed to begin, since {', '.join(forgot)} may"
                " have a past without records (stable=); start the others"
            )
        why = f"{', '.join(forgot)} came without memory or records (stable=)"
        if not forgot:
            why = f"the group does not know {', '.join(sorted(people.keys() - known))}"
        return f"{text}, and {ring.voters} that remember are needed: {why}; {WAY_ON}"
