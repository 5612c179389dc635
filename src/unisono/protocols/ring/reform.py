"""Election and the two phases: how a new ring comes about.

A *version* is promised, then accepted, then in force. Who has promised one answers no lower one;
who leads has the highest version and S of all that answer (R1 to R3); and a ring is in force when
the majority of the group before it has accepted it. So no two can be in force at once, and whatever
everyone had is in the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unisono.core import EVERYONE, Effect, Send, Warn
from unisono.errors import BadPacket
from unisono.model import Member
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.packets import (
    NO_VERSION,
    ROUND_MAX,
    STALE_REASON,
    Abort,
    Bits,
    Control,
    CoordRequest,
    Person,
    ResendRequest,
    RingPart,
    Token,
    Told,
    Version,
    key_of,
)
from unisono.protocols.ring.parameters import SITES_MAX
from unisono.protocols.ring.ring import CHAIN_MAX, NO_RECORD, Link, Ring, Seat, read_ring
from unisono.wire import ENVELOPE_OCTETS, Writer

if TYPE_CHECKING:
    from unisono.protocols.ring.core import Site

PART_OCTETS_MIN: Final = 200
PARTS_MAX: Final = 64
BLOCKED_ROUNDS: Final = 8
"""After so many invitations in vain the operator is told."""

Key = tuple[Version, bool, int, Member]
"""What R1, R2 and R3 compare."""


class Reform:
    """The coordinator and the one who follows it, of one member."""

    def __init__(self, core: Site) -> None:
        self._core = core
        self.promised = NO_VERSION
        """[REF_INV_BC] The highest version that an answer was given for."""
        self.leader: Member | None = None
        """Who is to form it."""
        self.rounds = 0
        """How often the same was asked."""
        self.at_token = False
        """The reformation is begun as the holder: nobody failed."""
        self.suspects: set[int] = set()
        self.answers: dict[str, Person] = {}
        self._stale: dict[str, Member] = {}
        """Those who answered, and cannot go on from where they are."""
        self.accepted: set[int] = set()
        self._denials: dict[str, Version] = {}
        self._quorum = Ring()
        """The ring whose majority is needed."""
        self._parts: dict[int, RingPart] = {}
        self._parts_of = NO_VERSION
        self.override = False
        self._outbid = False
        """Somebody has promised a higher version than ours."""
        self._warned = False

    # -- R1 to R3 ----------------------------------------------------------------------------------

    def my_key(self) -> Key:
        core = self._core
        return core.version, core.memory, core.ordering.S if core.memory else 0, core.me

    @staticmethod
    def key(packet: Person) -> Key:
        """[RNG-10] R1: the higher version; R2: then the higher S; R3: then the higher site id.
        Between R1 and R2: who has the messages of a version before who has forgotten them."""
        # Deviates [RNG R2]: in the paper nobody comes back without its memory.
        memory = packet.has(Bits.MEMORY)
        return packet.header.version, memory, packet.header.s if memory else 0, packet.member

    def is_better(self, packet: Person) -> bool:
        return self.key(packet) > self.my_key()

    def should_win(self, packet: Person) -> bool:
        """One that denies and has what it speaks of. Who only has heard of more is not waited for:
        it is the majority that must agree."""
        same = packet.header.version == self._core.version
        return (same or packet.has(Bits.MEMORY)) and self.is_better(packet)

    # -- somebody invites ------------------------------------------------------------------------

    def is_worthy(self, packet: Person) -> bool:
        """Whether an invitation may be answered with a promise."""
        attempt = Version(packet.attempt, packet.header.sender)
        if attempt == self.promised:
            return True
        return attempt > self.promised and self.knows_enough(packet)

    def knows_enough(self, packet: Person) -> bool:
        """R1 and R2: it has all that we have. R3 is for two that both invite."""
        # Deviates [RNG R3]: in the paper it decides here too, so that only the highest site id of
        # those that know the same could ever coordinate.
        return self.key(packet)[:3] >= self.my_key()[:3]

    def is_worthier(self, packet: Person) -> bool:
        """Whether we, who invite, yield to another who does."""
        return self.is_worthy(packet) and self.is_better(packet)

    def agrees(self, packet: Person) -> bool:
        """In normal operation: only if there is a reason to stop."""
        core = self._core
        if not self.is_worthy(packet):
            return False
        at = core.ring.index.get(packet.header.sender)
        if packet.header.version != core.ring.version or at is None:
            # Of another ring: our own may have been left behind.
            return packet.header.version > core.version and core.token.tries > 0
        by_holder = packet.has(Bits.AT_TOKEN) and core.ring.holder(packet.header.s) == at
        return by_holder or core.token.tries > 0

    def should_lead(self, packet: Person) -> bool:
        """The inviter is right that something is wrong, and knows less than we do."""
        core = self._core
        if packet.header.version != core.version or self.knows_enough(packet):
            return False
        attempt = Version(packet.attempt, packet.header.sender)
        if core.is_normal():
            return core.token.tries > 0
        return attempt > self.promised and not core.entrance.target

    def deny(self, packet: Person, out: list[Effect]) -> None:
        """[RSP_NEG] With what we know better."""
        core = self._core
        normal = core.is_normal()
        other = core.ring.leader if normal else self.leader
        bits = Bits.IN_FORCE * normal | Bits.MEMORY * core.memory
        answer = core.person(Code.RSP_NEG, packet.attempt, bits, other)
        core.to(packet.member, Code.RSP_NEG, answer.body(), out)

    def promise(self, packet: Person, out: list[Effect]) -> None:
        """[RSP_POS] From now on nothing of the old ring is taken, but what the coordinator sends
        again, so that what we say of our S stays true."""
        core = self._core
        attempt = Version(packet.attempt, packet.header.sender)
        if attempt != self.promised:
            self.promised, self.leader = attempt, packet.member
            core.ordering.stand_still()
        if core.memory:
            core.ordering.expect(packet.header.s)
        self.rounds = 0
        core.entrance.settled(out)
        core.arm(Timer.T_REF_RT, core.parameters.t_ref_rt_us, out)
        self.answer(out)
        if core.memory and core.ordering.has_gap():
            core.arm(Timer.REPAIR, core.parameters.t_ts_us // 2, out)

    def answer(self, out: list[Effect]) -> None:
        core = self._core
        if self.leader is not None:
            bits = Bits.MEMORY * core.memory | Bits.STATE * core.entrance.wants_state
            bits |= Bits.LEAVING * core.entrance.has_quit | Bits.OVERRIDE * self.override
            answer = core.person(Code.RSP_POS, self.promised.number, bits)
            core.to(self.leader, Code.RSP_POS, answer.body(), out)

    def take_repair(self, packet: Token, out: list[Effect]) -> None:
        """[RNG Phase-1] The coordinator sends what we lack."""
        core = self._core
        if packet.header.sender != self.promised.leader or not core.memory:
            core.door.drop("repair")
            return
        before = core.ordering.S
        core.take(packet, out)
        if core.ordering.has_gap():
            core.arm(Timer.REPAIR, core.parameters.t_ts_us // 2, out)
        elif core.ordering.S > before:
            self.answer(out)

    def ask_leader(self, out: list[Effect]) -> None:
        """Some of it did not come."""
        core = self._core
        if self.leader is not None and core.ordering.has_gap():
            core.repair.ask_of(self.leader, out)
            core.arm(Timer.REPAIR, core.parameters.t_ts_us // 2, out)

    def resend(self, packet: ResendRequest, out: list[Effect]) -> None:
        """To one that comes along, and only to such: of another's history we have nothing."""
        core = self._core
        for each in self.answers.values():
            if each.header.sender == packet.header.sender and each.has(Bits.MEMORY):
                core.repair.send_ranges(each.member, packet.ranges, out)

    def is_given_up(self, packet: Abort) -> bool:
        attempt = Version(packet.attempt, packet.header.sender)
        return attempt == self.promised and self._core.was_in_force

    def may_return(self, packet: Token) -> bool:
        """Our ring goes on, and we have promised nothing beyond it."""
        core = self._core
        return (
            packet.header.version == core.ring.version
            and core.was_in_force
            and self.promised <= core.ring.version
        )

    def return_to_ring(self, out: list[Effect]) -> None:
        """What was promised will never be: the ring as it was."""
        core = self._core
        self.promised = core.ring.version
        self.suspects.clear()
        core.entrance.settled(out)
        core.disarm(Timer.T_REF_RT, out)
        core.in_force = True

    # -- the new ring comes ------------------------------------------------------------------------

    def _offered(self, packet: RingPart) -> Ring | None:
        """The ring, once all parts of it are here."""
        version = packet.header.version
        if version != self.promised or packet.of > PARTS_MAX:
            return None
        if version != self._parts_of:
            self._parts_of, self._parts = version, {}
        self._parts[packet.at] = packet
        if len(self._parts) < packet.of:
            return None
        try:
            pieces = [self._parts[index].piece for index in range(packet.of)]
            return read_ring(version, b"".join(pieces))
        except (BadPacket, KeyError):
            self._core.door.drop("malformed")
            return None

    def offers(self, packet: RingPart) -> bool:
        """It is the one promised, whole, and we have all that it stands on."""
        core = self._core
        ring = self._offered(packet)
        if ring is None:
            return False
        if core.key in ring.index:
            seat = ring.seats[ring.index[core.key]]
            return seat.old == core.memory and (not core.memory or ring.base == core.ordering.S)
        return core.entrance.has_quit and ring.base == core.ordering.S

    def leaves_out(self, packet: RingPart) -> bool:
        ring = self._offered(packet)
        return ring is not None and not self.offers(packet)

    def accept_offer(self, packet: RingPart, out: list[Effect]) -> None:
        ring = self._offered(packet)
        assert ring is not None
        self._core.accept(ring, out)
        self.rounds = 0
        self._core.arm(Timer.T_REF_RT, self._core.parameters.t_ref_rt_us // 2, out)
        self.acknowledge(packet, out)

    def acknowledge(self, packet: RingPart, out: list[Effect]) -> None:
        core = self._core
        if packet.header.version == core.ring.version and core.ring.leader is not None:
            core.to(core.ring.leader, Code.NEWTR_ACK, b"", out)

    def ask_resume(self, out: list[Effect]) -> None:
        """[RESUME_RQU] The word may be lost: the coordinator, or anyone on the ring, has it."""
        core = self._core
        self.rounds += 1
        core.arm(Timer.T_REF_RT, core.parameters.t_ref_rt_us // 2, out)
        asked = {core.ring.leader, *core.ring.members} - {core.me, None}
        core.to_all(sorted(m for m in asked if m is not None), Code.RESUME_RQU, b"", out)

    def say_resume(self, packet: Control, out: list[Effect]) -> None:
        core = self._core
        if packet.header.version == core.ring.version:
            member = core.ring.member(packet.header.sender) or core.entrance.leaver(packet)
            if member is not None:
                core.to(member, Code.RESUME, b"", out)

    # -- suspicion ---------------------------------------------------------------------------------

    def suspect_holder(self) -> None:
        core = self._core
        self.suspects = {key_of(core.token.holder())}
        self.at_token = False

    def suspect(self, out: list[Effect]) -> None:
        """[RNG-11] The process before the silent holder coordinates; we tell it."""
        core = self._core
        self.suspect_holder()
        holder = core.ring.holder(core.ordering.S)
        prior = core.ring.seats[(holder - 1) % len(core.ring.seats)].member
        core.push(Code.E_REFSTART)
        if prior == core.me:
            core.push(Code.E_COORDINATOR)
            return
        body = Writer().u64(key_of(core.token.holder())).done()
        core.to(prior, Code.COORD_RQU, body, out)
        core.push(Code.E_INIT)

    def confirms(self, packet: CoordRequest) -> bool:
        core = self._core
        return (
            packet.header.version == core.ring.version
            and packet.header.sender in core.ring.index
            and core.token.tries > 0
            and packet.suspect == key_of(core.token.holder())
        )

    # -- phase 1: invite ---------------------------------------------------------------------------

    def invite(self, out: list[Effect]) -> None:
        """[REF_INV_BC] Begin, or ask again those that did not answer."""
        core = self._core
        leads = self.promised.leader == core.key and self.promised > core.ring.version
        if not leads or self._outbid or core.seen > self.promised.number:
            self._outbid = False
            if core.seen >= ROUND_MAX:
                core.doom("no version is left")
                return
            core.seen += 1
            self.promised, self.leader = Version(core.seen, core.key), core.me
            self.answers.clear()
            self._stale.clear()
            self.accepted.clear()
            self._denials.clear()
            if not leads:
                self.rounds = 0
                core.ordering.stand_still()
                self._quorum = core.ring if core.ring.seats else self._founding()
        core.entrance.settled(out)
        self.rounds += 1
        self._ask_stale_to_return(out)
        bits = Bits.MEMORY * core.memory | Bits.AT_TOKEN * self.at_token
        packet = core.person(Code.REF_INV_BC, self.promised.number, bits)
        core.everyone(Code.REF_INV_BC, packet.body(), out)
        wait_us = core.parameters.t_ts_us << min(self.rounds - 1, 6)
        core.arm(Timer.T_TS, min(wait_us, core.parameters.t_ref_rt_us // 2), out)
        if self.rounds == BLOCKED_ROUNDS and core.stream.has_view:
            self._warned = True
            out.append(Warn(self._why_blocked()))

    def _ask_stale_to_return(self, out: list[Effect]) -> None:
        """Some that answered cannot go on as they are. They are asked to join anew only where there
        is no other way, for until a ring is in force nobody's memory is to be lost."""
        core = self._core
        complete = set(self._complete())
        if self.rounds > 2 * BLOCKED_ROUNDS and not self._is_majority(complete):
            if self._is_majority(complete | self._stale.keys()):
                for member in self._stale.values():
                    core.tell(member, Code.STALE, STALE_REASON, out)

    def _why_blocked(self) -> str:
        here = len(self._complete())
        return (
            f"blocked: {here} of {self._quorum.size} members are heard, and more than half are"
            " needed; start the others again, or let this part go on with request('go_on')"
        )

    def _founding(self) -> Ring:
        core = self._core
        return Ring(size=core.parameters.sites or len(core.record.names))

    def count_in(self, packet: Person, out: list[Effect]) -> None:
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
            core.door.drop("crowd")
            return
        if packet.has(Bits.MEMORY) and not self.can_go_on(packet):
            self.answers.pop(name, None)
            self._stale[name] = packet.member
            return
        self.answers[name] = packet
        self._stale.pop(name, None)
        self.override |= packet.has(Bits.OVERRIDE)
        if not self._is_complete(packet):
            core.repair.help(packet.member, packet.header.sender, packet.header.s, out)

    @staticmethod
    def _is_namesake(known: Person, packet: Person) -> bool:
        """Another of the same name has answered: elsewhere, or a later life of the same."""
        mine, its = known.member, packet.member
        return mine.address.host != its.address.host or mine.incarnation > its.incarnation

    def can_go_on(self, packet: Person) -> bool:
        """Whether all it has is in our order, and all it lacks is here and of its own ring."""
        # Deviates [RNG Merge]: the paper sends again whatever a returning process lacks, and does
        # not ask whether it has what the others never had.
        core = self._core
        if not core.memory or packet.header.sender not in core.ordering.locals:
            return False
        ends = core.ring.ends(packet.header.version)
        if ends is None or packet.header.s > min(ends, core.ordering.S):
            return False
        own = packet.header.version == core.ring.version or ends == core.ordering.S
        return own and core.ordering.has_from(packet.header.s)

    def _is_complete(self, packet: Person) -> bool:
        return not packet.has(Bits.MEMORY) or packet.header.s == self._core.ordering.S

    def _complete(self) -> dict[str, Person]:
        """Those who can be on the new ring, and we."""
        core = self._core
        found = {name: each for name, each in self.answers.items() if self._is_complete(each)}
        found[core.me.name] = core.person(
            Code.RSP_POS,
            self.promised.number,
            Bits.MEMORY * core.memory | Bits.LEAVING * core.entrance.has_quit,
        )
        return found

    def _is_majority(self, names: set[str]) -> bool:
        """[RNG-12] And, for one that remembers a ring but nothing of what was said on it: all of
        that ring are here, and none remembers more."""
        core = self._core
        if self.override:
            return True
        if not core.memory and core.record.names:
            return names >= set(core.record.names)
        quorum = self._quorum
        if not quorum.size:
            return True
        return quorum.is_majority(names)

    def everyone_answered(self) -> bool:
        core = self._core
        expected = {
            seat.member.name for seat in core.ring.seats if key_of(seat.member) not in self.suspects
        }
        expected |= core.entrance.expected()
        if not core.ring.seats and not core.parameters.sites:
            return False  # Nobody knows who there is: wait and see.
        if len(expected) < core.parameters.sites and not core.ring.seats:
            return len(self._complete()) >= core.parameters.sites and self.may_form()
        return expected <= self._complete().keys() and self._may_form()

    def may_form(self) -> bool:
        """[T_TS] Those who were slow had their chance."""
        core = self._core
        incomplete = len(self.answers) + 1 > len(self._complete())
        if self.rounds < (4 if incomplete else 2) and core.ring.seats:
            return False
        return self._may_form()

    def _may_form(self) -> bool:
        complete = self._complete()
        staying = {name for name, each in complete.items() if not each.has(Bits.LEAVING)}
        return self._is_majority(set(complete)) and bool(staying) and self._would_stand(staying)

    def _would_stand(self, staying: set[str]) -> bool:
        """The new ring is a majority of what the group will then be."""
        size = self._size(staying)
        return self.override or len(staying) > size // 2

    def may_release(self) -> bool:
        """Some want to leave, and so few would remain that no ring can be formed: let them go."""
        complete = self._complete()
        leaving = [each for each in complete.values() if each.has(Bits.LEAVING)]
        staying = {name for name, each in complete.items() if not each.has(Bits.LEAVING)}
        if not leaving or (self._would_stand(staying) and staying):
            return False
        return self._is_majority(set(complete)) and self.rounds > 1

    def release(self, out: list[Effect]) -> None:
        core = self._core
        for each in self._complete().values():
            if each.has(Bits.LEAVING):
                if each.member == core.me:
                    core.entrance.depart()
                else:
                    core.to(each.member, Code.RELEASE, b"", out)
        if not core.released:
            self.invite(out)

    # -- phase 2: the ring -------------------------------------------------------------------------

    def _size(self, staying: set[str]) -> int:
        """N of the new ring. [RNG-13] The operator's word makes it what is left."""
        core = self._core
        if self.override:
            return len(staying)
        sites = core.parameters.sites
        if sites:
            small = core.ring.size and core.ring.size < sites and len(staying) <= sites // 2
            return max(core.ring.size if small else sites, len(staying))
        return len(staying) + len(self._absent(staying))

    def _absent(self, staying: set[str]) -> tuple[Seat, ...]:
        core = self._core
        gone = {name for name, each in self._complete().items() if each.has(Bits.LEAVING)}
        gone |= core.entrance.left_names() | core.entrance.forgotten()
        return tuple(
            Seat(seat.member, core.ordering.locals.get(key_of(seat.member), 0))
            for seat in (*core.ring.seats, *core.ring.absent)
            if seat.member.name not in staying and seat.member.name not in gone
        )

    def form(self, out: list[Effect]) -> None:
        """[NEWTR_BC] R' of those who acknowledged: the coordinator is P0."""
        # Deviates [RNG Ring creation]: who was on the ring before keeps its place among the others.
        # The paper seats them as their answers come.
        core = self._core
        complete = {n: e for n, e in self._complete().items() if not e.has(Bits.LEAVING)}
        founding = not core.memory
        if founding:
            core.ordering.start_anew()
            core.restart_reading()
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
        base, place = core.ordering.S, core.ordering.place
        version = self.promised
        chain = () if founding else core.ring.chain
        ring = Ring(
            version,
            tuple(seats),
            self._absent(staying) if not self.override else (),
            self._size(staying),
            base,
            place,
            (*chain, Link(version, base))[-CHAIN_MAX:],
            core.me,
        )
        self.accepted = {core.key}
        self.rounds = 0
        self._voters = dict(self.answers)
        core.accept(ring, out)
        self.say_ring(out)

    _voters: dict[str, Person] = {}

    def say_ring(self, out: list[Effect]) -> None:
        core = self._core
        self.rounds += 1
        octets = core.ring.octets()
        room = max(PART_OCTETS_MIN, core.packet_octets_max - ENVELOPE_OCTETS - 64)
        count = -(-len(octets) // room)
        packets = []
        for index in range(count):
            piece = octets[index * room : (index + 1) * room]
            body = Writer().u8(index).u8(count).raw(piece).done()
            packets.append(core.sealed(Code.NEWTR_BC, body))
        out.append(Send(EVERYONE, packets))
        core.arm(Timer.T_TS, core.parameters.t_ts_us, out)

    def _accepting(self) -> set[str]:
        core = self._core
        names = {
            name
            for name, each in self._voters.items()
            if key_of(each.member) in self.accepted and self._is_complete_then(each)
        }
        return names | {core.me.name}

    def _is_complete_then(self, packet: Person) -> bool:
        return not packet.has(Bits.MEMORY) or packet.header.s == self._core.ring.base

    def everyone_accepted(self) -> bool:
        return self._core.ring.index.keys() <= self.accepted and self.may_resume(0)

    def may_resume(self, rounds: int = 3) -> bool:
        """A majority of the group before, and of the group after, has accepted."""
        # Deviates [RNG Figure 11]: the paper waits for all on the new ring, and says nothing of one
        # that answered and died.
        core = self._core
        if self.rounds < rounds:
            return False
        names = self._accepting()
        on_ring = len([key for key in core.ring.index if key in self.accepted])
        return self._is_majority_then(names) and on_ring > core.ring.size // 2

    def _is_majority_then(self, names: set[str]) -> bool:
        if self.override or not self._quorum.size:
            return True
        return self._quorum.is_majority(names)

    def resume(self, out: list[Effect]) -> None:
        core = self._core
        core.everyone(Code.RESUME, b"", out)
        core.disarm(Timer.T_TS, out)
        self.suspects.clear()
        self.at_token = False
        self.override = False
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
            self.promised, self.leader = core.ring.version, None
        self.answers.clear()

    def tells_of_my_ring(self, packet: Person) -> bool:
        core = self._core
        return (
            packet.has(Bits.IN_FORCE)
            and Version(packet.attempt, core.key) == self.promised
            and packet.header.version == core.ring.version
            and core.ring.member(packet.header.sender) is not None
        )

    def is_in_force_elsewhere(self, packet: Person | Token | Control) -> bool:
        """We accepted this ring, and were never told that it is in force: it is."""
        core = self._core
        told = not isinstance(packet, Person) or packet.has(Bits.IN_FORCE)
        return (
            told
            and packet.header.version == core.ring.version
            and core.ring.version.number > 0
            and not core.was_in_force
            and self.promised <= core.ring.version
        )

    def tells_of_another(self, packet: Person) -> bool:
        core = self._core
        return (
            packet.has(Bits.IN_FORCE)
            and Version(packet.attempt, core.key) == self.promised
            and packet.header.version > core.version
        )

    def note_denial(self, packet: Person) -> None:
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
        if not self._quorum.size or not self._quorum.is_majority(same):
            return
        if core.memory:
            core.doom("the group began anew without this member")
        else:
            core.record = NO_RECORD  # What it told of is no more.

    def told(self, packet: Told) -> None:
        core = self._core
        if packet.member != core.me:
            return
        refused = packet.code is Code.REFUSE and not core.stream.has_view
        if refused or (packet.code is Code.STALE and not core.is_normal()):
            core.doom(packet.reason)
