"""The one who leads: invites, gathers a majority, forms the ring and puts it in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from unisono.core import EVERYONE, Cause, Effect, Send, Warn
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.following import Following
from unisono.protocols.ring.packets import (
    LOST_REASON,
    NO_TRUNK,
    NO_VERSION,
    ROUND_MAX,
    STALE_REASON,
    Bits,
    MemberRecord,
    ResendRequest,
    Version,
    key_of,
)
from unisono.protocols.ring.parameters import SITES_MAX
from unisono.protocols.ring.quorum import Quorums
from unisono.protocols.ring.ring import CHAIN_MAX, Ring, RingLink, Seat
from unisono.wire import ENVELOPE_BYTES, Writer

if TYPE_CHECKING:
    from unisono.protocols.ring.core import Site

PART_BYTES_MIN: Final = 200
BLOCKED_ROUNDS: Final = 8
"""After so many invitations in vain the operator is told."""


class Leading(Following):
    """[RNG Figure 11] What the Coordinator machine of one member does."""

    def __init__(self, core: Site) -> None:
        super().__init__(core)
        self.answers: dict[str, MemberRecord] = {}
        self._stale: dict[str, MemberRecord] = {}
        """Those who answered, and cannot go on from where they are."""
        self.accepted: set[int] = set()
        self._voters: dict[str, MemberRecord] = {}
        """Those who had answered when the ring was formed."""
        self._denials: dict[str, Version] = {}
        self._quorums = Quorums((), NO_VERSION)
        """What the ring needs that is to be formed."""
        self._unborn: set[Version] = set()
        """Rings that never were in force, by the word of who formed them and alone could tell."""
        self._outbid = False
        """Somebody has promised a higher version than ours."""
        self._warned = False
        self._began_us = 0
        """When we began to invite."""
        self._overridden, self._formed_us = False, 0
        """The ring was formed by the operator's word."""

    # -- phase 1: invite ---------------------------------------------------------------------------

    def invite(self, out: list[Effect]) -> None:
        """[REF_INV_BC] Begin, or ask again those that did not answer."""
        core = self._core
        leads = self.promised.leader == core.key and self.promised > core.ring.version
        if leads:
            self._end_deadlock(out)
            if core.verdict is not None:
                return
        if not leads or self._outbid or core.seen > self.promised.number:
            self._outbid = False
            if core.seen >= ROUND_MAX:
                core.doom("no version is left")
                return
            core.seen += 1
            self.pledge(Version(core.seen, core.key), core.me, out)
            self.answers.clear()
            self._stale.clear()
            self.accepted.clear()
            self._denials.clear()
            if not leads:
                self.rounds = 0
                self._began_us = core.now_us
                core.watch_ring()
                rings = (*core.before, core.ring) if core.ring.seats else (core.founding(),)
                # Of a part whose memory is lost, too few sites are left to begin anew.
                rings += (core.founding(),) * (not core.memory and core.parameters.sites > 0)
                quorums = Quorums(rings, core.ring.version)
                self._quorums = quorums.without(self._unborn, core.founding())
        core.membership.settled(out)
        self.rounds += 1
        if self.rounds > BLOCKED_ROUNDS and not core.parameters.sites and core.ring.seats:
            if not core.delivery.has_view and self._is_blocked():
                self._forget_ring()  # Of no known size, never begun: whoever is there begins it.
        bits = Bits.MEMORY * core.memory | Bits.AT_TOKEN * self.at_token
        packet = core.person(Code.REF_INV_BC, self.promised.number, bits)
        core.everyone(Code.REF_INV_BC, packet.body(), out)
        wait_us = core.parameters.t_ts_us << min(self.rounds - 1, 6)
        wait_us = min(wait_us, core.parameters.t_ref_rt_us // 2)
        if self.rounds > 1:
            wait_us = core.membership.jitter(wait_us)
            core.probe((s.member for s in core.ring.seats if self._is_awaited(s)), out)
        core.arm(Timer.T_TS, wait_us, out)
        if self.rounds >= BLOCKED_ROUNDS and not self._warned and self._is_blocked():
            self._warned = True
            out.append(Warn(self._quorums.why_not(self._heard())))

    def _end_deadlock(self, out: list[Effect]) -> None:
        """More invitations will not help. Some that answered cannot go on as they are: they are
        asked to join anew only where there is no other way, for until a ring is in force nobody's
        memory is to be lost. Or all are here, and too few of them remember."""
        core, heard = self._core, self._heard()
        if self.rounds <= BLOCKED_ROUNDS or not self._is_blocked():
            return
        if core.memory:
            if self._stale and self._may_go_on(self._complete() | self._stale):
                self._tell_stale(STALE_REASON, out)
            elif self._quorums.are_all(heard):
                for each in heard.values():
                    if each.has(Bits.INSIDE) and each.member != core.me:
                        core.tell(each.member, Code.STALE, LOST_REASON, out)
                if core.delivery.has_view:
                    core.doom(LOST_REASON, Cause.MEMORY_LOST)
            return
        # Who could remember more than those who remember something has forgotten it.
        if not self._stale or not heard.keys() >= set(core.record.names):
            return
        voting = self._quorums.voting(heard)
        if not (self._quorums.have_majority(heard, voting) or self._quorums.are_all(heard)):
            return
        last = max(each.header.version for each in self._stale.values())
        if self._quorums.may_have_gone_on(heard, last):
            self._tell_stale(LOST_REASON, out)
        else:
            self._forget_ring()
            self._outbid = True

    def _is_blocked(self) -> bool:
        return not self._may_go_on(self._complete())

    def _tell_stale(self, reason: str, out: list[Effect]) -> None:
        for each in self._stale.values():
            self._core.tell(each.member, Code.STALE, reason, out)

    def _forget_ring(self) -> None:
        self._core.forget_ring()
        self._quorums = Quorums((self._core.founding(),), NO_VERSION)

    def count_in(self, packet: MemberRecord, out: list[Effect]) -> None:
        """[RSP_POS] It comes along. What it lacks is sent to it; if that cannot be, it is told."""
        core = self._core
        if Version(packet.attempt, core.key) != self.promised:
            return
        name = packet.member.name
        known = self.answers.get(name)
        if name == core.me.name or (known is not None and self._is_namesake(known, packet)):
            core.refuse(packet.member, f"the name {name} is taken", out)
            return
        if known is None and len(self.answers) + len(self._stale) >= SITES_MAX:
            core.codec.drop("crowd")
            return
        if packet.has(Bits.MEMORY) and not self.can_go_on(packet):
            self.answers.pop(name, None)
            self._stale[name] = packet
            return
        if self._quorums.tells_unborn(packet):
            self._unborn.add(packet.header.version)
            self._quorums = self._quorums.without(self._unborn, core.founding())
        self.answers[name] = packet
        self._stale.pop(name, None)
        self.suspects.discard(packet.header.sender)
        if not self._is_complete(packet):
            core.repair.help(packet.member, packet.header.sender, packet.header.s, out)

    @staticmethod
    def _is_namesake(known: MemberRecord, packet: MemberRecord) -> bool:
        """Another of the same name has answered: elsewhere, or a later life of the same."""
        mine, its = known.member, packet.member
        return mine.address.host != its.address.host or mine.incarnation > its.incarnation

    def resend(self, packet: ResendRequest, out: list[Effect]) -> None:
        """To one that comes along, and only to such: of another's history we have nothing."""
        core = self._core
        for each in self.answers.values():
            if each.header.sender == packet.header.sender and each.has(Bits.MEMORY):
                core.repair.send_ranges(each.member, packet.ranges, out)

    # -- who comes along ---------------------------------------------------------------------------

    def _is_complete(self, packet: MemberRecord) -> bool:
        return not packet.has(Bits.MEMORY) or packet.header.s == self._core.ordering.S

    def _complete(self) -> dict[str, MemberRecord]:
        """Those who can be on the new ring, and we."""
        found = {name: each for name, each in self.answers.items() if self._is_complete(each)}
        found[self._core.me.name] = self.standing()
        return found

    def _heard(self) -> dict[str, MemberRecord]:
        """All who answered, whether or not they can be on the new ring."""
        return self._complete() | self.answers | self._stale

    def _may_go_on(self, people: Mapping[str, MemberRecord]) -> bool:
        """[RNG-12] And, for one that remembers a ring but nothing of what was said on it: all of
        that ring are here, and none remembers more."""
        core = self._core
        if self.is_overridden():
            return True
        if not core.memory and not people.keys() >= set(core.record.names):
            return False
        return self._quorums.are_met(people)

    def is_overridden(self) -> bool:
        """[RNG-13] Our operator, or that of one who comes along, wants this part to go on, which it
        could not otherwise."""
        wanted = self.override or any(each.has(Bits.OVERRIDE) for each in self.answers.values())
        return wanted and not self._quorums.are_met(self._complete())

    def everyone_answered(self) -> bool:
        core = self._core
        expected = {
            seat.member.name for seat in core.ring.seats if key_of(seat.member) not in self.suspects
        }
        expected |= core.membership.expected()
        if not core.ring.seats and not core.parameters.sites:
            return False  # Nobody knows who there is: wait and see.
        if len(expected) < core.parameters.sites and not core.ring.seats:
            return len(self._complete()) >= core.parameters.sites and self.may_form()
        return expected <= self._complete().keys() and self._may_form()

    def may_form(self) -> bool:
        """[T_TS] Those who were slow had their chance."""
        core = self._core
        if any(map(self._is_awaited, core.ring.seats)) or (core.ring.seats and self.rounds < 2):
            return False
        return self._may_form()

    def _is_awaited(self, seat: Seat) -> bool:
        """One of the ring does not come along yet, and may only be slow. Who is heard and does not
        come along either is waited for no longer than one that says nothing."""
        core, name, key = self._core, seat.member.name, key_of(seat.member)
        if name in self._complete() or name in self._stale or key in self.suspects:
            return False
        patience_us = core.detector.limit_us(key)
        return not core.detector.is_silent(key) and core.now_us - self._began_us < patience_us

    def _may_form(self) -> bool:
        complete = self._complete()
        staying = {name for name, each in complete.items() if not each.has(Bits.LEAVING)}
        return self._may_go_on(complete) and bool(staying) and self._would_stand(staying)

    def _would_stand(self, staying: set[str]) -> bool:
        """The new ring is a majority of what the group will then be."""
        return self.is_overridden() or len(staying) > self._size(staying) // 2

    def may_release(self) -> bool:
        """Some want to leave, and so few would remain that no ring can be formed: let them go."""
        complete = self._complete()
        staying = {name for name, each in complete.items() if not each.has(Bits.LEAVING)}
        if len(staying) == len(complete) or (self._would_stand(staying) and staying):
            return False
        return self._may_go_on(complete) and self.rounds > 1

    def release(self, out: list[Effect]) -> None:
        core = self._core
        for each in self._complete().values():
            if each.has(Bits.LEAVING):
                if each.member == core.me:
                    core.membership.depart()
                else:
                    core.to(each.member, Code.RELEASE, b"", out)
        if not core.released:
            self.invite(out)

    # -- phase 2: the ring -------------------------------------------------------------------------

    def _size(self, staying: set[str]) -> int:
        """N of the new ring. [RNG-13] The operator's word makes it what is left, while few."""
        core = self._core
        if self.is_overridden():
            return len(staying)
        if sites := core.parameters.sites:
            size = max(ring.size for ring in self._quorums.rings)
            small = core.ring.seats and size < sites and len(staying) <= sites // 2
            return max(size if small else sites, len(staying))
        return len(staying) + len(self._absent(staying))

    def _absent(self, staying: set[str]) -> tuple[Seat, ...]:
        core = self._core
        gone = {name for name, each in self._complete().items() if each.has(Bits.LEAVING)}
        gone |= core.membership.left_names() | core.membership.forgotten()
        absent = [
            Seat(seat.member, core.ordering.locals.get(key_of(seat.member), 0), seat.old)
            for seat in (*core.ring.seats, *core.ring.absent)
            if seat.member.name not in staying and seat.member.name not in gone
            if seat.old or core.ring.version not in self._unborn  # Or it never came.
        ]
        # No more than there are sites: who was replaced is no longer counted.
        most = (core.parameters.sites or core.parameters.members_count_max) - len(staying)
        return tuple(absent[: max(0, most)])

    def _trunk(self, staying: set[str], parted: bool) -> Version:
        """A part that was let go on is the group again when all sites are on it."""
        core = self._core
        if parted:
            return core.ring.rank[0] if core.memory else NO_TRUNK
        return NO_VERSION if len(staying) >= core.parameters.sites > 0 else core.record.trunk

    def form(self, out: list[Effect]) -> None:
        """[NEWTR_BC] R' of those who acknowledged: the coordinator is P0."""
        # Deviates [RNG Ring creation]: who was on the ring before keeps its place among the others.
        # The paper seats them as their answers come.
        core = self._core
        voters = self._complete()
        complete = {n: e for n, e in voters.items() if not e.has(Bits.LEAVING)}
        founding = not core.memory
        parted = self.is_overridden()
        if founding:
            core.ordering.start_anew()
            core.restart_reading()
        elif parted:  # What was said before is heard on it: who comes joins the next.
            complete = {n: e for n, e in complete.items() if e.has(Bits.MEMORY)}
        order = {seat.member.name: at for at, seat in enumerate(core.ring.seats)}
        people = sorted(
            complete.values(),
            key=lambda e: (e.member != core.me, order.get(e.member.name, 999), e.member),
        )
        seats = []
        for each in people[: core.parameters.members_count_max]:
            old = each.has(Bits.MEMORY)
            local = core.ordering.locals.get(key_of(each.member), 0) if old else 0
            waits = not old and not founding and each.has(Bits.STATE)
            seats.append(Seat(each.member, local, old, waits))
        staying = {seat.member.name for seat in seats}
        base, place, version = core.ordering.S, core.ordering.place, self.promised
        chain = () if founding else core.ring.chain
        ring = Ring(
            version,
            tuple(seats),
            self._absent(staying) if not parted else (),
            self._size(staying),
            base,
            place,
            (*chain, RingLink(version, base))[-CHAIN_MAX:],
            core.me,
            self._trunk(staying, parted),
            parted,
            min(base, max(each.header.k for each in voters.values())),
        )
        self._overridden, self._formed_us = parted, core.now_us
        self.accepted, self.rounds = {core.key}, 0
        self._voters = voters
        self._unborn.add(version)
        core.accept(ring, out)
        self.say_ring(out)

    def say_ring(self, out: list[Effect]) -> None:
        core = self._core
        self.rounds += 1
        octets = core.ring.octets()
        room = max(PART_BYTES_MIN, core.packet_bytes_max - ENVELOPE_BYTES - 64)
        count = -(-len(octets) // room)
        packets = []
        for index in range(count):
            piece = octets[index * room : (index + 1) * room]
            body = Writer().u8(index).u8(count).raw(piece).done()
            packets.append(core.sealed(Code.NEWTR_BC, body))
        out.append(Send(EVERYONE, packets))
        core.arm(Timer.T_TS, core.parameters.t_ts_us, out)

    def everyone_accepted(self) -> bool:
        return self._core.ring.index.keys() <= self.accepted and self.may_resume(0)

    def may_resume(self, rounds: int = 3) -> bool:
        """A quorum of the group before, and a majority of the group after, has accepted. After a
        pause of ours nobody may wait for that word any more."""
        # Deviates [RNG Figure 11]: the paper waits for all on the new ring, and says nothing of one
        # that answered and died.
        core = self._core
        if self.rounds < rounds or core.now_us - self._formed_us > core.parameters.waiting_us:
            return False
        accepting = {n: e for n, e in self._voters.items() if e.header.sender in self.accepted}
        met = self._overridden or self._quorums.are_met(accepting)
        return met and len(core.ring.index.keys() & self.accepted) > core.ring.size // 2

    def resume(self, out: list[Effect]) -> None:
        core = self._core
        self._unborn.clear()
        core.everyone(Code.RESUME, b"", out)
        core.disarm(Timer.T_TS, out)
        self.suspects.clear()
        self.at_token = False
        self.calm(out)

    def calm(self, out: list[Effect]) -> None:
        if self._warned:
            self._warned = False
            out.append(Warn(""))

    # -- not this time -----------------------------------------------------------------------------

    def give_up(self, out: list[Effect]) -> None:
        """[ABORT_BC_RQU] Our version will never be: those who promised it may go back."""
        core = self._core
        core.disarm(Timer.T_TS, out)
        self.at_token = False
        if self.promised.leader == core.key and self.promised > core.ring.version:
            body = Writer().u32(self.promised.number).done()
            core.everyone(Code.ABORT_BC_RQU, body, out)
            self.free()
        self.answers.clear()

    def tells_of_my_ring(self, packet: MemberRecord) -> bool:
        core = self._core
        return (
            packet.has(Bits.IN_FORCE)
            and Version(packet.attempt, core.key) == self.promised
            and packet.header.version == core.ring.version
            and core.ring.member(packet.header.sender) is not None
        )

    def tells_of_another(self, packet: MemberRecord) -> bool:
        core = self._core
        return (
            packet.has(Bits.IN_FORCE)
            and Version(packet.attempt, core.key) == self.promised
            and packet.rank > core.rank
        )

    def note_denial(self, packet: MemberRecord) -> None:
        """A ring of a lower version is in force: if it has the majority, ours was forgotten."""
        core = self._core
        if Version(packet.attempt, core.key) != self.promised:
            return
        if not packet.has(Bits.IN_FORCE):
            self._outbid = True
            return
        if len(self._denials) < SITES_MAX:
            self._denials[packet.member.name] = packet.header.version
        same = {n for n, version in self._denials.items() if version == packet.header.version}
        sized = any(ring.size for ring in self._quorums.rings)
        if not sized or not self._quorums.have_majority(same, same):
            return
        if core.memory:
            cause = Cause.MEMORY_LOST if core.was_in_force else Cause.EXCLUDED
            core.doom("the group began anew without this member", cause)
        else:
            # What it told of is no more.
            core.record = core.record._replace(version=NO_VERSION, names=(), trunk=NO_VERSION)
