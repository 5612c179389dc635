"""[MTP 3.4, 5.3] The master admits and removes members, by messages in the order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from unisono.core import Capture, Effect
from unisono.model import Address, Member
from unisono.protocols.mtp.batch import MembershipChange, RemovedMember
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.member_watch import MemberWatch
from unisono.protocols.mtp.packet_writer import NO_HEADER, PacketWriter
from unisono.protocols.mtp.packets import (
    Confirm,
    Expel,
    JoinRequest,
    LeaveRequest,
    PacketKind,
    key_of,
)
from unisono.protocols.mtp.parameters import Parameters
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.state import GIVERS_MAX, StateSource
from unisono.protocols.mtp.token_master import TokenMaster
from unisono.protocols.mtp.web import Web

TOMBS_MAX: Final = 256
JOINERS_MAX: Final = 64
CHANGES_MAX: Final = 8
"""Joiners admitted by one change; the others are admitted by the next."""


@dataclass(slots=True)
class QueuedJoin:
    packet: JoinRequest
    heard_us: int


@dataclass(eq=False)
class MasterAdmission:
    """The coordinator's side of joining, leaving and exclusion."""

    _me: Member
    _with_state: bool
    _parameters: Parameters
    _clock: StepClock
    _web: Web
    _packets: PacketWriter
    _replicas: Replicas
    _tokens: TokenMaster
    _watch: MemberWatch
    _source: StateSource

    def __post_init__(self) -> None:
        self._key = key_of(self._me)
        self._joiners: dict[int, QueuedJoin] = {}
        self._leavers: set[int] = set()
        self.failing: set[int] = set()
        self._tombs: deque[int] = deque(maxlen=TOMBS_MAX)
        """Incarnations that have been members and are no more."""
        self._withdrawn: deque[int] = deque(maxlen=TOMBS_MAX)
        """Joiners that gave up lately."""
        self._admitted: dict[int, tuple[int, bool]] = {}
        """By member, its first number, and whether it is given the state."""
        self.ending = False
        """The master wants to end the web."""
        self.change: MembershipChange | None = None
        """Not delivered yet, under the token `number`."""
        self.number = 0
        self.holding = False
        """[MTP 3.4] No tokens until all is settled: a joiner wants the state."""

    def begin(self) -> None:
        """We took over."""
        self._joiners, self._leavers, self.failing = {}, set(), set()
        self.change, self.number = None, 0
        self.holding = self.ending = False

    def end_web(self, is_due: bool) -> None:
        """The last master leaves, once it is due."""
        self.ending = is_due

    # -- joining -----------------------------------------------------------------------------------

    def admit(self, packet: JoinRequest, out: list[Effect]) -> None:
        """[MTP 3.4] Queue a join request, or answer it."""
        key = key_of(packet.member)
        if not self._replicas.leads or not self._tokens.ready or self.ending:
            return
        if packet.withdrawn or key in self._withdrawn:
            self._withdraw(key)
            return
        if key in self._web.members:
            if key in self._admitted:
                self._confirm(key, out)
            return
        if self.change is not None and any(its == packet.member for its, _ in self.change.joined):
            return
        if key in self._tombs:
            reason = "this incarnation of the member has been in the web before"
            self._packets.refuse(packet.member, reason, out, packet.member.incarnation)
            return
        refusal = self._why_not(packet)
        if later := self._later_incarnation(packet.member):
            self._packets.refuse_superseded(packet.member, later, out)
        elif refusal:
            self._packets.refuse(packet.member, refusal, out)
        elif key in self._joiners or len(self._joiners) < JOINERS_MAX:
            self._joiners[key] = QueuedJoin(packet, self._clock.now_us)

    def _withdraw(self, key: int) -> None:
        """It gave up before it was admitted."""
        self._joiners.pop(key, None)
        if key not in self._withdrawn:
            self._withdrawn.append(key)
        if key in self._web.members:
            self._leavers.add(key)

    def _later_incarnation(self, its: Member) -> int:
        """That of a member which is the same process, if it is higher."""
        for member in self._web.members.values():
            if (member.name, member.address) == (its.name, its.address):
                if member.incarnation > its.incarnation:
                    return member.incarnation
        return 0

    def _why_not(self, packet: JoinRequest) -> str:
        its, members = packet.member, self._web.members
        for member in members.values():
            if member.name == its.name and member.address != its.address:
                # Even if it is silent: its name is free only once it is removed.
                return f"the name {its.name} is taken"
        if len(members) >= self._parameters.members_count_max:
            return f"the web is full: {self._parameters.members_count_max} members"
        return ""

    # -- leaving and failing -----------------------------------------------------------------------

    def let_out(self, packet: LeaveRequest, out: list[Effect]) -> None:
        if self._replicas.leads and packet.header.sender in self._web.members:
            self._leavers.add(packet.header.sender)

    def leave(self) -> None:
        """We leave ourselves, and the web goes on."""
        self._leavers.add(self._key)

    def fail(self, key: int) -> None:
        """A member has failed: reject its messages and remove it."""
        self._tokens.reject(key)
        self.failing.add(key)

    def fail_silent(self, out: list[Effect]) -> None:
        """Each beat: remove the members that are silent, and probe those that are quiet."""
        for key in self._watch.silent():
            if key not in self.failing:
                self.fail(key)
        self._watch.probe(self.failing, out)

    def fail_refused(self, address: Address) -> None:
        """The network reports that no process listens there."""
        for key in self._watch.refused(address) if self._tokens.ready else ():
            if key not in self.failing:
                self.fail(key)

    def turn_away(self, key: int, to: Address, out: list[Effect]) -> None:
        """A process that is no member sent the master a member's packet."""
        self._packets.drop("stranger")
        if self._tokens.ready:
            self._packets.send(PacketKind.EXPEL, Expel(NO_HEADER, key), (to,), out)

    def is_going(self, key: int) -> bool:
        going = self.change.gone if self.change is not None else ()
        return key in self.failing or any(gone.key == key for gone in going)

    # -- changes -----------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Members join, leave or failed since the last change."""
        return bool(self._joiners or self._leavers or self.failing or self.ending)

    def begin_change(self) -> None:
        """[MTP 5.3] All that came up since the last change becomes one message in the order."""
        if not self.is_due() or self.change is not None or not self._tokens.machine.may_grant():
            return
        members = self._web.members
        since_us = self._clock.now_us - 4 * self._parameters.beat_us
        for key in [k for k, j in self._joiners.items() if j.heard_us < since_us]:
            del self._joiners[key]
        self._leavers &= members.keys()
        self.failing &= members.keys()
        joined = self._next_joiners()
        if not (joined or self._leavers or self.failing or self.ending):
            return
        names = {(member.name, member.address) for member, _ in joined}
        for key, member in members.items():
            if (member.name, member.address) in names and key != self._key:
                self.fail(key)
        gone = [RemovedMember(key, True) for key in sorted(self._leavers)]
        gone += [RemovedMember(key, False) for key in sorted(self.failing - self._leavers)]
        self._leavers, self.failing = set(), set()
        for member, _ in joined:
            del self._joiners[key_of(member)]
        # Deviates [MTP 5.3]: the master announces joins and removals, since it decides them; the
        # paper leaves that to joiners and to those who notice a failure, above MTP.
        self.change = MembershipChange(joined, tuple(gone), self.ending)
        self.holding = any(waits for _, waits in joined)
        self.number = self._tokens.give(self._key, 0, 1)

    def _next_joiners(self) -> tuple[tuple[Member, bool], ...]:
        """Those that waited longest, as many as can be given roster and state now."""
        count = min(CHANGES_MAX, GIVERS_MAX - self._source.takers())
        count = min(count, self._parameters.members_count_max - len(self._web.members))
        latest: dict[str, JoinRequest] = {}
        for joiner in self._joiners.values():
            packet = joiner.packet
            rival = latest.get(packet.member.name)
            if rival is None or rival.member.incarnation < packet.member.incarnation:
                latest[packet.member.name] = packet
        chosen = [
            packet
            for packet in latest.values()
            if not self._later_incarnation(packet.member) and not self._why_not(packet)
        ]
        return tuple(
            (packet.member, packet.wants_state and self._with_state)
            for packet in chosen[: max(count, 0)]
        )

    def changed(self, number: int, change: MembershipChange, out: list[Effect]) -> None:
        """At the coordinator: the change is delivered; confirm the new members, and resume."""
        for gone in change.gone:
            self._tokens.forget(gone.key)
        for member, waits in change.joined:
            key = key_of(member)
            if key == self._key:
                continue
            self._watch.watch(key, number + 1)
            if waits:
                self._source.capturing(key)
            if key in self._withdrawn:
                self._leavers.add(key)  # It gave up while it was admitted.
            else:
                self._confirm(key, out)
        if any(waits for _, waits in change.joined):
            out.append(Capture(number))  # One for all joiners of this change.
        # Deviates [MTP 3.4 state]: tokens are granted again as soon as the state is captured, not
        # when the joiner has it: it may be large, and what follows is spooled by the joiner.
        if number == self.number:
            self.change, self.number, self.holding = None, 0, False

    def note(self, number: int, change: MembershipChange) -> None:
        """At every replica, since any of them may take over and have to confirm."""
        for gone in change.gone:
            self._admitted.pop(gone.key, None)
            self._source.forget_capture(gone.key)
            self._tombs.append(gone.key)
        for member, waits in change.joined:
            self._admitted[key_of(member)] = (number, waits)
            if waits:
                self._source.expect(key_of(member), number)

    def _confirm(self, key: int, out: list[Effect]) -> None:
        first, waits = self._admitted[key]
        packet = Confirm(NO_HEADER, key, first, waits, self._replicas.ballot, self._me)
        self._packets.send(PacketKind.CONFIRM, packet, (self._web.members[key].address,), out)
