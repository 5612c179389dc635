"""[RNG Figure 11] Coordinator: invites, gathers a quorum, forms the ring and puts it in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from unisono.core import EVERYONE, Cause, Effect, Send
from unisono.layout import encode
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.ballot import Ballot
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.delivery import DeliveryQueue
from unisono.protocols.ring.election import Election
from unisono.protocols.ring.fault_detection import FaultDetection
from unisono.protocols.ring.formation import Answers, Formation, staying
from unisono.protocols.ring.installation import Installation
from unisono.protocols.ring.leaving import Leaving
from unisono.protocols.ring.lifecycle import Lifecycle
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.packets import (
    LOST_REASON,
    NO_HEADER,
    ROUND_MAX,
    STALE_REASON,
    Abort,
    Bits,
    Control,
    MemberRecord,
    ResendRequest,
    RingPart,
    Version,
    key_of,
)
from unisono.protocols.ring.parameters import ROUNDS_MAX, Parameters
from unisono.protocols.ring.repair import Repair
from unisono.protocols.ring.requests import MembershipRequests
from unisono.protocols.ring.ring import Seat
from unisono.protocols.ring.ring_search import RingSearch
from unisono.protocols.ring.state import RingState

PART_BYTES_MIN: Final = 200
BLOCKED_ROUNDS: Final = 8
"""After this many invitations in vain the operator is warned."""
RESUME_ROUNDS: Final = 3
"""A majority is enough after the ring was sent this often."""


@dataclass(eq=False)
class Coordinator:
    """The attempt of one member to form a ring."""

    _parameters: Parameters
    _state: RingState
    _agenda: Agenda
    _lifecycle: Lifecycle
    _ordering: Ordering
    _delivery: DeliveryQueue
    _builder: PacketBuilder
    _detection: FaultDetection
    _election: Election
    _search: RingSearch
    _requests: MembershipRequests
    _repair: Repair
    _installation: Installation
    _leaving: Leaving

    def __post_init__(self) -> None:
        self._part_bytes = max(PART_BYTES_MIN, self._builder.body_bytes_max - 64)
        self._formation = Formation(self._parameters, self._state, self._ordering, self._requests)
        self._ballot = Ballot(self._state, self._ordering, self._election, self._formation)
        self._accepted: set[int] = set()
        self._voters: Answers = {}
        """Members that had answered when the ring was formed."""
        self._at_token = False
        """The attempt is made by the holder of the token: no member failed."""
        self._outbid = False
        """Another member has promised a higher version."""
        self._has_rival = False
        """Another member has invited since this one last did."""
        self._rounds = 0
        self._began_us = 0
        """When this member began to invite."""
        self._overridden, self._formed_us = False, 0
        """The ring was formed by the operator's request."""

    # -- when ------------------------------------------------------------------------------------

    def is_worthier(self, packet: MemberRecord) -> bool:
        """Another member invites, and this one yields to it."""
        return self._election.is_worthy(packet) and self._election.is_better(packet)

    def all_answered(self, event: object) -> bool:
        ring, sites = self._state.ring, self._parameters.sites
        expected = {m.name for m in ring.members if key_of(m) not in self._election.suspects}
        expected |= self._requests.joining()
        if not ring.seats and not sites:
            return False  # The members are unknown: wait for T_TS.
        if len(expected) < sites and not ring.seats:
            return len(self._ballot.complete()) >= sites and self.may_form(event)
        return all(map(self._ballot.can_be_on_it, expected)) and self._ballot.has_quorum()

    def may_form(self, event: object) -> bool:
        """[T_TS] Slow members had their chance. Of two that found a group of unknown size, one
        yields as soon as it gets the other's denial or next invitation."""
        seats, founds_alone = self._state.ring.seats, not self._parameters.sites
        if any(map(self._is_awaited, seats)) or (seats and self._rounds < 2):
            return False
        if not seats and founds_alone and self._has_rival and self._rounds < BLOCKED_ROUNDS:
            return False
        return self._ballot.has_quorum()

    def too_few_stay(self, event: object) -> bool:
        """Some want to leave, and so few would stay that no ring can be formed."""
        complete = self._ballot.complete()
        stay = staying(complete)
        if len(stay) == len(complete) or (self._ballot.would_stand(stay) and stay):
            return False
        return self._ballot.may_go_on(complete) and self._rounds > 1

    def all_accepted(self, event: object) -> bool:
        return self._state.ring.index.keys() <= self._accepted and self._is_accepted()

    def majority_accepted(self, event: object) -> bool:
        return self._rounds >= RESUME_ROUNDS and self._is_accepted()

    def nobody_accepts(self, event: object) -> bool:
        return self._rounds >= ROUNDS_MAX

    def my_ring_goes_on(self, packet: MemberRecord) -> bool:
        ring = self._state.ring
        return (
            self._denies_with_ring(packet)
            and packet.header.version == ring.version
            and ring.member(packet.header.sender) is not None
        )

    def other_ring_goes_on(self, packet: MemberRecord) -> bool:
        return self._denies_with_ring(packet) and packet.rank > self._state.rank

    def knows_more(self, packet: MemberRecord) -> bool:
        """It denies, and has what it refers to. One that only knows of more is not waited for: the
        majority must agree."""
        state = self._state
        equal = packet.header.version == state.version or not state.memory
        return (equal or packet.has(Bits.MEMORY)) and self._election.is_better(packet)

    def _denies_with_ring(self, packet: MemberRecord) -> bool:
        return packet.has(Bits.IN_FORCE) and self._is_answer(packet)

    def _is_answer(self, packet: MemberRecord) -> bool:
        return Version(packet.attempt, self._state.key) == self._election.promised

    # -- do: phase 1, invitations ----------------------------------------------------------------

    def invite(self, event: object, out: list[Effect]) -> None:
        """[REF_INV_BC] Begin, or ask again those that did not answer."""
        state, election, parameters = self._state, self._election, self._parameters
        leads = self._leads()
        if leads:
            self._end_deadlock(out)
            if self._lifecycle.verdict is not None:
                return
        if not leads or self._outbid or state.seen > election.promised.number:
            if state.seen >= ROUND_MAX:
                self._lifecycle.fail("no version number is left")
                return
            self._begin_attempt(out)
            if not leads:
                self._at_token = event is Bits.AT_TOKEN
                self._begin_inviting()
        self._search.end(out)
        self._rounds += 1
        self._has_rival = False
        if self._rounds > BLOCKED_ROUNDS and not parameters.sites and state.ring.seats:
            if not self._delivery.has_view and self._ballot.is_blocked():
                self._forget_ring()  # Of unknown size, never in force: those present found it.
        bits = Bits.MEMORY * state.memory | Bits.AT_TOKEN * self._at_token
        packet = self._builder.member_record(Code.REF_INV_BC, election.promised.number, bits)
        self._builder.everyone(Code.REF_INV_BC, encode(packet), out)
        wait_us = parameters.t_ts_us << min(self._rounds - 1, 6)
        wait_us = min(wait_us, parameters.t_ref_rt_us // 2)
        if self._rounds > 1:
            wait_us = self._search.jitter(wait_us)
            awaited = (seat.member for seat in state.ring.seats if self._is_awaited(seat))
            self._detection.probe(awaited, out)
        self._agenda.arm(Timer.T_TS, wait_us, out)
        if (
            self._rounds >= BLOCKED_ROUNDS
            and not self._installation.warned
            and self._ballot.is_blocked()
        ):
            self._installation.warn(self._ballot.why_blocked(), out)

    def _is_awaited(self, seat: Seat) -> bool:
        """A member of the last ring is not ready, and may only be slow. One that is alive and not
        ready is waited for no longer than a silent one."""
        detector, name, key = self._detection.detector, seat.member.name, key_of(seat.member)
        if (
            self._ballot.can_be_on_it(name)
            or name in self._ballot.stale
            or key in self._election.suspects
        ):
            return False
        waited_us = detector.listened_us - self._began_us
        return not detector.is_silent(key) and waited_us < detector.limit_us(key)

    def _leads(self) -> bool:
        """An attempt of this member is under way."""
        promised = self._election.promised
        return promised.leader == self._state.key and promised > self._state.ring.version

    def _begin_attempt(self, out: list[Effect]) -> None:
        state = self._state
        self._outbid = False
        self._election.pledge(Version(state.next_number(), state.key), state.me, out)
        self._ballot.begin_attempt()
        self._accepted.clear()

    def _begin_inviting(self) -> None:
        self._rounds = 0
        self._detection.watch_ring()
        self._began_us = self._detection.detector.listened_us
        self._ballot.begin(not self._state.memory and self._parameters.sites > 0)

    def _end_deadlock(self, out: list[Effect]) -> None:
        """More invitations will not help. Members that cannot go on as they are must join anew,
        but only where there is no other way: until a ring is in force, no memory may be lost. Or
        all are present, and too few of them remember."""
        state, answers, quorums = self._state, self._ballot.all(), self._ballot.quorums
        if self._rounds <= BLOCKED_ROUNDS or not self._ballot.is_blocked():
            return
        if state.memory:
            if self._ballot.stale and self._ballot.may_go_on(
                self._ballot.complete() | self._ballot.stale
            ):
                self._reject_stale(STALE_REASON, out)
            elif quorums.are_all(answers):
                for each in answers.values():
                    if each.has(Bits.INSIDE) and each.member != state.me:
                        self._builder.reject(each.member, Code.STALE, LOST_REASON, out)
                if self._delivery.has_view:
                    self._lifecycle.fail(LOST_REASON, Cause.MEMORY_LOST)
            return
        # Those that could remember more than the stale members have forgotten it.
        if not self._ballot.stale or not answers.keys() >= set(state.record.names):
            return
        voting = quorums.voting(answers)
        if not (quorums.have_majority(answers, voting) or quorums.are_all(answers)):
            return
        last = max(each.header.version for each in self._ballot.stale.values())
        if quorums.may_have_gone_on(answers, last):
            self._reject_stale(LOST_REASON, out)
        else:
            self._forget_ring()
            self._outbid = True

    def _reject_stale(self, reason: str, out: list[Effect]) -> None:
        for each in self._ballot.stale.values():
            self._builder.reject(each.member, Code.STALE, reason, out)

    def _forget_ring(self) -> None:
        self._installation.forget_ring()
        self._ballot.begin_anew()

    def count_answer(self, packet: MemberRecord, out: list[Effect]) -> None:
        """[RSP_POS] The member joins the ring. What it lacks is sent to it, if that can be."""
        state, name = self._state, packet.member.name
        if not self._is_answer(packet):
            return
        known = self._ballot.answers.get(name)
        if name == state.me.name or (known is not None and _is_namesake(known, packet)):
            self._builder.refuse(packet.member, f"the name {name} is taken", out)
            return
        if known is None and self._ballot.is_full():
            self._builder.drop("crowd")
            return
        if packet.has(Bits.MEMORY) and not self._election.can_go_on(packet):
            self._ballot.add_stale(packet)
            return
        self._ballot.add(packet)
        self._election.trust(packet.header.sender)
        if not self._ballot.is_complete(packet):
            self._repair.help(packet.member, packet.header.sender, packet.header.s, out)

    def resend(self, packet: ResendRequest, out: list[Effect]) -> None:
        """To a member that answered, and no other: of another history there is nothing here."""
        for each in self._ballot.answers.values():
            if each.header.sender == packet.header.sender and each.has(Bits.MEMORY):
                self._repair.send_ranges(each.member, packet.ranges, out)

    def note_denial(self, packet: MemberRecord, out: list[Effect]) -> None:
        """A ring of a lower version is in force: if it has the majority, ours was forgotten."""
        state = self._state
        if not self._is_answer(packet):
            return
        if not packet.has(Bits.IN_FORCE):
            self._outbid = True
        elif not self._ballot.add_denial(packet):
            return
        elif state.memory:
            cause = Cause.MEMORY_LOST if state.was_in_force else Cause.EXCLUDED
            self._lifecycle.fail("the group began anew without this member", cause)
        else:
            state.forget_version()

    def deny(self, packet: MemberRecord, out: list[Effect]) -> None:
        """[RSP_NEG] To another that invites: its own promise outbids ours if it is higher."""
        self._has_rival = True
        if Version(packet.attempt, packet.header.sender) > self._election.promised:
            self._outbid = True
        self._election.deny(packet, out)

    def release(self, event: object, out: list[Effect]) -> None:
        """[RELEASE] Those that want to leave, since no ring can be formed without them."""
        for each in self._ballot.complete().values():
            if each.has(Bits.LEAVING):
                if each.member == self._state.me:
                    self._leaving.depart()
                else:
                    self._builder.to(each.member, Code.RELEASE, b"", out)
        if not self._lifecycle.released:
            self.invite(event, out)

    # -- do: phase 2, the new ring ---------------------------------------------------------------

    def send_ring(self, event: object, out: list[Effect]) -> None:
        """[NEWTR_BC] The ring of those that answered."""
        answers, parted = self._ballot.complete(), self._ballot.is_overridden()
        ring = self._formation.form(self._election.promised, answers, self._ballot.quorums, parted)
        self._overridden, self._formed_us = parted, self._agenda.now_us
        self._accepted, self._rounds = {self._state.key}, 0
        self._voters = answers
        self._installation.accept(ring, out)
        self.send_ring_again(event, out)

    def send_ring_again(self, event: object, out: list[Effect]) -> None:
        self._rounds += 1
        data, size = self._state.ring.packed(), self._part_bytes
        count = -(-len(data) // size)
        packets = []
        for index in range(count):
            piece = data[index * size : (index + 1) * size]
            body = encode(RingPart(NO_HEADER, index, count, piece))
            packets.append(self._builder.sealed(Code.NEWTR_BC, body))
        out.append(Send(EVERYONE, packets))
        self._agenda.arm(Timer.T_TS, self._parameters.t_ts_us, out)

    def note_accepted(self, packet: Control, out: list[Effect]) -> None:
        self._accepted.add(packet.header.sender)

    def _is_accepted(self) -> bool:
        """By a quorum of the group before, and a majority of the group after. After a pause of this
        process nobody may wait for its RESUME any more."""
        # Deviates [RNG Figure 11]: the paper waits for all on the new ring, and does not treat
        # a member that answered and died.
        ring = self._state.ring
        if self._agenda.now_us - self._formed_us > self._parameters.waiting_us:
            return False
        accepting = {n: e for n, e in self._voters.items() if e.header.sender in self._accepted}
        met = self._overridden or self._ballot.quorums.are_met(accepting)
        return met and len(ring.index.keys() & self._accepted) > ring.size // 2

    def resume(self, event: object, out: list[Effect]) -> None:
        """[RESUME] The ring is in force."""
        self._formation.note_born()
        self._builder.everyone(Code.RESUME, b"", out)
        self._agenda.disarm(Timer.T_TS, out)
        self._at_token = False
        self._installation.withdraw_warning(out)
        self._installation.install(event, out)

    # -- do: no ring -----------------------------------------------------------------------------

    def _abandon(self, out: list[Effect]) -> None:
        """[ABORT_BC_RQU] Our version will never be: those that promised it are free."""
        self._agenda.disarm(Timer.T_TS, out)
        self._at_token = False
        if self._leads():
            body = encode(Abort(NO_HEADER, self._election.promised.number))
            self._builder.everyone(Code.ABORT_BC_RQU, body, out)
            self._election.release_promise()
        self._ballot.abandon()

    def give_up(self, event: object, out: list[Effect]) -> None:
        self._abandon(out)
        self._agenda.push(Code.E_INIT)

    def abort(self, packet: MemberRecord, out: list[Effect]) -> None:
        """The ring that was to be reformed is in force."""
        self._abandon(out)
        self._agenda.push(Code.E_ABORT_REF)

    def join_other_ring(self, packet: Any, out: list[Effect]) -> None:
        self._abandon(out)
        ring, state = self._state.ring, self._state
        if ring.is_founding and ring.version.leader == state.key and not state.was_in_force:
            self._forget_ring()  # Nobody else puts this founding in force: it never will be.
        self._search.note_ring(packet)
        self._agenda.push(Code.E_INIT)

    def yield_to_inviter(self, packet: MemberRecord, out: list[Effect]) -> None:
        self._abandon(out)
        self._agenda.push(Code.REF_INV_BC, packet)


def _is_namesake(known: MemberRecord, packet: MemberRecord) -> bool:
    """Another of the same name has answered: on another host, or a later incarnation."""
    mine, its = known.member, packet.member
    return mine.address.host != its.address.host or mine.incarnation > its.incarnation
