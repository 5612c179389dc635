"""Joining a web, or founding one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from unisono.core import (
    EVERYONE,
    Adopt,
    Arm,
    Cause,
    Checkpoint,
    Effect,
    Expired,
    Install,
    Join,
    Leave,
    Restart,
    Send,
)
from unisono.errors import BadPacket
from unisono.layout import encode
from unisono.model import Member
from unisono.parts.admission import Admission
from unisono.parts.codec import PacketCodec
from unisono.protocols.mtp.agreement import Consumer
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.coordinator import Coordinator
from unisono.protocols.mtp.fail_stop import FailStop
from unisono.protocols.mtp.leaving import Leaver
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packets import (
    Confirm,
    JoinRequest,
    PacketKind,
    Refuse,
    key_of,
)
from unisono.protocols.mtp.parameters import Parameters
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.state import StateTaker
from unisono.protocols.mtp.states import Timer
from unisono.protocols.mtp.web import Web
from unisono.wire import NO_LIFE

REFUSALS_MAX: Final = 64
WEB_BYTES: Final = 8


@dataclass(eq=False)
class Joiner:
    """How this member becomes one."""

    _me: Member
    _with_state: bool
    _parameters: Parameters
    _dice: Random
    _clock: StepClock
    _codec: PacketCodec
    _terms: Admission
    _web: Web
    _consumer: Consumer
    _ordering: Ordering
    _pace: Pacing
    _master: MasterWatch
    _replicas: Replicas
    _coordinator: Coordinator
    _taker: StateTaker
    _leaving: Leaver
    _fail_stop: FailStop

    def __post_init__(self) -> None:
        self._key = key_of(self._me)
        self._former = NO_LIFE
        """The web of a former incarnation of this process."""
        self._since_us = 0
        self._refusals = 0

    def remember(self, event: Restart, out: list[Effect]) -> None:
        """[MTP 3.4] A process that rejoins can tell whether it is the same web."""
        records = event.stable
        if records and len(records[-1]) == WEB_BYTES:
            self._former = int.from_bytes(records[-1], "big")

    # -- the request -------------------------------------------------------------------------------

    def ask_to_join(self, event: Join | Expired, out: list[Effect]) -> None:
        seek_us = self._parameters.beat_us // 2
        if isinstance(event, Join):
            self._since_us = self._clock.now_us
            if self._replicas.rank:
                out.append(Arm(Timer.BEAT, self._parameters.beat_us))
        out.append(Arm(Timer.JOIN, seek_us + self._dice.randrange(seek_us // 4 + 1)))
        self._request(out)
        self._replicas.greet(out)
        self._maybe_found(out)

    def _request(self, out: list[Effect], withdrawn: bool = False) -> None:
        body = encode(JoinRequest(self._me, self._with_state, withdrawn))
        if self._replicas.count > 1 or not self._replicas.rank:
            out.append(Send(EVERYONE, [self._codec.seal(PacketKind.JOIN, body, life=NO_LIFE)]))

    def withdraw(self, event: Leave, out: list[Effect]) -> None:
        """Give up; the master that has admitted us meanwhile need not wait for us."""
        self._request(out, withdrawn=True)
        self._leaving.depart(event, out)

    def is_refused(self, packet: Refuse) -> bool:
        last = packet.final or self._refusals + 1 >= REFUSALS_MAX
        return last and packet.key == self._key

    def stay_out(self, packet: Refuse, out: list[Effect]) -> None:
        """Refused for now."""
        self._refusals += packet.key == self._key

    def is_outdated(self, packet: Refuse) -> bool:
        """A replica that knows a higher incarnation of ours ignores this one, which never counts.
        The master that admitted it may not have known."""
        return packet.key == self._key and packet.known > self._me.incarnation

    def give_up(self, packet: Refuse, out: list[Effect]) -> None:
        cause = Cause.SUPERSEDED if packet.known else Cause.REFUSED
        self._fail_stop.request(packet.reason, cause, packet.known)
        self._fail_stop.stop(packet, out)

    # -- founding ----------------------------------------------------------------------------------

    def _maybe_found(self, out: list[Effect]) -> None:
        """[MTP 3.4] Only a process configured as a master founds a web; none elects itself."""
        replicas, now_us = self._replicas, self._clock.now_us
        other = replicas.taken_by
        if other is not None:
            reason = f"master={replicas.rank} is {other} at {other.address} already"
            self._fail_stop.request(reason, Cause.REFUSED)
            return
        waited_us = now_us - self._since_us
        if replicas.leads and waited_us > self._parameters.detect_us:
            replicas.abandon()
            self._since_us = now_us
        if waited_us >= 2 * self._parameters.beat_us and replicas.may_found():
            value = self._coordinator.found()
            replicas.found(self._dice.getrandbits(63) | 1, value, out)

    def has_founded(self, event: object) -> bool:
        return self._replicas.leads and self._replicas.committed > 0

    def open_web(self, event: object, out: list[Effect]) -> None:
        """We are the master of a new web."""
        web = self._replicas.web
        self._codec.enter(web)
        self._master.follow(self._me, self._replicas.ballot)
        self._ordering.start()
        out.append(Checkpoint(web.to_bytes(WEB_BYTES, "big")))
        out.append(Install(self._web.found(web, self._me, self._detail("founded the web"))))
        self._start(out)
        self._coordinator.advertise(out)

    def _detail(self, otherwise: str) -> str:
        if self._former == NO_LIFE:
            return otherwise
        same = self._former == self._codec.life
        return "the same web as before" if same else "another web than before"

    def _start(self, out: list[Effect]) -> None:
        self._terms.entered(self._clock.now_us)
        out.append(Arm(Timer.BEAT, self._parameters.beat_us))

    # -- admission ---------------------------------------------------------------------------------

    def is_for_me(self, packet: Confirm) -> bool:
        return packet.key == self._key

    def enter(self, packet: Confirm, out: list[Effect]) -> None:
        """[MTP 3.4] Confirmed: all messages after the view at `first` are for us."""
        web = self._clock.web
        self._codec.enter(web)
        if self._replicas.web != web:
            self._replicas.abandon()
        self._ordering.start_at(packet.first + 1, packet.header)
        self._master.follow(packet.master, packet.ballot)
        self._pace.adopt(packet.header)
        out.append(Checkpoint(web.to_bytes(WEB_BYTES, "big")))
        self._start(out)
        self._taker.start(packet.gives_state, out)

    def is_current(self, event: object) -> bool:
        """A replica is in when it holds the replicas' value: from then on it counts."""
        replicas = self._replicas
        return self._taker.is_complete() and (not replicas.rank or replicas.accepted > 0)

    def begin(self, event: object, out: list[Effect]) -> None:
        """Deliver from here on."""
        roster, state = self._taker.take()
        self._ordering.end_spooling()
        try:
            view = self._web.take_over(roster, self._me)
        except BadPacket:
            self._fail_stop.request("the master sent a malformed roster")
            return
        if state is not None:
            out.append(Adopt(state))
        detail = self._detail(f"joined the web at message {self._consumer.next_out - 1}")
        out.append(Install(replace(view, detail=detail)))
