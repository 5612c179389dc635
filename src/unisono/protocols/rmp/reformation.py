"""Reformation: the ring without those that are lost, in two phases [RMP §3].

What is decided, and why it is safe, is in `agreement`; this part exchanges the packets.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from unisono.core import Cause, Effect, Fail
from unisono.model import Member
from unisono.protocols.rmp.agreement import Attempt, NewList, ReformBallot, Slave, SyncPoint
from unisono.protocols.rmp.former import FormerRings
from unisono.protocols.rmp.holdings import ReformHoldings
from unisono.protocols.rmp.ordering import AHEAD_MAX, OrderingQueue
from unisono.protocols.rmp.packets import PacketKind
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.reform_packets import (
    Accept,
    BallotFields,
    Fault,
    NewListFields,
    Proposal,
    Resume,
    Sync,
)
from unisono.protocols.rmp.sources import Sources
from unisono.protocols.rmp.stalls import Stalls
from unisono.protocols.rmp.state import Outgoing, Timer, TokenRing
from unisono.protocols.rmp.token_watch import TokenWatch
from unisono.protocols.rmp.witnesses import Witnesses

WAIT_TIMES_MAX: Final = 32
VIOLATED: Final = "this member has delivered what the others do not have; join again"
BEHIND: Final = "this member cannot get what the others hold; join again"
EXCLUDED: Final = "the ring was reformed without this member"


class Suspected(NamedTuple):
    """The token does not move."""


class ListDecided(NamedTuple):
    """A new list is decided."""

    new_list: NewList


class AttemptLost(NamedTuple):
    """[RMP-13] A reform site gave its attempt up."""

    ballot: ReformBallot
    is_verdict: bool
    """Too few answered it, for `verdict_us`."""


class RingReformation:
    """One site's part in reformations: as the reform site, or as a slave."""

    def __init__(
        self,
        parameters: Parameters,
        state: TokenRing,
        outgoing: Outgoing,
        sources: Sources,
        queue: OrderingQueue,
        random: Random,
        watch: TokenWatch,
        former: FormerRings,
        holdings: ReformHoldings,
        begin_epoch: Callable[[NewList, list[Effect]], None],
    ) -> None:
        self._parameters = parameters
        self._state = state
        self._outgoing = outgoing
        self._sources = sources
        self._queue = queue
        self._random = random
        self._watch = watch
        self._former = former
        self._holdings = holdings
        self._begin_epoch = begin_epoch
        self._slave = Slave()
        self._attempt: Attempt | None = None
        self._list: tuple[ReformBallot, NewList] | None = None
        """The list that we are to confirm."""
        self._decided: NewList | None = None
        """The list that is decided, while we fetch what it asks us to hold."""
        self._witnesses = Witnesses(state.key)
        self._stalls = Stalls(state, parameters.detect_us)
        self._reformer: Member | None = None
        self._tries = 0
        self._failures = 0
        """Attempts in a row that came to nothing: waits grow with them."""
        self._since_us: int | None = None
        """When the first of them began."""

    # -- when -------------------------------------------------------------------------------------

    def is_highest(self, packet: Fault) -> bool:
        mine = self._attempt
        if mine is not None and mine.ballot > packet.ballot:
            return False
        return self._slave.may_promise(packet.ballot)

    def may_answer(self, packet: Sync) -> bool:
        if self._attempt is None or self._stalls.holds_up(packet.sender):
            return False
        return self.is_mine(packet) and self._attempt.believes(packet.point())

    def is_mine(self, packet: Sync | Accept) -> bool:
        return self._attempt is not None and ReformBallot(*packet.ballot) == self._attempt.ballot

    def is_false_alarm(self, event: object) -> bool:
        """[RMP-14] Nobody is missing, and no list was accepted that might be decided."""
        attempt = self._attempt
        if attempt is None or not attempt.everyone_answered():
            return False
        return all(answer.accepted is None for answer in attempt.answers.values())

    def may_ask_again(self, event: object) -> bool:
        return self._tries < self._parameters.tries_within(self._state.group.hops)

    # Deviates [RMP §3.1 silence]: a site whose port the network twice reports as closed is lost at
    # once. The paper asks everyone R times.
    def others_are_dead(self, event: object) -> bool:
        """There is nobody to wait for: the network says that those who did not answer are dead."""
        missing = self._attempt.missing() if self._attempt is not None else frozenset()
        return bool(missing) and self._watch.are_dead(missing) and self.may_propose(event)

    def may_propose(self, event: object) -> bool:
        return isinstance(self._find_list(), NewList)

    # Deviates [RMP §3.1 failure]: attempts go on for `verdict_us`, since the others may come back.
    # The paper gives its verdict at once.
    def may_hope(self, event: object) -> bool:
        """Below the minimum size: others may come back. One that has left needs them no more."""
        if self._state.key not in self._state.token_list:
            return False
        if self._since_us is None:
            return True
        return self._state.now_us - self._since_us < self._parameters.verdict_us

    def is_hopeless(self, event: AttemptLost) -> bool:
        """One of us after the other would take too long."""
        return event.is_verdict and self.is_for_promise(event) and not self.may_hope(event)

    def holds_all_myself(self, event: object) -> bool:
        attempt = self._attempt
        if attempt is None or attempt.proposal is None or self._state.key in attempt.confirmed:
            return False
        return self._holdings.suffice(attempt.proposal)

    def all_confirmed(self, event: object) -> bool:
        return self._attempt is not None and self._attempt.everyone_confirmed()

    def quorum_confirmed(self, event: object) -> bool:
        return self._attempt is not None and self._attempt.quorum_confirmed()

    def may_commit(self, event: object) -> bool:
        attempt = self._attempt
        if attempt is None or attempt.proposal is None or not attempt.quorum_confirmed():
            return False
        return self._state.key not in attempt.proposal.members or self._holdings.suffice(
            attempt.proposal
        )

    def is_highest_list(self, packet: Proposal) -> bool:
        if not packet.new_list.primary and self._state.key not in packet.new_list.members:
            return False  # It is of another part.
        if packet.new_list.sync > self._queue.held + AHEAD_MAX:
            return False
        return self._slave.may_promise(ReformBallot(*packet.ballot))

    def holds_all(self, event: object) -> bool:
        return (
            self._decided is None
            and self._list is not None
            and self._holdings.suffice(self._list[1])
        )

    def holds_decided(self, event: object) -> bool:
        return self._decided is not None and self._holdings.suffice(self._decided)

    def is_for_promise(self, packet: Resume | AttemptLost) -> bool:
        return ReformBallot(*packet.ballot) == self._slave.promised

    def is_known(self, event: ListDecided) -> bool:
        return event.new_list.epoch <= self._state.epoch

    def leaves_me_out(self, event: ListDecided) -> bool:
        """Or asks us to take back what was delivered."""
        new_list = event.new_list
        mine = self._state.key in new_list.members
        return not mine or new_list.sync < self._queue.held

    def binds(self, new_list: NewList) -> bool:
        """Whether we have to follow a decided list. A part that goes on by its votes decides for
        itself alone: others, perhaps a quorum, may hold what it lacks."""
        return new_list.primary or not self.leaves_me_out(ListDecided(new_list))

    def believes(self, site: int, new_list: NewList) -> bool:
        """Whether this site may say so: we promised to it, or have accepted that list, or are about
        to, or have heard it from another one too."""
        self._witnesses.hear(site, new_list)
        return (
            site == self._slave.promised.site
            or self._slave.has_accepted(new_list)
            or new_list == self.accepted_list()
            or self._witnesses.suffice(new_list)
        )

    def can_install(self, event: ListDecided) -> bool:
        new_list = event.new_list
        if new_list.epoch != self._state.epoch + 1 or self.leaves_me_out(event):
            return False
        return self._holdings.suffice(new_list)

    def _period_us(self) -> int:
        return self._parameters.period_within(self._state.group.hops)

    def _arm(self, out: list[Effect]) -> None:
        self._outgoing.arm(Timer.REFORM, self._period_us(), out)

    # -- do: the reform site ----------------------------------------------------------------------

    def begin(self, event: object, out: list[Effect]) -> None:
        """[RMP §3.1] Phase 1: report the fault, gather synchronization points."""
        state = self._state
        state.freeze()
        if self._since_us is None:
            self._since_us = state.now_us
        ballot = ReformBallot(self._slave.promised.round + 1, state.key)
        self._slave.promise(ballot)
        self._attempt = Attempt(ballot, {state.key: self._point()})
        self._list, self._tries = None, 0
        self.ask_again(event, out)

    def ask_again(self, event: object, out: list[Effect]) -> None:
        assert self._attempt is not None
        self._tries += 1
        if self._tries > 1:
            self._watch.probe(self._attempt.missing(), out)
        fault = Fault(self._state.key, self._attempt.ballot.round, self._state.me)
        self._outgoing.send(PacketKind.FAULT, fault, out)
        self._arm(out)

    def gather(self, packet: Sync, out: list[Effect]) -> None:
        assert self._attempt is not None
        self._attempt.gather(packet.sender, packet.point())

    def resume_all(self, event: object, out: list[Effect]) -> None:
        """[RMP-14] All answered: what one of them holds is what there is."""
        assert self._attempt is not None
        held = self._attempt.held()
        self._stalls.note(held, self._attempt.answers)
        if self._stalls.holds_up(self._state.key):
            self._state.stop(Fail(BEHIND, Cause.EXCLUDED))
        record = Resume(self._state.key, BallotFields(*self._attempt.ballot), held=held)
        self._outgoing.send(PacketKind.RESUME, record, out)
        self.resume(record, out)

    def _find_list(self) -> NewList | Cause:
        assert self._attempt is not None
        state = self._state
        trid = self._random.getrandbits(63) | 1
        return self._attempt.propose(state.epoch + 1, trid, state.token_list)

    def propose(self, event: object, out: list[Effect]) -> None:
        """Phase 2: the new list."""
        self._tries = 0
        assert self._attempt is not None and self._attempt.proposal is not None
        self._holdings.request(self._attempt.proposal)
        self.propose_again(event, out)

    def propose_again(self, event: object, out: list[Effect]) -> None:
        assert self._attempt is not None and self._attempt.proposal is not None
        self._tries += 1
        ballot = BallotFields(*self._attempt.ballot)
        record = Proposal(self._state.key, ballot, NewListFields.of(self._attempt.proposal))
        self._outgoing.send(PacketKind.NEW_LIST, record, out)
        self._arm(out)

    def count(self, packet: Accept, out: list[Effect]) -> None:
        assert self._attempt is not None
        self._attempt.confirm(packet.sender)

    def count_myself(self, event: object, out: list[Effect]) -> None:
        attempt = self._attempt
        assert attempt is not None and attempt.proposal is not None
        if self._slave.accept(attempt.ballot, attempt.proposal, self._queue.held):
            attempt.confirm(self._state.key)

    def commit(self, event: object, out: list[Effect]) -> None:
        attempt = self._attempt
        assert attempt is not None and attempt.proposal is not None
        self._former.report(attempt.proposal, self._state.trid, out)
        if self._state.key in attempt.proposal.members:
            self._install(attempt.proposal, out)
        else:
            self.stop_excluded(ListDecided(attempt.proposal), out)

    def commit_first(self, event: object, out: list[Effect]) -> None:
        """It is decided, and we lack some of what it asks its members to hold."""
        attempt = self._attempt
        assert attempt is not None and attempt.proposal is not None
        self._former.report(attempt.proposal, self._state.trid, out)
        self.catch_up(ListDecided(attempt.proposal), out)

    def abort(self, event: object, out: list[Effect]) -> None:
        """[RMP-13] The attempt came to nothing."""
        if self._attempt is None and not self.may_hope(event):
            self.give_verdict(event, out)
            return
        self._report_lost(out)
        self._failures += 1
        self.wait_randomly(event, out)

    def _report_lost(self, out: list[Effect], is_verdict: bool = False) -> None:
        """To those who follow us."""
        if self._attempt is not None:
            record = Resume(self._state.key, BallotFields(*self._attempt.ballot), is_verdict)
            self._outgoing.send(PacketKind.ABORT, record, out)

    def wait_randomly(self, event: object, out: list[Effect]) -> None:
        self._attempt, self._list = None, None
        most = min(2 << min(self._failures, 8), WAIT_TIMES_MAX) * self._period_us()
        self._outgoing.arm(Timer.REFORM, 1 + self._random.randrange(most), out)

    def give_verdict(self, event: object, out: list[Effect]) -> None:
        """[RMP-12] The minimum size is not met."""
        self._report_lost(out, is_verdict=True)
        self._state.stop(Fail("too few members are left for the minimum size", Cause.TOO_FEW))

    # -- do: a slave ------------------------------------------------------------------------------

    def _point(self) -> SyncPoint:
        state, unordered = self._state, self._sources.unordered(self._queue.ordered)
        accepted, minimum = self._slave.accepted, state.group.minimum()
        return SyncPoint(self._queue.held, state.quorums, unordered, accepted, minimum)

    def answer(self, packet: Fault, out: list[Effect]) -> None:
        state = self._state
        state.freeze()
        if self._since_us is None:
            self._since_us = state.now_us
        self._slave.promise(packet.ballot)
        self._attempt, self._list, self._decided = None, None, None
        self._reformer, self._tries = packet.member, 0
        self.answer_again(packet, out)

    def answer_again(self, event: object, out: list[Effect]) -> None:
        assert self._reformer is not None
        self._tries += 1
        record = Sync.of(self._state.key, self._slave.promised, self._point())
        self._outgoing.send(PacketKind.SYNC, record, out, (self._reformer.address,))
        self._arm(out)

    def take_list(self, packet: Proposal, out: list[Effect]) -> None:
        """What it asks us to hold is asked for."""
        ballot, new_list = ReformBallot(*packet.ballot), packet.new_list.new_list()
        self._slave.promise(ballot)
        self._list, self._decided = (ballot, new_list), None
        entry = self._state.group.entries.get(packet.sender)
        if entry is not None:
            self._reformer = entry.member
        self._tries = 0
        self._holdings.request(new_list)
        self._arm(out)

    def wait(self, event: object, out: list[Effect]) -> None:
        self._tries += 1
        self._arm(out)

    def accept(self, event: object, out: list[Effect]) -> None:
        assert self._list is not None
        self._slave.accept(*self._list, self._queue.held)
        self._tries = 0
        self.accept_again(event, out)

    def accept_again(self, event: object, out: list[Effect]) -> None:
        assert self._list is not None and self._reformer is not None
        self._tries += 1
        record = Accept(self._state.key, BallotFields(*self._list[0]))
        self._outgoing.send(PacketKind.ACCEPT, record, out, (self._reformer.address,))
        self._arm(out)

    def resume(self, packet: Resume, out: list[Effect]) -> None:
        """[RMP-14] Go on as before. What another one holds is requested: that it lacks here may be
        why somebody saw a fault, and with an alarm soon after this one nobody would show it."""
        self._state.resume()
        self._queue.end_at(packet.held)
        self._forget_attempts(out)

    # -- do: a decided list -----------------------------------------------------------------------

    def catch_up(self, event: ListDecided, out: list[Effect]) -> None:
        self._decided, self._list, self._tries = event.new_list, None, 0
        self._state.freeze()
        self._holdings.request(event.new_list)
        self._arm(out)

    def install(self, event: ListDecided, out: list[Effect]) -> None:
        self._install(event.new_list, out)

    def install_decided(self, event: object, out: list[Effect]) -> None:
        assert self._decided is not None
        self._install(self._decided, out)

    def stop_excluded(self, event: ListDecided, out: list[Effect]) -> None:
        """[RMP-12] Without us, or from a point before what we have delivered."""
        if event.new_list.primary:
            self._state.decide(event.new_list.sync)
        if self._state.key in event.new_list.members:
            self._state.stop(Fail(VIOLATED, Cause.ATOMICITY_VIOLATED))
        else:
            self._state.stop(Fail(EXCLUDED, Cause.EXCLUDED))

    def _install(self, new_list: NewList, out: list[Effect]) -> None:
        self._former.end(new_list)
        self._begin_epoch(new_list, out)
        self._slave = Slave()
        self._forget_attempts(out)

    def _forget_attempts(self, out: list[Effect]) -> None:
        self._attempt = self._list = self._decided = self._reformer = None
        self._sources.want(())
        self._failures, self._since_us = 0, None
        self._outgoing.disarm(Timer.REFORM, out)

    def is_stuck(self) -> bool:
        """Two attempts in a row came to nothing."""
        return self._failures > 1

    def accepted_list(self) -> NewList | None:
        """The list that we are to confirm: a packet of its ring shows that it is decided."""
        return self._list[1] if self._list is not None else None

    def limit(self) -> int:
        """The slot up to which the order may be read while we are frozen."""
        if self._decided is not None:
            return self._decided.sync
        if self._attempt is not None and self._attempt.proposal is not None:
            return self._attempt.proposal.sync
        return self._list[1].sync if self._list is not None else 0
