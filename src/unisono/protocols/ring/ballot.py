"""The answers to an invitation: the members of the next ring, and whether they are enough."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from unisono.protocols.ring.election import Election
from unisono.protocols.ring.formation import Answers, Formation, staying
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packets import NO_VERSION, Bits, MemberRecord, Version
from unisono.protocols.ring.parameters import SITES_MAX
from unisono.protocols.ring.quorum import WAY_ON, Quorums
from unisono.protocols.ring.state import RingState


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))


@dataclass(eq=False)
class Ballot:
    """One attempt to form a ring."""

    _state: RingState
    _ordering: Ordering
    _election: Election
    _formation: Formation

    def __post_init__(self) -> None:
        self.quorums = Quorums((), NO_VERSION)
        """What the next ring needs."""
        self.answers: dict[str, MemberRecord] = {}
        self.stale: dict[str, MemberRecord] = {}
        """Members that answered, and cannot go on from where they are."""
        self._denials: dict[str, Version] = {}

    def begin_attempt(self) -> None:
        self.answers.clear()
        self.stale.clear()
        self._denials.clear()

    def abandon(self) -> None:
        self.answers.clear()

    def begin(self, with_founding: bool) -> None:
        """A quorum of the last ring, or of those that may have been in force since. Of a part whose
        memory is lost, too few sites are left to begin anew: `with_founding`."""
        state, founding = self._state, self._state.founding()
        rings = (*state.earlier, state.ring) if state.ring.seats else (founding,)
        rings += (founding,) * with_founding
        quorums = Quorums(rings, state.ring.version)
        self.quorums = quorums.without(self._formation.unborn, founding)

    def begin_anew(self) -> None:
        """The last ring is forgotten."""
        self.quorums = Quorums((self._state.founding(),), NO_VERSION)

    # -- answers ---------------------------------------------------------------------------------

    def is_full(self) -> bool:
        return len(self.answers) + len(self.stale) >= SITES_MAX

    def add(self, packet: MemberRecord) -> None:
        name = packet.member.name
        if self.quorums.proves_unborn(packet):
            self._formation.note_unborn(packet.header.version)
            unborn, founding = self._formation.unborn, self._state.founding()
            self.quorums = self.quorums.without(unborn, founding)
        self.answers[name] = packet
        self.stale.pop(name, None)

    def add_stale(self, packet: MemberRecord) -> None:
        name = packet.member.name
        self.answers.pop(name, None)
        self.stale[name] = packet

    def add_denial(self, packet: MemberRecord) -> bool:
        """By a member on another ring in force; whether that ring has the majority. Half is enough
        if it cannot become ours: the rest are no majority, and it does not give way."""
        version = packet.header.version
        if len(self._denials) < SITES_MAX:
            self._denials[packet.member.name] = version
        same = {n for n, other in self._denials.items() if other == version}
        sized = [ring for ring in self.quorums.rings if ring.size]
        if self._state.ring.is_apart_from(version) and packet.trunk == NO_VERSION:
            return any(2 * ring.remembered(same) >= ring.size for ring in sized)
        return bool(sized) and self.quorums.have_majority(same, same)

    def is_complete(self, packet: MemberRecord) -> bool:
        return not packet.has(Bits.MEMORY) or packet.header.s == self._ordering.S

    def can_be_on_it(self, name: str) -> bool:
        """Whether it is one of `complete`."""
        answer = self.answers.get(name)
        return name == self._state.me.name or (answer is not None and self.is_complete(answer))

    def complete(self) -> dict[str, MemberRecord]:
        """Members that can be on the new ring, this one included."""
        found = {name: each for name, each in self.answers.items() if self.is_complete(each)}
        found[self._state.me.name] = self._election.standing()
        return found

    def all(self) -> dict[str, MemberRecord]:
        """Whether or not they can be on the new ring."""
        return self.complete() | self.answers | self.stale

    # -- are they enough -------------------------------------------------------------------------

    def is_blocked(self) -> bool:
        return not self.may_go_on(self.complete())

    def why_blocked(self) -> str:
        """What the operator has to do."""
        answers = self.all()
        if not self.quorums.are_met(answers):
            return self.quorums.why_not(answers)
        absent = set(self._state.record.names) - answers.keys()
        if absent and not self._state.memory:
            why = f"{_listed(absent)} may have the messages that this member has lost"
        else:
            unlike = answers.keys() - self.complete().keys()
            why = f"{_listed(unlike)} and this member do not have the same messages"
        return f"blocked: {len(answers)} members are heard, but {why}; {WAY_ON}"

    def may_go_on(self, answers: Answers) -> bool:
        """[RNG-12] And, for a member that remembers a ring but none of its messages: all of that
        ring are present, and none remembers more."""
        if self.is_overridden():
            return True
        if not self._state.memory and not answers.keys() >= set(self._state.record.names):
            return False
        return self.quorums.are_met(answers)

    def is_overridden(self) -> bool:
        """[RNG-13] An operator lets this part go on, which it could not otherwise."""
        wanted = self._state.override or any(
            each.has(Bits.OVERRIDE) for each in self.answers.values()
        )
        return wanted and not self.quorums.are_met(self.complete())

    def has_quorum(self) -> bool:
        complete = self.complete()
        stay = staying(complete)
        return self.may_go_on(complete) and bool(stay) and self.would_stand(stay)

    def would_stand(self, stay: Answers) -> bool:
        """The new ring is a majority of what the group will then be."""
        if self.is_overridden():
            return True
        return len(stay) > self._formation.size(stay, self.complete(), self.quorums) // 2
