"""Incoming packets: which of them count, and what their headers carry."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.core import Cause, Effect
from unisono.parts.admission import Admission
from unisono.parts.codec import PacketCodec
from unisono.protocols.mtp.admission import MasterAdmission
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.fail_stop import FailStop
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.member_watch import MemberWatch
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.packets import (
    Confirm,
    Empty,
    Header,
    LeaveRequest,
    Propose,
    Report,
    StateRequest,
    TokenRequest,
)
from unisono.protocols.mtp.reading import FROM_OUTSIDE, OF_COUNCIL, OfCouncil, Packet, count_of
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.web import Web


@dataclass(eq=False)
class Incoming:
    """Judges each packet by its web and its sender, before the figure sees it."""

    _key: int
    _clock: StepClock
    _codec: PacketCodec
    _terms: Admission
    _web: Web
    _master: MasterWatch
    _ordering: Ordering
    _replicas: Replicas
    _watch: MemberWatch
    _admission: MasterAdmission
    _fail_stop: FailStop

    def admits(self, packet: Packet, inside: bool, out: list[Effect]) -> bool:
        """Whether the packet counts; `inside`: we have joined."""
        if isinstance(packet, FROM_OUTSIDE):
            return True
        header = packet.header
        if header.sender == self._key:
            self._codec.drop("own", count_of(packet))
            return False
        if isinstance(packet, OF_COUNCIL):
            return self._admits_of_replica(packet, inside)
        if self._clock.web != self._codec.life or not inside:
            if isinstance(packet, Confirm) and not inside:
                return True
            if isinstance(packet, Empty) and packet.ballot and inside:
                self._master.hear_foreign()
            self._codec.drop("life", count_of(packet))
            return False
        self._learn(header)
        if self._replicas.leads:
            self._hear_member(packet, header, out)
        return True

    def _admits_of_replica(self, packet: OfCouncil, inside: bool) -> bool:
        replicas, web = self._replicas, self._clock.web
        if not replicas.rank or (replicas.seated and web != replicas.web):
            self._codec.drop("life")
            return False
        if not replicas.seated and not isinstance(packet, Propose):
            self._codec.drop("seat")
            return False
        if not replicas.believes(packet):
            self._codec.drop("ballot")
            return False
        if inside and web == self._codec.life:
            self._learn(packet.header)
            if replicas.leads:
                self._watch.hear(packet.header.sender, packet.header.taken)
        return True

    def _learn(self, header: Header) -> None:
        """Every header carries statuses and the next number; those of masters decide, and the
        master's sets the pace."""
        # Deviates [MTP 3.3]: in the paper the statuses in any member's header count. A member that
        # is broken would have messages skipped or delivered that the master decides otherwise.
        is_master = header.sender == self._master.key
        decides = is_master or header.sender in self._replicas.seats.keys
        if self._ordering.learn(header, decides) and is_master:
            self._master.hear(header)
            if self._replicas.rank:
                self._replicas.hear_coordinator()

    def _hear_member(self, packet: Packet, header: Header, out: list[Effect]) -> None:
        sender = header.sender
        if sender in self._web.members:
            self._watch.hear(sender, header.taken)
        elif isinstance(packet, TokenRequest | Report | LeaveRequest | StateRequest):
            self._admission.turn_away(sender, self._clock.source, out)

    def check_terms(self, inside: bool, out: list[Effect]) -> None:
        """A process with other options sends to our group: it or we must stop."""
        size = len(self._web.members) if inside else 0
        reason = self._terms.look(self._clock.source, self._clock.now_us, size, out)
        if reason:
            self._fail_stop.request(reason, Cause.REFUSED)
