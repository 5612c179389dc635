"""A member: makes the parts, routes events to them, and gathers what follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    Multicast,
    Received,
    Restart,
    Unreachable,
)
from unisono.errors import BadPacket, Misuse
from unisono.fsa import Machine
from unisono.model import Address, Member
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec
from unisono.parts.core_clock import CoreClock
from unisono.parts.identity import key_of
from unisono.parts.state_transfer import TransferPiece, TransferRequest
from unisono.protocols.transis.configuration import Configuration
from unisono.protocols.transis.congestion import NetworkWindow
from unisono.protocols.transis.delivery import ApplicationQueue
from unisono.protocols.transis.failure import SilenceWatch
from unisono.protocols.transis.figure import FIGURE
from unisono.protocols.transis.flow import WINDOW_BYTES, Flow
from unisono.protocols.transis.flush import Flush
from unisono.protocols.transis.membership import Membership
from unisono.protocols.transis.merging import ComponentSearch
from unisono.protocols.transis.ordering import Ordering
from unisono.protocols.transis.packets import (
    HEAD_BYTES,
    KINDS,
    PROTOCOL,
    Agree,
    ComponentAnnounce,
    Suggest,
    VertexNak,
    VertexPiece,
    agree_bytes,
    read_all,
)
from unisono.protocols.transis.parameters import DEFAULTS, Parameters
from unisono.protocols.transis.repair import Repair
from unisono.protocols.transis.send_queue import SendQueue
from unisono.protocols.transis.state import LocalMember, PacketSender
from unisono.protocols.transis.state_transfer import StateTransfer
from unisono.protocols.transis.states import ALIVE, DONE, INSIDE, NAK, OUTSIDE, Timer
from unisono.protocols.transis.suggestion import Suggestion, members_that_fit
from unisono.protocols.transis.views import ViewInstallation
from unisono.protocols.transis.voting import DynamicMajority, PrimaryLayer, StaticMajority
from unisono.wire import ENVELOPE_BYTES


class Transis:
    """A member of a Transis group. The README in this folder has the paper."""

    def __init__(self, config: CoreConfig) -> None:
        self.me = config.me
        self._parameters = parameters = Parameters.of(config.options)
        terms = Terms.of(config, "transis", {**DEFAULTS, **config.options})
        self._clock = clock = CoreClock(config.seed)
        self.codec = codec = PacketCodec(PROTOCOL, KINDS, terms)
        self._admission = Admission(codec, terms)
        self.local = local = LocalMember(config.me, clock)
        self._outgoing = outgoing = PacketSender(codec, clock)
        self._queue = queue = SendQueue(config, local.key, parameters.token)
        self._delivery = delivery = ApplicationQueue()
        self._failures = failures = SilenceWatch(parameters, local)
        fitting = members_that_fit(config.packet_bytes_max - ENVELOPE_BYTES)
        members_count_max = min(parameters.members_count_max, fitting)
        if parameters.dynamic:
            members_count_max = min(members_count_max, parameters.sites)
        self.suggestion = suggestion = Suggestion(config.me, members_count_max)
        self._merging = merging = ComponentSearch(parameters, local, outgoing, suggestion)
        self._congestion = congestion = NetworkWindow(min(WINDOW_BYTES, config.window_bytes_max))
        self._repair = repair = Repair(
            config,
            parameters,
            local,
            codec,
            outgoing,
            congestion,
            self._is_quiet,
        )
        self._primary = primary = self._make_primary(config, parameters)
        self._flow = Flow(
            parameters, local, outgoing, queue, primary, congestion, repair.piece_bytes
        )
        self._transfer = transfer = StateTransfer(config, local, outgoing, delivery)
        self._views = views = ViewInstallation(
            local, delivery, transfer, primary, parameters.one_history
        )
        self.flush = flush = Flush(
            local,
            outgoing,
            queue,
            repair,
            primary,
            views,
            parameters.one_history,
            self._new_ordering,
        )
        self.membership = membership = Membership(
            config, parameters, local, outgoing, suggestion, failures, merging, flush, views
        )
        self.machine = Machine(FIGURE, membership, flush)
        self._over = False

    @staticmethod
    def _make_primary(config: CoreConfig, parameters: Parameters) -> PrimaryLayer:
        if not parameters.dynamic:
            return StaticMajority(parameters.sites)
        least = ENVELOPE_BYTES + agree_bytes(parameters.sites)
        if least > config.packet_bytes_max:
            raise Misuse(
                f"transis options dynamic=1 sites={parameters.sites} need packets of {least}"
                f" bytes, and the path or packet_bytes_max= allows {config.packet_bytes_max}"
            )
        return DynamicMajority(config.me.name, parameters.sites, config.durable)

    def _is_quiet(self, rank: int) -> bool:
        return self._failures.is_quiet(self.local.keys[rank])

    def _new_ordering(self, configuration: Configuration, sent: Mapping[Member, int]) -> Ordering:
        rank = configuration.rank(self.local.key)
        numbers = [sent[member] for member in configuration.members]
        self._admission.entered(self._clock.now_us)
        return Ordering(configuration, rank, numbers, self._parameters.token, self.codec.drop)

    # -- the contract -----------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        return self.codec.counts

    def send_credit(self) -> int:
        """None while congested: our own messages would be delivered here too. None in a component
        that may not operate."""
        if self.machine.state not in INSIDE or self.local.leaving:
            return 0
        if self._delivery.congested or self._views.is_new() or not self._primary.may_operate:
            return 0
        return self._queue.send_credit()

    @property
    def may_operate(self) -> bool:
        """This member has the group's state, and its component may operate."""
        return (
            self.machine.state in INSIDE and not self._views.is_new() and self._primary.may_operate
        )

    def held(self) -> Mapping[Member, int]:
        ordering = self.flush.ordering
        return self._delivery.marks() | (ordering.held() if ordering is not None else {})

    def transition_counts(self) -> Mapping[str, int]:
        return self.machine.walked

    def step(self, now_us: int, event: Event) -> list[Effect]:
        out: list[Effect] = []
        if self._over:
            return out
        self._clock.tick(now_us)
        if isinstance(event, Received):
            self.local.receive_from(event.source)
            for opened in self.codec.admit_batch(event.packets, HEAD_BYTES):
                for packet in read_all(opened, self.codec.drop):
                    self._take(packet, out)
            if self.codec.odd:
                self._look_at_odd(event.source, out)
        elif isinstance(event, Expired):
            self._expire(event, out)
        else:
            self._obey(event, out)
        self._conclude(event, out)
        return out

    def _obey(self, event: Event, out: list[Effect]) -> None:
        if isinstance(event, Multicast):
            self._queue.put(event.messages, event.service)
        elif isinstance(event, Congested):
            self._delivery.hold_back(event.on)
        elif isinstance(event, Captured):
            self._transfer.keep(event, out)
        elif isinstance(event, Restart):
            self._primary.restore(event.stable)
        elif isinstance(event, Unreachable):
            self._failures.doubt(event.address)
        elif type(event) in FIGURE.rows[OUTSIDE]:
            self.machine.fire(event, out)

    def _expire(self, event: Expired, out: list[Effect]) -> None:
        timer = event.timer
        assert isinstance(timer, Timer)
        self._outgoing.expired(timer)
        ordering = self.flush.ordering
        if timer is NAK:
            if ordering is not None:
                self._repair.ask(ordering, out)
        elif timer is ALIVE:
            if ordering is not None and not ordering.is_closed:
                self._flow.speak(ordering, out)
        elif timer is not Timer.SEND:
            if timer is Timer.LOOK:
                self._transfer.tick(out)
            self.machine.fire(event, out)

    def _look_at_odd(self, source: Address, out: list[Effect]) -> None:
        """A process with other options wants to be in the group, or is in it."""
        size = len(self._delivery.shown)
        if reason := self._admission.look(source, self._clock.now_us, size, out):
            self.local.stop(Fail(reason, Cause.REFUSED))

    # -- packets ----------------------------------------------------------------------------------

    def _take(self, packet: Any, out: list[Effect]) -> None:
        kind = type(packet)
        if kind is VertexPiece:
            self._take_vertex(packet, out)
        elif kind is VertexNak:
            self._answer(packet, out)
        elif kind is TransferPiece:
            if self._transfer.is_from_source():
                self._transfer.take(packet, out)
            else:
                self.codec.drop("stranger")
        elif kind is TransferRequest:
            self._transfer.serve(packet, out)
        else:
            if kind is Suggest or kind is ComponentAnnounce or kind is Agree:
                if packet.sender == self.me:
                    return
                self._failures.hear(key_of(packet.sender))
                if kind is not Agree and not self.suggestion.is_reachable(packet):
                    self.codec.drop("exceeded")
                    return
            self.machine.take(kind, packet, out)

    def _answer(self, packet: VertexNak, out: list[Effect]) -> None:
        ordering = self.flush.ordering
        if ordering is not None and packet.life == self.local.configuration.life:
            self._failures.hear(packet.sender)
            self._repair.answer(ordering, packet, out)

    def _take_vertex(self, packet: VertexPiece, out: list[Effect]) -> None:
        life, flush = packet.life, self.flush
        if flush.prove(life):
            self.machine.settle(packet, out)
        ordering = flush.ordering
        if ordering is None or life != self.local.configuration.life:
            if life == flush.life or life in flush.former or not life:
                self.codec.drop("former")
            elif self.machine.state in INSIDE:
                self.membership.greet_source(out)
            return
        keys = self.local.keys
        if packet.by == self.local.rank:
            return  # My own, heard again.
        if not packet.by < len(keys) > packet.sender:
            self.codec.drop("malformed")
            return
        self._failures.hear(keys[packet.by])
        if ordering.is_closed and not ordering.is_limited:
            self.codec.drop("closed")
            return
        if not ordering.is_closed:
            if self._delivery.is_full():
                self.codec.drop("backlog")
                return
        try:
            vertex = self._repair.take(packet)
            if vertex is not None and ordering.add(vertex):
                self._repair.came(vertex.sender, vertex.index)
        except BadPacket as bad:
            self.codec.drop(bad.reason)

    # -- the end of a step ------------------------------------------------------------------------

    def _conclude(self, event: Event, out: list[Effect]) -> None:
        flush, delivery = self.flush, self._delivery
        machine = self.machine
        if machine.state in INSIDE:
            self._advance(out)
            ordering, state = flush.ordering, machine.state
            machine.settle(event, out)
            is_as_before = machine.state is state and flush.ordering is ordering
            if (flush.life or not is_as_before) and machine.state in INSIDE:
                self._advance(out)
        delivery.deliver(out)
        if delivery.is_empty():
            self._primary.shown(out)
        if self.local.verdict is not None:
            self._end(self.local.verdict, out)
        elif machine.state is DONE and delivery.is_empty():
            self._end(Depart(), out)

    def _advance(self, out: list[Effect]) -> None:
        """Deliver, send, request."""
        ordering = self.flush.ordering
        if ordering is None:
            return
        if not ordering.is_closed:
            self._flow.transmit(ordering, out)
            self._congestion.acknowledged(ordering.forget(), ordering.nbytes)
        runs = ordering.take()
        if runs and self._delivery.shown:
            self._delivery.append(runs)
        if not ordering.is_closed or ordering.is_limited:
            self._repair.watch(ordering, out)

    def _end(self, effect: Effect, out: list[Effect]) -> None:
        self._over = True
        out += [*map(Disarm, Timer), effect]
