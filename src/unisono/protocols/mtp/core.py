"""The member: takes events, runs its life, and gathers what each burst leads to."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from unisono.core import Arm, Cause, Depart, Disarm, Effect, Event, Fail, Received, Send, Setting
from unisono.errors import BadPacket
from unisono.fsa import Machine
from unisono.model import Address, Member
from unisono.parts.admission import Admission, Terms
from unisono.parts.detector import Detector
from unisono.parts.door import Alike, Door
from unisono.protocols.mtp.agreement import Consumer, Producer
from unisono.protocols.mtp.batch import Said
from unisono.protocols.mtp.chair import Chair
from unisono.protocols.mtp.council import NO_HEADER, Council
from unisono.protocols.mtp.entrance import Entrance
from unisono.protocols.mtp.figure import CATCHING_UP, FIGURE, INSIDE, LEAVING, MEMBER, Life, Timer
from unisono.protocols.mtp.hearing import Hearing
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.mending import Mending
from unisono.protocols.mtp.packets import (
    ALIKE_OCTETS,
    FROM_OUTSIDE,
    KINDS,
    OF_COUNCIL,
    PROTOCOL,
    Confirm,
    Empty,
    Header,
    Kind,
    LeaveRequest,
    OfCouncil,
    Packet,
    Pressure,
    Propose,
    Report,
    StateAsk,
    Support,
    TokenRequest,
    bits_of,
    count_of,
    key_of,
    write_header,
)
from unisono.protocols.mtp.parameters import Parameters, alike
from unisono.protocols.mtp.reading import heard
from unisono.protocols.mtp.speech import Speech
from unisono.protocols.mtp.transport import AHEAD_COUNT_MAX, Inlet, Outlet, Pace
from unisono.protocols.mtp.web import Web


class Mtp:
    """A member of an MTP web: see the README beside this file for the paper."""

    def __init__(self, setting: Setting) -> None:
        self.me = setting.me
        self.key = key_of(setting.me)
        self.packet_octets_max = setting.packet_octets_max
        self.with_state = setting.with_state
        self.parameters = Parameters.of(setting.options)
        self.dice = Random(setting.seed)
        terms = Terms.of(setting, "mtp", alike(setting.options))
        self.door = Door(PROTOCOL, KINDS, terms)
        self.admission = Admission(self.door, terms)
        parameters = self.parameters
        self.silence: Detector[int] = Detector(parameters.detect_us, parameters.beat_us)
        self.silence.watch(self.key, 0)  # So that listening time always passes.
        self.watch = MasterWatch(parameters, self.silence)
        self.pace = Pace(parameters.heartbeat_us, parameters.window, parameters.retention)
        self.consumer = Consumer(parameters.tokens)
        self.producer: Producer[Said] = Producer()
        self.outlet = Outlet(self.door, self.pace, parameters.dally, self.header_octets)
        self.inlet = Inlet(self.door, self.pace, parameters.dally, self.dice)
        self.web = Web()
        self.hearing = Hearing(self)
        self.speech = Speech(self, setting)
        self.mending = Mending(self)
        self.council = Council(self, self.hearing.holds)
        self.chair = Chair(self)
        self.entrance = Entrance(self, setting.with_state)
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
        return self.door.counts

    @property
    def leads(self) -> bool:
        return self.council.leads

    def room(self) -> int:
        """While the application cannot take more, it may not say more: it would hear it too."""
        if self.machine.state is not MEMBER or self.congested:
            return 0
        return self.speech.room()

    def held(self) -> Mapping[Member, int]:
        """What was delivered; what waits for its status may never count."""
        upto, members = self.web.upto, self.web.members
        return {members[key]: number for key, number in upto.items() if key in members}

    def walked(self) -> Mapping[str, int]:
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
            for opened in self.door.admit_alike(event.packets, ALIKE_OCTETS):
                self.incoming_life = (opened.first if isinstance(opened, Alike) else opened).life
                for packet in heard(opened, self.door.drop):
                    if self._is_right(packet, out):
                        self.machine.fire(packet, out)
            if self.door.odd:
                self.entrance.look(out)
        else:
            self.machine.fire(event, out)
        if self.machine.state in INSIDE:
            self._conclude(event, out)
        elif self.machine.state is Life.JOINING:
            self.council.settle(out)
            self.machine.settle(event, out)
            if self.machine.state in INSIDE:
                self._conclude(event, out)
        return out

    def start(self, out: list[Effect]) -> None:
        """We are in."""
        self.watch.begin()
        out.append(Arm(Timer.BEAT, self.parameters.beat_us))

    def stop(self, reason: str, out: list[Effect], known: int = 0) -> None:
        self._end(out)
        out.append(Fail(reason, self.cause, known))

    def depart(self, out: list[Effect]) -> None:
        if self.machine.state is CATCHING_UP:
            self.to_master(Kind.LEAVE, LeaveRequest(NO_HEADER).body(self.header_octets()), out)
        if self.council.seated:
            self.council.abandon()
            self.council.greet(out)
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
            self.door.drop("own", count_of(packet))
            return False
        if isinstance(packet, OF_COUNCIL):
            return self._is_right_in_council(packet, self.incoming_life)
        inside = self.machine.state in INSIDE
        if self.incoming_life != self.door.life or not inside:
            if isinstance(packet, Confirm) and not inside:
                return True
            if isinstance(packet, Empty) and packet.ballot and inside:
                self.watch.foreign_us = self.now_us
            self.door.drop("life", count_of(packet))
            return False
        self._hear(packet.header)
        if self.leads:
            self._hear_member(packet, out)
        return True

    def _is_right_in_council(self, packet: OfCouncil, life: int) -> bool:
        if not self.council.rank or (self.council.seated and life != self.council.web):
            self.door.drop("life")
            return False
        if not self.council.seated and not isinstance(packet, Propose):
            self.door.drop("seat")
            return False
        if life == self.door.life and self.machine.state in INSIDE:
            self._hear(packet.header)
            if self.leads:
                self.chair.hear(packet.header.sender, packet.header.taken)
        return True

    def _hear(self, header: Header) -> None:
        """Every header tells statuses and the next number; the master's sets the pace."""
        if header.base > self.consumer.next_out + AHEAD_COUNT_MAX:
            self.door.drop("window")
            return
        base = header.base
        if base > self.consumer.next_out or base > self.consumer.next_in:
            if self.consumer.learn(base, header.last):
                self.news = True
                self._headers.clear()
        self.know(max(header.next, base))
        if header.sender == self.master_key:
            self.watch.heard_us = self.council.heard_us = self.listened_us
            self.pace.adopt(header)

    def _hear_member(self, packet: Packet, out: list[Effect]) -> None:
        assert not isinstance(packet, FROM_OUTSIDE)
        sender = packet.header.sender
        if sender in self.web.members:
            self.chair.hear(sender, packet.header.taken)
        elif isinstance(packet, TokenRequest | Report | LeaveRequest | StateAsk):
            self.chair.usher.turn_away(sender, self.source, out)

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
                self.speech.asked_us = -self.parameters.beat_us
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
        if self.machine.state in INSIDE and (self.outlet.busy() or not self._beating):
            if self._busy():
                self._beating = True
                out.append(Arm(Timer.HEARTBEAT, self.outlet.wait_us(self.now_us)))

    def _is_idle(self) -> bool:
        """A consumer that has all there is, with nothing to say or decide: nothing follows."""
        if self.known_next > self.consumer.next_out or self.machine.state is not MEMBER:
            return False
        if self.council.leads:
            works = self.news or not self.chair.is_idle()
        else:
            works = self._must_report()
        works = works or self.speech.unsaid() or self.outlet.busy() or self.council.owes()
        return not works and not self.hearing.more and self.verdict is None

    def _work(self, event: Event, out: list[Effect]) -> None:
        self.hearing.more = False
        for _ in range(64):
            before = self._progress()
            self.speech.settle()
            self.speech.request(out)
            if self.leads:
                self.chair.conclude(out)
            self.hearing.deliver(out)
            self.outlet.pump(self.now_us, out)
            if self._progress() == before:
                break
        self.council.settle(out)
        if self.leads and self.news:
            self.chair.advertise(out)
        self.news = False
        self._report_early(out)
        self.mending.ask(out)
        if self.machine.state is LEAVING:
            self.entrance.linger()
        if self.hearing.more:
            out.append(Arm(Timer.MORE, 0))
        self.machine.settle(event, out)

    def _progress(self) -> tuple[int, int, int, int]:
        """While this changes, something more may follow."""
        machine, council = self.chair.machine, self.council
        return self.consumer.next_out, machine.next, council.committed, self.outlet.sent_count

    def _busy(self) -> bool:
        return (
            self.outlet.busy()
            or self.known_next > self.consumer.next_out
            or bool(self.producer.flights)
            or self.producer.asking
            or (self.leads and self.chair.busy())
            or self.machine.state is LEAVING
            or bool(self.outlet.held)
        )

    # -- headers and packets ---------------------------------------------------------------------

    def header_octets(self, base: int = 0) -> bytes:
        """[MTP 3.3] What every packet begins with. The statuses are of the messages before `base`:
        the data packet's own number, or the next one."""
        base = base or self.known_next
        known = self._headers.get(base)
        if known is None:
            t = self.consumer.t
            bits = bits_of(tuple(self.hearing.status(base - k) for k in range(1, t + 1)))
            pace = self.pace
            known = self._headers[base] = write_header(
                Header(
                    self.key,
                    base,
                    bits,
                    self.known_next,
                    self.hearing.taken(),
                    pace.heartbeat_us,
                    pace.window,
                    min(255, pace.retention),
                    t,
                )
            )
        return known

    def to_master(self, kind: Kind, body: bytes, out: list[Effect]) -> None:
        if self.master is not None:
            out.append(Send((self.master.address,), [self.door.seal(kind, body)]))

    # -- time --------------------------------------------------------------------------------------

    def heartbeat(self, out: list[Effect]) -> None:
        """The window opens again; what is not settled is advertised, asked for and said again."""
        self._beating = False
        self.quiet = min(self.quiet + 1, 16)
        self.mending.forget(self.chair.stable if self.leads else 0)
        # Deviates [MTP 3.3 empty packets]: not in each heartbeat but at 1, 2, 4 and 8 of quiet and
        # from the sixteenth on, so that a web which only waits is not loud.
        rare = self.quiet & (self.quiet - 1) == 0
        if rare:
            self.speech.advertise(out)
            if self.leads and self.chair.busy():
                self.chair.remind(out)
                self.chair.advertise(out)
            self.council.insist(out)
        if self.machine.state is LEAVING and self.quiet % 4 == 1:
            self.entrance.insist(out)

    def _report_early(self, out: list[Effect]) -> None:
        """Who has taken much says so before the next beat: the master may be waiting for it."""
        if not self.leads and self._must_report():
            self._report(out, Pressure.CALM)

    def _must_report(self) -> bool:
        return self.hearing.taken() >= self._reported + max(1, self.consumer.t // 2)

    def _report(self, out: list[Effect], pressure: Pressure) -> None:
        self._reported = self.hearing.taken()
        suspects = sorted(
            {m.origin for m in self.inlet.incoming.values() if m.tries > 4 and m.origin}
        )[:16]
        # Deviates [MTP 4]: a consumer tells the master, which sets the pace of all; in the paper, a
        # producer.
        body = Report(NO_HEADER, pressure, tuple(suspects)).body(self.header_octets())
        self.to_master(Kind.REPORT, body, out)

    def beat(self, out: list[Effect]) -> None:
        """Nobody is silent for longer than this."""
        out.append(Arm(Timer.BEAT, self.parameters.beat_us))
        inside = self.machine.state in INSIDE
        if self.council.rank and self.council.count > 1:
            self.council.greet(out)
            if self.machine.state in (MEMBER, LEAVING) and self.council.may_stand():
                self.council.stand(out)
        if not inside:
            if self.council.is_stranded():
                self.council.abandon()
            return
        if self.leads:
            self.watch.heard_us = self.council.heard_us = self.listened_us
            self.chair.beat(out)
            self.chair.advertise(out)
            self.entrance.tidy()
        else:
            self._report(out, self.inlet.pressure(self.congested))
            self._look_for_master(out)
        if self.council.count > 1 and (self.council.has_ended() or self.council.is_forgotten()):
            self.entrance.web_ended()
        if self.machine.state is LEAVING:
            self.entrance.insist(out)
        self.mending.forget(self.chair.stable if self.leads else 0)

    def _look_for_master(self, out: list[Effect]) -> None:
        """A member that the master has left behind gives up; a replica waits for its council."""
        reason = self.watch.look(self.now_us)
        if reason and (self.watch.another_goes_on(self.now_us) or not self.council.accepted):
            self.doom(reason)
        elif self.master is not None:
            self.watch.probe(self.master, self.master_key, self.now_us, out)

    def refuse(self, address: Address) -> None:
        """The network says that nobody listens there: perhaps where the master was."""
        if self.master is not None and self.master.address == address:
            if self.watch.refuse(self.master_key, self.now_us):
                self.council.heard_us = min(self.council.heard_us, self.watch.long_ago_us)
                if self.parameters.masters == 1:
                    self.doom("the master is dead")

    def be_supported(self, packet: Support) -> None:
        """[MTP 5.2] A majority supports us: we take over, and reject what is pending."""
        if self.council.supported(packet):
            try:
                self.chair.take_over(self.council.value)
            except BadPacket:
                self.doom("the council's value is not one")
                return
            self.follow(self.me, self.council.ballot)
