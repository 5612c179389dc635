"""The core of rmcast: makes the parts, routes events to them, and gathers their effects."""

from __future__ import annotations

from collections.abc import Mapping

from unisono.core import Cause, CoreConfig, Effect, Event, Expired, Received
from unisono.fsa import Machine
from unisono.model import Address, Member
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec
from unisono.parts.core_clock import CoreClock
from unisono.protocols.rmcast.admission import Sponsor
from unisono.protocols.rmcast.delivery import Delivery
from unisono.protocols.rmcast.ending import Ending
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.figure import FIGURE
from unisono.protocols.rmcast.heartbeats import Heartbeats
from unisono.protocols.rmcast.joining import Joiner
from unisono.protocols.rmcast.leaving import Leaving
from unisono.protocols.rmcast.merging import Merging
from unisono.protocols.rmcast.ordering import Ordering
from unisono.protocols.rmcast.packet_builder import PacketBuilder
from unisono.protocols.rmcast.packets import KINDS, PROTOCOL, Refuse
from unisono.protocols.rmcast.parameters import DEFAULTS, Parameters
from unisono.protocols.rmcast.receiver import Receiver
from unisono.protocols.rmcast.repair import Repair
from unisono.protocols.rmcast.roster import Roster
from unisono.protocols.rmcast.send_queue import SendQueue
from unisono.protocols.rmcast.state_transfer import StateTransfer
from unisono.protocols.rmcast.states import INSIDE, MEMBER
from unisono.protocols.rmcast.views import Views


class Rmcast:
    """A member of an rmcast group. The README in this folder has the paper."""

    def __init__(self, config: CoreConfig) -> None:
        self.me = config.me
        parameters = Parameters.of(config.options)
        terms = Terms.of(config, "rmcast", {**DEFAULTS, **config.options})
        packet_bytes, with_state = config.packet_bytes_max, config.with_state
        self._clock = clock = CoreClock(config.seed)
        self.codec = codec = PacketCodec(PROTOCOL, KINDS, terms)
        self._admission = Admission(codec, terms)
        self.roster = roster = Roster(config.me, packet_bytes)
        self.builder = builder = PacketBuilder(roster, codec, packet_bytes)
        self.views = views = Views(roster, self._admission, clock)
        self._send_queue = send_queue = SendQueue(config, roster, builder, views, clock)
        self._ordering = ordering = Ordering(roster, codec, views, send_queue)
        self._failures = failures = Failures(parameters, roster, ordering, clock)
        self._repair = Repair(roster, ordering, builder, clock, parameters.ask_us)
        self.transfer = StateTransfer(roster, builder, failures, views)
        self._delivery = Delivery(roster, ordering, views, failures, codec, clock)
        self._leaving = Leaving(parameters, roster, ordering, send_queue)
        self.merging = Merging(parameters, roster, codec, failures, send_queue, clock)
        ending = Ending(roster, builder, failures)
        joining = Joiner(
            parameters, roster, codec, views, failures, self.merging, self.transfer, ending, clock,
            with_state,
        )  # fmt: skip
        self.sponsor = Sponsor(
            parameters, roster, codec, send_queue, views, failures, self.merging, self.transfer,
            clock, packet_bytes, with_state,
        )  # fmt: skip
        ticks = (self.transfer.tick, self.sponsor.tick)
        self._heartbeats = Heartbeats(
            parameters, roster, builder, failures, self._repair, clock, self._withholds, ticks
        )
        self._receiver = Receiver(
            roster, codec, builder, failures, joining, clock, parameters.beat_us
        )
        self.machine = Machine(
            FIGURE, joining, self.sponsor, self.transfer, send_queue, ordering, self._repair,
            self._delivery, self._heartbeats, failures, self.merging, self._leaving, ending,
        )  # fmt: skip

    # -- the contract ----------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        return self.codec.counts

    def send_credit(self) -> int:
        """None while congested: our own messages would be delivered here too."""
        if self.machine.state is not MEMBER or self._delivery.congested:
            return 0
        return self._send_queue.send_credit()

    def held(self) -> Mapping[Member, int]:
        return self._ordering.held()

    def transition_counts(self) -> Mapping[str, int]:
        return self.machine.walked

    def step(self, now_us: int, event: Event) -> list[Effect]:
        self._clock.tick(now_us)
        if self.roster.leavers:
            self._failures.drop_silent_leavers()
        out: list[Effect] = []
        machine = self.machine
        if type(event) is Received:
            opened = self._receiver.opened
            for envelope in self.codec.admit(event.packets):
                packet = opened(envelope, event.source, out)
                if packet is not None:
                    machine.take(type(packet), packet, out)
            if self.codec.odd:
                self._refuse_terms(event.source, out)
        else:
            machine.fire(event, out)
        if machine.state in INSIDE and not self._may_rest(event):
            self._conclude(event, out)
        return out

    def _may_rest(self, event: Event) -> bool:
        """Whether nothing follows: most heartbeats repeat what is known."""
        is_routine = type(event) is Received or type(event) is Expired
        return is_routine and self.roster.is_at_rest() and self._failures.verdict is None

    def _refuse_terms(self, source: Address, out: list[Effect]) -> None:
        """A process has other options than we have: one of us cannot be in this group."""
        is_inside = self.machine.state in INSIDE
        size = len(self.roster.group()) if is_inside else 0
        reason = self._admission.look(source, self._clock.now_us, size, out)
        if reason and is_inside:
            self._failures.stop(reason, Cause.REFUSED)
        elif reason:
            self.machine.fire(Refuse(self.roster.key, reason, final=True), out)

    # -- what follows from an event ---------------------------------------------------------------

    def _withholds(self) -> bool:
        """Nothing can be delivered for now."""
        return self._delivery.congested or self.transfer.is_running()

    def _conclude(self, event: Event, out: list[Effect]) -> None:
        """Once a step: deliver, settle, clean up, send, request."""
        roster, views = self.roster, self.views
        is_leaving = self._send_queue.farewell > 0
        withholds = self._withholds()
        moved = withholds or is_leaving
        if not withholds:
            moved = self._delivery.deliver(out) or moved
        reporters = roster.reporters()
        has_news = not reporters
        for peer in reporters:
            has_news |= peer.promote()
        if is_leaving:
            self._leaving.note_answers()
        if self._failures.close():
            views.note_removal()
        # One view for all members that fail together: it waits for the last of them.
        if views.removed and not roster.unsettled() and not self.transfer.is_running():
            views.install(out)
        if has_news:
            self._ordering.clean_up(reporters)
        self._send_queue.transmit(out)
        self._heartbeats.report(out)
        self._repair.request(out)
        if not (moved or views.removed or self._repair.waiting):
            roster.rest()
        self.machine.settle(event, out)
