"""A member of an MTP web: makes the parts, routes events to them, and gathers their effects."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from unisono.core import Arm, CoreConfig, Effect, Event, Received
from unisono.fsa import Machine
from unisono.model import Member
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec, PacketTrain
from unisono.parts.detector import Detector
from unisono.protocols.mtp.admission import MasterAdmission
from unisono.protocols.mtp.agreement import Consumer, Producer
from unisono.protocols.mtp.batch import Batch
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.coordinator import Coordinator
from unisono.protocols.mtp.fail_stop import FailStop
from unisono.protocols.mtp.figure import FIGURE
from unisono.protocols.mtp.heartbeat import Heartbeat
from unisono.protocols.mtp.incoming import Incoming
from unisono.protocols.mtp.joining import Joiner
from unisono.protocols.mtp.leaving import Leaver
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.member_watch import MemberWatch
from unisono.protocols.mtp.membership import Membership
from unisono.protocols.mtp.message_receiver import MessageReceiver
from unisono.protocols.mtp.message_sender import MessageSender
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packet_writer import PacketWriter
from unisono.protocols.mtp.packets import ALIKE_BYTES, KINDS, PROTOCOL, key_of
from unisono.protocols.mtp.parameters import Parameters, alike
from unisono.protocols.mtp.reading import read_packets
from unisono.protocols.mtp.repair import Repair
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.send_queue import SendQueue
from unisono.protocols.mtp.state import StateSource, StateTaker
from unisono.protocols.mtp.states import INSIDE, JOINING, MEMBER, Timer
from unisono.protocols.mtp.token_master import TokenMaster
from unisono.protocols.mtp.web import Web

ROUNDS_MAX: Final = 64
"""Rounds of deciding, delivering and sending after one event."""


class Mtp:
    """See the README beside this file for the paper."""

    def __init__(self, setting: CoreConfig) -> None:
        self.me = me = setting.me
        key, options, size = key_of(me), setting.options, setting.packet_bytes_max
        parameters = Parameters.of(options)
        dice = Random(setting.seed)
        terms = Terms.of(setting, "mtp", alike(options))
        self.codec = codec = PacketCodec(PROTOCOL, KINDS, terms)
        own_terms = Admission(codec, terms)
        detector: Detector[int] = Detector(parameters.detect_us, parameters.beat_us)
        detector.watch(key, 0)  # So that listening time always passes.
        self.clock = clock = StepClock(detector, me.address)
        self.fail_stop = fail_stop = FailStop()
        self.pace = pace = Pacing.of(parameters)
        self.web = web = Web()
        self.master = master = MasterWatch(parameters, detector, clock, pace)

        # A message: its packets out and in, Figure 3, and Figure 2.
        self.consumer = consumer = Consumer(parameters.tokens)
        self.producer: Producer[Batch] = Producer()
        self.outbound = outbound = MessageSender(codec, pace, parameters.dally)
        self.inbound = inbound = MessageReceiver(codec, pace, parameters.dally, dice)
        self.ordering = ordering = Ordering(
            consumer, clock, codec, web, master, fail_stop, outbound, inbound, parameters.master > 0
        )
        self.packets = packets = PacketWriter(key, clock, codec, ordering, pace, master, size)
        self.send_queue = send_queue = SendQueue(
            setting, key, self.producer, consumer, clock, pace, master, ordering, packets, outbound,
        )  # fmt: skip

        # The master: its replicas, Figure 1, and those who join and leave.
        self.replicas = replicas = Replicas(
            me, parameters, dice, clock, codec, web, consumer, packets, ordering.holds
        )
        self.watch = watch = MemberWatch(key, parameters, clock, detector, web, consumer)
        self.tokens = tokens = TokenMaster(
            key, parameters, codec, web, consumer, ordering, outbound, watch
        )
        self.source = source = StateSource(parameters, clock, web, packets, replicas, tokens)
        self.admission = admission = MasterAdmission(
            me, setting.with_state, parameters, clock, web, packets, replicas, tokens, watch,
            source,
        )  # fmt: skip
        self.coordinator = coordinator = Coordinator(
            me, parameters, clock, pace, web, master, ordering, inbound, packets, send_queue,
            replicas, tokens, watch, admission, fail_stop,
        )  # fmt: skip

        # This member among the others.
        self.repair = repair = Repair(
            me.address, clock, pace, web, master, consumer, ordering, outbound, inbound,
            packets, replicas, tokens, fail_stop,
        )  # fmt: skip
        self.leaving = leaving = Leaver(
            parameters, clock, consumer, ordering, packets, replicas, tokens, watch, admission,
            coordinator, send_queue, fail_stop,
        )  # fmt: skip
        self.membership = membership = Membership(
            key, codec, web, master, ordering, replicas, admission, source, leaving, fail_stop
        )
        taker = StateTaker(parameters, clock, pace, packets, fail_stop)
        joining = Joiner(
            me, setting.with_state, parameters, dice, clock, codec, own_terms, web,
            consumer, ordering, pace, master, replicas, coordinator, taker, leaving, fail_stop,
        )  # fmt: skip
        self.heartbeat = heartbeat = Heartbeat(
            parameters, clock, consumer, master, ordering, outbound, inbound, packets, send_queue,
            repair, replicas, watch, admission, coordinator, source, leaving, fail_stop,
        )  # fmt: skip
        self.incoming = Incoming(
            key, clock, codec, own_terms, web, master, ordering,
            replicas, watch, admission, fail_stop,
        )  # fmt: skip
        self.machine = Machine(
            FIGURE, joining, taker, leaving, membership, ordering, repair, send_queue, watch,
            admission, coordinator, replicas, source, heartbeat, fail_stop,
        )  # fmt: skip

    @property
    def counts(self) -> dict[str, int]:
        return self.codec.counts

    def send_credit(self) -> int:
        """While the application is congested, it has no credit: it would receive its own too."""
        if self.machine.state is not MEMBER or self.ordering.congested:
            return 0
        return self.send_queue.send_credit()

    def held(self) -> Mapping[Member, int]:
        """What was delivered; messages that are pending may be rejected."""
        upto, members = self.web.upto, self.web.members
        return {members[key]: number for key, number in upto.items() if key in members}

    def transition_counts(self) -> Mapping[str, int]:
        return self.machine.walked

    def step(self, now_us: int, event: Event) -> list[Effect]:
        self.clock.tick(now_us)
        out: list[Effect] = []
        machine = self.machine
        if isinstance(event, Received):
            self._receive(event, out)
        else:
            machine.fire(event, out)
        if machine.state is JOINING:
            self.replicas.settle(out)
            machine.settle(event, out)
        if machine.state in INSIDE:
            if self._is_idle():
                self.ordering.end_step()
            else:
                self._work(event, out)
            if machine.state in INSIDE:
                self.heartbeat.arm(out)
        return out

    def _receive(self, event: Received, out: list[Effect]) -> None:
        codec, machine, clock = self.codec, self.machine, self.clock
        clock.arrive(event.source)
        for opened in codec.admit_batch(event.packets, ALIKE_BYTES):
            clock.note_web(opened.first.life if isinstance(opened, PacketTrain) else opened.life)
            for packet in read_packets(opened, codec.drop):
                if self.incoming.admits(packet, machine.state in INSIDE, out):
                    machine.take(type(packet), packet, out)
        if codec.odd:
            self.incoming.check_terms(machine.state in INSIDE, out)

    def _is_idle(self) -> bool:
        """Fast path: nothing follows at a consumer that has all messages and nothing to send or
        decide. A test compares runs with and without it."""
        ordering = self.ordering
        if ordering.known_next > self.consumer.next_out or self.machine.state is not MEMBER:
            return False
        if self.replicas.leads:
            if ordering.has_news or not self.coordinator.is_idle():
                return False
        elif self.consumer.next_out >= self.heartbeat.report_at:
            return False
        if ordering.has_more or self.fail_stop.reason is not None or self.replicas.waiting:
            return False
        return not self.send_queue.is_unsettled() and not self.outbound.is_busy()

    def _work(self, event: Event, out: list[Effect]) -> None:
        """Once per burst: decide, deliver, send, and request what is missing."""
        ordering, replicas, send_queue = self.ordering, self.replicas, self.send_queue
        ordering.begin_step()
        before = self._progress()
        for _ in range(ROUNDS_MAX):
            if send_queue.is_unsettled():
                send_queue.settle()
                if not replicas.leads:
                    send_queue.request(out)
            if replicas.leads:
                self.coordinator.conclude(out)
            ordering.deliver(self.membership.apply_change, out)
            if self.outbound.is_busy():
                self.outbound.pump(self.clock.now_us, self.packets.header, out)
            if before == (before := self._progress()):
                break
        if replicas.waiting:
            replicas.settle(out)
        if replicas.leads and ordering.has_news:
            self.coordinator.advertise(out)
        ordering.end_step()
        if not replicas.leads and ordering.taken() >= self.heartbeat.report_at:
            self.heartbeat.report(out)
        self.repair.request_missing(out)
        if self.leaving.active:
            self.leaving.linger()
        if ordering.has_more:
            out.append(Arm(Timer.MORE, 0))
        self.machine.settle(event, out)

    def _progress(self) -> tuple[int, int, int, int]:
        """While this changes, more may follow."""
        granted, committed = self.tokens.machine.next, self.replicas.committed
        return self.consumer.next_out, granted, committed, self.outbound.sent_count
