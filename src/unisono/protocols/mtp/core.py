"""The member: takes events, runs its life, and gathers what each burst leads to."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from unisono.core import Arm, Cause, CoreConfig, Depart, Disarm, Effect, Event, Fail, Received, Send
from unisono.errors import BadPacket
from unisono.fsa import Machine
from unisono.model import Address, Member
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec, PacketTrain
from unisono.parts.detector import Detector
from unisono.protocols.mtp.agreement import Consumer, Producer
from unisono.protocols.mtp.batch import Said
from unisono.protocols.mtp.coordinator import Coordinator
from unisono.protocols.mtp.figure import (
    CATCHING_UP,
    FIGURE,
    INSIDE,
    LEAVING,
    MEMBER,
    MemberState,
    Timer,
)
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.membership import Membership
from unisono.protocols.mtp.packets import (
    ALIKE_BYTES,
    FROM_OUTSIDE,
    KINDS,
    OF_COUNCIL,
    PROTOCOL,
    Confirm,
    Empty,
    Header,
    LeaveRequest,
    OfCouncil,
    Packet,
    PacketKind,
    Pressure,
    Propose,
    Report,
    StateRequest,
    Support,
    TokenRequest,
    bits_of,
    count_of,
    key_of,
    write_header,
)
from unisono.protocols.mtp.parameters import Parameters, alike
from unisono.protocols.mtp.reading import heard
from unisono.protocols.mtp.receiver import Receiver
from unisono.protocols.mtp.repair import Repair
from unisono.protocols.mtp.replicas import NO_HEADER, Replicas
from unisono.protocols.mtp.send_queue import SendQueue
from unisono.protocols.mtp.transport import AHEAD_COUNT_MAX, MessageReceiver, MessageSender, Pacing
from unisono.protocols.mtp.web import Web


class Mtp:
    """A member of an MTP web: see the README beside this file for the paper."""

    def __init__(self, setting: CoreConfig) -> None:
        self.me = setting.me
        self.key = key_of(setting.me)
        self.packet_bytes_max = setting.packet_bytes_max
        self.with_state = setting.with_state
        self.parameters = Parameters.of(setting.options)
        self.dice = Random(setting.seed)
        terms = Terms.of(setting, "mtp", alike(setting.options))
        self.codec = PacketCodec(PROTOCOL, KINDS, terms)
        self.admission = Admission(self.codec, terms)
        parameters = self.parameters
        self.silence: Detector[int] = Detector(parameters.detect_us, parameters.beat_us)
        self.silence.watch(self.key, 0)  # So that listening time always passes.
        self.watch = MasterWatch(parameters, self.silence)
        self.pace = Pacing(parameters.heartbeat_us, parameters.window, parameters.retention)
        self.consumer = Consumer(parameters.tokens)
        self.producer: Producer[Said] = Producer()
        self.outbound = MessageSender(self.codec, self.pace, parameters.dally, self.header_bytes)
        self.inbound = MessageReceiver(self.codec, self.pace, parameters.dally, self.dice)
        self.web = Web()
        self.receiver = Receiver(self)
        self.send_queue = SendQueue(self, setting)
        self.repair = Repair(self)
        self.replicas = Replicas(self, self.receiver.holds)
        self.coordinator = Coordinator(self)
        self.membership = Membership(self, setting.with_state)
        self.machine = Machine(FIGURE, self)
        self.now_us = 0
        self.source = setting.me.address
        """Where the packet at hand came from."""
        self.incoming_life = 0
        self.known_next = 1
        """The next number, as far as we have heard."""
        self.master: Member | None = None
        self.master_key = 0
        self.verdict: str | None = None
        self.cause = Cause.STOPPED
        self.congested = False
        self.news = False
        """A status was learned in this step."""
        self._master_ballot = 0
        self._reported = 1
        self._beating = False
        self.quiet = 0
        self._headers: dict[int, bytes] = {}

    # -- the contract ----------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        return self.codec.counts

    @property
    def leads(self) -> bool:
        return self.replicas.leads

    def send_credit(self) -> int:
        """While the application cannot take more, it may not say more: it would hear it too."""
        if self.machine.state is not MEMBER or self.congested:
            return 0
        return self.send_queue.send_credit()

    def held(self) -> Mapping[Member, int]:
        """What was delivered; what waits for its status may never count."""
        upto, members = self.web.upto, self.web.members
        return {members[key]: number for key, number in upto.items() if key in members}

    def transition_counts(self) -> Mapping[str, int]:
        return self.machine.walked

    @property
    def listened_us(self) -> int:
        return self.silence.listened_us

    def step(self, now_us: int, event: Event) -> list[Effect]:
        self.now_us = now_us
        self.silence.look(now_us)
        self._headers.clear()
        out: list[Effect] = []
        if isinstance(event, Received):
            self.source = event.source
            for opened in self.codec.admit_batch(event.packets, ALIKE_BYTES):
                first = opened.first if isinstance(opened, PacketTrain) else opened
                self.incoming_life = first.life
                for packet in heard(opened, self.codec.drop):
                    if self._is_right(packet, out):
                        self.machine.fire(packet, out)
            if self.codec.odd:
                self.membership.look(out)
        else:
            self.machine.fire(event, out)
        if self.machine.state in INSIDE:
            self._conclude(event, out)
        elif self.machine.state is MemberState.JOINING:
            self.replicas.settle(out)
            self.machine.settle(event, out)
            if self.machine.state in INSIDE:
                self._conclude(event, out)
        return out

    def start(self, out: list[Effect]) -> None:
        """We are in."""
        self.watch.begin()
        self.admission.entered(self.now_us)
        out.append(Arm(Timer.BEAT, self.parameters.beat_us))

    def stop(self, reason: str, out: list[Effect], known: int = 0) -> None:
        self._end(out)
        out.append(Fail(reason, self.cause, known))

    def depart(self, out: list[Effect]) -> None:
        if self.machine.state is CATCHING_UP:
            self.to_master(PacketKind.LEAVE, LeaveRequest(NO_HEADER).body(self.header_bytes()), out)
        if self.replicas.seated:
            self.replicas.abandon()
            self.replicas.greet(out)
        self._end(out)
        out.append(Depart())

    def _end(self, out: list[Effect]) -> None:
        out.extend(Disarm(timer) for timer in Timer)

    def doom(self, reason: str, cause: Cause = Cause.STOPPED) -> None:
        if self.verdict is None:
            self.verdict, self.cause = reason, cause

    # -- what came in ----------------------------------------------------------------------------

    def _is_right(self, packet: Packet, out: list[Effect]) -> bool:
        """Whether its life and its sender are."""
        if isinstance(packet, FROM_OUTSIDE):
            return True
        if packet.header.sender == self.key:
            self.codec.drop("own", count_of(packet))
            return False
        if isinstance(packet, OF_COUNCIL):
            return self._is_right_in_council(packet, self.incoming_life)
        inside = self.machine.state in INSIDE
        if self.incoming_life != self.codec.life or not inside:
            if isinstance(packet, Confirm) and not inside:
                return True
            if isinstance(packet, Empty) and packet.ballot and inside:
                self.watch.foreign_us = self.now_us
            self.codec.drop("life", count_of(packet))
            return False
        self._hear(packet.header)
        if self.leads:
            self._hear_member(packet, out)
        return True

    def _is_right_in_council(self, packet: OfCouncil, life: int) -> bool:
        if not self.replicas.rank or (self.replicas.seated and life != self.replicas.web):
            self.codec.drop("life")
            return False
        if not self.replicas.seated and not isinstance(packet, Propose):
            self.codec.drop("seat")
            return False
        if life == self.codec.life and self.machine.state in INSIDE:
            self._hear(packet.header)
            if self.leads:
                self.coordinator.hear(packet.header.sender, packet.header.taken)
        return True

    def _hear(self, header: Header) -> None:
        """Every header tells statuses and the next number; the master's sets the pace."""
        if header.base > self.consumer.next_out + AHEAD_COUNT_MAX:
            self.codec.drop("window")
            return
        base = header.base
        if base > self.consumer.next_out or base > self.consumer.next_in:
            if self.consumer.learn(base, header.last):
                self.news = True
                self._headers.clear()
        self.know(max(header.next, base))
        if header.sender == self.master_key:
            self.watch.heard_us = self.replicas.heard_us = self.listened_us
            self.pace.adopt(header)

    def _hear_member(self, packet: Packet, out: list[Effect]) -> None:
        assert not isinstance(packet, FROM_OUTSIDE)
        sender = packet.header.sender
        if sender in self.web.members:
            self.coordinator.hear(sender, packet.header.taken)
        elif isinstance(packet, TokenRequest | Report | LeaveRequest | StateRequest):
            self.coordinator.admission.turn_away(sender, self.source, out)

    def know(self, number: int) -> None:
        """This many numbers have been granted, but for one."""
        if number > self.known_next:
            self.known_next = min(number, self.consumer.next_out + AHEAD_COUNT_MAX)
            self.quiet = 0
            self._headers.clear()

    def follow(self, master: Member, ballot: int) -> None:
        """Who the master is: the one with the highest ballot."""
        if ballot >= self._master_ballot:
            if self.master != master:
                self.send_queue.asked_us = -self.parameters.beat_us
                self.master, self.master_key = master, key_of(master)
            self._master_ballot = ballot
            self.watch.begin()

    # -- what follows from a burst ---------------------------------------------------------------

    def _conclude(self, event: Event, out: list[Effect]) -> None:
        """Once a burst: decide, deliver, ask, send."""
        if self._is_idle():
            self.news = False
        else:
            self._work(event, out)
        if self.machine.state in INSIDE and (self.outbound.busy() or not self._beating):
            if self._busy():
                self._beating = True
                out.append(Arm(Timer.HEARTBEAT, self.outbound.wait_us(self.now_us)))

    def _is_idle(self) -> bool:
        """A consumer that has all there is, with nothing to say or decide: nothing follows."""
        if self.known_next > self.consumer.next_out or self.machine.state is not MEMBER:
            return False
        if self.replicas.leads:
            works = self.news or not self.coordinator.is_idle()
        else:
            works = self._must_report()
        works = works or self.send_queue.unsaid() or self.outbound.busy() or self.replicas.owes()
        return not works and not self.receiver.more and self.verdict is None

    def _work(self, event: Event, out: list[Effect]) -> None:
        self.receiver.more = False
        for _ in range(64):
            before = self._progress()
            self.send_queue.settle()
            self.send_queue.request(out)
            if self.leads:
                self.coordinator.conclude(out)
            self.receiver.deliver(out)
            self.outbound.pump(self.now_us, out)
            if self._progress() == before:
                break
        self.replicas.settle(out)
        if self.leads and self.news:
            self.coordinator.advertise(out)
        self.news = False
        self._report_early(out)
        self.repair.ask(out)
        if self.machine.state is LEAVING:
            self.membership.linger()
        if self.receiver.more:
            out.append(Arm(Timer.MORE, 0))
        self.machine.settle(event, out)

    def _progress(self) -> tuple[int, int, int, int]:
        """While this changes, something more may follow."""
        machine, council = self.coordinator.machine, self.replicas
        return self.consumer.next_out, machine.next, council.committed, self.outbound.sent_count

    def _busy(self) -> bool:
        return (
            self.outbound.busy()
            or self.known_next > self.consumer.next_out
            or bool(self.producer.flights)
            or self.producer.asking
            or (self.leads and self.coordinator.busy())
            or self.machine.state is LEAVING
            or bool(self.outbound.held)
        )

    # -- headers and packets ---------------------------------------------------------------------

    def header_bytes(self, base: int = 0) -> bytes:
        """[MTP 3.3] What every packet begins with. The statuses are of the messages before `base`:
        the data packet's own number, or the next one."""
        base = base or self.known_next
        known = self._headers.get(base)
        if known is None:
            t = self.consumer.t
            bits = bits_of(tuple(self.receiver.status(base - k) for k in range(1, t + 1)))
            pace = self.pace
            known = self._headers[base] = write_header(
                Header(
                    self.key,
                    base,
                    bits,
                    self.known_next,
                    self.receiver.taken(),
                    pace.heartbeat_us,
                    pace.window,
                    min(255, pace.retention),
                    t,
                )
            )
        return known

    def to_master(self, kind: PacketKind, body: bytes, out: list[Effect]) -> None:
        if self.master is not None:
            out.append(Send((self.master.address,), [self.codec.seal(kind, body)]))

    # -- time --------------------------------------------------------------------------------------

    def heartbeat(self, out: list[Effect]) -> None:
        """The window opens again; what is not settled is advertised, asked for and said again."""
        self._beating = False
        self.quiet = min(self.quiet + 1, 16)
        self.repair.forget(self.coordinator.stable if self.leads else 0)
        # Deviates [MTP 3.3 empty packets]: not in each heartbeat but at 1, 2, 4 and 8 of quiet and
        # from the sixteenth on, so that a web which only waits is not loud.
        rare = self.quiet & (self.quiet - 1) == 0
        if rare:
            self.send_queue.advertise(out)
            if self.leads and self.coordinator.busy():
                self.coordinator.remind(out)
                self.coordinator.advertise(out)
            self.replicas.insist(out)
        if self.machine.state is LEAVING and self.quiet % 4 == 1:
            self.membership.insist(out)

    def _report_early(self, out: list[Effect]) -> None:
        """Who has taken much says so before the next beat: the master may be waiting for it."""
        if not self.leads and self._must_report():
            self._report(out, Pressure.CALM)

    def _must_report(self) -> bool:
        return self.receiver.taken() >= self._reported + max(1, self.consumer.t // 2)

    def _report(self, out: list[Effect], pressure: Pressure) -> None:
        self._reported = self.receiver.taken()
        suspects = sorted(
            {m.origin for m in self.inbound.incoming.values() if m.tries > 4 and m.origin}
        )[:16]
        # Deviates [MTP 4]: a consumer tells the master, which sets the pace of all; in the paper, a
        # producer.
        body = Report(NO_HEADER, pressure, tuple(suspects)).body(self.header_bytes())
        self.to_master(PacketKind.REPORT, body, out)

    def beat(self, out: list[Effect]) -> None:
        """Nobody is silent for longer than this."""
        out.append(Arm(Timer.BEAT, self.parameters.beat_us))
        inside = self.machine.state in INSIDE
        if self.replicas.rank and self.replicas.count > 1:
            self.replicas.greet(out)
            if self.machine.state in (MEMBER, LEAVING) and self.replicas.may_stand():
                self.replicas.stand(out)
        if not inside:
            if self.replicas.is_stranded():
                self.replicas.abandon()
            return
        if self.leads:
            self.watch.heard_us = self.replicas.heard_us = self.listened_us
            self.coordinator.beat(out)
            self.coordinator.advertise(out)
            self.membership.tidy()
        else:
            self._report(out, self.inbound.pressure(self.congested))
            self._look_for_master(out)
        if self.replicas.count > 1 and (self.replicas.has_ended() or self.replicas.is_forgotten()):
            self.membership.web_ended()
        if self.machine.state is LEAVING:
            self.membership.insist(out)
        self.repair.forget(self.coordinator.stable if self.leads else 0)

    def _look_for_master(self, out: list[Effect]) -> None:
        """A member that the master has left behind gives up; a replica waits for its council."""
        reason = self.watch.look(self.now_us)
        if reason and (self.watch.another_goes_on(self.now_us) or not self.replicas.accepted):
            self.doom(reason)
        elif self.master is not None:
            self.watch.probe(self.master, self.master_key, self.now_us, out)

    def refuse(self, address: Address) -> None:
        """The network says that nobody listens there: perhaps where the master was."""
        if self.master is not None and self.master.address == address:
            if self.watch.refuse(self.master_key, self.now_us):
                self.replicas.heard_us = min(self.replicas.heard_us, self.watch.long_ago_us)
                if self.parameters.masters == 1:
                    self.doom("the master is dead")

    def be_supported(self, packet: Support) -> None:
        """[MTP 5.2] A majority supports us: we take over, and reject what is pending."""
        if self.replicas.supported(packet):
            try:
                self.coordinator.take_over(self.replicas.value)
            except BadPacket:
                self.doom("the council's value is not one")
                return
            self.follow(self.me, self.replicas.ballot)
