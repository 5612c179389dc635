"""Leaving the web, and ending it."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.core import Arm, Depart, Effect, Leave
from unisono.protocols.mtp.admission import MasterAdmission
from unisono.protocols.mtp.agreement import ACCEPTED, Consumer
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.coordinator import Coordinator
from unisono.protocols.mtp.fail_stop import FailStop, disarm_all
from unisono.protocols.mtp.member_watch import MemberWatch
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.packet_writer import NO_HEADER, PacketWriter
from unisono.protocols.mtp.packets import LeaveRequest, PacketKind
from unisono.protocols.mtp.parameters import Parameters
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.send_queue import SendQueue
from unisono.protocols.mtp.states import Timer
from unisono.protocols.mtp.token_master import TokenMaster


@dataclass(eq=False)
class Leaver:
    """How this member leaves: once its messages are settled, by a change in the order."""

    _parameters: Parameters
    _clock: StepClock
    _consumer: Consumer
    _ordering: Ordering
    _packets: PacketWriter
    _replicas: Replicas
    _tokens: TokenMaster
    _watch: MemberWatch
    _admission: MasterAdmission
    _coordinator: Coordinator
    _send_queue: SendQueue
    _fail_stop: FailStop

    def __post_init__(self) -> None:
        self.active = False
        """The application has asked to leave."""
        self._out = False
        """Our leave has been delivered."""
        self._left_at = 0
        self._leave_us = 0
        self._linger_us = 0
        self._waited = False

    def leave(self, event: Leave, out: list[Effect]) -> None:
        """[MTP 3.1] A member asks the master; a lone master ends its web."""
        self.active = True
        self._leave_us = self._clock.now_us
        out.append(Arm(Timer.LEAVE, self._parameters.lost_us))
        self.insist(out)

    def is_out(self, event: object) -> bool:
        return self._out

    def depart(self, event: object, out: list[Effect]) -> None:
        """The clean end; a joiner that is admitted already notifies the master."""
        if self._ordering.spooling:
            self._packets.send_to_master(PacketKind.LEAVE, LeaveRequest(NO_HEADER), out)
        if self._replicas.seated:
            self._replicas.abandon()
            self._replicas.greet(out)
        disarm_all(out)
        out.append(Depart())

    def insist(self, out: list[Effect]) -> None:
        """Once all our messages are settled, ask to be removed."""
        if self._out or self._left_at or self._send_queue.is_unsettled():
            return
        if not self._replicas.leads:
            self._packets.send_to_master(PacketKind.LEAVE, LeaveRequest(NO_HEADER), out)
        # Deviates [MTP 3.1]: one of several masters leaves as members do, and the web stays.
        elif self._replicas.count == 1:
            late = self._clock.now_us - self._leave_us > self._parameters.lost_us
            self._admission.end_web(self._tokens.all_have_all() or late)
        elif self._tokens.ready and not self._watch.members:
            # The other masters have left, so there is no majority to ask.
            self._out = self._has_delivered_all()
        else:
            self._admission.leave()

    def _has_delivered_all(self) -> bool:
        """No accepted message waits for a slow reader."""
        return ACCEPTED not in self._consumer.status.values()

    def finish(self, number: int, ends: bool) -> None:
        """Our leave, or the end of the web, is delivered."""
        self._left_at = number
        self._out = not self._replicas.leads or not self._watch.members
        self._coordinator.close()
        self._linger_us = self._clock.now_us + self._parameters.beat_us * (2 if ends else 8)

    def linger(self) -> None:
        """A master goes once the others have all messages, or will not get them."""
        if self._left_at and not self._out:
            self._out = self._tokens.all_have_all() or self._clock.now_us > self._linger_us

    def end_with_web(self) -> None:
        """No majority of the masters remembers the web any more, nor ever will."""
        if self.active and not self._send_queue.is_unsettled():
            self._out = self._has_delivered_all()
        else:
            self._fail_stop.request("too few of the web's masters are left to decide anything")

    def go_unanswered(self, event: object, out: list[Effect]) -> None:
        if self._replicas.leads and not self._waited:
            self._waited = True
            out.append(Arm(Timer.LEAVE, self._parameters.lost_us))
        else:
            self._fail_stop.request("left before the master had let this member out")
