"""The coordinator of the master replicas: has decisions committed, then shows them to the web."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from unisono.core import EVERYONE, Effect
from unisono.errors import BadPacket
from unisono.model import Address, Member
from unisono.protocols.mtp.admission import MasterAdmission
from unisono.protocols.mtp.agreement import MessageStatus, SendToken
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.decision import TAIL, value_of
from unisono.protocols.mtp.fail_stop import FailStop
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.member_watch import MemberWatch
from unisono.protocols.mtp.message_receiver import MessageReceiver
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packet_writer import NO_HEADER, PacketWriter
from unisono.protocols.mtp.packets import (
    Empty,
    Grant,
    PacketKind,
    Pressure,
    Support,
    TokenRequest,
    granted_to,
    key_of,
)
from unisono.protocols.mtp.parameters import Parameters
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.send_queue import SendQueue
from unisono.protocols.mtp.token_master import TokenMaster
from unisono.protocols.mtp.web import Web

ADDRESSES_MAX: Final = 16
"""More members than this are reached by the multicast address, even with `unicast=1`."""


@dataclass(slots=True)
class Visible:
    """What may be seen once a version is committed."""

    version: int
    next: int
    last: tuple[MessageStatus, ...]
    grants: list[tuple[int, SendToken]] = field(default_factory=list)


@dataclass(eq=False)
class Coordinator:
    """Active at one replica at a time; the others only follow."""

    _me: Member
    _parameters: Parameters
    _clock: StepClock
    _pace: Pacing
    _web: Web
    _master: MasterWatch
    _ordering: Ordering
    _inbound: MessageReceiver
    _packets: PacketWriter
    _send_queue: SendQueue
    _replicas: Replicas
    _tokens: TokenMaster
    _watch: MemberWatch
    _admission: MasterAdmission
    _fail_stop: FailStop

    def __post_init__(self) -> None:
        self._key = key_of(self._me)
        self._closed = False
        """We have left, or ended the web: nothing more is decided."""
        self._visible: deque[Visible] = deque()
        self._shown = 0
        """Numbers below this are committed."""
        self._proposed: tuple[int, int] | None = None
        """The progress of the tokens when a value was last proposed."""
        self._began_us = 0
        """When we took over, in listening time."""

    # -- taking over -------------------------------------------------------------------------------

    def found(self) -> bytes:
        """A new web: returns the first value."""
        self._tokens.found()
        self._begin()
        self._proposed = self._tokens.progress()
        return value_of(self._tokens.machine)

    def take_support(self, packet: Support, out: list[Effect]) -> None:
        """[MTP 5.2] With a majority's support we take over, and reject what is pending."""
        if not self._replicas.take_support(packet):
            return
        try:
            self._tokens.take_over(self._replicas.value)
        except BadPacket:
            self._fail_stop.request("the replicas hold a malformed value")
            return
        self._begin()
        self._packets.count("take_over")
        self._master.follow(self._me, self._replicas.ballot)

    def _begin(self) -> None:
        self._admission.begin()
        self._visible.clear()
        self._shown = 0
        self._proposed = None
        self._began_us = self._clock.listened_us
        self._closed = False

    def close(self) -> None:
        self._closed = True

    # -- after each burst --------------------------------------------------------------------------

    def conclude(self, out: list[Effect]) -> None:
        """Accept, change, grant, propose, and show what is committed."""
        tokens = self._tokens
        if wanted := self._send_queue.wanted():
            tokens.want(*wanted)
        if not self._visible:
            tokens.get_ready()
        if tokens.ready and not self._closed:
            tokens.accept()
            self._admission.begin_change()
            if not self._admission.holding:
                tokens.grant(self._admission.is_going)
        self._propose(out)
        self._show(out)

    def _propose(self, out: list[Effect]) -> None:
        tokens, progress = self._tokens, self._tokens.progress()
        if self._proposed == progress:
            return
        self._proposed = progress
        machine, replicas = tokens.machine, self._replicas
        replicas.propose(value_of(machine), out)
        grants, last = tokens.take_granted(), machine.last(TAIL)
        self._visible.append(Visible(replicas.version, machine.next, last, grants))

    def _show(self, out: list[Effect]) -> None:
        while self._visible and self._visible[0].version <= self._replicas.committed:
            seen = self._visible.popleft()
            self._shown = seen.next
            self._ordering.decide(seen.next, seen.last)
            for key, token in seen.grants:
                if key != self._key:
                    self._send_grant(key, token.number, out)
                elif token.number == self._admission.number:
                    assert self._admission.change is not None
                    self._send_queue.send_content(token.number, self._admission.change, ())
                else:
                    self._send_queue.granted(token, self._addresses())

    def take_request(self, packet: TokenRequest, out: list[Effect]) -> None:
        """[MTP 3.2] A member requests a token. A repeated request is granted the same one."""
        if self._replicas.leads:
            key = packet.header.sender
            if number := self._tokens.request(key, packet):
                self._send_grant(key, number, out)

    def _send_grant(self, key: int, number: int, out: list[Effect]) -> None:
        """[MTP 3.2] The number, where to send, and the last t statuses."""
        member = self._web.members.get(key)
        watched = self._watch.members.get(key)
        if member is None or watched is None or number >= self._shown:
            return
        request = granted_to(key, watched.request)
        packet = Grant(NO_HEADER, request, number, self._addresses())
        self._packets.send(PacketKind.GRANT, packet, (member.address,), out, base=number)

    def _addresses(self) -> tuple[Address, ...]:
        """Those of the members, where that is configured and they fit into a packet."""
        members = self._web.members
        if not self._parameters.unicast or len(members) > ADDRESSES_MAX:
            return ()
        return tuple(member.address for member in members.values())

    # -- time --------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Nothing is requested or pending, and all decisions are shown."""
        tokens = self._tokens
        if tokens.machine.holder or tokens.requests or self._visible or not tokens.ready:
            return False
        return not self._admission.is_due() and self._proposed == tokens.progress()

    def is_busy(self) -> bool:
        """Something is not settled, not committed, or not at every member."""
        tokens = self._tokens
        unsettled = tokens.machine.holder or self._visible or tokens.requests
        return bool(unsettled or self._admission.change) or not tokens.all_have_all()

    def remind(self, out: list[Effect]) -> None:
        """Send again the grants whose holders have not sent anything."""
        for number, key in sorted(self._tokens.machine.holder.items()):
            watched = self._watch.members.get(key)
            if watched is not None and watched.token == number:
                if number not in self._inbound.incoming:
                    self._send_grant(key, number, out)

    def advertise(self, out: list[Effect]) -> None:
        """[MTP 3.3] An empty packet: the statuses, the next number, and the master's identity."""
        stable, ballot = self._watch.advance_stable(), self._replicas.ballot
        packet = Empty(NO_HEADER, 0, 0, False, ballot, stable, self._me)
        self._packets.send(PacketKind.EMPTY, packet, EVERYONE, out)

    def beat(self, out: list[Effect]) -> None:
        """Look for failures, and set the pace."""
        if self._tokens.ready:
            self._admission.fail_silent(out)
        elif self._visible or self._ordering.congested:
            self._began_us = self._clock.listened_us  # It is not data that we wait for.
        elif self._clock.listened_us - self._began_us > self._parameters.lost_us:
            self._fail_stop.request("what the last master accepted cannot be had")
        self._set_pace()

    def _set_pace(self) -> None:
        """[MTP 4] Consumers in need move it towards safety at once; else it drifts towards speed.
        [MTP 5.1] So does the number of tokens."""
        own = self._inbound.pressure(self._ordering.congested)
        worst, machine = max(self._watch.pressure(), own), self._tokens.machine
        self._pace.adapt(worst, self._parameters)
        if worst is not Pressure.CALM:
            machine.allow(machine.t_cur - 1)
        elif self._tokens.requests:
            machine.allow(machine.t_cur + 1)
