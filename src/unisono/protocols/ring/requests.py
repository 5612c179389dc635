"""Requests to join and to leave, which wait for the token, and the members that are absent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Effect
from unisono.layout import encode
from unisono.model import Member
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.election import Election
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.packets import (
    LOST_REASON,
    NO_VERSION,
    STALE_REASON,
    Bits,
    Control,
    MemberRecord,
    key_of,
)
from unisono.protocols.ring.parameters import Parameters
from unisono.protocols.ring.ring_search import RingSearch
from unisono.protocols.ring.state import RingState

JOINERS_MAX: Final = 64
PATIENCE: Final = 8
"""A request is kept for this many T_REFORM."""


@dataclass(eq=False)
class MembershipRequests:
    """Who joins or leaves with the next ring. The first on the ring that stays forms it."""

    _parameters: Parameters
    _state: RingState
    _agenda: Agenda
    _election: Election
    _search: RingSearch
    _builder: PacketBuilder

    def __post_init__(self) -> None:
        self._joiners: dict[str, tuple[MemberRecord, int]] = {}
        self._namesakes: dict[str, tuple[Member, int]] = {}
        """Joiners whose name is on the ring, and since when."""
        self._leavers: dict[str, tuple[Member, int]] = {}
        self._left: dict[int, Member] = {}
        """Members that left with the last change, by key."""
        self._absent_us: dict[str, int] = {}
        """By name, the working time at which a member became absent."""
        self._worked_us = 0
        """How long this member was on rings in force, up to the last stop."""
        self._began_us = 0

    # -- what is due -----------------------------------------------------------------------------

    def are_due(self) -> bool:
        """This member is to form a ring for them."""
        if not (self._joiners or self._leavers or self._absent_us) or not self._admits():
            return False
        self._expire()
        return bool(self._joiners or self._leavers or self.forgotten())

    def _admits(self) -> bool:
        """The first on the ring that is not leaving."""
        seats = self._state.ring.seats
        for seat in seats:
            if seat.member.name not in self._leavers:
                return seat.member == self._state.me
        return seats[0].member == self._state.me if seats else False

    def _expire(self) -> None:
        oldest_us = self._agenda.now_us - PATIENCE * self._parameters.t_reform_us
        for name in [n for n, (_, when_us) in self._joiners.items() if when_us < oldest_us]:
            del self._joiners[name]
        for name in [n for n, (_, when_us) in self._leavers.items() if when_us < oldest_us]:
            del self._leavers[name]

    def joining(self) -> set[str]:
        """Names expected to answer an invitation, beside those on the ring."""
        return set(self._joiners)

    def leaving(self) -> set[str]:
        """Names that are not missed if they do not answer."""
        return set(self._leavers)

    def forgotten(self) -> set[str]:
        """Members absent from working rings for so long that they are no longer counted."""
        after_us = self._parameters.forget_us
        if self._parameters.sites or not after_us:
            return set()
        present_us = self._agenda.now_us - self._began_us if self._state.in_force else 0
        limit_us = self._worked_us + present_us - after_us
        return {name for name, since_us in self._absent_us.items() if since_us < limit_us}

    # -- rings -----------------------------------------------------------------------------------

    def start(self, now_us: int) -> None:
        """The ring works."""
        self._began_us = now_us

    def stop(self, now_us: int) -> None:
        self._worked_us += now_us - self._began_us

    def new_ring(self) -> None:
        """A ring is in force. Joiners that are not on it will ask again."""
        ring = self._state.ring
        names = {member.name for member in ring.members}
        self._joiners.clear()
        self._left = {key_of(m): m for n, (m, _) in self._leavers.items() if n not in names}
        # One QUIT, one reformation: a member that is on the ring although it left asks again.
        self._leavers = {n: j for n, j in self._leavers.items() if n == self._state.me.name}
        absent = sorted({seat.member.name for seat in ring.absent})
        self._absent_us = {n: self._absent_us.get(n, self._worked_us) for n in absent}

    def left(self, packet: Control) -> Member | None:
        """A member that left with this ring and does not know that it is in force."""
        return self._left.get(packet.header.sender)

    # -- to leave --------------------------------------------------------------------------------

    def note_leaver(self, member: Member) -> None:
        self._leavers[member.name] = (member, self._agenda.now_us)

    def note_quit(self, packet: MemberRecord) -> bool:
        """[RNG-15] The ring is to close without it; whether this member forms it."""
        waiting, _ = self._joiners.get(packet.member.name, (None, 0))
        if waiting is not None and waiting.member == packet.member:
            del self._joiners[packet.member.name]  # It gave up.
        if self._state.ring.member(packet.header.sender) is None:
            return False
        self.note_leaver(packet.member)
        return self._admits()

    # -- to join ---------------------------------------------------------------------------------

    def note_join(self, packet: MemberRecord, out: list[Effect]) -> bool:
        """[RNG-14] Kept until the token is here, answered with version and S; whether it is."""
        state, builder, parameters = self._state, self._builder, self._parameters
        member, ring = packet.member, state.ring
        if member.name == state.me.name:
            builder.refuse(member, f"the name {member.name} is taken by {state.me}", out)
            return False
        if not self._may_have_name(packet, out) or not self._admits():
            return False
        if packet.rank[0] > state.rank[0] and ring.trunk > NO_VERSION:
            # A majority had gone on before this part was let go on: it forms the next ring.
            self._report_ring(member, out)
            self._search.follow(member)
            self._agenda.push(Code.E_REFSTART)
            self._agenda.push(Code.E_INIT)
            return False
        behind = packet.has(Bits.MEMORY) and packet.rank < state.rank
        if behind and not self._election.can_go_on(packet):
            anew = parameters.sites and ring.began_after(packet.header.version)
            builder.reject(member, Code.STALE, LOST_REASON if anew else STALE_REASON, out)
            return False
        most = parameters.members_count_max
        if len(ring.seats) + len(self._joiners) >= most:
            if member.name not in {each.name for each in ring.members}:
                builder.refuse(member, f"the group is full: members_count_max={most}", out)
                return False
        self._expire()
        if len(self._joiners) < JOINERS_MAX or member.name in self._joiners:
            self._joiners[member.name] = (packet, self._agenda.now_us)
        self._report_ring(member, out)
        return True

    def _may_have_name(self, packet: MemberRecord, out: list[Effect]) -> bool:
        """No other member of the ring has the name of the joiner, or it is dead."""
        state, builder, member = self._state, self._builder, packet.member
        known = next((each for each in state.ring.members if each.name == member.name), None)
        if known is None:
            return True
        if known == member:
            if packet.header.version == state.ring.version:
                builder.to(member, Code.RESUME, b"", out)  # It missed the first.
            return True
        elsewhere = known.address.host != member.address.host
        if elsewhere or known.incarnation == member.incarnation:
            if self._admits():
                builder.refuse(member, f"the name {member.name} is taken", out)
            return False
        if known.incarnation > member.incarnation:
            reason = "a later incarnation of this member has joined"
            builder.reject(member, Code.STALE, reason, out, known.incarnation)
            return False
        if not self._is_insistent(member):
            return False
        self._election.suspect(key_of(known))
        return True

    def _is_insistent(self, member: Member) -> bool:
        """It asks again under a name on the ring: if that member lived, it would have refused."""
        now_us = self._agenda.now_us
        known, since_us = self._namesakes.get(member.name, (None, 0))
        if known != member:
            if len(self._namesakes) >= JOINERS_MAX:
                self._namesakes.clear()
            self._namesakes[member.name] = member, now_us
            return False
        return now_us - since_us >= self._parameters.t_reform_us // 2

    def _report_ring(self, member: Member, out: list[Effect]) -> None:
        """[RING_INFO] The ring, and its S."""
        leader = self._state.ring.leader
        answer = self._builder.member_record(Code.RING_INFO, 0, Bits.IN_FORCE, leader)
        self._builder.to(member, Code.RING_INFO, encode(answer), out)
