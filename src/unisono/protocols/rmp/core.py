"""A site: routes events to the parts, and gathers what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from unisono.core import (
    Captured,
    Cause,
    Congested,
    CoreConfig,
    Depart,
    Disarm,
    Effect,
    Event,
    Expired,
    Fail,
    Join,
    Leave,
    Multicast,
    Received,
    Request,
    Unreachable,
)
from unisono.fsa import Machine
from unisono.model import Address, Member, Service, ServiceLevel
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec
from unisono.parts.identity import key_of
from unisono.parts.message_runs import MessageRuns
from unisono.protocols.rmp.admitting import AdmittingSite
from unisono.protocols.rmp.agreement import NewList, ReformBallot
from unisono.protocols.rmp.data_packets import DATA_BYTES, BestEffort, Data, Uniform
from unisono.protocols.rmp.delivery import OrderedDelivery
from unisono.protocols.rmp.figure import REFORMATION, TOKEN
from unisono.protocols.rmp.former import FormerRings
from unisono.protocols.rmp.holdings import ReformHoldings
from unisono.protocols.rmp.joining import Joiner
from unisono.protocols.rmp.leaving import Leaving
from unisono.protocols.rmp.membership import Membership
from unisono.protocols.rmp.ordering import SLOT_MAX, OrderingQueue, TokenAck
from unisono.protocols.rmp.packets import (
    KINDS,
    OUTSIDE,
    PROTOCOL,
    QUIET,
    AckFields,
    ExpelLeaver,
    Gone,
    Nack,
    Packet,
    PacketKind,
    Part,
    Refuse,
    RingAnnounce,
    RingJoin,
    StatePiece,
    StateRequest,
    TokenAccepted,
    read_all,
)
from unisono.protocols.rmp.parameters import DEFAULTS, OWN, Parameters
from unisono.protocols.rmp.reform_packets import Fault, Proposal, Resume
from unisono.protocols.rmp.reformation import (
    AttemptLost,
    ListDecided,
    RingReformation,
    Suspected,
)
from unisono.protocols.rmp.renewal import TridRenewal
from unisono.protocols.rmp.repair import Repair
from unisono.protocols.rmp.resilience import Resilience
from unisono.protocols.rmp.send_queue import SendQueue
from unisono.protocols.rmp.sending import BlockSender
from unisono.protocols.rmp.sources import Sources
from unisono.protocols.rmp.stability import StableSlots
from unisono.protocols.rmp.state import Outgoing, Timer, TokenRing
from unisono.protocols.rmp.token import TokenRotation
from unisono.protocols.rmp.token_watch import TokenWatch

ROUNDS_MAX: Final = 64
"""Rounds of ordering and token passing that one step may take."""


class Rmp:
    """A member of an RMP group."""

    def __init__(self, config: CoreConfig) -> None:
        self.me = config.me
        parameters = self._parameters = Parameters.of(config.options)
        shared = {k: v for k, v in {**DEFAULTS, **config.options}.items() if k not in OWN}
        terms = Terms.of(config, "rmp", shared)
        codec = self._codec = PacketCodec(PROTOCOL, KINDS, terms)
        self._admission = Admission(codec, terms)
        random = Random(config.seed)
        state = self._state = TokenRing(config.me, key_of(config.me))
        outgoing = self._outgoing = Outgoing(codec, state)
        sources = self._sources = Sources(config.message_bytes_max, codec.drop)
        queue = self._queue = OrderingQueue(sources, is_site=lambda key: key in state.group.entries)
        resilience: Resilience[MessageRuns] = Resilience()
        self._resilience = resilience
        delivery = self._delivery = OrderedDelivery()
        send_queue = self._send_queue = SendQueue(
            config, state.key, parameters.block_packets, parameters.period_max_us
        )
        repair = self._repair = Repair(
            parameters, state, codec, outgoing, sources, queue, config.packet_bytes_max
        )
        # fmt: off
        self._sender = BlockSender(
            state, outgoing, sources, queue, send_queue, delivery, repair
        )
        self._sponsor = AdmittingSite(
            config, parameters, state, codec, outgoing, sources, queue, resilience, delivery,
            send_queue, repair, lambda: self._reformation.is_stuck(),
            lambda site: self._watch.are_dead((site,)),
        )
        self._joiner = Joiner(
            config, parameters, state, codec, outgoing, random, sources, queue, resilience, delivery
        )
        self._membership = Membership(
            state, codec, sources, queue, resilience, delivery, send_queue, self._sponsor.welcome
        )
        self._renewal = TridRenewal(parameters, state, send_queue, random)
        self._leaving = Leaving(state, codec, outgoing, resilience, send_queue, self._membership)
        self._token = TokenRotation(
            parameters, state, outgoing, sources, queue, resilience, self._sponsor, delivery
        )
        self._stability = StableSlots(state, sources, queue, resilience, delivery, send_queue)
        watch = self._watch = TokenWatch(parameters, state, outgoing, self._token)
        former = self._former = FormerRings(state, outgoing)
        holdings = self._holdings = ReformHoldings(state, sources, queue)
        self._reformation = RingReformation(
            parameters, state, outgoing, sources, queue, random, watch, former, holdings,
            self._membership.begin_epoch,
        )
        # fmt: on
        self._walked: dict[str, int] = {}
        self._token_machine = Machine(TOKEN, self._token, walked=self._walked)
        self._reform_machine = Machine(REFORMATION, self._reformation, walked=self._walked)
        self._over = False
        self._news = False
        self._arrived = False
        """What came in this step: something that may have consequences; a whole block."""

    # -- the contract -----------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        return self._codec.counts

    def send_credit(self) -> int:
        state, delivery = self._state, self._delivery
        if not state.trid or state.leaving or delivery.congested or delivery.joining:
            return 0
        return self._send_queue.send_credit()

    def held(self) -> Mapping[Member, int]:
        return self._sources.held()

    def transition_counts(self) -> Mapping[str, int]:
        return self._walked

    def step(self, now_us: int, event: Event) -> list[Effect]:
        out: list[Effect] = []
        if self._over:
            return out
        self._state.step(now_us)
        quick = self._news = self._arrived = False
        if isinstance(event, Received):
            for opened in self._codec.admit_batch(event.packets, DATA_BYTES):
                for kind, trid, packet in read_all(opened, self._codec.drop):
                    self._take(kind, trid, packet, event.source, out)
            if self._codec.odd:
                self._look_at_odd(event.source, out)
            else:
                quick = not self._news and (not self._arrived or self._only_delivers())
        elif isinstance(event, Expired):
            self._expire(event.timer, out)
        else:
            self._obey(event, out)
            if quick := isinstance(event, Multicast) and self._only_delivers(event.service):
                self._send_blocks(out)
        if quick:
            self._repair.watch(out)
            self._delivery.flush(self._state.decided, out)
        else:
            self._conclude(event, out)
        if self._sources.arrived and not self._over:
            self._token.order_next(out)
        return out

    def _only_delivers(self, service: ServiceLevel = Service.FIFO) -> bool:
        """Fast path: what came, or is sent, has no consequence in this step but its delivery."""
        state = self._state
        is_odd = state.frozen or state.leaving or self._sources.too_large or self._queue.has_gap()
        return not is_odd and state.trid > 0 and self._token.may_wait(service)

    # -- the application --------------------------------------------------------------------------

    def _obey(self, event: Event, out: list[Effect]) -> None:
        if isinstance(event, Multicast):
            self._send_queue.put(event.messages, event.service)
        elif isinstance(event, Join) and not self._state.trid:
            self._joiner.seek(out, first=True)
        elif isinstance(event, Leave):
            self._state.leave()
            if not self._state.trid:
                self._joiner.withdraw(out)
                self._end(Depart(), out)
        elif isinstance(event, Congested):
            self._delivery.congest(event.on)
        elif isinstance(event, Request):
            self._membership.request(event)
        elif isinstance(event, Captured):
            self._sponsor.keep_state(event)
        elif isinstance(event, Unreachable):
            self._watch.note_unreachable(event.address, out)
            self._suspect_if_silent(out)

    def _end(self, effect: Effect, out: list[Effect]) -> None:
        self._over = True
        out += [*map(Disarm, Timer), effect]

    # -- timers -----------------------------------------------------------------------------------

    def _expire(self, timer: Any, out: list[Effect]) -> None:
        self._outgoing.expired(timer)
        if timer in (Timer.TOKEN, Timer.PASS):
            self._token_machine.take(timer, None, out)
        elif timer is Timer.REFORM:
            self._reform_machine.take(timer, None, out)
        elif timer is Timer.REPAIR:
            self._repair.ask(out)
        elif timer is Timer.JOIN and not self._state.trid:
            self._joiner.seek(out)
        elif timer is Timer.FOUND and not self._state.trid:
            self._joiner.found(out)
            self._announce(out)
        elif timer is Timer.ANNOUNCE:
            self._announce(out)
        elif timer is Timer.RESEND:
            self._sender.resend(out)
        elif timer is Timer.WATCH:
            self._look(out)

    def _announce(self, out: list[Effect]) -> None:
        self._sponsor.announce_if_first(out)
        self._renewal.ask_if_due()
        self._joiner.announce_later(out)

    def _look(self, out: list[Effect]) -> None:
        self._joiner.ask_state_again(out)
        self._resilience.give_up_leavers(self._state.now_us - 2 * self._parameters.detect_us)
        self._suspect_if_silent(out)

    def _suspect_if_silent(self, out: list[Effect]) -> None:
        if self._watch.is_silent(out):
            self._reform_machine.fire(Suspected(), out)

    # -- packets ----------------------------------------------------------------------------------

    def _take(
        self, kind: int, trid: int, packet: Packet, source: Address, out: list[Effect]
    ) -> None:
        state = self._state
        self._news |= kind not in QUIET or trid not in state.trids
        if kind in OUTSIDE:
            self._take_outside(trid, packet, source, out)
            return
        sender: int = packet.sender  # type: ignore[union-attr]
        if sender in self._watch.probed:
            self._watch.hear(sender)
        if sender == state.key:
            self._codec.drop("own")
        elif trid not in state.trids:
            self._take_foreign(kind, trid, packet, source, out)
        elif sender not in self._sources.by_key:
            self._codec.drop("stranger")
        else:
            self._take_own_ring(kind, packet, source, out)

    def _take_outside(self, trid: int, packet: Packet, source: Address, out: list[Effect]) -> None:
        state = self._state
        if isinstance(packet, RingJoin):
            if packet.member == state.me:
                self._codec.drop("own")
            elif state.trid and self._sponsor.is_back(packet, out):
                self._watch.note_elsewhere(packet.member, source, out)
                self._reform_machine.fire(Suspected(), out)
            elif state.trid:
                self._sponsor.consider(packet, out)
            elif key_of(packet.member) < state.key and not packet.withdrawn:
                self._joiner.wait(out)
        elif isinstance(packet, Part):
            self._joiner.welcomed(packet, trid, out)
            if state.trid == trid:
                self._watch.start()
        elif isinstance(packet, Refuse):
            self._joiner.refused(packet)
        elif isinstance(packet, RingAnnounce) and packet.site != state.me:
            if state.trid:
                if packet.trid != state.name and not self._former.has(packet.trid):
                    self._watch.note_elsewhere(packet.site, source, out)
                self._sponsor.hear_other_ring(packet)
            else:
                self._joiner.announced(packet.stamp, out)

    def _take_foreign(
        self, kind: int, trid: int, packet: Packet, source: Address, out: list[Effect]
    ) -> None:
        """A packet of another ring: one that was ours, or is about to be, or somebody else's."""
        if self._former.has(trid):
            if isinstance(packet, Nack):
                self._repair.answer(packet, source, trid, out)
            elif isinstance(packet, Fault):
                self._former.report_to(packet.member, trid, out)
            return
        accepted = self._reformation.accepted_list()
        if accepted is not None and trid == accepted.trid:
            self._reform_machine.fire(ListDecided(accepted), out)
            if trid in self._state.trids:
                self._take(kind, trid, packet, source, out)
            return
        if isinstance(packet, Fault) and self._state.trid:  # Nobody here has to be waited for.
            self._sponsor.announce(out, packet.member, waiting=self._state.frozen)
        self._codec.drop("ring")

    def _take_own_ring(self, kind: int, packet: Packet, source: Address, out: list[Effect]) -> None:
        if isinstance(packet, Data):
            found = self._sources.take(packet) if self._holdings.take(packet) else None
            if found is not None:
                self._arrived = True
                self._delivery.messages(found, ordered=False)
        elif isinstance(packet, AckFields):
            if self._queue.put(packet.ack()):
                self._watch.moved()
        elif isinstance(packet, Nack):
            for key, number, _, _ in packet.blocks:
                if key == self._state.key:
                    self._send_queue.lost(number)
            self._answer(packet, source, out)
        elif isinstance(packet, Gone):
            self._resilience.gone(packet.sender)
        elif isinstance(packet, ExpelLeaver):
            self._leaving.expel()
        elif isinstance(packet, TokenAccepted):
            self._token_machine.fire(packet, out)
        elif isinstance(packet, BestEffort | Uniform):
            if packet.sender in self._state.group.entries:
                self._delivery.messages(self._sources.take_best_effort(packet), ordered=False)
            else:
                self._codec.drop("stranger")  # It has left, and this packet was held up.
        elif isinstance(packet, StateRequest):
            self._sponsor.serve_state(packet, out)
        elif isinstance(packet, StatePiece):
            self._joiner.take_state(packet, out)
        elif isinstance(packet, Proposal) and kind == PacketKind.COMMIT:
            self._hear_decided(packet.sender, packet.new_list.new_list(), out)
        elif isinstance(packet, Resume) and kind == PacketKind.ABORT:
            lost = AttemptLost(ReformBallot(*packet.ballot), packet.is_verdict)
            self._reform_machine.fire(lost, out)
        else:
            self._reform_machine.fire(packet, out)

    def _hear_decided(self, site: int, new_list: NewList, out: list[Effect]) -> None:
        """If it is not believed of this site alone, others are asked: they report what ended the
        ring, or that nothing did."""
        if not self._reformation.binds(new_list):
            return
        believed = self._reformation.believes(site, new_list)
        self._reform_machine.fire(ListDecided(new_list) if believed else Suspected(), out)

    def _answer(self, packet: Nack, source: Address, out: list[Effect]) -> None:
        """A site that has left is given its time to fetch what came before."""
        state = self._state
        if packet.sender not in state.group.entries and not self._resilience.is_leaving(
            packet.sender
        ):
            self._outgoing.send(PacketKind.EXPEL, ExpelLeaver(state.key), out, (source,))
        else:
            self._repair.answer(packet, source, state.trid, out)

    def _look_at_odd(self, source: Address, out: list[Effect]) -> None:
        state = self._state
        size = len(state.group.entries)
        if reason := self._admission.look(source, state.now_us, size, out):
            state.stop(Fail(reason, Cause.REFUSED))

    # -- what follows -----------------------------------------------------------------------------

    def _conclude(self, event: Event, out: list[Effect]) -> None:
        state = self._state
        if state.trid and not self._over:
            for _ in range(ROUNDS_MAX):
                before = (self._queue.held, state.epoch, self._queue.latest)
                self._read_order(out)
                self._reform_machine.settle(event, out)
                if state.leaving:
                    self._leaving.ask_if_ready()
                self._send_blocks(out)
                self._token_machine.settle(event, out)
                if before == (self._queue.held, state.epoch, self._queue.latest):
                    break
            self._stability.settle()
            self._sponsor.forget_welcomes()
            self._repair.watch(out)
            self._watch.keep_on(out)
            if state.leaving and self._leaving.is_done(out):
                self._depart(out)
        if self._sources.too_large:
            state.stop(Fail("a message is larger than message_bytes_max allows here"))
        self._delivery.flush(self._state.decided, out)
        if state.verdict is not None and not self._over:
            if self._membership.has_left():  # It only waited for the others.
                self._depart(out)
            else:
                self._end(state.verdict, out)

    def _depart(self, out: list[Effect]) -> None:
        self._delivery.congest(False)
        self._delivery.flush(self._state.decided, out)
        self._end(Depart(), out)

    def _read_order(self, out: list[Effect]) -> None:
        limit = self._reformation.limit() if self._state.frozen else SLOT_MAX
        for found in self._queue.filled(limit):
            if isinstance(found, TokenAck):
                self._resilience.passed(found)
                continue
            timestamp, source, number = found
            messages, requests = self._sources.ordered(source, number)
            placed = self._delivery.messages(messages, ordered=True)
            block = self._sources.get(source, number)
            if block is not None and block.flags:
                self._resilience.expect(timestamp, block.flags, MessageRuns(placed))
            for request in requests:
                self._membership.apply(source, request, timestamp, out)
            if source == self._state.key:
                self._send_queue.acknowledged(number, self._state.now_us)

    def _send_blocks(self, out: list[Effect]) -> None:
        if not self._state.frozen and self._membership.removed_at is None:
            self._sender.send_blocks(out)
