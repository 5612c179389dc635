"""What a member does as time passes: advertises, reports, and watches the master."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Arm, Effect, Expired, Unreachable
from unisono.protocols.mtp.admission import MasterAdmission
from unisono.protocols.mtp.agreement import Consumer
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.coordinator import Coordinator
from unisono.protocols.mtp.fail_stop import FailStop
from unisono.protocols.mtp.leaving import Leaver
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.member_watch import MemberWatch
from unisono.protocols.mtp.message_receiver import MessageReceiver
from unisono.protocols.mtp.message_sender import MessageSender
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.packet_writer import NO_HEADER, PacketWriter
from unisono.protocols.mtp.packets import PacketKind, Pressure, Report
from unisono.protocols.mtp.parameters import Parameters
from unisono.protocols.mtp.repair import Repair
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.send_queue import SendQueue
from unisono.protocols.mtp.state import StateSource
from unisono.protocols.mtp.states import Timer

QUIET_MAX: Final = 16
SUSPECT_TRIES: Final = 4
"""A producer that left this many NAKs unanswered is suspected."""
SUSPECTS_MAX: Final = 16


@dataclass(eq=False)
class Heartbeat:
    """The two periods of a member: the paper's heartbeat, and the longest silence."""

    _parameters: Parameters
    _clock: StepClock
    _consumer: Consumer
    _master: MasterWatch
    _ordering: Ordering
    _outbound: MessageSender
    _inbound: MessageReceiver
    _packets: PacketWriter
    _send_queue: SendQueue
    _repair: Repair
    _replicas: Replicas
    _watch: MemberWatch
    _admission: MasterAdmission
    _coordinator: Coordinator
    _source: StateSource
    _leaving: Leaver
    _fail_stop: FailStop

    def __post_init__(self) -> None:
        self._armed = False
        self._quiet = 0
        """Heartbeats since the order last advanced."""
        self._progress = (0, 0)
        self.report_at = 1 + max(1, self._consumer.t // 2)
        """A report is due when all messages below this number are taken."""

    # -- the heartbeat -----------------------------------------------------------------------------

    def arm(self, out: list[Effect]) -> None:
        """While something is not settled, the heart beats."""
        busy = self._outbound.is_busy()
        if busy or (not self._armed and self._is_needed()):
            self._armed = True
            out.append(Arm(Timer.HEARTBEAT, self._outbound.wait_us(self._clock.now_us)))

    def _is_needed(self) -> bool:
        return (
            self._ordering.known_next > self._consumer.next_out
            or self._send_queue.is_unsettled()
            or (self._replicas.leads and self._coordinator.is_busy())
            or self._leaving.active
            or bool(self._outbound.held)
        )

    def heartbeat(self, event: Expired, out: list[Effect]) -> None:
        """The window opens again; what is not settled is advertised, requested and sent again."""
        self._armed = False
        progress = self._consumer.next_out, self._ordering.known_next
        if progress != self._progress:
            self._progress, self._quiet = progress, 0
        self._quiet = min(self._quiet + 1, QUIET_MAX)
        leads = self._replicas.leads
        self._repair.forget(self._watch.stable if leads else 0)
        # Deviates [MTP 3.3 empty packets]: not in each heartbeat but at 1, 2, 4 and 8 of quiet and
        # from the sixteenth on, so that a web which only waits sends little.
        if self._quiet & (self._quiet - 1) == 0:
            self._send_queue.advertise(out)
            if leads and self._coordinator.is_busy():
                self._coordinator.remind(out)
                self._coordinator.advertise(out)
            self._replicas.insist(out)
        if self._leaving.active and self._quiet % 4 == 1:
            self._leaving.insist(out)

    # -- the beat ----------------------------------------------------------------------------------

    def beat_outside(self, event: Expired, out: list[Effect]) -> None:
        """A joining replica greets the others, and forgets a web without a coordinator."""
        self._greet(out)
        if self._replicas.is_stranded():
            self._replicas.abandon()

    def beat(self, event: Expired, out: list[Effect]) -> None:
        """Report or advertise, look for failures, and take over from a silent coordinator."""
        replicas = self._replicas
        self._greet(out)
        if replicas.count > 1 and not self._ordering.spooling and replicas.may_stand():
            replicas.stand(out)
        if replicas.leads:
            self._master.lead()
            replicas.hear_coordinator()
            self._coordinator.beat(out)
            self._coordinator.advertise(out)
            self._source.tidy()
        else:
            self.report(out, self._inbound.pressure(self._ordering.congested))
            self._look_for_master(out)
        if replicas.count > 1 and (replicas.has_ended() or replicas.is_forgotten()):
            self._leaving.end_with_web()
        if self._leaving.active:
            self._leaving.insist(out)
        self._repair.forget(self._watch.stable if replicas.leads else 0)

    def _greet(self, out: list[Effect]) -> None:
        out.append(Arm(Timer.BEAT, self._parameters.beat_us))
        if self._replicas.count > 1:
            self._replicas.greet(out)

    def _look_for_master(self, out: list[Effect]) -> None:
        """A member that lost the master gives up; a replica waits for the other replicas."""
        reason = self._master.failure()
        if reason and (self._master.another_goes_on() or not self._replicas.accepted):
            self._fail_stop.request(reason)
        else:
            self._master.probe(out)

    def doubt(self, event: Unreachable, out: list[Effect]) -> None:
        """The network reports that no process listens at the address."""
        if self._replicas.leads:
            self._admission.fail_refused(event.address)
        elif self._master.is_refused(event.address):
            self._replicas.doubt_coordinator(self._master.long_ago_us)
            if self._parameters.masters == 1:
                self._fail_stop.request("the master is dead")

    # -- reports -----------------------------------------------------------------------------------

    def report(self, out: list[Effect], pressure: Pressure = Pressure.CALM) -> None:
        """Report to the master what we have; it may be waiting for it."""
        self.report_at = self._ordering.taken() + max(1, self._consumer.t // 2)
        incoming = self._inbound.incoming.values()
        suspects = {m.origin for m in incoming if m.tries > SUSPECT_TRIES and m.origin}
        # Deviates [MTP 4]: a consumer reports to the master, which sets the pace of all; in the
        # paper, to a producer.
        packet = Report(NO_HEADER, pressure, tuple(sorted(suspects)[:SUSPECTS_MAX]))
        self._packets.send_to_master(PacketKind.REPORT, packet, out)
