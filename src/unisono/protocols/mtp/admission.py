"""[MTP 3.4, 5.3] Who comes and who goes, decided by the master as messages in the order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from unisono.core import Capture, Effect, Send
from unisono.model import Address, Member
from unisono.protocols.mtp.batch import MembershipChange, RemovedMember
from unisono.protocols.mtp.membership import GIVERS_MAX
from unisono.protocols.mtp.packets import Confirm, Expel, JoinRequest, PacketKind, Refuse, key_of
from unisono.protocols.mtp.replicas import NO_HEADER

if TYPE_CHECKING:
    from unisono.protocols.mtp.core import Mtp

TOMBS_MAX: Final = 256
JOINERS_MAX: Final = 64
CHANGES_MAX: Final = 8
"""Joiners that one change lets in; the others come with the next."""


@dataclass(slots=True)
class Joiner:
    packet: JoinRequest
    heard_us: int


class MasterAdmission:
    """The master at the door."""

    def __init__(self, core: Mtp) -> None:
        self._core = core
        self.joiners: dict[int, Joiner] = {}
        self.leavers: set[int] = set()
        self.failing: set[int] = set()
        self.tombs: deque[int] = deque(maxlen=TOMBS_MAX)
        """Lives that were in the web and are not any more."""
        self.withdrawn: deque[int] = deque(maxlen=TOMBS_MAX)
        """Those that gave up lately."""
        self.admitted: dict[int, tuple[int, bool]] = {}
        """By member, its first number, and whether it was to be given the state."""
        self.captures: set[int] = set()
        """Joiners for which we have taken the application's state."""
        self.ending = False
        """The master wants to end the web."""
        self.change: MembershipChange | None = None
        """On its way to its place in the order."""
        self.number = 0
        self.holding = False
        """[MTP 3.4] No tokens until all is settled: somebody joins with state."""

    def begin(self) -> None:
        """The chair is taken anew."""
        self.joiners, self.leavers, self.failing = {}, set(), set()
        self.change, self.number = None, 0
        self.holding = self.ending = False

    def join(self, packet: JoinRequest, out: list[Effect]) -> None:
        """[MTP 3.4] One wants in."""
        core = self._core
        key = key_of(packet.member)
        if not core.coordinator.ready or self.ending:
            return
        if packet.withdrawn or key in self.withdrawn:
            self.withdraw(key)
            return
        if key in core.web.members:
            if key in self.admitted:
                self._confirm(key, out)
            return
        if self.change is not None and any(its == packet.member for its, _ in self.change.joined):
            return
        if key in self.tombs:
            reason = "this life of the member has been in the web before"
            self._refuse(packet.member, reason, out, packet.member.incarnation)
            return
        refusal = self._why_not(packet)
        if later := self._later_life(packet.member):
            self.tell_later(packet.member, later, out)
        elif refusal:
            self._refuse(packet.member, refusal, out)
        elif key in self.joiners or len(self.joiners) < JOINERS_MAX:
            self.joiners[key] = Joiner(packet, core.now_us)

    def withdraw(self, key: int) -> None:
        """It gave up before it was here: nobody waits for it."""
        self.joiners.pop(key, None)
        if key not in self.withdrawn:
            self.withdrawn.append(key)
        if key in self._core.web.members:
            self.leavers.add(key)

    def _later_life(self, its: Member) -> int:
        """The incarnation of a member that is the same process, with a higher number."""
        for member in self._core.web.members.values():
            if (member.name, member.address) == (its.name, its.address):
                if member.incarnation > its.incarnation:
                    return member.incarnation
        return 0

    def _why_not(self, packet: JoinRequest) -> str:
        core, its = self._core, packet.member
        for member in core.web.members.values():
            if member.name == its.name and member.address != its.address:
                # Even if it is not heard: only once it is out can there be another of its name.
                return f"the name {its.name} is taken"
        if len(core.web.members) >= core.parameters.members_count_max:
            return f"the web is full: {core.parameters.members_count_max} members"
        return ""

    def tell_later(self, member: Member, known: int, out: list[Effect]) -> None:
        """It has a lower number than a life of its name that is known: its clock was set back, or
        it is late."""
        self._refuse(member, f"a later life of {member.name} is known", out, known)

    def _refuse(self, member: Member, reason: str, out: list[Effect], known: int = 0) -> None:
        body = Refuse(key_of(member), known > 0, reason, known).body()
        out.append(Send((member.address,), [self._core.codec.seal(PacketKind.REFUSE, body)]))

    def turn_away(
        self, key: int, source: Address, out: list[Effect], stateless: bool = False
    ) -> None:
        """One that is no member speaks to the master as if it were; or it asks for a state that we
        cannot give, unless that is an old question of one that has it."""
        core = self._core
        core.codec.drop("stranger")
        if core.coordinator.ready:
            body = Expel(NO_HEADER, key, stateless).body(core.header_bytes())
            out.append(Send((source,), [core.codec.seal(PacketKind.EXPEL, body)]))

    def is_due(self) -> bool:
        """Somebody comes or goes."""
        return bool(self.joiners or self.leavers or self.failing or self.ending)

    def begin_change(self) -> None:
        """[MTP 5.3] What came up since the last change becomes one message in the order."""
        core = self._core
        if not self.is_due():
            return
        if self.change is not None or not core.coordinator.machine.may_grant():
            return
        since_us = core.now_us - 4 * core.parameters.beat_us
        for key in [k for k, j in self.joiners.items() if j.heard_us < since_us]:
            del self.joiners[key]
        self.leavers &= core.web.members.keys()
        self.failing &= core.web.members.keys()
        joined = self._next_joiners()
        if not (joined or self.leavers or self.failing or self.ending):
            return
        names = {(member.name, member.address) for member, _ in joined}
        for key, member in core.web.members.items():
            if (member.name, member.address) in names and key != core.key:
                self.fail(key)
        gone = [RemovedMember(key, True) for key in sorted(self.leavers) if key in core.web.members]
        gone += [
            RemovedMember(key, False)
            for key in sorted(self.failing - self.leavers)
            if key in core.web.members
        ]
        self.leavers, self.failing = set(), set()
        for member, _ in joined:
            del self.joiners[key_of(member)]
        # Deviates [MTP 5.3]: the master says who comes and goes, since it decides that anyway; the
        # paper has joiners and those who notice a failure say it, above MTP.
        self.change = MembershipChange(joined, tuple(gone), self.ending)
        self.holding = any(waits for _, waits in joined)
        core.coordinator.give(core.key, 0, 1)
        self.number = core.coordinator.machine.next - 1

    def _next_joiners(self) -> tuple[tuple[Member, bool], ...]:
        """Those who waited longest, as many as can be given roster and state now."""
        core = self._core
        count = min(CHANGES_MAX, GIVERS_MAX - core.membership.takers())
        count = min(count, core.parameters.members_count_max - len(core.web.members))
        latest: dict[str, JoinRequest] = {}
        for joiner in self.joiners.values():
            packet = joiner.packet
            rival = latest.get(packet.member.name)
            if rival is None or rival.member.incarnation < packet.member.incarnation:
                latest[packet.member.name] = packet
        chosen = [
            packet
            for packet in latest.values()
            if not self._later_life(packet.member) and not self._why_not(packet)
        ]
        return tuple(
            (packet.member, packet.wants_state and core.with_state)
            for packet in chosen[: max(count, 0)]
        )

    def fail(self, key: int) -> None:
        """A member is judged failed."""
        core = self._core
        core.coordinator.reject(key)
        self.failing.add(key)

    def changed(self, number: int, change: MembershipChange, out: list[Effect]) -> None:
        """A change has come to its place: confirm the new ones, and resume."""
        core = self._core
        for gone in change.gone:
            core.coordinator.reject(gone.key)
            core.coordinator.watched.pop(gone.key, None)
            core.coordinator.upto.pop(gone.key, None)
        for member, waits in change.joined:
            key = key_of(member)
            if key == core.key:
                continue
            core.coordinator.watch(key, number + 1)
            if waits:
                self.captures.add(key)
            if key in self.withdrawn:
                self.leavers.add(key)  # It gave up while it was let in.
            else:
                self._confirm(key, out)
        if any(waits for _, waits in change.joined):
            out.append(Capture(number))  # One for all that came here.
        # Deviates [MTP 3.4 state]: tokens are granted again as soon as the state is taken, not when
        # the joiner has it: it may be large, and what follows waits at the joiner.
        if number == self.number:
            self.change, self.number, self.holding = None, 0, False

    def note(self, number: int, change: MembershipChange) -> None:
        """At every replica: who came and went. One that takes the chair may have to confirm."""
        for gone in change.gone:
            self.admitted.pop(gone.key, None)
            self.captures.discard(gone.key)
            self.tombs.append(gone.key)
        for member, waits in change.joined:
            self.admitted[key_of(member)] = (number, waits)

    def _confirm(self, key: int, out: list[Effect]) -> None:
        core = self._core
        first, waits = self.admitted[key]
        packet = Confirm(NO_HEADER, key, first, waits, core.replicas.ballot, core.me)
        body = packet.body(core.header_bytes())
        address = core.web.members[key].address
        out.append(Send((address,), [core.codec.seal(PacketKind.CONFIRM, body)]))

    def waiting(self, number: int) -> list[int]:
        """Who was let in at this place and waits for the state as it was there."""
        return [key for key, its in self.admitted.items() if its == (number, True)]

    def is_going(self, key: int) -> bool:
        going = self.change.gone if self.change is not None else ()
        return key in self.failing or any(gone.key == key for gone in going)
